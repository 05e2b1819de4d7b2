# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real control plane for the lab: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok.

plane.py starts and ends it; programs.py builds or fetches what it runs; certificates.py, users.py and nodes.py fill it;
driver.py stands in for NVIDIA's DRA driver; chart.py is the driver's chart as the tests have it.
"""

from __future__ import annotations
