# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one table of findings: every reason code of this collection by symptom and severity, with its message.

A code exists where somebody acts differently for it; what happened in one case stands in the message. The severity is
that of the subject: error, it cannot serve multi-node NVLink jobs (or the thing to be written is wrong); warning, it
can, and somebody should check it; info, no action needed. Whether a run fails for it is the playbook's decision.

docs/findings.md is generated from this table (make reference), and verify takes layer and remediation from it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)
"""The worst first."""

SWITCH, HARDWARE, FABRIC_FILE = "switch", "hardware", "fabric_file"
DRIVER, CHANNELS, IMEX = "driver", "channels", "imex"
SLURM, TIERS, KUBERNETES = "slurm", "tiers", "kubernetes"
LAYERS = (SWITCH, HARDWARE, FABRIC_FILE, DRIVER, CHANNELS, IMEX, SLURM, TIERS, KUBERNETES)
"""From the lowest up: a fault in one layer often causes failures in those after it."""


class Symptom(NamedTuple):
    """A heading of docs/findings.md.

    layer: that of verify's failures with these codes; without one, that of the check which found it. command: what
    remediates them, with the placeholders {tray}, {clique}, {file}, {node} (the tray in Slurm) and {kubernetes_node};
    without one, the code's remedy in words. domain: the action where all trays of a domain have it.
    """

    title: str
    layer: str = ""
    command: str = ""
    domain: str = ""


class Row(NamedTuple):
    """One code. messages: case -> template; case "" is the code's own, from which sentence and remedy are.

    cause: the likely one; empty where the sentence says it. action: that of repair, one of REPAIRS.
    """

    symptom: Symptom
    severity: str
    command: str
    cause: str
    messages: dict[str, str]
    action: str = "none"

    @property
    def sentence(self) -> str:
        """What is wrong, without values."""
        return general(self.messages[""].partition("; ")[0])

    @property
    def remedy(self) -> str:
        """What to do, in words, without values."""
        return general(self.messages[""].partition("; ")[2].rstrip("."))


_DISCOVER = "ansible-playbook rackscale.nvlink.discover -e fabric_file={file}, then accept the proposal as it prints"
_RUN_SLURM = "ansible-playbook rackscale.nvlink.slurm -e fabric_file={file} --diff"
_RUN_TIERS = "ansible-playbook rackscale.nvlink.slurm -e fabric_file={file} --tags tiers --diff"
_RUN_IMEX = "ansible-playbook rackscale.nvlink.imex -e fabric_file={file} -e imex_hosts=nvlink_clique_{clique}"
# The role starts a clique's stopped daemons together.
_RESTART_IMEX = (
    "when no job runs on clique {clique}: ansible nvlink_clique_{clique} --become -a 'systemctl stop nvidia-imex',"
    f" then {_RUN_IMEX}"
)
# The role refuses to start IMEX next to another owner.
_STOP_OTHER = (
    f"stop the owner that is not imex_owner (ansible {{tray}} --become -a 'pgrep -a nvidia-imex'), then {_RUN_IMEX}"
)
# A later run without the variable would undo it.
_CHANNEL_0 = f"{_RUN_IMEX} -e imex_channels=0, and set it in group_vars/all.yml"
_FACTS = "ansible {tray} -m rackscale.nvlink.fabric_facts -a gather_subset=all -vvv"
_SMI = "ansible {tray} -a 'nvidia-smi -q'"
_SWITCH_LINKS = "on the NVLink switch: nv show interface --view link-diagnostics"
_DRAIN_LINKS = f"drain {{node}}, then {_SWITCH_LINKS}"
_PARTITION = "on the NVLink switch: nv show sdn partition"
_APPS = "on the NVLink switch: nv show cluster apps"
_RESTART_PERSISTENCED = "ansible {tray} --become -a 'systemctl restart nvidia-persistenced'"
_RESTART_DAEMON = "ansible {tray} --become -a 'systemctl restart nvidia-imex'"
_DAEMON_LOG = "ansible {tray} --become -a 'journalctl -u nvidia-imex -n 30'"
# It finds the label's writer, and is one itself where no other program is.
_LABEL = "ansible-playbook rackscale.nvlink.kubernetes --tags topology"
# The label leaves out the daemons of ComputeDomains, which jobs use.
_PLUGIN = (
    "kubectl -n dra-driver-nvidia-gpu delete pod -l dra-driver-nvidia-gpu-component=kubelet-plugin"
    " --field-selector spec.nodeName={kubernetes_node}"
)
_DRAIN = "ansible-playbook rackscale.nvlink.drain -e drain_trays={tray} -e drain_reason=recovery"
_RESUME = "ansible-playbook rackscale.nvlink.resume -e resume_trays={tray}"
# Not by scontrol reboot with nextstate=RESUME, which gives it jobs before a test.
_REBOOT = f"{_DRAIN}, then ansible {{tray}} --become -m ansible.builtin.reboot, then {_RESUME}"
ACTIONS = {
    "reset_gpu": f"{_DRAIN}, then ansible {{tray}} --become -a 'nvidia-smi --gpu-reset', then {_RESUME}",
    "reboot": _REBOOT,
    # Once nothing uses P2P, the driver names another action.
    "drain": f"{_DRAIN}, then {_SMI}, which prints the next action",
    "restart_imex": _RESTART_IMEX,
    "switch_side": _SWITCH_LINKS,
    "watch": "wait; drain {node} if the next run of verify reports it again",
}
"""The action of a failure that does not depend on its code alone -> its command."""

REPAIRS = ("none", "watch", "switch_side", "reset_gpu", "reboot", "power_cycle", "replace", "contact_support")
"""The actions of repair, the weakest first; those from reset_gpu on are on a tray, the last two are a person's.

In NVSentinel's enum and NVIDIA's Xid catalogue: none is NONE (IGNORE), watch is NONE with an event (RESTART_APP),
reset_gpu is COMPONENT_RESET (RESET_GPU), reboot is RESTART_VM and RESTART_BM, power_cycle is RESTART_BM by the BMC,
replace is REPLACE_VM, contact_support is CONTACT_SUPPORT, and switch_side is WORKFLOW_NVLINK5_ERR for the peer or the
cable. NVML's recovery actions are in verify/hardware_check.py.
"""

REPAIR = {
    "tray_unreachable": "power_cycle",
    "version_mismatch": "reboot",
    "driver_timeout": "reboot",
    "no_gpu": "reboot",
    "gpu_lost": "reboot",
    "gpu_missing": "reboot",
    "recovery_action": "reboot",
    "gpus_disagree": "switch_side",
    "gpus_partly_attached": "reset_gpu",
    "fabric_missing": "reset_gpu",
    "fabric_in_progress": "switch_side",
    "fabric_refused": "switch_side",
    "fabric_unhealthy": "reset_gpu",
    "fabric_uuid_zero": "switch_side",
    "fabric_no_partition": "switch_side",
    "fabric_manager_disconnected": "switch_side",
    "fabric_degraded": "switch_side",
    "fabric_cliques_smaller": "switch_side",
    "switch_controller_down": "switch_side",
    "switch_partition_differs": "switch_side",
    "switch_partition_degraded": "switch_side",
    "switch_gpu_unassigned": "switch_side",
    "switch_multicast_limit": "switch_side",
    "nvlink_links_down": "reset_gpu",
    # It trains the links again; a tray that has it three times is replaced.
    "nvlink_link_recovering": "reset_gpu",
    "imex_unit_down": "reboot",
    "imex_timeout": "reboot",
}
"""Code -> the action of repair, where one is sure.

Of the others that of a tray's hardware, driver or IMEX is watch, and none is for what a person or a playbook corrects.
A finding that compares a tray with others, such as nvlink_links_degraded, is watch: these could get it drained.
"""

COMMANDS = {
    "switch_unreadable": "",
    "switch_certificate_expires": "",
    "switch_controller_down": _APPS,
    "switches_disagree": _APPS,
    "tray_unreachable": "bring it up, then ansible {tray} -m ansible.builtin.ping",
    "driver_missing": "ansible {tray} --become -a 'modprobe nvidia'",
    "version_mismatch": _REBOOT,
    "drivers_differ": "install the clique's version on {tray} and reboot it",
    "imex_version_mismatch": _RUN_IMEX,
    "imex_peer_version": _RUN_IMEX,
    "gpus_disagree": _PARTITION,
    "driver_slow": _RESTART_PERSISTENCED,
    "fabric_uuid_zero": _APPS,
    "fabric_not_started": _RESTART_PERSISTENCED,
    "fabric_in_progress": _PARTITION,
    "fabric_refused": _PARTITION,
    "fabric_no_partition": _PARTITION,
    "fabric_manager_disconnected": _APPS,
    "fabric_unhealthy": _SWITCH_LINKS,
    "fabric_degraded": _SWITCH_LINKS,
    "fabric_cliques_smaller": _PARTITION,
    "tray_unplaced": _DISCOVER,
    "imex_address_invalid": f"widen imex_network, or give each tray its own address, then {_DISCOVER}",
    "tray_partitions": f"ask the provider, or set fabric_tray_partitions, then {_DISCOVER}",
    "slurm_unreachable": "scontrol ping, and for tiers sacctmgr show cluster",
    "imex_unit_down": f"{_RESTART_DAEMON}, and where that fails {_DAEMON_LOG}",
    "imex_unit_starting": _DAEMON_LOG,
    "imex_timeout": _RESTART_DAEMON,
    "imex_two_owners": _STOP_OTHER,
    "imex_in_use": _STOP_OTHER,
    "imex_foreign_daemon": _STOP_OTHER,
    "imex_restart_pending": _RESTART_IMEX,
    "imex_pair_disconnected": "nc -zv OTHER 50000, on one of the two trays",
    "imex_peer_authentication": _RESTART_IMEX,
    "imex_channels_off": f"set imex_channel_count: 2048 in group_vars/all.yml, then {_RUN_IMEX}, then {_REBOOT}",
    "imex_channel_slurm_conflict": "remove imex_channels from group_vars, then"
    f" {_RUN_IMEX} -e imex_create_channel0=false, then {_REBOOT}",
    "slurm_reconfigure_needed": "on the Slurm controller: scontrol reconfigure",
    "k8s_unreachable": "kubectl get --raw /readyz",
    "k8s_node_missing": "kubectl get nodes",
    "node_not_ready": "kubectl describe node {kubernetes_node}",
    "k8s_clique_label_missing": _LABEL,
    "k8s_clique_label_wrong": _LABEL,
    "dra_node_outdated": _PLUGIN,
    "dra_plugin_unready": "kubectl get pods -A -o wide",
    "tray_facts_foreign": "",
    "not_a_tray": "",
    "nvlink_links_unknown": "ansible {tray} --become -a 'journalctl -k --grep Xid'",
    "domain_two_chassis": "",
    "imex_persist_left": "",
    "fabric_not_supported": "",
    "mig_enabled": "",
    "imex_cmd_disabled": "",
    "imex_waiting_for_recovery": "",
    "imex_no_own_address": "",
    "imex_peer_lost": "",
    "slurm_tier_unknown": "",
}
"""The command of a code for which that of its symptom is not right; empty: its remedy in words."""

