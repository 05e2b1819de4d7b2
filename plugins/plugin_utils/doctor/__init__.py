# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate whether a site can run: controller, inventory, trays, Slurm and Kubernetes.

environment.py, inventory.py and plan_steps.py read the controller, its files and the API server; the others are pure.
"""
