# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failure: one disagreement, with its layer, likely cause and remediation. REASONS is the table of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import CATALOGUE

HARDWARE, FABRIC_FILE, DRIVER, CHANNELS, IMEX = "hardware", "fabric_file", "driver", "channels", "imex"
SLURM, TIERS, KUBERNETES = "slurm", "tiers", "kubernetes"
LAYERS = (HARDWARE, FABRIC_FILE, DRIVER, CHANNELS, IMEX, SLURM, TIERS, KUBERNETES)
"""From the lowest up: a fault in one layer often causes failures in those after it."""

Failure = dict[str, Any]
"""code, severity, layer, tray, clique (a name or None), trays (all it is about), message, cause, remediation."""


class Reason(NamedTuple):
    """Layer, likely cause and remediation of a code.

    Placeholders in a remediation: {tray}, {clique}, {file}, {node} (the tray in Slurm) and {kubernetes_node}.
    """

    layer: str
    cause: str
    remediation: str


_DISCOVER = "ansible-playbook rackscale.nvlink.discover -e fabric_file={file}, then accept the proposal as it prints"
_SLURM = "ansible-playbook rackscale.nvlink.slurm -e fabric_file={file} --diff"
_RECONFIGURE = "on the Slurm controller: scontrol reconfigure"
_RUNNING = "what slurmctld schedules with differs from its files, as after scontrol update of a node or partition"
_TIERS = "ansible-playbook rackscale.nvlink.slurm -e fabric_file={file} --tags tiers --diff"
_IMEX = "ansible-playbook rackscale.nvlink.imex -e fabric_file={file} -e imex_hosts=nvlink_clique_{clique}"
# The role starts a clique's stopped daemons together.
_RESTART_IMEX = (
    "when no job runs on clique {clique}: ansible nvlink_clique_{clique} --become -a 'systemctl stop nvidia-imex',"
    f" then {_IMEX}"
)
# The role refuses to start IMEX next to another owner.
_STOP_OTHER = (
    f"stop the owner that is not imex_owner (ansible {{tray}} --become -a 'pgrep -a nvidia-imex'), then {_IMEX}"
)
# A later run without the variable would undo it.
_CHANNEL_0 = f"{_IMEX} -e imex_channels=0, and set it in group_vars/all.yml"
_LINKS = "drain {node}, then on the NVLink switch: nv show interface --view link-diagnostics"
_REBOOT = "scontrol reboot ASAP nextstate=RESUME {node}"
_LABEL = (
    "kubectl -n gpu-operator delete pod -l app=gpu-feature-discovery --field-selector spec.nodeName={kubernetes_node}"
)
# The label leaves out the daemons of ComputeDomains, which jobs use.
_PLUGIN = (
    "kubectl -n dra-driver-nvidia-gpu delete pod -l dra-driver-nvidia-gpu-component=kubelet-plugin"
    " --field-selector spec.nodeName={kubernetes_node}"
)