CAUSES = {
    "switch_controller_down": "the controller stopped, or a switch that ran it was replaced or rebooted",
    "switch_partition_differs": "the NVLink partition was changed on the switch, and the change is not accepted",
    "switch_partition_degraded": "a cable, port or switch of the rack failed",
    "switch_gpu_mismatch": "GPUs or trays were exchanged, or the release of the switch counts slots otherwise",
    "gpus_disagree": "the NVLink partitions on the switches have only some of the tray's GPUs",
    "fabric_cliques_smaller": "the NVLink partition has reached its limit of multicast groups",
    "recovery_action": "the driver has recorded an error of the GPU",
    "tray_subset_failed": "a part of the tray's operating system is damaged, such as Python or /proc",
    "driver_missing": "the kernel modules did not load at boot, or the driver's packages are installed in part only",
    "no_gpu": "the GPUs have no power or fell off the bus",
    "gpu_missing": "a GPU is no longer on the PCIe bus",
    "tray_not_attached": "the GPUs have not joined the NVLink fabric",
    "fabric_missing": "the driver has not registered the GPUs with the NVLink fabric",
    "fabric_not_supported": "the GPUs are PCIe cards or those of an HGX baseboard",
    "fabric_uuid_zero": "the NMX controller has assigned no cluster UUID to the NVLink domain",
    "fabric_not_started": "nvidia-persistenced is not running",
    "fabric_in_progress": "the NMX controller (HGX: nvidia-fabricmanager) does not answer, or the GPU is in no NVLink"
    " partition",
    "fabric_refused": "the GPU is in no NVLink partition",
    "fabric_manager_disconnected": "the NMX controller has stopped, or the switches' management network has failed",
    "nvlink_links_down": "the GPU needs a reset, or the NVLink switches have no power",
    "nvlink_links_degraded": "a cable, port or switch of the rack failed",
    "nvlink_xid": "a link of the GPU, or of another GPU of its clique, failed",
    "acceptance_pending": "the tray is new and not yet in the fabric file",
    "tray_moved": "the NVLink partition was changed, or the trays or their host names were exchanged",
    "tray_partitions": "the provider of the NVLink partitions gave each idle tray one of its own",
    "imex_not_ready": "the daemon was stopped, or is waiting for its peers",
    "imex_foreign_daemon": "nvidia-imex was started by hand",
    "imex_list_differs": "a program other than the role imex wrote the node list",
    "imex_list_outdated": "the node list was edited by hand",
    "imex_pair_disconnected": "a firewall blocks the traffic between the two",
    "imex_peer_authentication": "certificates expired, or were renewed on some trays only",
    "imex_channel_missing": "imex_channels is empty, or the device was removed or not created after a reboot",
    "imex_channel_slurm_conflict": "both the role imex or the driver and Slurm create channels",
    "slurm_unreachable": "slurmctld, slurmdbd or its host is down",
    "slurmd_newer": "the trays were upgraded before the controller",
    "slurm_blocks_differ": "the topology file was edited by hand or replaced, or is older than the fabric file",
    "slurm_block_overlap": "the topology file was edited by hand; slurmctld accepts a node in two blocks",
    "slurm_node_unclaimed": "the tray was removed from the fabric file or never discovered, or the file was edited by"
    " hand",
    "slurm_topology_differs": "the file was changed and slurmctld has not loaded it",
    "slurm_reconfigure_needed": "what slurmctld schedules with differs from its files, as after scontrol update of a"
    " node or partition",
    "slurm_tier_differs": "it was changed by hand, or its definition changed since the last run",
    "k8s_unreachable": "the API server is down, or the kubeconfig is outdated",
    "k8s_node_missing": "the tray never joined the cluster, or its Node was deleted",
    "node_not_ready": "the kubelet does not report its status",
    "k8s_clique_label_wrong": "the label was set by hand, or gpu-feature-discovery has not updated it since the GPUs"
    " changed",
    "dra_node_outdated": "the DRA driver's kubelet plugin does not run on the node, or has not updated since the GPUs"
    " changed",
}
"""The likely cause of a code, for verify, where it is more than the sentence in other words."""

_FABRIC_GATE = "name the gate in fabric_override to accept it"
_SLURM_GATE = "name the gate in slurm_topology_override if it is intended"
_NO_ANSWER = Symptom("A tray does not answer, or its answer cannot be used", HARDWARE, _FACTS)
_SWITCHES = Symptom("An NVLink switch fails, or lists other partitions than the fabric file", SWITCH, _PARTITION)
_VERSIONS = Symptom("The driver is missing, or versions do not fit", DRIVER)
_GPUS = Symptom("The GPUs of a tray hang or are missing", HARDWARE, _REBOOT)
_UNREAD = Symptom("The GPUs of a tray cannot be read, or need an action")
_FABRIC = Symptom("A GPU is not in the NVLink fabric, or its fabric is degraded", HARDWARE, _SMI)
_LINKS = Symptom("NVLinks fail, recover or cannot be read", HARDWARE, _DRAIN_LINKS, "switch_side")
_PLACE = Symptom("The hardware is not where the fabric file has it", FABRIC_FILE, _DISCOVER)
GATES = Symptom("discover stops at a gate", FABRIC_FILE, _DISCOVER)
_NAMES = Symptom("A source, a controller or a name in the fabric is wrong")
_IMEX = Symptom("IMEX is not ready", IMEX, _RUN_IMEX)
_PEERS = Symptom("Members of an IMEX domain do not connect", IMEX, _RUN_IMEX)
_CHANNELS = Symptom("Jobs have no IMEX channel", CHANNELS, _CHANNEL_0)
_CHANGE = Symptom("A change stops because of trays, jobs or objects of others")
_TOPOLOGY = Symptom("Slurm runs another topology than the fabric file", SLURM, _RUN_SLURM)
_FILES = Symptom("Slurm's files cannot be written as they are")
_JOBS = Symptom("A rehearsal, benchmark or test job fails")
_TIERS = Symptom("A Slurm tier does not work", TIERS, _RUN_TIERS)
_LABELS = Symptom("Kubernetes has other labels or nodes than the fabric file", KUBERNETES)
_INSTALL = Symptom("The DRA driver cannot be installed", KUBERNETES)
_DOMAINS = Symptom("ComputeDomains or the DRA driver do not work", KUBERNETES)

