# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of the role dra_driver; tests/unit/plugins/plugin_utils/dra has the phases themselves."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rackscale.nvlink.plugins.action.dra_driver_phase import ActionModule

from .conftest import RunAction


def test_the_role_needs_one_kubeconfig_file(run_action: RunAction) -> None:
    with pytest.raises(AnsibleError, match="dra_driver_kubeconfig: /srv/a:/srv/b names several files, of which Helm"):
        run_action(ActionModule, phase="preflight", kubeconfig="/srv/a:/srv/b")