REASONS: dict[str, Reason] = {
    "tray_unreachable": Reason(
        HARDWARE,
        "the tray is off, or its network or sshd is down",
        "bring it up, then ansible {tray} -m ansible.builtin.ping",
    ),
    "tray_subset_failed": Reason(
        HARDWARE,
        "a part of the tray's operating system is damaged, such as Python or /proc",
        "ansible {tray} -m rackscale.nvlink.fabric_facts -a gather_subset=all -vvv",
    ),
    "gpu_lost": Reason(HARDWARE, "the GPU has fallen off the bus (Xid 79)", _REBOOT),
    "gpu_missing": Reason(HARDWARE, "a GPU no longer enumerates", _REBOOT),
    "driver_missing": Reason(
        DRIVER, "the kernel modules did not load at boot", "ansible {tray} --become -a 'modprobe nvidia'"
    ),
    "library_missing": Reason(
        DRIVER,
        "the driver's packages are installed in part only",
        "install the user-space packages of the driver's version on {tray}",
    ),
    "version_mismatch": Reason(DRIVER, "the driver was upgraded and its old kernel module is still loaded", _REBOOT),
    "no_gpu": Reason(HARDWARE, "the GPUs have no power or fell off the bus", _REBOOT),
    "nvml_timeout": Reason(HARDWARE, "the driver hangs in the kernel", _REBOOT),
    "smi_timeout": Reason(HARDWARE, "the driver hangs in the kernel", _REBOOT),
    "fabric_not_started": Reason(
        HARDWARE,
        "nvidia-persistenced is not running",
        "ansible {tray} --become -a 'systemctl restart nvidia-persistenced'",
    ),
    "fabric_in_progress": Reason(
        HARDWARE,
        "the NMX controller (HGX: nvidia-fabricmanager) does not answer, or the GPU is in no NVLink partition",
        "on the NVLink switch: nv show sdn partition",
    ),
    "fabric_refused": Reason(
        HARDWARE, "the GPU is in no NVLink partition", "on the NVLink switch: nv show sdn partition"
    ),
    "fabric_uuid_zero": Reason(
        HARDWARE,
        "the NMX controller has assigned no cluster UUID to the NVLink domain",
        "on the NVLink switch: nv show cluster apps",
    ),
    "fabric_manager_disconnected": Reason(
        HARDWARE,
        "the NMX controller has stopped, or the switches' management network has failed",
        "on the NVLink switch: nv show cluster apps",
    ),
    "fabric_unhealthy": Reason(
        HARDWARE,
        "links or switches of the rack failed",
        "on the NVLink switch: nv show interface --view link-diagnostics",
    ),
    "nvlink_links_degraded": Reason(HARDWARE, "a cable, port or switch of the rack failed", _LINKS),
    "nvlink_link_recovering": Reason(
        HARDWARE, "a cable, connector or port of that link is failing, and the link may go down", _LINKS
    ),
    "nvlink_xid": Reason(HARDWARE, "a link of the GPU, or of another GPU of its clique, failed", _LINKS),
    "tray_not_attached": Reason(
        HARDWARE, "the GPUs have not joined the NVLink fabric", "ansible {tray} -a 'nvidia-smi -q'"
    ),
    "tray_moved": Reason(
        FABRIC_FILE, "the NVLink partition was changed, or the tray was put into another rack", _DISCOVER
    ),
    "trays_swapped": Reason(FABRIC_FILE, "the two trays, or their host names, were exchanged", _DISCOVER),
    "domain_uuid_changed": Reason(FABRIC_FILE, "the fabric of the NVLink domain was built again", _DISCOVER),
    "clique_id_changed": Reason(FABRIC_FILE, "the NVLink partitions were created again", _DISCOVER),
    "tray_partitions": Reason(
        FABRIC_FILE,
        "the provider of the NVLink partitions gave each idle tray one of its own",
        f"ask the provider, or set fabric_tray_partitions, then {_DISCOVER}",
    ),
    "clique_moved": Reason(FABRIC_FILE, "the NVLink partition or the NMX controller was changed", _DISCOVER),
    "tray_replaced": Reason(FABRIC_FILE, "the tray or its GPUs were replaced", _DISCOVER),
    "acceptance_pending": Reason(FABRIC_FILE, "the tray is new and not yet in the fabric file", _DISCOVER),
    "tray_slot_differs": Reason(FABRIC_FILE, "the tray was put into another slot", _DISCOVER),
    "imex_address_missing": Reason(
        FABRIC_FILE, "the tray has no address within imex_network", f"widen imex_network, then {_DISCOVER}"
    ),
    "imex_address_duplicate": Reason(
        FABRIC_FILE, "two trays have the same address", f"give each tray its own address, then {_DISCOVER}"
    ),
    "drivers_differ": Reason(
        DRIVER,
        "a driver upgrade reached only some trays of the clique",
        "install the clique's version on {tray} and reboot it",
    ),
    "imex_version_mismatch": Reason(DRIVER, "package and driver were not upgraded together", _IMEX),
    "imex_peer_version": Reason(DRIVER, "an IMEX upgrade reached only some trays of the clique", _IMEX),
    "imex_package_pending": Reason(
        DRIVER, "the package was upgraded and the daemons were not restarted", _RESTART_IMEX
    ),
    "slurmd_newer": Reason(DRIVER, "the trays were upgraded before the controller", "upgrade slurmctld, then slurmd"),
    "imex_channel_missing": Reason(CHANNELS, "the device was removed, or was not created after a reboot", _CHANNEL_0),
    "imex_channel_slurm_conflict": Reason(
        CHANNELS,
        "both the role imex or the driver and Slurm create channels",
        f"remove imex_channels from group_vars, then {_IMEX} -e imex_create_channel0=false, then {_REBOOT}",
    ),
    "imex_channel_stale": Reason(CHANNELS, "the device file dates from an earlier boot", _CHANNEL_0),
    "imex_channels_off": Reason(
        CHANNELS,
        "the driver was loaded without IMEX channels",
        f"set imex_channel_count: 2048 in group_vars/all.yml, then {_IMEX}, then {_REBOOT}",
    ),
    "imex_list_differs": Reason(IMEX, "a program other than the role imex wrote the node list", _IMEX),
    "imex_peer_authentication": Reason(IMEX, "certificates expired, or were renewed on some trays only", _RESTART_IMEX),
    "imex_list_edited": Reason(IMEX, "the node list was edited by hand", _IMEX),
    "imex_list_not_running": Reason(IMEX, "the node list was written and nvidia-imex was not restarted", _IMEX),
    "imex_two_owners": Reason(
        IMEX, "two of service, prolog, DRA driver and manual start run IMEX on this tray", _STOP_OTHER
    ),
    "imex_foreign_daemon": Reason(IMEX, "nvidia-imex was started by hand", _STOP_OTHER),
    "imex_in_use": Reason(IMEX, "another owner, perhaps in a container, uses the driver's IMEX session", _STOP_OTHER),
    "imex_not_ready": Reason(IMEX, "the daemon was stopped, or is waiting for its peers", _IMEX),
    "imex_unit_down": Reason(
        IMEX, "the daemon was stopped or has exited", "ansible {tray} --become -a 'systemctl start nvidia-imex'"
    ),
    "imex_unit_starting": Reason(
        IMEX, "the start of the daemon hangs", "ansible {tray} --become -a 'journalctl -u nvidia-imex -n 30'"
    ),
    "imex_unit_failed": Reason(
        IMEX, "the daemon exited with an error", "ansible {tray} --become -a 'journalctl -u nvidia-imex -n 30'"
    ),
    "imex_pair_disconnected": Reason(IMEX, "a firewall blocks the traffic between the two", "nc -zv {tray} 50000"),
    "imex_timeout": Reason(IMEX, "the daemon hangs", "ansible {tray} --become -a 'systemctl restart nvidia-imex'"),
    "slurm_unreachable": Reason(SLURM, "slurmctld or its host is down", "scontrol ping"),
    "slurm_topology_missing": Reason(
        SLURM, "Slurm was never configured with the blocks, or its configuration was replaced", _SLURM
    ),
    "slurm_tray_other_block": Reason(
        SLURM, "the topology file was edited by hand, or is older than the fabric file", _SLURM
    ),
    "slurm_tray_no_block": Reason(
        SLURM, "the topology file was edited by hand, or is older than the fabric file", _SLURM
    ),
    "slurm_block_missing": Reason(
        SLURM, "the topology file was edited by hand, or is older than the fabric file", _SLURM
    ),
    "slurm_block_overlap": Reason(
        SLURM, "the topology file was edited by hand; slurmctld accepts a node in two blocks", _SLURM
    ),
    "slurm_all_refused": Reason(SLURM, _RUNNING, _RECONFIGURE),
    "slurm_block_refused": Reason(SLURM, _RUNNING, _RECONFIGURE),
    "slurm_segments_ignored": Reason(SLURM, _RUNNING, _RECONFIGURE),
    "slurm_topology_differs": Reason(SLURM, "the file was changed and slurmctld has not loaded it", _SLURM),
    "block_unclaimed": Reason(SLURM, "the trays of that block are not in the fabric file", _DISCOVER),
    "slurm_node_unclaimed": Reason(
        SLURM, "the tray was removed from the fabric file or never discovered, or the file was edited by hand", _SLURM
    ),
    "slurm_tier_differs": Reason(TIERS, "it was changed by hand, or its definition changed since the last run", _TIERS),
    "slurm_tier_unreadable": Reason(TIERS, "slurmdbd does not answer", "sacctmgr show cluster"),
    "k8s_unreachable": Reason(
        KUBERNETES, "the API server is down, or the kubeconfig is outdated", "kubectl get --raw /readyz"
    ),
    "k8s_node_missing": Reason(
        KUBERNETES, "the tray never joined the cluster, or its Node was deleted", "kubectl get nodes"
    ),
    "node_not_ready": Reason(
        KUBERNETES, "the kubelet does not report its status", "kubectl describe node {kubernetes_node}"
    ),
    "k8s_clique_label_missing": Reason(
        KUBERNETES, "the label was removed, or gpu-feature-discovery does not run on the node", _LABEL
    ),
    "k8s_clique_label_stale": Reason(
        KUBERNETES, "gpu-feature-discovery has not updated the label since the GPUs changed", _LABEL
    ),
    "k8s_clique_label_wrong": Reason(
        KUBERNETES, "the label was set by hand, or gpu-feature-discovery has not updated it", _LABEL
    ),
    "k8s_clique_label_unplaced": Reason(FABRIC_FILE, "the tray of the node is not in the fabric file", _DISCOVER),
    "k8s_domain_clique_wrong": Reason(
        KUBERNETES, "the DRA driver's kubelet plugin has not updated since the GPUs changed", _PLUGIN
    ),
    "k8s_domain_daemon_down": Reason(
        KUBERNETES,
        "the IMEX daemon of the ComputeDomain is not ready on that node",
        "kubectl get pods -A -o wide --field-selector spec.nodeName={kubernetes_node}",
    ),
    "dra_slice_missing": Reason(KUBERNETES, "the DRA driver's kubelet plugin does not run on the node", _PLUGIN),
    "dra_gpus_differ": Reason(
        KUBERNETES, "the DRA driver's kubelet plugin finds fewer GPUs than the fabric file has", _PLUGIN
    ),
}
"""Code -> reason. A code without a row takes meaning and remedy from the catalogue of findings."""


def failure(
    code: str,
    layer: str,
    message: str,
    tray: str | None = None,
    clique: str | None = None,
    *,
    trays: Sequence[str] = (),
    severity: str | None = None,
    cause: str | None = None,
) -> Failure:
    """One failure. REASONS decides the layer; `layer` applies to a code without a row there.

    trays: all trays it is about, where there are several. severity: that of the catalogue by default.
    """
    entry = CATALOGUE[code]
    reason = REASONS.get(code) or Reason(layer, entry.meaning, entry.remedy)
    return {
        "code": code,
        "severity": severity or entry.severity,
        "layer": reason.layer,
        "tray": tray,
        "clique": clique,
        "trays": list(trays) or ([tray] if tray else []),
        "message": message if message.endswith(".") else f"{message}.",
        "cause": cause or reason.cause,
        "remediation": reason.remediation,
    }