TABLE: dict[tuple[Symptom, str], dict[str, str]] = {
    (_NO_ANSWER, ERROR): {
        "tray_unreachable": "A tray could not be reached, as when it is off, or its network or sshd is down, so no job"
        " may run there (for discover and IMEX, which keep its place, a warning); bring it up",
        "tray_facts_foreign": "The facts of a host set a variable that only the site may set; find out what sets it: a"
        " compromised host, or a cacheable fact of the site's own; delete the host's facts",
        "tray_subset_failed": "The subset {subset} of this tray could not be read ({error}); run fabric_facts with"
        " gather_subset={subset} there with -vvv",
    },
    (_NO_ANSWER, WARNING): {
        "tray_answer_invalid": "A host returned other data than the module documents, and that part is dropped; check"
        " the host: its Python or its shell changes the answers of modules",
        "unusable_value": "A tool or source reported a value that is not valid, which counts as unknown; run"
        " nvidia-smi -q on the tray, or correct the source that the finding names",
        "unusable_value.value": "{source} reports {field} {value} of {subject}, which is not valid and counts as"
        " unknown; run nvidia-smi -q on the tray.",
        "unusable_value.hostname": "The tray's hostname is {value}, which is not valid and counts as unknown; set one"
        " of letters, digits, dots and dashes.",
        "unusable_value.platform": "The GPUs of this tray report different {what} ({found}), so the value counts as"
        " unknown; check the tray's firmware.",
        "unusable_value.exit": "nvidia-smi printed its output and exited with code {status}; see its manual page.",
        "addresses_unknown": "The tray's addresses could not be read; check its network, or set them in the inventory",
    },
    (_NO_ANSWER, INFO): {
        "not_a_tray": "A host without GPUs that is not in the fabric file was read; leave it out of fabric_hosts if it"
        " is no tray",
    },
    (_SWITCHES, ERROR): {
        "switch_partition_differs": "The NVLink switch lists GPUs of trays in another partition than the fabric file"
        " has; restore the NVLink partition on the switch, or run the playbook discover, check the proposal, run"
        " accept",
        "switch_gpu_unassigned": "The NVLink switch lists GPUs of trays in no partition, so no job can run on them;"
        " add them to the partition of their clique on the switch",
        "switches_disagree": "Two NVLink switches of a domain both run its controller, so it is unknown which one"
        " GPUs follow; disable the cluster on all but one of them",
    },
    (_SWITCHES, WARNING): {
        "switch_unreadable": "An NVLink switch does not answer, or its answer cannot be used; check its power,"
        " its address and nvue_user in the inventory",
        "switch_controller_down": "No NVLink switch of a domain runs its controller, or the controller reports a"
        " fault: jobs run on, and GPUs that reset do not join the fabric again; check the controller on the switch",
        "switch_partition_degraded": "An NVLink partition is not healthy, as its switch reports; check the links of"
        " its GPUs on the switch",
        "switch_gpu_mismatch": "The NVLink switch lists a GPU at another place or with another number than the GPU's"
        " driver reports, so partitions of its tray are not compared; check where the tray is installed",
        "switch_multicast_limit": "An NVLink partition has no multicast groups, or fewer than nvlink_partitions has for"
        " it, so NVLink SHARP does not work or has less; set mcast-limit of the partition on the switch, or correct"
        " nvlink_partitions",
        "switch_partition_mode": "An NVLink partition has another resiliency mode than nvlink_partitions has for it;"
        " create the partition again with that mode, or correct nvlink_partitions",
        "switch_certificate_expires": "The certificate of an NVLink switch expires within 30 days, and verify does not"
        " read the switch after that; renew it on the switch",
    },
    (_VERSIONS, ERROR): {
        "driver_missing": "The NVIDIA driver is not loaded, or its libraries or nvidia-smi are missing; load its kernel"
        " modules, or install the driver",
        "driver_missing.nvml_not_found": "NVML cannot be loaded ({error}); install the driver's user-space packages.",
        "driver_missing.smi_not_linked": "nvidia-smi cannot load libnvidia-ml.so.1; install the driver's user-space"
        " packages.",
        "driver_missing.imex": "The version of the loaded driver cannot be read, and IMEX must have the same; load the"
        " driver.",
        "driver_missing.smi_not_started": "{program} cannot be started ({error}); install nvidia-smi with the driver,"
        " or set fabric_facts_nvidia_smi and verify_nvidia_smi to its path.",
        "version_mismatch": "The NVIDIA kernel module and its libraries have different versions, as after an upgrade"
        " without a reboot; reboot the tray, or reload the module",
        "imex_version_mismatch": "nvidia-imex does not have the driver's version, as when they were not upgraded"
        " together; install the package of the driver's exact version",
        "imex_version_mismatch.running": "nvidia-imex {version} runs and would not restart with driver {driver}",
        "imex_version_mismatch.differs": "nvidia-imex {version} does not start with driver {driver}",
        "imex_version_mismatch.log": "nvidia-imex ended because its version is not the loaded driver's; install the"
        " package of the driver's exact version, and reboot where a newer driver waits to be loaded.",
        "imex_version_mismatch.installed": "{state} and the driver is {driver}; install that version, or set"
        " manage_package.",
        "imex_peer_version": "Members of an IMEX domain have different versions (!V!), as after an upgrade that"
        " reached only some; install one version of driver and IMEX on the whole clique",
        "imex_peer_version.peers": "This tray and {peers} run different versions (!V!) and do not connect",
        "slurmd_newer": "slurmd of a tray is of a newer release than slurmctld; upgrade slurmctld first, then slurmd",
    },
    (_VERSIONS, WARNING): {
        "drivers_differ": "The trays of a clique run different driver versions, as after an upgrade that reached only"
        " some; install one version on all its trays",
    },
    (_GPUS, ERROR): {
        "driver_timeout": "The driver did not respond in time, or a process that read the GPUs hangs in the kernel;"
        " check the kernel log for Xid messages (journalctl -k), then reboot the tray",
        "driver_timeout.nvml": "NVML did not return from {call} within {seconds} s",
        "driver_timeout.nvidia_smi": "nvidia-smi did not finish within {seconds} s",
        "driver_timeout.survived": "The process {pid} that read {program} survived SIGKILL, it hangs in the kernel;"
        " reboot the tray, nothing else ends it.",
        "no_gpu": "The driver finds no GPU; check the kernel log for Xid messages (journalctl -k) and the GPUs' power",
        "gpu_lost": "A GPU has fallen off the bus, needs a reset or cannot be read; drain the tray and reboot it,"
        " replace the GPU if that does not help",
        "gpu_lost.lost": "{gpu} is lost, it has fallen off the bus",
        "gpu_lost.reset": "{gpu} needs a reset before it responds; drain the tray and reset the GPU, or reboot.",
        "gpu_lost.smi_lost": "nvidia-smi cannot list the GPUs because {which} is lost",
        "gpu_lost.smi_reset": "nvidia-smi cannot list the GPUs because {which} needs a reset; drain the tray and reset"
        " that GPU, or reboot.",
        "gpu_lost.smi_unread": "nvidia-smi describes {described} and cannot read another ({line}); check the kernel"
        " log for Xid messages, then drain the tray and reboot it.",
        "gpu_lost.smi_fewer": "nvidia-smi counts {counted} and describes {described}; run nvidia-smi -q on the tray"
        " and compare it with nvidia-smi -L.",
    },
    (_GPUS, WARNING): {
        "driver_slow": "Reading the GPUs took {seconds} s, and a healthy driver needs {timeout} s at most; start"
        " nvidia-persistenced, without which the driver initializes the GPUs for each"
        " reader, and check the kernel log for Xid messages (journalctl -k)",
        "gpu_missing": "An attached tray reports fewer GPUs than when it was placed; reboot the tray, and replace"
        " the GPU if it stays away",
    },
    (_UNREAD, ERROR): {
        "no_permission": "The NVIDIA driver refuses this user; set become: true, or check the modes of /dev/nvidia*",
        "driver_unreadable": "NVML or nvidia-smi failed, or nvidia-smi printed something else than its output; run"
        " nvidia-smi -q -x on the tray",
        "driver_unreadable.slow": "NVML needs more than {seconds} s to read the GPUs; start nvidia-persistenced,"
        " or set a longer timeout.",
        "driver_unreadable.nvml_killed": "NVML killed its process with signal {signal}",
        "driver_unreadable.nvml_not_called": "NVML could not be called ({error})",
        "driver_unreadable.nvml_status": "NVML's {call} failed with {status} ({number})",
        "driver_unreadable.nvml_handle": "NVML has no handle of {gpu} ({status}, {number}); check the kernel log for"
        " Xids.",
        "driver_unreadable.smi_nothing": "nvidia-smi printed nothing and exited with code {status}",
        "driver_unreadable.smi_text": "nvidia-smi printed text instead of XML ({line}, exit code {status})",
        "driver_unreadable.smi_malformed": "The XML of nvidia-smi is truncated or malformed ({error} in line {line})",
        "driver_unreadable.smi_refused": "The XML of nvidia-smi was not parsed because it {why}; check which program"
        " the tray's PATH has as nvidia-smi.",
        "recovery_action": "{gpu} needs the recovery action {action}, as its driver reports; drain the tray and reboot"
        " it",
        "recovery_action.gpu_reset": "; drain the tray, end all processes on its GPUs and run nvidia-smi --gpu-reset.",
        "recovery_action.drain_and_reset": "; drain the tray, and when its jobs have ended run nvidia-smi --gpu-reset.",
        "recovery_action.drain_p2p": "; drain the tray, end all processes that use P2P, then read the action again: the"
        " driver then has another one.",
        "recovery_action.recover_imex_domain": "{gpu} needs the recovery action {action}, as its driver reports:"
        " nvidia-imex ended while other trays used its memory, and no job gets fabric memory until it was started"
        " again; end the jobs of the clique, stop nvidia-imex on all its trays, then start it on all.",
    },
    (_UNREAD, INFO): {
        "backend_fallback": "NVML could not be used, so nvidia-smi was read; repair NVML, or set"
        " fabric_facts_backend and verify_backend to nvidia_smi"
        " (reason: {reason})",
    },
    (_FABRIC, ERROR): {
        "gpus_disagree": "The GPUs of this tray are in different cliques ({cliques}), so the tray is in none; check"
        " the NVLink partitions on the switches",
        "gpus_partly_attached": "Some GPUs of this tray ({gpus}, index {indexes}) have no NVLink fabric and the others"
        " are attached, so it is in no clique; run nvidia-smi -q on it, then reset its GPUs or reboot it",
        "fabric_missing": "The GPUs of this tray report a chassis, as those of a rack do, but no NVLink fabric, so it"
        " is in no clique; run nvidia-smi -q on it, then reset its GPUs or reboot it",
        "fabric_not_started": "{gpu} has not started to register with the fabric manager; start nvidia-persistenced on"
        " the tray, then run fabric_facts again",
        "fabric_in_progress": "{gpu} waits for the fabric manager to register it, and CUDA calls hang until then;"
        " check {host}the NMX controller and that an NVLink partition has this GPU",
        "fabric_refused": "The fabric manager rejected a GPU, or reports an incorrect configuration of it; check"
        " {host}on the switches that an NVLink partition has this GPU",
        "fabric_refused.status": "{gpu} was rejected by the fabric manager with {status}",
        "fabric_refused.configuration": "{gpu} has an incorrect configuration ({configuration}), as the fabric manager"
        " reports; correct it.",
        "fabric_unhealthy": "The NVLink fabric of a GPU is unhealthy, or its NVLink routes could not be recovered, as"
        " when links or switches failed; drain the tray, check the health of the NVLink switches and reset its GPUs",
        "fabric_unhealthy.summary": "{gpu} has an unhealthy NVLink fabric",
        "fabric_unhealthy.routes": "{gpu} has NVLink routes that could not be recovered",
    },
    (_FABRIC, WARNING): {
        "tray_not_attached": "A tray answers, but its GPUs report no common clique; check the tray's other findings",
        "fabric_uuid_zero": "The GPUs of this tray report a chassis, as those of a rack do, but the cluster UUID of"
        " their NVLink fabric is zero, so the tray is in no clique; check the NMX controller, unless the fabric ends"
        " here (NVL4)",
        "fabric_unknown": "Not all GPUs of this tray report whether they are in an NVLink fabric, so it is in no"
        " clique; check that its driver is R550 or newer, and run nvidia-smi -q on it",
        "fabric_unknown.old_driver": "The driver {driver} has only version 1 of NVML's fabric call, which is not used,"
        " so the fabric is unknown; install driver R550 or newer, or set fabric_facts_backend: nvidia_smi.",
        "fabric_no_partition": "{gpu} is in no NVLink partition; add it to one on the switches",
        "fabric_manager_disconnected": "{gpu} is disconnected from the fabric manager; check {host}the NMX controller"
        " and the switches' management network",
        "fabric_degraded": "The NVLink fabric of a GPU has limited capacity or degraded bandwidth; check the NVLink"
        " switches for disabled or failed links",
        "fabric_degraded.capacity": "{gpu} has an NVLink fabric of limited capacity",
        "fabric_degraded.bandwidth": "{gpu} has degraded NVLink bandwidth",
        "fabric_recovering": "{gpu} is recovering its NVLink routes or accesses; wait, then run fabric_facts again",
        "fabric_cliques_smaller": "The GPUs of this tray are in one clique, but in different ones for {operation}"
        " operations ({cliques}); check the multicast limits of the NVLink partitions on the switches, NCCL forms"
        " smaller teams until then",
        "mig_enabled": "{gpu} has MIG mode on, which disables NVLink between GPUs; disable MIG for multi-node jobs",
    },
    (_FABRIC, INFO): {
        "fabric_not_supported": "The GPUs of this tray have no NVLink fabric, so it is in no clique; no action for"
        " PCIe cards and HGX, else check the driver's version",
        "fabric_not_supported.local": "The NVLink fabric of this host ends at the host (its cluster UUID is zero, as"
        " on HGX), so it has no multi-node NVLink and is in no clique; no action needed.",
    },
    (_LINKS, ERROR): {
        "nvlink_links_down": "{gpu} has no active NVLink ({links} are expected), so it reaches no other GPU; drain the"
        " tray, check the power of the NVLink switches and the ports of these links, then reset the GPU or reboot",
    },
    (_LINKS, WARNING): {
        "nvlink_links_degraded": "NVLinks are not active, or slower than most of their tray, clique or product;"
        " compare the links with their ports on the NVLink switch (nv show interface --view link-diagnostics), drain"
        " the tray and reset the GPU; if that does not help reboot, then ask its vendor for service",
        "nvlink_links_degraded.all": "No NVLink of this tray is active, its {gpus} have {links} each; no action for"
        " PCIe cards without a bridge, else check the power of the NVLink switches and the rack's cables.",
        "nvlink_links_degraded.some": "{gpu}: {usable} of {links} NVLinks are active{speed}, {others} not",
        "nvlink_link_recovering": "An NVLink went into recovery since the last run of verify, so its cable, connector"
        " or port is failing; drain the tray before the link fails, check its cable and its port on the NVLink switch",
        "nvlink_xid": "The kernel logged {xid} {times}, last at {last}; look the Xid up in docs/verify.md and NVIDIA's"
        " catalogue, and for 144 to 150 check the links of that GPU and their ports on the NVLink switch",
    },
    (_LINKS, INFO): {
        "nvlink_links_unknown": "The NVLinks of a tray or GPU, or the kernel log for their Xids, could not be read;"
        " let fabric_facts use NVML (backend auto) with become: true, or a user of the group systemd-journal",
        "nvlink_links_unknown.not_read": "The NVLinks of this tray were not read ({why}); only NVML has their"
        " counters.",
        "nvlink_links_unknown.gpu": "The NVLinks of {gpu} could not be read ({status}, {number}); run nvidia-smi"
        " nvlink -s on the tray.",
        "nvlink_links_unknown.log_cut": "The kernel log of this tray was not read to its end in {seconds} s, so Xids"
        " may be missing; run journalctl -k --grep Xid on the tray.",
        "nvlink_links_unknown.log": "The kernel log of this tray could not be read for Xids ({why}); it needs"
        " journalctl, and become: true or the group systemd-journal.",
    },
    (_PLACE, ERROR): {
        "tray_moved": "The GPUs of a tray, of two trays or of a whole clique are in another place than the fabric file"
        " has, as when trays, host names or NVLink partitions changed; move them back or restore the NVLink partition,"
        " or run the playbook discover, check the proposal, run accept",
        "imex_address_invalid": "A tray has no IMEX address within imex_network, or that of another one, so its"
        " clique's list is not written; widen imex_network, or give the tray its own address in the fabric file",
    },
    (_PLACE, WARNING): {
        "tray_misplaced": "A tray is in another slot, chassis or NVLink domain than the fabric file, the site or its"
        " domain has; check where it is installed, then discover and accept, or correct expected",
        "domain_incomplete": "An NVLink domain has fewer trays than expected, or a declared tray is not in the fabric"
        " file; discover the others, or correct expected",
    },
    (_PLACE, INFO): {
        "acceptance_pending": "A tray is observed in a position that is proposed and not accepted yet; check the"
        " proposal and run the playbook accept",
        "tray_replaced": "All GPUs of a tray are new; accept the proposal if the tray was replaced",
        "domain_two_chassis": "An NVLink domain spans several chassis, as in NVL36x2; no action needed, unless the site"
        " has no such system",
    },
    (GATES, ERROR): {
        "chassis_changed": "gate: trays of a known NVLink domain report another chassis, or none reports one that it"
        f" had; check where the trays are installed, {_FABRIC_GATE}",
        "clique_id_changed": "gate: known cliques report other clique IDs, as after their NVLink partitions were"
        f" created again; check the cause, {_FABRIC_GATE}; names and blocks stay",
        "clique_shrank": "gate: trays leave a clique or domain, which then has fewer than expected; check the"
        f" proposal, {_FABRIC_GATE}",
        "domain_merged": "gate: all trays of an NVLink domain move into another one; check the switches,"
        f" {_FABRIC_GATE}",
        "domain_split": f"gate: the trays of one NVLink domain split into several; check the switches, {_FABRIC_GATE}",
        "domain_uuid_changed": "gate: a known NVLink domain reports another cluster UUID, as after its fabric was"
        f" built again; check the cause, {_FABRIC_GATE}; the message names blocks that would not stay",
        "imex_addresses_lost": "gate: trays would lose the address of their IMEX domain, as after imex_network was"
        f" changed, so their clique would have no node list; correct imex_network, {_FABRIC_GATE}",
        "moved_percent": f"gate: more trays move at once than fabric_moved_percent; check the proposal, {_FABRIC_GATE}",
        "rotation_in_progress": "gate: only a part of an NVLink domain reports a new cluster UUID, and its trays keep"
        " their places meanwhile; discover again when all report it, or name the UUID in fabric_domain_names if it is"
        " another domain",
        "slot_conflict": "gate: trays of one NVLink domain report the same slot of a chassis; check where the trays"
        f" are installed, {_FABRIC_GATE}",
        "source_too_old": "gate: positions change because of observations older than fabric_max_age; discover again, or"
        " correct the source's clock",
        "tray_partitions": "gate: at least half of the trays of an NVLink domain are each alone in a clique, as where"
        " each idle tray is given a partition; ask the provider of the NVLink partitions, or set"
        " fabric_tray_partitions",
        "unknown_trays": "gate: trays are placed that the site does not declare, or elsewhere than it declares them;"
        " correct the switches or fabric_expected, or name the gate in fabric_override",
    },
    (_NAMES, ERROR): {
        "illegal_tray_name": "A tray's name is not valid in a Slurm hostlist, is that of the controller or of a group"
        " of the inventory, or is a second one for the same GPUs; rename it in the inventory or its source: one name"
        " for one tray",
        "node_renamed": "Slurm or Kubernetes has a tray under another node name, or that name is not valid there; set"
        " fabric_slurm_node or fabric_kubernetes_node, then run the playbooks discover and accept",
        "node_renamed.block": "Slurm has none of the {number} nodes of block {block} ({nodes}): set fabric_slurm_node"
        " to their NodeName and run discover and accept, or add them to slurm.conf.",
        "slurm_unreachable": "A Slurm controller, slurmctld or slurmdbd did not respond; start slurmctld (systemctl"
        " start slurmctld), or correct the reason that the finding names",
        "slurm_unreachable.imex": "IMEX of this clique must stop for {reason}, and Slurm did not report whether jobs"
        " run there ({error}); bring slurmctld back, or allow the stop with imex_allow_jobs.",
        "slurm_unreachable.imex_node": "IMEX of this clique must stop for {reason}, and Slurm did not report whether"
        " jobs run there ({error}); set fabric_slurm_node of these trays to their NodeName, then discover and accept.",
    },
    (_NAMES, WARNING): {
        "tray_unplaced": "A host that Slurm or Kubernetes has, or that may run jobs, is in no clique of the fabric"
        " file; run the playbooks discover and accept for it, or remove it there (split a partition that needs both)",
        "tray_unplaced.partition": "The partition {partition} has nodes in no block ({nodes}), which get only jobs"
        " that exclude all nodes of blocks, such as by --constraint: place them, or move them to a partition of their"
        " own.",
        "tray_unplaced.job": "This tray is in no clique of the fabric file, so its jobs get no IMEX domain; run"
        " discover and accept.",
        "source_failed": "A source failed or returned only part of what was requested, and the fabric file is kept;"
        " correct the reason that the finding names, then run the playbook discover",
        "source_list_invalid": "A source lists a tray twice or without a valid name; correct its list, or the"
        " expression that returns a tray's name",
        "sources_disagree": "Two sources report another clique, GPUs, slot or cluster of one tray, and the earlier one"
        " in sources decides; correct the source that is wrong, or the order of sources",
        "name_conflict": "Two NVLink domains or cliques would have one name, or fabric_domain_names has a name that no"
        " domain has; correct fabric_domain_names, or rename one of them in the fabric file",
        "tray_in_no_cluster": "Trays are in none of the Slurm and Kubernetes clusters that share the fabric; set"
        " fabric_slurm_cluster or fabric_kubernetes_cluster for them",
    },
    (_IMEX, ERROR): {
        "imex_not_ready": "The daemon runs and is not ready, or nvidia-imex-ctl prints no usable output; check what it"
        " waits for in journalctl -u nvidia-imex, and run nvidia-imex-ctl -N on the tray",
        "imex_not_ready.ctl": "{error} but {output}; run nvidia-imex-ctl -N on the tray, and check that"
        " IMEX_CMD_ENABLED is 1.",
        "imex_not_ready.state": "IMEX is in the state {state}, not ready; check its log, {log}.",
        "imex_not_ready.no_state": "nvidia-imex-ctl -q printed no state; run it on the tray, then restart the daemon.",
        "imex_unit_down": "nvidia-imex.service is not in the state that its owner requires: it does not run, or has"
        " failed; check journalctl -u nvidia-imex, remove the cause, then start it or run the role imex",
        "imex_unit_down.failed": "nvidia-imex.service has failed ({result}); check its log and remove the cause, then"
        " run systemctl reset-failed nvidia-imex and start it.",
        "imex_unit_down.stopped": "nvidia-imex.service is enabled and does not run ({active}); check journalctl -u"
        " nvidia-imex.service, then start it.",
        "imex_unit_starting": "nvidia-imex.service is still starting though its daemon runs, and systemd ends it after"
        " the unit's TimeoutStartSec; check journalctl -u nvidia-imex.service, then restart it",
        "imex_timeout": "nvidia-imex-ctl {option} did not respond in time{stuck}; drain the tray and restart the"
        " daemon, reboot the tray if it hangs again",
        "imex_two_owners": "Two of service, Prolog, DRA driver and manual start run IMEX on one host, which has one"
        " IMEX session; keep one owner, and stop the other on this host",
        "imex_two_owners.owners": "IMEX has more than one owner here: {owners}",
        "imex_two_owners.foreign": "An IMEX daemon of an unknown owner runs on this tray ({why}), and option owner is"
        " {owner}; stop that daemon first.",
        "imex_two_owners.driver": "The DRA driver runs IMEX on this tray, and option owner is {owner}; remove the"
        " tray's ComputeDomains, or set owner to driver_managed.",
        "imex_two_owners.prolog": "A Prolog of Slurm starts IMEX on this tray ({why}), and option owner is {owner};"
        " remove that Prolog, or set owner to job.",
        "imex_two_owners.masked": "nvidia-imex.service is masked, but process {pid} is an IMEX daemon that the DRA"
        " driver did not start; stop it.",
        "imex_in_use": "The driver's one IMEX session belongs to another daemon (NV_ERR_IN_USE); stop the other owner,"
        " perhaps in a container, then start this one",
        "imex_waiting_for_recovery": "IMEX waits for the peers that it had before an unclean stop{missing}; bring them"
        " up, or restart the daemons of the whole clique with a changed list or IMEX_WAIT_FOR_QUORUM=NONE",
    },
    (_IMEX, WARNING): {
        "imex_cmd_disabled": "IMEX_CMD_ENABLED is not 1, so the state of this daemon cannot be read; set it to 1 and"
        " restart the daemons of the clique",
        "imex_foreign_daemon": "An IMEX daemon runs that neither nvidia-imex.service, nor a prolog, nor the DRA driver"
        " started ({why}); stop it and start its owner",
    },
    (_IMEX._replace(layer=""), WARNING): {
        "imex_restart_pending": "The list ({path}) or the package was written after the daemon started, which reads it"
        " at its start only; restart the daemons of the whole clique together while no job runs there",
    },
    (_IMEX, INFO): {
        "imex_missing": "nvidia-imex is not installed; run the role imex where IMEX is needed",
        "imex_persist_left": "A persist file is left from an unclean stop, so the next start waits for the peers of"
        " that time; start with a changed list, or remove the file when no job of that time runs any more",
    },
    (_PEERS, ERROR): {
        "imex_list_differs": "Members of an IMEX domain started with different lists (!M!), as where another program"
        " writes them; write one list on all trays of the clique, then stop all daemons and start all",
        "imex_list_differs.peers": "This tray and {peers} started with different lists (!M!) and do not connect",
        "imex_list_unusable": "IMEX has no list or configuration that it can read: a line is empty, a comment, a"
        " duplicate or no address; run the role imex on the whole clique, which writes the list again",
        "imex_list_unusable.line": "Line {number} of {path} is {why} ({entry}), and a node's id is its line",
        "imex_list_unusable.unread": "IMEX cannot read its list {path}",
        "imex_list_unusable.missing": "There is no list {path}",
        "imex_list_unusable.config": "{path} cannot be read; reinstall the package nvidia-imex, which has it.",
        "imex_no_own_address": "No line of {path} is an address of this tray, so it is not a node of its IMEX domain;"
        " correct imex_address in the fabric file, or let the daemon start after the network",
        "imex_no_own_address.desired": "The imex_address of this tray in the fabric file is {address}, which is none"
        " of its addresses, so its IMEX would not start; correct it in the fabric file.",
        "imex_pair_disconnected": "Two ready members are not connected; open port 50000 in both directions, then"
        " restart the clique's daemons",
        "imex_peer_authentication": "Members of an IMEX domain cannot authenticate each other (!A!); check that the"
        " TLS files of their config.cfg are of one authority and not expired, then restart the daemons of the clique",
        "imex_peer_authentication.peers": "This tray and {peers} cannot authenticate (!A!) and do not connect",
    },
    (_PEERS, WARNING): {
        "imex_list_outdated": "{path} is not the list that was written for generation {generation} of clique {clique};"
        " run the role imex on the whole clique, which writes one list on all its trays",
        "imex_peer_lost": "A tray is not connected to some peers, or is connected to all and its domain is not up; run"
        " fabric_facts with gather_subset=imex on the other members, and check ports 50000 and 50005 between members",
        "imex_peer_lost.disconnected": "{lost} not connected ({connections})",
        "imex_peer_lost.domain": "This tray is connected to all its peers, but the domain is {state}",
        "imex_peer_lost.no_peers": "No peer of this tray is known, but the domain is {state}",
    },
    (_CHANNELS, ERROR): {
        "imex_channel_stale": "A channel device ({devices}) has another major number than {major}, the driver's since"
        " this boot; remove and create the device again",
    },
    (_CHANNELS, WARNING): {
        "imex_channel_missing": "There is no channel device, without which CUDA calls are not permitted; set"
        " imex_channels for the role imex, or use Slurm's switch/nvidia_imex, which creates one for each job step",
        "imex_channels_off": "The driver has no IMEX channels (no line nvidia-caps-imex-channels in /proc/devices);"
        " set NVreg_ImexChannelCount (imex_channel_count) above 0 and reboot",
        "imex_channel_slurm_conflict": "Channel devices ({devices}) and Slurm's switch/nvidia_imex conflict: each"
        " start of slurmd and each scontrol reconfigure removes them, and until then jobs of every user reach them on"
        " Slurm 24.11; remove them, leave imex_channels empty, and let the driver create none"
        " (NVreg_CreateImexChannel0=0, imex_create_channel0: false)",
    },
    (_CHANGE, ERROR): {
        "imex_clique_partial": "IMEX of a clique must change as a whole, and some of its trays are left out or faulty;"
        " repair those trays or stop their daemons, then run the role imex on the whole clique",
        "imex_channels_not_offered": "The driver offers no IMEX channels, so the role imex cannot create those of"
        " imex_channels; set imex_channel_count: 2048, run the role again and reboot the tray, or leave imex_channels"
        " empty",
        "imex_package_missing": "No repository of this tray has {names} in version {driver} of the loaded"
        " driver{available}; add the repository that has the driver",
        "jobs_running": "Jobs, claims or ComputeDomains run on what is to be changed, removed or created again; wait"
        " for them or delete them, or set the variable that the finding names",
        "jobs_running.moving": "{run} on trays that change their block ({jobs}): wait until they end, or set"
        " allow_moving_jobs (variable slurm_topology_allow_moving_jobs).",
        "jobs_running.partitions": "Partitions to remove still have jobs ({jobs}), which Slurm would end: set the"
        " tier's state to drain, and remove it when they have ended.",
        "jobs_running.imex": "Jobs run on this clique ({jobs}) and would break, because IMEX must stop for {reason};"
        " wait for them, or allow the stop with imex_allow_jobs.",
        "jobs_running.job": "Job {job} has its IMEX domain on this tray and would lose it; drain the tray and run the"
        " role again when the job has ended, or set imex_allow_jobs.",
        "object_unmanaged": "An object or QoS of the same name is not managed by this collection; use another name,"
        " let the collection manage it, or remove it",
        "object_unmanaged.qos": "The QoS {qos} exists and does not belong to the tiers (its description is"
        " {description}): use another name, or set its description to {ours} to hand it over.",
        "live_changes_lost": "gate: a reconfigure would undo live changes of partitions, nodes or settings, or no"
        " sandbox can show that; write them into slurm.conf, or name the gate in the override that the message names",
        "live_changes_lost.gate": "{what}: write the live values into slurm.conf, or set override (variable"
        " slurm_topology_override) to {gates} if this is intended.",
        "base_shrinks": "gate: the base block size would be smaller than the running one; complete the clique, set"
        " slurm_topology_min_block_size, or name the gate in slurm_topology_override",
        "block_sizes_change": "gate: the block sizes of the site's file would change; set slurm_topology_block_sizes,"
        " or name the gate in slurm_topology_override",
        "block_shrinks": f"gate: a running block would keep fewer nodes; check the fabric file, {_SLURM_GATE}",
        "block_vanishes": f"gate: a running block would keep no node; check the fabric file, {_SLURM_GATE}",
        "cluster_default_changes": "gate: partitions without Topology= would use another topology; set"
        f" slurm_topology_cluster_default, or {_SLURM_GATE}",
        "cluster_default_changes.default": "{what}: set cluster_default (variable slurm_topology_cluster_default) to"
        " {default} to keep it, or set override (variable slurm_topology_override) to {gates} if this is intended.",
        "nodes_lose_block": f"gate: nodes of running blocks would be in no block; check the fabric file, {_SLURM_GATE}",
    },
    (_CHANGE, WARNING): {
        "imex_reboot_needed": "NVreg_{options} of {file} take effect when the driver is loaded again; reboot the tray",
        "slurm_gate_overridden": "The site allows what would stop the apply: a gate, or jobs on moving trays; no action"
        " needed",
        "slurm_gate_overridden.jobs": "{run} on trays that change their block ({jobs}): the jobs keep their trays.",
        "slurm_gate_overridden.gate": "The gate {gate} is overridden: {what}.",
    },
    (_TOPOLOGY, ERROR): {
        "slurm_blocks_differ": "slurmctld has no block topology, lacks the block of a clique, or has a tray in another"
        " block or in none, as when its file was edited by hand or is outdated; run the playbook slurm",
        "slurm_block_overlap": "A node is in two blocks, which slurmctld accepts; keep it in that of its clique",
        "slurm_block_overlap.blocks": "The node {tray} is in the blocks {first} and {block}, which slurmctld does not"
        " report: list it only in the block of its clique.",
        "slurm_block_overlap.twice": "The node {tray} is listed {number} times in block {block}: two trays have one"
        " slurm_node in the fabric file; give each its own with fabric_slurm_node, then run discover and accept.",
        "slurm_node_unclaimed": "slurmctld has a node in the block of a clique that the fabric file lacks, so jobs may"
        " leave the clique; discover the tray if it belongs there, then run the playbook slurm",
        "slurm_reconfigure_needed": "slurmctld does not place jobs as its blocks allow (it refuses a job, or ignores"
        " segments), as after scontrol update of a node or partition; run scontrol reconfigure on the Slurm controller",
    },
    (_TOPOLOGY, WARNING): {
        "slurm_topology_differs": "slurmctld runs another topology than {path} has; run slurm_topology or scontrol"
        " reconfigure",
    },
    (_FILES, ERROR): {
        "slurm_no_blocks": "The topology has no block, or none with a node; run the playbook discover first, so that"
        " the fabric file has cliques with trays",
        "slurm_no_blocks.no_node": "No block of the topology has a node",
        "slurm_block_invalid": "slurmctld would reject a block: its name, a node's, or one without nodes;"
        " correct the fabric file or slurm_topology_other_topologies, or upgrade Slurm",
        "slurm_block_invalid.name": "The block name {name} is not valid in a topology file: use only letters, digits,"
        " '.', '_' and '-'.",
        "slurm_block_invalid.empty": "The block {block} has no nodes, which Slurm {version} refuses: leave it out, or"
        " upgrade to 25.05.",
        "slurm_block_invalid.node": "The node name {node} in block {block} is not one that Slurm can list: set"
        " fabric_slurm_node of that tray to its NodeName, then run discover and accept.",
        "slurm_block_size": "A block or a group of cliques does not fit the block sizes (the base size times a power"
        " of two); correct slurm_topology_block_sizes, or the groups (edit_groups)",
        "slurm_block_size.groups": "Slurm cannot aggregate the groups of cliques, since {problem}: give all groups the"
        " same number of blocks, 1, 2, 4, 8 and so on, in the fabric file (playbook accept, variable edit_groups), or"
        " set block_sizes (variable slurm_topology_block_sizes) to {base} alone.",
        "slurm_block_size.short": "The block {block} has {nodes}{unknown}, fewer than the base block size {base},"
        " which Slurm {version} refuses: set slurm_topology_block_sizes to at most the smallest block, add the"
        " missing nodes to slurm.conf, or upgrade to 25.05.",
        "slurm_block_size.no_number": "The block size {size} is not a number of nodes: set numbers from 1, and at most"
        " 65535 as the base size.",
        "slurm_block_size.no_power": "The block size {size} is not the base size {base} times a power of two: set"
        " slurm_topology_block_sizes to {base}, {double}, {fourfold} and so on.",
        "slurm_block_size.no_level": "The block size {size} is more than {most} times the base size {base}, and Slurm"
        " has {levels} levels: leave it out of slurm_topology_block_sizes.",
        "slurm_segment": "A --segment of a tier is rejected or fits into no block; use smaller segments",
        "slurm_segment.above_base": "The {name} segment {segment} of partition {partition} is above the base block"
        " size {limit}, which Slurm {version} refuses: use at most {limit}.",
        "slurm_segment.above_blocks": "The {name} segment {segment} of partition {partition} fits in none of its"
        " blocks, the largest of which has {size}: use at most {largest}.",
        "slurm_topology_foreign": "A topology file or topology of the site would be lost, hides the new one, or is not"
        " read by this Slurm; move that file away, or set slurm_topology_name",
        "slurm_topology_foreign.tree": "{path} has lines of a tree or Include lines, which would be lost: {how}move it"
        " away without a restart of slurmctld, and run again.",
        "slurm_topology_foreign.name": "The topology {name} of the site is of kind {kind} and would be lost: set"
        " slurm_topology_name to another name.",
        "slurm_conf_inconsistent": "slurm.conf lacks a line that is needed, or has one that contradicts a managed"
        " setting; correct the line that the finding names",
        "slurm_conf_inconsistent.topology_name": "The topology name {name} is not valid in slurm.conf: use only"
        " letters, digits, '.', '_' and '-'.",
        "slurm_conf_inconsistent.topology_twice": "{number} topologies are named {name}, of which Slurm uses the"
        " first: give each its own name.",
        "slurm_conf_inconsistent.partition_topology": "The partition {partition} has Topology={topology}, which the"
        " new topology file does not have ({known}): set slurm_topology_name to it, or change the partition.",
        "slurm_conf_inconsistent.cluster_default": "The cluster's default topology {default} is not in the file"
        " ({known}): correct slurm_topology_cluster_default.",
        "slurm_conf_inconsistent.include": "{path} has no line {line}: add it, or set slurm_tiers_manage_conf to true.",
        "slurm_conf_inconsistent.job_submit": "JobSubmitPlugins={given} in slurm.conf does not load the script for"
        " segments: set JobSubmitPlugins={plugins} there.",
        "slurm_conf_inconsistent.own_script": "{script} is the site's own and does not call {policy}: add the line"
        " from the head of that file.",
        "slurm_conf_inconsistent.partition": "The partition {partition} is defined in {file}: remove it there, or"
        " rename the tier.",
        "slurm_conf_inconsistent.node_line": "The NodeName line of {nodes} in slurm.conf has Topology={topology}, but"
        " {why}: remove Topology= from that line, or correct it.",
        "slurm_conf_inconsistent.node_line_differs": "The NodeName line of {nodes} in slurm.conf has"
        " Topology={topology}, which {why}: remove Topology= from that line, or correct it.",
        "slurm_conf_inconsistent.no_file": "There is no slurm.conf on this tray, so no job would get an IMEX domain;"
        " bring up Slurm first, or set imex_job_slurm_conf.",
        "slurm_conf_inconsistent.prolog_flags": "PrologFlags in {path} has no Alloc, so a tray's prolog would run at"
        " its first step only while the others wait for it; add PrologFlags=Alloc and run scontrol reconfigure.",
        "slurm_conf_inconsistent.timeout": "{setting} in {path} would end the program before it can report why IMEX is"
        " not ready, which may take {seconds} s; raise that limit, or lower imex_job_wait and imex_job_stop_wait.",
        "slurm_conf_inconsistent.prolog": "{path} does not run prolog and epilog of IMEX per job; add {lines} (an"
        " existing Prolog may call {program} prolog instead), and run scontrol reconfigure.",
        "slurm_select_type": "SelectType is not select/cons_tres; set SelectType=select/cons_tres in slurm.conf",
        "slurm_plugin_missing": "TopologyPlugin is not set, so topology.conf is not read; set"
        " TopologyPlugin=topology/block when topology.conf has the blocks, and run scontrol reconfigure",
        "slurm_plugin_missing.unset": "slurm.conf does not set {key}, and slurmctld runs with {runs}: set"
        " slurm_topology_manage_conf for the group all or slurm_controller, or add {key}={want} when topology.conf has"
        " the blocks, then run scontrol reconfigure.",
        "slurm_plugin_missing.not_loaded": "slurmctld runs with {key}={runs}, but slurm.conf has {value}: run scontrol"
        " reconfigure when topology.conf has the blocks; until then a restart would end slurmctld.",
    },
    (_FILES, WARNING): {
        "slurm_channels_few": "Slurm has fewer IMEX channels than nodes, more than the driver has, or none that it can"
        " give a job; raise NVreg_ImexChannelCount (imex_channel_count), then slurm_imex_channel_count",
        "slurm_topology_other_writer": "Two programs write Slurm's topology file; let one program write it, or set"
        " verify_slurm_topology_owner",
        "slurm_topology_other_writer.ours": "slurm_topology wrote {path} last, which another program is meant to"
        " write: remove the role slurm_topology from the site's playbooks, or set owner to collection.",
        "slurm_topology_other_writer.other": "Another program than slurm_topology wrote {path} last; it begins with"
        " {line}: let only one of them write it, or set owner to other where that program is meant to.",
        "slurm_blocks_limited": "Slurm works with less than the fabric allows: small blocks or unequal groups; set"
        " slurm_topology_block_sizes or edit_groups, complete the clique, or correct slurm_topology_other_topologies",
        "slurm_blocks_limited.no_group": "{names} in no group, so Slurm cannot aggregate the others and the base block"
        " size {base} is set alone: give all cliques a group in the fabric file (playbook accept, edit_groups).",
        "slurm_blocks_limited.split": "The base block size of all blocks is {base} instead of {whole}, since {split}"
        " have fewer trays: a job of more trays may be placed in several blocks, so set slurm_topology_split to larger"
        " sizes, slurm_topology_block_sizes, or upgrade to 25.05 where {base} is the size of the smallest block.",
        "slurm_blocks_limited.aggregates": "The aggregated blocks change, {blocks} are no longer one: keep retired"
        " blocks as placeholders (25.05), or inform the users of the larger sizes.",
        "slurm_blocks_limited.left_out": "Block {block} ({number}: {nodes}) is left out, since min_block_size"
        " (variable slurm_topology_min_block_size) is {minimum}: its nodes are in no block; complete the clique, or"
        " upgrade to 25.05.",
        "slurm_blocks_limited.last_group": "A job of more than {nodes} nodes is placed only if it has room without the"
        " last {last}, since Slurm counts whole groups of {group} only: add the block size {size}, or placeholders.",
        "slurm_blocks_limited.one_group": "A job of more than {nodes} nodes never starts, since Slurm counts whole"
        " groups of {group} only: add the block size {size}.",
        "slurm_clique_above_base": "A clique, segment or tier is above the base block size, so jobs may be spread over"
        " blocks; give the clique a partition of its own, set per_block for its tier, or use smaller segments",
        "slurm_clique_above_base.tier": "The partition {partition} has several blocks, of which {blocks} is above the"
        " base block size {base}, so Slurm {version} may spread a job of {more} trays or more: set its per_block.",
        "slurm_clique_above_base.rehearsal": "Rehearsal: {job}, which is a whole block, is spread {where} when no block"
        " is free, because the base block size is {base}: give such a block a partition of its own.",
        "slurm_clique_above_base.block": "The block {block} has {number} nodes and the base block size is {base}, so"
        " Slurm {version} may spread a job of {more} to {number} nodes over several blocks; give such jobs a"
        " partition of that block's nodes, or {how}.",
        "slurm_node_unknown": "Slurm has no node {nodes} of block {block}; add NodeName lines to slurm.conf, or"
        " correct fabric_slurm_node and run discover and accept",
        "slurm_hardware_assumed": "The hardware of a tray was never read, or its answer is impossible, so slurm.conf"
        " assumes that of its clique or keeps the old line; bring the tray up, run slurmd -C there, and run the role"
        " slurm again",
        "slurm_feature_limited": "A feature of Slurm that the site uses works with limits, as its setting is in the"
        " wrong line or the release is older; correct the line, or plan the upgrade that the finding names",
        "slurm_feature_limited.expedite": "enable_expedited_requeue is in SchedulerParameters, where slurmctld does not"
        " read it, so sbatch --requeue=expedite is refused: move it to SlurmctldParameters and run scontrol"
        " reconfigure.",
        "slurm_feature_limited.timeout": "With each scontrol reconfigure Slurm {version} waits SlurmdTimeout again for"
        " a tray that does not answer, so its job gets the spare late or never: reconfigure seldom, or upgrade to"
        " 26.05.",
        "slurm_feature_limited.reservation": "The backfill scheduler of Slurm {version} may plan jobs wrongly after"
        " trays of a reservation were exchanged, as of one for spares: upgrade to 26.05.",
        "slurm_feature_limited.partitions": "A job that names several partitions waits in all of them where the"
        " topology refuses it in one, and partitions of single blocks exist: upgrade Slurm {version} to 25.11.1, or"
        " name one partition in each job.",
        "slurm_feature_limited.channels": "Slurm {version} swaps two arguments of --network=unique-channel-per-segment,"
        " so segments do not get a channel each: upgrade to 25.11.4, or do not use that option.",
        "slurm_conf_advice": "A setting or file of Slurm lets jobs do what they should not; correct the line or"
        " file that the finding names",
        "slurm_conf_advice.ranks": "The order of the node names alternates between blocks, and ranks follow the names:"
        " add TopologyParam=BlockAsNodeRank to slurm.conf, or set slurm_topology_manage_conf.",
        "slurm_conf_advice.other_file": "topology.conf is no longer read, since there is a topology.yaml: remove it.",
        "slurm_conf_advice.other_file_soon": "When slurmctld has loaded topology.yaml, topology.conf is no longer read:"
        " remove it then.",
        "slurm_conf_advice.other_file_later": "topology.yaml is next to topology.conf and will hide it after an"
        " upgrade to 25.05: remove it.",
        "slurm_conf_advice.qos_named": "The QoS {qos} has no tier any more, but partition {partition} still names it:"
        " remove it there first.",
        "slurm_conf_advice.open": "The partition {partition} of {where} gives all users the trays of {tiers}: set"
        " AllowAccounts, AllowQos or AllowGroups, or other nodes.",
        "slurm_conf_advice.enforce": "AccountingStorageEnforce is {value}, so Slurm does not enforce the tiers' QoS:"
        " set associations,limits,qos in slurm.conf.",
        "slurm_conf_advice.preempt": "PreemptType is not preempt/qos, so no tier preempts another: set it in"
        " slurm.conf.",
        "slurm_conf_advice.shared": "Jobs of {partitions} may share trays and {path} has no GresTypes=gpu (or has"
        " shard or mps beside it), so every job of several trays that is not submitted with --exclusive is cancelled;"
        " set Exclusive=NODE (before 26.05 OverSubscribe=EXCLUSIVE, in slurm_tiers exclusive: node) for the partition,"
        " or GresTypes=gpu.",
        "slurm_conf_advice.emptied": "{file} was emptied and stays, because {key} in {path} matches no other file,"
        " which Slurm treats as an error; remove that line, run scontrol reconfigure, and run the role again.",
        "release_old": "This release of Slurm or Kubernetes works with limits; plan the upgrade that the finding names",
        "release_old.empty_blocks": "Slurm {version} does not support empty blocks, so {empty} is left out: the blocks"
        " after it move up, which shifts the larger block sizes; use only the base size, or upgrade to 25.05.",
        "release_old.power_saving": "Slurm {version} drops powered-down nodes from their blocks until the next"
        " reconfigure: upgrade to 25.11.4 or later.",
        "release_old.update": "Slurm {version} takes a node out of block scheduling when scontrol update names a block"
        " that the node is in already, and {others} has blocks as well: reconfigure after such a command, or upgrade"
        " to 26.05.4 or later.",
        "release_old.one_topology": "Slurm {version} with topology.conf has one topology for all nodes, so {others} is"
        " left out: keep nodes without GPUs in partitions of their own, or upgrade to 25.05.",
        "release_old.segments": "Slurm {version} cannot enforce the segments of {partitions}: set SBATCH_SEGMENT_SIZE"
        " for their users, or upgrade to 25.11.2.",
    },
    (_FILES, INFO): {
        "slurm_conf_note": "A setting has no effect, or was changed manually; no action needed, or correct what the"
        " finding names",
        "slurm_conf_note.plugin": "TopologyPlugin={value} in slurm.conf has no effect next to topology.yaml: remove"
        " the line.",
        "slurm_conf_note.segments": "The segments of {partitions} are not enforced: set slurm_tiers_segment_script"
        " to true to have Slurm enforce them.",
        "slurm_conf_note.weight": "PriorityWeightQOS is 0, so the priorities of the tiers' QoS have no effect: set it"
        " in slurm.conf.",
        "slurm_conf_note.topology": "The topology {name} ({kind}) stays next to {own}.",
        "slurm_conf_note.task_prolog": "A batch job that runs without IMEX has no line about that in its log without a"
        " TaskProlog; add TaskProlog={program} to {path}, or call {program} task from the site's own TaskProlog.",
    },
    (_JOBS, ERROR): {
        "slurm_rehearsal_refused": "In a rehearsal slurmctld rejects the new files, a required job would stay pending,"
        " or no rehearsal has finished; correct the line or reason that the finding names",
        "slurm_rehearsal_refused.files": "In the rehearsal slurmctld {version} refuses the new files ({error}):"
        " correct the setting that it names; nothing was written.",
        "slurm_rehearsal_refused.block": "Rehearsal: {job} in block {block}, which has {size}, {why}: compare the"
        " block with slurm.conf.",
        "slurm_rehearsal_refused.spread": "Rehearsal: slurmctld spreads {job} {where}, though the base block size is"
        " {base}: compare the blocks with slurm.conf and Slurm's release notes.",
        "benchmark_failed": "A benchmark failed, was slow, ran elsewhere than requested, or had no IMEX channel of its"
        " own; check the output that the finding quotes, SwitchType=switch/nvidia_imex, and the NVLink switches",
    },
    (_JOBS, WARNING): {
        "slurm_jobs_unanswered": "slurmctld did not answer where it would place jobs, or allocates no block for its"
        " benchmark; wait for the jobs, correct the reason given, or set verify_slurm_test_seconds to 0",
        "slurm_rehearsal_job": "In a rehearsal a job would stay pending for ever, or was not evaluated in time;"
        " correct its size or segment or the partition's trays and limits, or raise slurm_topology_rehearse_timeout",
        "slurm_rehearsal_job.all": "Rehearsal: {job}, which is all trays, never starts without --segment, {why}:"
        " tell the users to set --segment={segment} for jobs of so many trays.",
        "slurm_rehearsal_job.past": "Rehearsal: {job} in partition {partition}, as one of the last {days} days, would"
        " be pending for ever ({reason}): compare the blocks and their size with what its user needs.",
    },
    (_JOBS, INFO): {
        "slurm_rehearsal_skipped": "No rehearsal was possible; use root on the Slurm controller, outside a container",
    },
    (_TIERS, ERROR): {
        "slurm_tier_differs": "The partition or QoS of a tier differs from slurm_tiers, as when it or its definition"
        " was changed; run the playbook slurm with --tags tiers",
        "slurm_tier_unknown": "A tier names a node, QoS, topology, TRES or account that Slurm does not have, or Slurm"
        " has no accounting; create it, leave it out of the tier, or set up slurmdbd and slurm_tiers_create_accounts",
        "slurm_tier_unknown.no_accounting": "The tiers have QoS or accounts, and this Slurm has no accounting"
        " (AccountingStorageType is {type}): set accounting_storage/slurmdbd, or leave them out.",
        "slurm_tier_unknown.nodes": "Slurm does not have {number} of partition {partition} ({nodes}) and would not"
        " start: add NodeName lines, or correct fabric_slurm_node and run discover and accept.",
        "slurm_tier_unknown.topology": "The partition {partition} names the topology {topology}, which slurmctld does"
        " not run: apply slurm_topology first, or correct the tier's topology.",
        "slurm_tier_unknown.tres": "The QoS {qos} limits {kinds}, which Slurm does not count: add it to"
        " AccountingStorageTRES.",
        "slurm_tier_unknown.qos": "The tier {tier} names the QoS {qos}, which does not exist: add it, or leave it out.",
        "slurm_tier_unknown.accounts": "slurmdbd has no {names} in cluster {cluster}: add it with sacctmgr, or set"
        " slurm_tiers_create_accounts to true to create those that are granted a QoS.",
    },
    (_LABELS, ERROR): {
        "k8s_unreachable": "The Kubernetes API server did not respond; check the kubeconfig and the API server",
        "k8s_clique_label_wrong": "The clique label of a node is not the clique of its GPUs, as when it was set by"
        " hand or not updated; restart the label's writer on that node and check its log",
        "k8s_clique_label_writers": "No running program, or more than one, writes the clique label; keep or start"
        " exactly one writer, and name it in k8s_topology_label_writer",
        "k8s_scheduler_missing": "A requested scheduler is not installed; install or upgrade it, or correct"
        " k8s_topology_schedulers",
        "k8s_apply_incomplete": "Some writes succeeded and others failed; run the role again once the cause is fixed",
    },
    (_LABELS, WARNING): {
        "k8s_node_missing": "A tray has no Kubernetes node, or its kubernetes_node is no valid node name; join it, or"
        " set fabric_kubernetes_node, then run discover and accept",
        "k8s_clique_label_missing": "The node of a tray lacks its clique label, as when gpu-feature-discovery does not"
        " run there; check the log of the label's writer, which may be a minute late, and restart it on that node",
        "k8s_clique_label_unknown_writer": "An unknown program, or one that no longer runs, wrote the clique label;"
        " find the field manager that the finding names, or let the present writer overwrite the label",
        "k8s_label_missing": "Nodes lack a label that Kueue's flavor selects; set k8s_topology_flavor_labels, or label"
        " them",
    },
    (_LABELS, INFO): {
        "node_not_ready": "The Kubernetes node of a tray is NotReady, and its labels may be stale; run kubectl"
        " describe node",
        "k8s_topograph_deprecated": "Nodes have labels of Topograph 0.5 or older; let Topograph 1.0 write its labels,"
        " then remove the old ones when nothing names them",
    },
    (_INSTALL, ERROR): {
        "dra_kubernetes_too_old": "The chart does not support this version of Kubernetes, or the API server does not"
        " serve resource.k8s.io; upgrade to 1.34.2 or later, or enable DRA",
        "dra_driver_unsuitable": "The NVIDIA driver of a tray is too old, differs within the clique, or has no IMEX"
        " channels; install one version that supports ComputeDomains on the whole clique",
        "dra_device_plugin": "A device plugin allocates the GPUs that the DRA driver would allocate too; remove the"
        " device plugin from those nodes first, see docs/dra-driver.md",
        "dra_clique_unknown": "The GPUs of a tray, or a ComputeDomain's daemon, report no clique; repair its fabric",
        "dra_node_not_selected": "The driver would not run, or does not run, on a node, or a tray is no node of the"
        " cluster; join it or correct its kubernetes_node, and set a label that its affinity selects",
        "dra_node_setup": "A node has no CDI in its container runtime, or other paths of driver or kubelet than the"
        " values; enable CDI or upgrade the runtime, and correct the paths in dra_driver_values",
        "dra_value_refused": "The driver's chart or the API server rejects the values, or the driver exits because of"
        " them; correct dra_driver_values",
        "dra_insufficient_permissions": "The account cannot list the objects that a removal or the allocation of GPUs"
        " depends on; grant it the verb list on them",
        "dra_other_install": "Another installation of the driver, or another field manager of its CRDs, exists; keep"
        " one",
        "dra_release_failed": "The release is missing, incomplete, interrupted or newer than the chart, or Helm could"
        " not install it; correct what the message names, then install the release again or roll it back",
    },
    (_INSTALL, WARNING): {
        "dra_clique_size": "A clique has more nodes than the driver allows in an IMEX domain; set"
        " MAX_NODES_PER_IMEX_DOMAIN in controller.containers.computeDomain.env",
        "dra_network_policy": "A NetworkPolicy may block traffic between IMEX daemons; check that it allows traffic"
        " between pods of its namespace on TCP 50000 and 50005",
        "dra_not_readable": "Part of the cluster or of the trays could not be read; grant the account that right, or"
        " repair the tray",
        "dra_crd_stale": "A CRD of the driver differs from the chart's; run the role dra_driver with the tag crds",
        "dra_upgrade_drops": "An upgrade from 25.x drops a value or an object; set the value again if it is needed",
    },
    (_INSTALL, INFO): {
        "dra_release_old": "The release is of a 25.x chart, whose object names are kept; no action needed",
    },
    (_DOMAINS, ERROR): {
        "dra_plugin_unready": "Pods of the driver, a daemon of a ComputeDomain, a claim or a probe are not ready;"
        " check the log of the pod or the object that the finding names",
        "dra_node_outdated": "What the DRA driver publishes for a node differs from its GPUs: no ResourceSlice, fewer"
        " GPUs, or another clique in a ComputeDomainClique; restart the plugin on that node and check its log, then"
        " restart the workload",
        "dra_domain_stuck": "The deletion of a ComputeDomain or probe does not end; check that the driver's controller"
        " runs",
    },
    (_DOMAINS, WARNING): {
        "dra_domain_leftovers": "A deleted ComputeDomain left objects behind; wait, then delete them",
        "dra_domain_spans": "A ComputeDomain spans several cliques; bind its workload to one by affinity to"
        " nvidia.com/gpu.clique",
    },
    (_DOMAINS, INFO): {
        "dra_dcgm_imex": "DCGM monitors IMEX, which the driver owns; exclude IMEX from its health watches",
    },
}
"""(Symptom, severity) -> code, or code.case -> template, in the order in which somebody who searches by a symptom reads
them.

A code's template is the sentence, a semicolon and the remedy, with placeholders for values and subjects ({gpu} is
"GPU 2"). That of a case is a sentence for which the code's remedy holds, or ends with a full stop and has its own; one
that begins with the semicolon has the code's sentence. A sentence that the controller words itself (function finding)
has the code's severity, and its remedy by the same rule.
"""

SHARED = {
    "late": "No rehearsal: {why}; raise slurm_topology_rehearse_timeout or slurm_tiers_rehearse_timeout.",
    "failed": "No rehearsal: {why} ({error}); check that slurmctld starts with its present files, or"
    " set slurm_topology_rehearse to never.",
    "impossible": "No rehearsal: {why}; run it as root on the Slurm controller's host, with Slurm's"
    " clients there and not in a container.",
    "ended": "The rehearsal ended before {number} of {jobs} had a result: raise slurm_topology_rehearse_timeout or"
    " slurm_tiers_rehearse_timeout.",
    "site": "Rehearsal: {job} in partition {partition} would be pending for ever ({reason}): correct its size, or the"
    " partition's trays and limits.",
    "set": "slurm.conf sets {key}={value} where the topology needs {want}: {how}.",
    "not_loaded": "slurmctld runs with {key}={runs}, but slurm.conf has {value}: run scontrol reconfigure.",
    "unset": "slurm.conf does not set {key}, and slurmctld runs with {runs}: add {key}={want}, or set"
    " slurm_topology_manage_conf for the group all or slurm_controller.",
    "gate": "{what}: check the fabric file, or set override (variable slurm_topology_override) to {gates} if this is"
    " intended.",
}
"""Case -> template, of several codes."""


def general(template: str) -> str:
    """The template without values: a GPU, ``<name>`` for others, nothing for one that is optional (within a word)."""
    text = re.sub(r"(?<=[a-z])\{\w+\}|\{\w+\}(?=[a-z])", "", re.sub(r"^\{gpu\}", "A GPU", template))
    return re.sub(r"\{(\w+)\}", r"<\1>", text.replace("{gpu}", "a GPU"))


def _catalogue() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for (symptom, severity), texts in TABLE.items():
        for name, text in texts.items():
            code, _dot, case = name.partition(".")
            if not case:
                sentence, _mark, remedy = text.partition("; ")
                command = COMMANDS.get(code, symptom.command)
                usual = "watch" if severity != INFO and symptom.layer in (HARDWARE, DRIVER, IMEX, CHANNELS) else "none"
                rows[code] = Row(symptom, severity, command, CAUSES.get(code, ""), {}, REPAIR.get(code, usual))
            text = f"{sentence}{text}" if text.startswith("; ") else text
            rows[code].messages[case] = f"{text}." if not case else text if text.endswith(".") else f"{text}; {remedy}."
    return rows


CATALOGUE = _catalogue()
