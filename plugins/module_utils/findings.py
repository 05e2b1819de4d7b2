# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one table of findings: every reason code of this collection by symptom, with severity, sentence and remedy.

A finding travels as JSON::

    {"code": "gpu_lost", "severity": "error", "message": "One sentence with the remedy.", "gpu": 2}

Further keys are the subjects that apply: ``tray``, ``clique``, ``domain``, ``block`` (strings), ``gpu`` (index). A code
exists where somebody acts differently for it; what happened in one case stands in the message. The severity is that of
the subject: error, it cannot serve multi-node NVLink jobs (or the thing to be written is wrong); warning, it can, and
somebody should check it; info, no action needed. Whether a run fails for it is the playbook's decision.

docs/findings.md is generated from this table (make reference), and verify takes layer, cause and command from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

if TYPE_CHECKING:
    from typing import Unpack  # novermin: of Python 3.11, which mypy reads as

ERROR, WARNING, INFO = "error", "warning", "info"

HARDWARE, FABRIC_FILE, DRIVER, CHANNELS, IMEX = "hardware", "fabric_file", "driver", "channels", "imex"
SLURM, TIERS, KUBERNETES = "slurm", "tiers", "kubernetes"
LAYERS = (HARDWARE, FABRIC_FILE, DRIVER, CHANNELS, IMEX, SLURM, TIERS, KUBERNETES)
"""From the lowest up: a fault in one layer often causes failures in those after it."""


MAX_MESSAGE = 4096
"""Characters of a message."""


class Subject(TypedDict, total=False):
    """What a finding is about; a key that does not apply is null or left out."""

    tray: str | None
    gpu: int | None
    clique: str | None
    domain: str | None
    block: str | None
    node: str
    crd: str
    key: str


class _Stated(TypedDict):
    code: str
    severity: str
    message: str


class Finding(_Stated, Subject):
    """One finding, as the module's text says."""


class Row(NamedTuple):
    """One code.

    sentence: what is wrong. remedy: what to do, in words. layer, cause and command: for the failures of verify; a code
    without a layer has that of the check that found it. The command may have the placeholders {tray}, {clique}, {file},
    {node} (the tray in Slurm) and {kubernetes_node}. message: that of a HostFinding without a case; messages: case ->
    its message; both have placeholders for values and subjects. Without them it is sentence and remedy.
    """

    severity: str
    sentence: str
    remedy: str
    layer: str = ""
    cause: str = ""
    command: str = ""
    message: str = ""
    messages: Mapping[str, str] = {}


_DISCOVER = "ansible-playbook rackscale.nvlink.discover -e fabric_file={file}, then accept the proposal as it prints"
_SLURM = "ansible-playbook rackscale.nvlink.slurm -e fabric_file={file} --diff"
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
_PARTITION = "on the NVLink switch: nv show sdn partition"
_APPS = "on the NVLink switch: nv show cluster apps"
_REBOOT = "scontrol reboot ASAP nextstate=RESUME {node}"
_LABEL = (
    "kubectl -n gpu-operator delete pod -l app=gpu-feature-discovery --field-selector spec.nodeName={kubernetes_node}"
)
# The label leaves out the daemons of ComputeDomains, which jobs use.
_PLUGIN = (
    "kubectl -n dra-driver-nvidia-gpu delete pod -l dra-driver-nvidia-gpu-component=kubelet-plugin"
    " --field-selector spec.nodeName={kubernetes_node}"
)


# Messages of several rows.
_REHEARSAL = {
    "late": "The apply was not rehearsed: {why}; raise rehearse_timeout.",
    "failed": "The apply was not rehearsed: {why} ({error}); check that slurmctld starts with its present files, or"
    " set rehearse to never.",
    "impossible": "The apply was not rehearsed: {why}; run it as root on the Slurm controller's host, with Slurm's"
    " clients there and not in a container.",
    "ended": "The rehearsal ended before {number} of {jobs} had a result: raise rehearse_timeout.",
    "site": "Rehearsal: {job} in partition {partition} would be pending for ever ({reason}): correct its size, or the"
    " partition's trays and limits.",
}
_SETTING = {
    "set": "slurm.conf sets {key}={value} where the topology needs {want}: {how}, then restart slurmctld.",
    "not_loaded": "slurmctld runs with {key}={runs}, but slurm.conf has {value}: restart slurmctld.",
    "unset": "slurm.conf does not set {key}, and slurmctld runs with {runs}: add {key}={want}, or set manage_conf to"
    " true.",
}
_GATE = (
    "{what}: check the fabric file, or set override (variable slurm_topology_override) to {gates} if this is intended."
)

SYMPTOMS: dict[str, dict[str, Row]] = {
    "A tray does not answer, or its answer cannot be used": {
        "tray_unreachable": Row(
            WARNING,
            "a tray could not be reached",
            "bring it up, then run the playbook again",
            HARDWARE,
            "the tray is off, or its network or sshd is down",
            "bring it up, then ansible {tray} -m ansible.builtin.ping",
        ),
        "tray_facts_foreign": Row(
            ERROR,
            "the facts of a host set a variable that only the site may set",
            "find out what sets it: a compromised host, or a cacheable fact of the site's own; delete the host's facts",
        ),
        "tray_answer_invalid": Row(
            WARNING,
            "a host returned other data than the module documents; that part is dropped",
            "check the host: its Python or its shell changes the answers of modules",
        ),
        "tray_subset_failed": Row(
            ERROR,
            "a subset of a tray's facts could not be read",
            "run fabric_facts with that gather_subset alone on the tray, with -vvv",
            HARDWARE,
            "a part of the tray's operating system is damaged, such as Python or /proc",
            "ansible {tray} -m rackscale.nvlink.fabric_facts -a gather_subset=all -vvv",
            message="The subset {subset} of this tray could not be read ({error}); run rackscale.nvlink.fabric_facts"
            " with gather_subset={subset} there with -vvv.",
        ),
        "unusable_value": Row(
            WARNING,
            "a tool or source reported a value that is not valid, which counts as unknown",
            "run nvidia-smi -q on the tray, or correct the source that the finding names",
            messages={
                "value": "{source} reports {field} {value} of {subject}, which is not valid and counts as unknown; run"
                " nvidia-smi -q on the tray.",
                "hostname": "The tray's hostname is {value}, which is not valid and counts as unknown; set one of"
                " letters, digits, dots and dashes.",
                "platform": "The GPUs of this tray report different {what} ({found}), so the value counts as unknown;"
                " check the tray's firmware.",
                "exit": "nvidia-smi printed its output and exited with code {status}; see that code in its manual"
                " page.",
            },
        ),
        "addresses_unknown": Row(
            WARNING,
            "the tray's addresses could not be read",
            "check its network, or set its addresses in the inventory",
        ),
        "not_a_tray": Row(
            INFO, "a host without GPUs that is not in the fabric file was read", "remove it from fabric_hosts"
        ),
    },
    "The GPUs of a tray cannot be read": {
        "driver_missing": Row(
            ERROR,
            "the NVIDIA driver is not loaded, or its libraries, its nvidia-smi or its version are missing",
            "load the nvidia kernel modules, or install the driver and the user-space packages of its version",
            DRIVER,
            "the kernel modules did not load at boot, or the driver's packages are installed in part only",
            "ansible {tray} --become -a 'modprobe nvidia'",
            message="The NVIDIA driver is not loaded; load its kernel modules, or install it.",
            messages={
                "nvml_not_found": "NVML cannot be loaded ({error}); install the user-space packages of the NVIDIA"
                " driver.",
                "smi_not_linked": "nvidia-smi cannot load libnvidia-ml.so.1; install the user-space packages of the"
                " NVIDIA driver.",
                "imex": "The version of the loaded driver cannot be read, and IMEX must have the same; load the"
                " driver, or set option version.",
                "smi_not_started": "{program} cannot be started ({error}); install nvidia-smi with the driver, or set"
                " the option nvidia_smi to its path.",
            },
        ),
        "version_mismatch": Row(
            ERROR,
            "the driver's kernel module and its libraries have different versions",
            "reboot the tray, or reload the nvidia modules, to run the installed driver",
            DRIVER,
            "the driver was upgraded and its old kernel module is still loaded",
            _REBOOT,
            messages={
                "nvml": "The NVIDIA kernel module and NVML have different versions, as after an upgrade without a"
                " reboot; reboot the tray or reload the module.",
                "nvidia_smi": "The NVIDIA kernel module and its libraries have different versions, as nvidia-smi"
                " reports; reboot the tray or reload the module.",
            },
        ),
        "no_permission": Row(
            ERROR,
            "the NVIDIA driver refuses this user",
            "run the task with become: true, or check the modes of /dev/nvidia*",
        ),
        "driver_timeout": Row(
            ERROR,
            "the driver did not respond in time, or a process that read the GPUs hangs in the kernel",
            "check the kernel log for Xid messages (journalctl -k), then reboot the tray",
            HARDWARE,
            "the driver hangs in the kernel",
            _REBOOT,
            messages={
                "nvml": "NVML did not return from {call} within {seconds} s; check the kernel log for Xid messages,"
                " often only a reboot helps.",
                "nvidia_smi": "nvidia-smi did not finish within {seconds} s; check the kernel log for Xid messages,"
                " often only a reboot helps.",
                "survived": "The process {pid} that read {program} survived SIGKILL, it hangs in the kernel; reboot"
                " the tray, nothing else ends it.",
            },
        ),
        "driver_unreadable": Row(
            ERROR,
            "NVML or nvidia-smi failed, or nvidia-smi printed something else than its output",
            "run nvidia-smi -q -x on the tray, and check which program the option nvidia_smi names",
            messages={
                "nvml_killed": "NVML killed its process with signal {signal}; run nvidia-smi on the tray.",
                "nvml_not_called": "NVML could not be called ({error}); run nvidia-smi on the tray.",
                "nvml_status": "NVML's {call} failed with {status} ({number}); run nvidia-smi on the tray.",
                "nvml_handle": "NVML has no handle of GPU {gpu} ({status}, {number}); check the kernel log for Xid"
                " messages.",
                "smi_nothing": "nvidia-smi printed nothing and exited with code {status}; run nvidia-smi -q -x on the"
                " tray.",
                "smi_text": "nvidia-smi printed text instead of XML ({line}, exit code {status}); run nvidia-smi -q -x"
                " on the tray.",
                "smi_malformed": "The XML of nvidia-smi is truncated or malformed ({error} in line {line}); run"
                " nvidia-smi -q -x on the tray.",
                "smi_refused": "The XML of nvidia-smi was not parsed because it {why}; check which program the tray's"
                " PATH has as nvidia-smi.",
            },
        ),
        "backend_fallback": Row(
            INFO,
            "the facts are from nvidia-smi because NVML could not be used",
            "repair NVML, or set backend: nvidia_smi",
            message="NVML could not be used, so nvidia-smi was read: {reason}",
        ),
        "no_gpu": Row(
            ERROR,
            "the driver finds no GPU",
            "check the kernel log for Xid messages (journalctl -k) and the GPUs' power",
            HARDWARE,
            "the GPUs have no power or fell off the bus",
            _REBOOT,
        ),
        "gpu_lost": Row(
            ERROR,
            "a GPU has fallen off the bus, needs a reset or cannot be read",
            "drain the tray and reboot it, replace the GPU if that does not help",
            HARDWARE,
            "the GPU has fallen off the bus (Xid 79)",
            _REBOOT,
            messages={
                "lost": "GPU {gpu} is lost, it has fallen off the bus; drain the tray and reboot it.",
                "reset": "GPU {gpu} needs a reset before it responds; drain the tray and reset the GPU, or reboot.",
                "smi_lost": "nvidia-smi cannot list the GPUs because {which} is lost; drain the tray and reboot it.",
                "smi_reset": "nvidia-smi cannot list the GPUs because {which} needs a reset; drain the tray and reset"
                " that GPU, or reboot.",
                "smi_unread": "nvidia-smi describes {described} and cannot read another ({line}); check the kernel log"
                " for Xid messages, then drain the tray and reboot it.",
                "smi_fewer": "nvidia-smi counts {counted} and describes {described}; run nvidia-smi -q on the tray and"
                " compare it with nvidia-smi -L.",
            },
        ),
        "gpu_missing": Row(
            WARNING,
            "an attached tray reports fewer GPUs than when it was placed",
            "reboot the tray; replace the GPU if it stays away",
            HARDWARE,
            "a GPU no longer enumerates",
            _REBOOT,
        ),
        "recovery_action": Row(
            WARNING,
            "the driver requests a recovery action for a GPU",
            "drain the tray and run that action",
            message="GPU {gpu} needs the recovery action {action}, as its driver reports; drain the tray and run it.",
        ),
    },
    "A GPU is not in the NVLink fabric, or its fabric is degraded": {
        "tray_not_attached": Row(
            WARNING,
            "a tray responds, but its GPUs do not report one common clique",
            "check the tray's other findings",
            HARDWARE,
            "the GPUs have not joined the NVLink fabric",
            "ansible {tray} -a 'nvidia-smi -q'",
        ),
        "gpus_disagree": Row(
            ERROR,
            "the GPUs of one tray are in different NVLink domains or cliques",
            "check the NVLink partitions on the switches, the GPUs of a tray belong in one",
            message="The GPUs of this tray are in different cliques ({cliques}), so the tray is in none; check the"
            " NVLink partitions on the switches.",
        ),
        "gpus_partly_attached": Row(
            ERROR,
            "some GPUs of a tray are attached to the NVLink fabric and others have none",
            "run nvidia-smi -q on the tray, then reset its GPUs or reboot it",
            message="{gpus} of this tray (index {indexes}) without an NVLink fabric, the others are attached, so the"
            " tray is in no clique; run nvidia-smi -q on it, then reset its GPUs or reboot it.",
        ),
        "fabric_not_supported": Row(
            INFO,
            "the GPUs have no NVLink fabric, or one that ends at this host (HGX, cluster UUID of zeros)",
            "none for PCIe cards and HGX, else check the driver's version",
            messages={
                "none": "The GPUs of this tray have no NVLink fabric, so it is in no clique; no action for PCIe cards,"
                " else check the driver's version.",
                "local": "The NVLink fabric of this host ends at the host (its cluster UUID is zero, as on HGX), so it"
                " is in no clique; no action needed.",
            },
        ),
        "fabric_missing": Row(
            ERROR,
            "the GPUs of a tray of a rack (it reports its chassis) have no NVLink fabric",
            "run nvidia-smi -q on the tray, then reset its GPUs or reboot it",
            HARDWARE,
            "the driver has not registered the GPUs with the NVLink fabric",
            "ansible {tray} -a 'nvidia-smi -q'",
            message="The GPUs of this tray report a chassis, as those of a rack do, but no NVLink fabric, so it is in"
            " no clique; run nvidia-smi -q on it, then reset its GPUs or reboot it.",
        ),
        "fabric_uuid_zero": Row(
            WARNING,
            "a tray of a rack (it reports its chassis) is in a fabric whose cluster UUID is zero",
            "check the NMX controller; no action where the NVLink fabric ends at the host (NVL4)",
            HARDWARE,
            "the NMX controller has assigned no cluster UUID to the NVLink domain",
            _APPS,
            message="The GPUs of this tray report a chassis, as those of a rack do, but the cluster UUID of their"
            " NVLink fabric is zero, so the tray is in no clique; check the NMX controller, unless the fabric ends"
            " here.",
        ),
        "fabric_unknown": Row(
            WARNING,
            "not all GPUs of a tray report whether they are in an NVLink fabric",
            "check that the driver is R550 or newer, and run nvidia-smi -q on the tray",
            message="Not all GPUs of this tray report whether they are in an NVLink fabric, so it is in no clique;"
            " check that its driver is R550 or newer, and run nvidia-smi -q on it.",
            messages={
                "old_driver": "The driver {driver} has only version 1 of NVML's fabric call, which is not used, so the"
                " fabric is unknown; install driver R550 or newer, or set backend: nvidia_smi.",
            },
        ),
        "fabric_not_started": Row(
            ERROR,
            "a GPU has not started to register with the fabric manager",
            "start nvidia-persistenced, then check the NMX controller",
            HARDWARE,
            "nvidia-persistenced is not running",
            "ansible {tray} --become -a 'systemctl restart nvidia-persistenced'",
            message="GPU {gpu} has not started to register with the fabric manager; start nvidia-persistenced on the"
            " tray, then run fabric_facts again.",
        ),
        "fabric_in_progress": Row(
            ERROR,
            "a GPU waits for the fabric manager to register it, and CUDA calls hang until then",
            "check the NMX controller, on HGX nvidia-fabricmanager, and that an NVLink partition has this GPU",
            HARDWARE,
            "the NMX controller (HGX: nvidia-fabricmanager) does not answer, or the GPU is in no NVLink partition",
            _PARTITION,
            message="GPU {gpu} waits for the fabric manager to register it, and CUDA calls hang until then; check"
            " {host}the NMX controller and that an NVLink partition has this GPU.",
        ),
        "fabric_refused": Row(
            ERROR,
            "the fabric manager rejected a GPU, or reports an incorrect configuration of it",
            "check on the switches that an NVLink partition has this GPU, and correct what the finding names",
            HARDWARE,
            "the GPU is in no NVLink partition",
            _PARTITION,
            messages={
                "status": "GPU {gpu} was rejected by the fabric manager with {status}; check {host}on the switches"
                " that an NVLink partition has this GPU.",
                "configuration": "GPU {gpu} has an incorrect configuration ({configuration}), as the fabric manager"
                " reports; correct it.",
            },
        ),
        "fabric_no_partition": Row(
            WARNING,
            "a GPU is in no NVLink partition",
            "add it to a partition on the switches",
            message="GPU {gpu} is in no NVLink partition; add it to one on the switches.",
        ),
        "fabric_manager_disconnected": Row(
            WARNING,
            "a GPU is disconnected from the fabric manager",
            "check the NMX controller, or on HGX the host's nvidia-fabricmanager",
            HARDWARE,
            "the NMX controller has stopped, or the switches' management network has failed",
            _APPS,
            message="GPU {gpu} is disconnected from the fabric manager; check {host}the NMX controller.",
        ),
        "fabric_unhealthy": Row(
            ERROR,
            "the NVLink fabric of a GPU is unhealthy, or its NVLink routes could not be recovered",
            "drain the tray, check the health of the NVLink switches and reset its GPUs",
            HARDWARE,
            "links or switches of the rack failed",
            "on the NVLink switch: nv show interface --view link-diagnostics",
            messages={
                "summary": "GPU {gpu} has an unhealthy NVLink fabric; drain the tray and check the health of the"
                " NVLink switches.",
                "routes": "GPU {gpu} has NVLink routes that could not be recovered; drain the tray and reset its GPUs.",
            },
        ),
        "fabric_degraded": Row(
            WARNING,
            "the NVLink fabric of a GPU has limited capacity or degraded bandwidth",
            "check the NVLink switches for disabled or failed links",
            messages={
                "capacity": "GPU {gpu} has an NVLink fabric of limited capacity; check the NVLink switches for"
                " disabled or failed links.",
                "bandwidth": "GPU {gpu} has degraded NVLink bandwidth; check the NVLink switches for failed links.",
            },
        ),
        "fabric_recovering": Row(
            WARNING,
            "NVLink routes or accesses of a GPU are being recovered",
            "wait, then run fabric_facts again",
            message="GPU {gpu} is recovering its NVLink routes or accesses; wait, then run fabric_facts again.",
        ),
        "fabric_cliques_smaller": Row(
            WARNING,
            "GPUs of one clique are in different cliques for multicast or logical endpoints",
            "check the multicast limits of the NVLink partitions; NCCL forms smaller teams until then",
            message="The GPUs of this tray are in one clique, but in different ones for {operation} operations"
            " ({cliques}); check the multicast limits of the NVLink partitions on the switches.",
        ),
        "mig_enabled": Row(
            WARNING,
            "MIG mode is on, which disables NVLink between GPUs of a multi-node fabric",
            "disable MIG on trays that run multi-node jobs",
            message="GPU {gpu} has MIG mode on, which disables NVLink between GPUs; disable MIG for multi-node jobs.",
        ),
    },
    "NVLinks fail, recover or cannot be read": {
        "nvlink_links_degraded": Row(
            WARNING,
            "not all NVLinks of a GPU are active at the speed that most links of its tray have",
            "compare the links with their ports on the NVLink switch, drain the tray and reset the GPU, then reboot,"
            " then ask its vendor for service",
            HARDWARE,
            "a cable, port or switch of the rack failed",
            _LINKS,
            messages={
                "all": "No NVLink of this tray is active, its {gpus} have {links} each; no action for PCIe cards"
                " without a bridge, else check the power of the NVLink switches and the rack's cables.",
                "some": "GPU {gpu}: {usable} of {links} NVLinks are active{speed}, {others} not; compare it with its"
                " port on the NVLink switch (nv show interface --view link-diagnostics), drain the tray and reset the"
                " GPU; if that does not help reboot, then ask its vendor for service.",
            },
        ),
        "nvlink_link_recovering": Row(
            WARNING,
            "an NVLink went into recovery since the last run of verify",
            "drain the tray before the link fails, check its cable and its port on the NVLink switch",
            HARDWARE,
            "a cable, connector or port of that link is failing, and the link may go down",
            _LINKS,
        ),
        "nvlink_link_recovered": Row(
            INFO,
            "an NVLink that had gone into recovery again and again has not since the last run of verify",
            "none, if the link was repaired; else keep watching it",
        ),
        "nvlink_xid": Row(
            WARNING,
            "the kernel logged an NVLink error of a GPU (Xid 144 to 150)",
            "look the Xid up in NVIDIA's catalogue, check the links of that GPU and their ports on the NVLink switch",
            HARDWARE,
            "a link of the GPU, or of another GPU of its clique, failed",
            _LINKS,
            message="{where}: the kernel logged Xid {xid} ({times}), last at {last}; look the Xid up in NVIDIA's"
            " catalogue and check the links of this GPU.",
        ),
        "nvlink_links_unknown": Row(
            INFO,
            "the NVLinks of a tray or GPU, or the kernel log for their Xids, could not be read",
            "let fabric_facts use NVML (backend auto) with become: true, or a user of the group systemd-journal",
            messages={
                "not_read": "The NVLinks of this tray were not read, because {why}; only NVML has their counters.",
                "gpu": "The NVLinks of GPU {gpu} could not be read ({status}, {number}); run nvidia-smi nvlink -s on"
                " the tray.",
                "log": "The kernel log of this tray could not be read for Xids ({why}); it needs journalctl, and"
                " become: true or the group systemd-journal.",
            },
        ),
    },
    "The hardware is not where the fabric file has it": {
        "acceptance_pending": Row(
            INFO,
            "a tray is observed in a position that is proposed and not accepted yet",
            "check the proposal and run the playbook accept",
            FABRIC_FILE,
            "the tray is new and not yet in the fabric file",
            _DISCOVER,
        ),
        "tray_moved": Row(
            ERROR,
            "the GPUs of a tray, of two trays or of a whole clique are in another place than the fabric file has",
            "move them back or restore the NVLink partition, or run the playbook discover, check the proposal, run"
            " accept",
            FABRIC_FILE,
            "the NVLink partition was changed, or the trays or their host names were exchanged",
            _DISCOVER,
        ),
        "tray_replaced": Row(
            INFO,
            "all GPUs of a tray are new",
            "accept the proposal if the tray was replaced",
            FABRIC_FILE,
            "the tray or its GPUs were replaced",
            _DISCOVER,
        ),
        "tray_misplaced": Row(
            WARNING,
            "a tray is in another slot, chassis or NVLink domain than the fabric file, the site or its domain has",
            "check where it is installed, then run the playbooks discover and accept, or correct expected",
            FABRIC_FILE,
            "the tray was put into another slot",
            _DISCOVER,
        ),
        "tray_unplaced": Row(
            WARNING,
            "a host that Slurm or Kubernetes has, or that may run jobs, is in no clique of the fabric file",
            "run the playbooks discover and accept for it, or remove it there (split a partition that needs both)",
            "",
            "the tray is not in the fabric file",
            _DISCOVER,
            messages={
                "partition": "The partition {partition} has nodes in no block ({nodes}), which get only jobs that"
                " exclude all nodes of blocks, such as by --constraint: place them, or move them to a partition of"
                " their own.",
                "job": "This tray is in no clique of the fabric file, so its jobs get no IMEX domain; run discover and"
                " accept.",
            },
        ),
        "domain_incomplete": Row(
            WARNING,
            "an NVLink domain has fewer trays than expected, or a declared tray is not in the fabric file",
            "discover the others, or correct expected",
        ),
        "domain_two_chassis": Row(
            INFO,
            "an NVLink domain spans several chassis, as in NVL36x2",
            "none, unless the site has no such system",
        ),
        "drivers_differ": Row(
            WARNING,
            "the trays of a clique run different driver versions",
            "install one version on all its trays",
            DRIVER,
            "a driver upgrade reached only some trays of the clique",
            "install the clique's version on {tray} and reboot it",
        ),
    },
    "discover stops at a gate": {
        "chassis_changed": Row(
            ERROR,
            "gate: trays of a known NVLink domain report another chassis, or none reports one that it had",
            "check where the trays are installed, name the gate in fabric_override to accept it",
        ),
        "clique_id_changed": Row(
            ERROR,
            "gate: known cliques report other clique IDs, as after their NVLink partitions were created again",
            "check the cause, name the gate in fabric_override to accept it; names and blocks stay",
            FABRIC_FILE,
            "the NVLink partitions were created again",
            _DISCOVER,
        ),
        "clique_shrank": Row(
            ERROR,
            "gate: trays leave a clique or domain, which then has fewer than expected",
            "check the proposal, name the gate in fabric_override to accept it",
        ),
        "domain_merged": Row(
            ERROR,
            "gate: all trays of an NVLink domain move into another one",
            "check the switches, name the gate in fabric_override to accept it",
        ),
        "domain_split": Row(
            ERROR,
            "gate: the trays of one NVLink domain split into several",
            "check the switches, name the gate in fabric_override to accept it",
        ),
        "domain_uuid_changed": Row(
            ERROR,
            "gate: a known NVLink domain reports another cluster UUID, as after its fabric was built again",
            "check the cause, name the gate in fabric_override to accept it; the message names blocks that would not"
            " stay",
            FABRIC_FILE,
            "the fabric of the NVLink domain was built again",
            _DISCOVER,
        ),
        "moved_percent": Row(
            ERROR,
            "gate: more trays move at once than moved_percent",
            "check the proposal, name the gate in fabric_override to accept it",
        ),
        "rotation_in_progress": Row(
            ERROR,
            "gate: only a part of an NVLink domain reports a new cluster UUID; its trays keep their places meanwhile",
            "discover again when all trays report it, or name it in fabric_domain_names if it is another domain",
        ),
        "slot_conflict": Row(
            ERROR,
            "gate: trays of one NVLink domain report the same slot of a chassis",
            "check where the trays are installed, name the gate in fabric_override to accept it",
        ),
        "source_too_old": Row(
            ERROR,
            "gate: positions change because of observations older than max_age",
            "discover again, or correct the source's clock",
        ),
        "tray_partitions": Row(
            ERROR,
            "gate: at least half of the trays of an NVLink domain are each alone in a clique",
            "ask the provider of the NVLink partitions, or set fabric_tray_partitions",
            FABRIC_FILE,
            "the provider of the NVLink partitions gave each idle tray one of its own",
            f"ask the provider, or set fabric_tray_partitions, then {_DISCOVER}",
        ),
        "unknown_trays": Row(
            ERROR,
            "gate: trays are placed that the site does not declare, or elsewhere than it declares them",
            "correct the switches or fabric_expected, or name the gate in fabric_override",
        ),
    },
    "A source or a name in the fabric is wrong": {
        "source_failed": Row(
            WARNING,
            "a source failed or returned only part of what was requested; the fabric file is kept",
            "correct the reason that the finding names, then run the playbook discover",
        ),
        "source_list_invalid": Row(
            WARNING,
            "a source lists a tray twice or without a valid name",
            "correct its list, or the expression that returns a tray's name",
        ),
        "sources_disagree": Row(
            WARNING,
            "two sources report another clique, GPUs, slot or cluster of one tray; the earlier one in sources decides",
            "correct the source that is wrong, or the order of sources",
        ),
        "illegal_tray_name": Row(
            ERROR,
            "a tray's name is not valid in a Slurm hostlist, is that of the controller or of a group of the inventory,"
            " or is a second one for the same GPUs",
            "rename it in the inventory or in its source: one name for one tray",
        ),
        "name_conflict": Row(
            WARNING,
            "two NVLink domains or cliques would have one name, or fabric_domain_names has a name that no domain has",
            "correct fabric_domain_names, or rename one of them in the fabric file",
        ),
        "node_renamed": Row(
            ERROR,
            "Slurm or Kubernetes has a tray under another node name, or that name is not valid there",
            "set fabric_slurm_node or fabric_kubernetes_node, then run the playbooks discover and accept",
            messages={
                "block": "Slurm has none of the {number} nodes of block {block} ({nodes}): set fabric_slurm_node to"
                " their NodeName and run discover and accept, or add them to slurm.conf.",
            },
        ),
        "tray_in_no_cluster": Row(
            WARNING,
            "trays are in none of the Slurm and Kubernetes clusters that share the fabric",
            "set fabric_slurm_cluster or fabric_kubernetes_cluster for them",
        ),
    },
    "IMEX is not ready": {
        "imex_missing": Row(
            INFO,
            "nvidia-imex is not installed",
            "run the role imex where IMEX is needed",
            message="nvidia-imex is not installed; run the role imex where IMEX is needed.",
        ),
        "imex_not_ready": Row(
            ERROR,
            "the daemon runs and is not ready, or nvidia-imex-ctl prints no usable output",
            "check what it waits for in journalctl -u nvidia-imex, and run nvidia-imex-ctl -N on the tray",
            IMEX,
            "the daemon was stopped, or is waiting for its peers",
            _IMEX,
            messages={
                "ctl": "{error} but {output}; run nvidia-imex-ctl -N on the tray, and check that IMEX_CMD_ENABLED is"
                " 1.",
                "state": "IMEX is in the state {state}, not ready; check its log, {log}.",
                "no_state": "nvidia-imex-ctl -q printed no state; run it on the tray, then restart the daemon.",
            },
        ),
        "imex_unit_down": Row(
            ERROR,
            "nvidia-imex.service is not in the state that its owner requires: it does not run, or has failed",
            "check journalctl -u nvidia-imex, remove the cause, then start it or run the role imex",
            IMEX,
            "the daemon was stopped, or exited with an error",
            "ansible {tray} --become -a 'systemctl restart nvidia-imex', and where that fails"
            " ansible {tray} --become -a 'journalctl -u nvidia-imex -n 30'",
            messages={
                "failed": "nvidia-imex.service has failed ({result}); check its log and remove the cause, then run"
                " systemctl reset-failed nvidia-imex and start it.",
                "stopped": "nvidia-imex.service is enabled and does not run ({active}); check journalctl -u"
                " nvidia-imex.service, then start it.",
            },
        ),
        "imex_unit_starting": Row(
            ERROR,
            "the daemon runs and the start of its unit does not finish",
            "check journalctl -u nvidia-imex, then restart it",
            IMEX,
            "the start of the daemon hangs",
            "ansible {tray} --become -a 'journalctl -u nvidia-imex -n 30'",
            message="nvidia-imex.service is still starting though its daemon runs, and systemd ends it after the"
            " unit's TimeoutStartSec; check journalctl -u nvidia-imex.service, then restart it.",
        ),
        "imex_cmd_disabled": Row(
            WARNING,
            "the command service of the daemon is off, so its state cannot be read",
            "set IMEX_CMD_ENABLED to 1",
            message="IMEX_CMD_ENABLED is not 1, so the state of this daemon cannot be read; set it to 1 and restart"
            " the daemons of the clique.",
        ),
        "imex_timeout": Row(
            ERROR,
            "nvidia-imex-ctl hangs",
            "drain the tray and restart the daemon, reboot if it hangs again",
            IMEX,
            "the daemon hangs",
            "ansible {tray} --become -a 'systemctl restart nvidia-imex'",
            message="nvidia-imex-ctl {option} did not respond in time{stuck}; drain the tray and restart the daemon,"
            " and reboot the tray if it hangs again.",
        ),
        "imex_two_owners": Row(
            ERROR,
            "two owners of IMEX are on one host",
            "keep one owner, and stop the other on this host",
            IMEX,
            "two of service, prolog, DRA driver and manual start run IMEX on this tray",
            _STOP_OTHER,
            messages={
                "owners": "IMEX has more than one owner here: {owners}; a host has one IMEX session, so keep one of"
                " them.",
                "foreign": "An IMEX daemon of an unknown owner runs on this tray ({why}), and option owner is {owner};"
                " stop that daemon first.",
                "driver": "The DRA driver runs IMEX on this tray, and option owner is {owner}; remove the tray's"
                " ComputeDomains, or set owner to driver_managed.",
                "prolog": "A Prolog of Slurm starts IMEX on this tray ({why}), and option owner is {owner}; remove"
                " that Prolog, or set owner to job.",
                "masked": "nvidia-imex.service is masked, but process {pid} is an IMEX daemon that the DRA driver did"
                " not start; stop it.",
            },
        ),
        "imex_in_use": Row(
            ERROR,
            "another daemon has the driver's one IMEX session",
            "stop the other owner of IMEX on this host",
            IMEX,
            "another owner, perhaps in a container, uses the driver's IMEX session",
            _STOP_OTHER,
            message="The driver's one IMEX session belongs to another daemon (NV_ERR_IN_USE); stop the other owner,"
            " perhaps in a container, then start this one.",
        ),
        "imex_foreign_daemon": Row(
            WARNING,
            "an IMEX daemon without a known owner runs",
            "stop it, and start IMEX by its owner",
            IMEX,
            "nvidia-imex was started by hand",
            _STOP_OTHER,
            message="An IMEX daemon runs that neither nvidia-imex.service, nor a prolog, nor the DRA driver started"
            " ({why}); stop it and start its owner.",
        ),
        "imex_waiting_for_recovery": Row(
            ERROR,
            "after an unclean stop the daemon waits for its former peers",
            "bring them up, or restart the clique with a changed list or IMEX_WAIT_FOR_QUORUM=NONE",
            message="IMEX waits for its peers of before an unclean stop{missing}; bring them up, or restart the"
            " daemons of the whole clique with a changed list or IMEX_WAIT_FOR_QUORUM=NONE.",
        ),
        "imex_persist_left": Row(
            INFO,
            "a persist file is left from an unclean stop",
            "remove it once no job of that time runs",
            message="A persist file is left from an unclean stop, so the next start waits for the peers of that time;"
            " start with a changed list, or remove the file when no job of that time runs any more.",
        ),
        "imex_version_mismatch": Row(
            ERROR,
            "nvidia-imex does not have the driver's version",
            "install the package of the driver's exact version",
            DRIVER,
            "package and driver were not upgraded together",
            _IMEX,
            messages={
                "running": "nvidia-imex runs as version {version} and the driver is {driver}, with which it would not"
                " restart; install the package of the driver's exact version.",
                "differs": "nvidia-imex is version {version} and the driver {driver}, so it does not start; install"
                " the package of the driver's exact version.",
                "log": "nvidia-imex ended because its version is not the loaded driver's; install the package of the"
                " driver's exact version, and reboot where a newer driver waits to be loaded.",
                "installed": "{state} and the driver is {driver}; install that version, or set option manage_package.",
                "option": "Option version is {version}, but the loaded driver is {driver}, with which that IMEX does"
                " not start; load the driver of that version, or correct the option.",
            },
        ),
        "imex_restart_pending": Row(
            WARNING,
            "the daemon runs with another list or version than is installed",
            "restart the daemons of the whole clique together while no job runs there",
            "",
            "the node list or the package was written and nvidia-imex was not restarted",
            _RESTART_IMEX,
            message="{path} was written after the daemon started, which reads it at its start only; restart the"
            " daemons of the whole clique together.",
        ),
    },
    "Members of an IMEX domain do not connect": {
        "imex_list_differs": Row(
            ERROR,
            "members of an IMEX domain started with different lists (!M!)",
            "write one list on all trays of the clique, then stop all daemons and start all",
            IMEX,
            "a program other than the role imex wrote the node list",
            _IMEX,
            messages={
                "peers": "This tray and {peers} started with different lists (!M!) and do not connect; write one list"
                " on all trays of the clique, then stop all daemons and start all.",
            },
        ),
        "imex_list_unusable": Row(
            ERROR,
            "IMEX has no list or configuration that it can read: a line is empty, a comment, a duplicate or no address",
            "run the role imex, which writes the list again; reinstall the package where config.cfg is missing",
            messages={
                "line": "Line {number} of {path} is {why} ({entry}), and a node's id is its line; run the role imex on"
                " the whole clique, which writes the list again.",
                "unread": "IMEX cannot read its list {path}; run the role imex, which writes it.",
                "missing": "There is no list {path}; run the role imex, which writes it.",
                "config": "{path} cannot be read; reinstall the package of nvidia-imex, which has that file.",
            },
        ),
        "imex_list_outdated": Row(
            WARNING,
            "the list of a tray's IMEX is not the one that the role imex writes",
            "bring the tray up, and run the role imex on the whole clique",
            IMEX,
            "the node list was edited by hand",
            _IMEX,
            message="{path} is not the list that was written for generation {generation} of clique {clique}; run the"
            " role imex on the whole clique, which writes one list on all its trays.",
        ),
        "imex_no_own_address": Row(
            ERROR,
            "no line of the list is an address of the tray",
            "correct imex_address in the fabric file",
            message="No line of {path} is an address of this tray, so it is not a node of its IMEX domain; correct"
            " imex_address in the fabric file, or let the daemon start after the network.",
            messages={
                "desired": "The imex_address of this tray in the fabric file is {address}, which is none of its"
                " addresses, so its IMEX would not start; correct it in the fabric file.",
            },
        ),
        "imex_address_invalid": Row(
            ERROR,
            "a tray has no IMEX address, or that of another one, so its clique's list is not written",
            "widen imex_network, or give the tray its own address in the fabric file",
            FABRIC_FILE,
            "the tray has no address within imex_network, or two trays have the same",
            f"widen imex_network, or give each tray its own address, then {_DISCOVER}",
        ),
        "imex_pair_disconnected": Row(
            ERROR,
            "two ready members are not connected, or a port of a member refuses connections of other members",
            "open port 50000 in both directions, then restart the clique's daemons",
            IMEX,
            "a firewall blocks the traffic between the two",
            "nc -zv {tray} 50000",
        ),
        "imex_peer_lost": Row(
            WARNING,
            "a tray is not connected to some peers, or is connected to all and its domain is not up",
            "check the other members of the clique, and ports 50000 and 50005",
            messages={
                "disconnected": "{lost} not connected ({connections}); run fabric_facts with gather_subset=imex on"
                " them, and check that ports 50000 and 50005 are open between members.",
                "domain": "This tray is connected to all its peers, but the domain is {state}; run fabric_facts with"
                " gather_subset=imex on the other members, and check that port 50005 is open between members.",
                "no_peers": "No peer of this tray is known, but the domain is {state}; run fabric_facts with"
                " gather_subset=imex on the other members, and check that port 50005 is open between members.",
            },
        ),
        "imex_peer_authentication": Row(
            ERROR,
            "members of an IMEX domain cannot authenticate each other (!A!)",
            "check that their TLS files are of one authority and not expired, then restart the daemons of the clique",
            IMEX,
            "certificates expired, or were renewed on some trays only",
            _RESTART_IMEX,
            messages={
                "peers": "This tray and {peers} cannot authenticate (!A!) and do not connect; check on both that the"
                " TLS files of config.cfg are of one authority and not expired, then restart the daemons of the"
                " clique.",
            },
        ),
        "imex_peer_version": Row(
            ERROR,
            "members of an IMEX domain have different versions (!V!)",
            "install one version on the whole clique",
            DRIVER,
            "an IMEX upgrade reached only some trays of the clique",
            _IMEX,
            messages={
                "peers": "This tray and {peers} run different versions (!V!) and do not connect; install one version"
                " of driver and IMEX on the whole clique.",
            },
        ),
    },
    "Jobs have no IMEX channel": {
        "imex_channels_off": Row(
            WARNING,
            "the driver offers no IMEX channels",
            "set imex_channel_count above 0, run the playbook imex, then reboot",
            CHANNELS,
            "the driver was loaded without IMEX channels",
            f"set imex_channel_count: 2048 in group_vars/all.yml, then {_IMEX}, then {_REBOOT}",
            message="The driver has no IMEX channels (no line nvidia-caps-imex-channels in /proc/devices); set"
            " NVreg_ImexChannelCount above 0 and reboot.",
        ),
        "imex_channel_missing": Row(
            INFO,
            "IMEX runs and there is no channel device",
            "set imex_channels for the role imex, or use switch/nvidia_imex",
            CHANNELS,
            "the device was removed, or was not created after a reboot",
            _CHANNEL_0,
            message="There is no channel device, without which CUDA calls are not permitted; the role imex creates"
            " one, and Slurm's switch/nvidia_imex creates one for each job step.",
        ),
        "imex_channel_stale": Row(
            ERROR,
            "a channel device has the major number of an earlier boot",
            "set imex_channels and run the playbook imex, or remove it and create it again",
            CHANNELS,
            "the device file dates from an earlier boot",
            _CHANNEL_0,
            message="{devices} another major number than {major}, the driver's since this boot; remove and create the"
            " device again.",
        ),
        "imex_channel_slurm_conflict": Row(
            WARNING,
            "a channel device exists although switch/nvidia_imex makes one for each job; a reconfigure removes it",
            "leave imex_channels empty and set imex_create_channel0: false",
            CHANNELS,
            "both the role imex or the driver and Slurm create channels",
            f"remove imex_channels from group_vars, then {_IMEX} -e imex_create_channel0=false, then {_REBOOT}",
            messages={
                "devices": "{devices} in {folder} and Slurm's switch/nvidia_imex conflict: each start of slurmd and"
                " each scontrol reconfigure removes the device, and until then jobs of every user reach it on Slurm"
                " 24.11; remove it, and let the driver create none (NVreg_CreateImexChannel0=0).",
                "option": "Option channels creates channel devices, but Slurm's switch/nvidia_imex gives each job its"
                " own: each start of slurmd and each scontrol reconfigure removes these, and until then jobs of every"
                " user can open them on Slurm 24.11; leave the option empty.",
            },
        ),
        "slurm_channels_few": Row(
            WARNING,
            "Slurm has fewer IMEX channels than nodes, more than the driver has, or none that it can give a job",
            "raise NVreg_ImexChannelCount (imex_channel_count), then slurm_imex_channel_count",
        ),
    },
    "A change of IMEX stops": {
        "imex_clique_partial": Row(
            ERROR,
            "IMEX of a clique must change as a whole, and some of its trays are left out or faulty",
            "repair those trays or stop their daemons, then run the role imex on the whole clique",
            messages={
                "job": "This run leaves out {trays}, which have other members of clique {clique} for the IMEX domains"
                " of jobs; run it on the whole clique, or name them in option allow_outdated.",
            },
        ),
        "imex_package_missing": Row(
            ERROR,
            "no repository has nvidia-imex of the driver's version",
            "add the repository that the driver was installed from",
            message="No repository of this tray has {names} in version {driver} of the loaded driver{available}; add"
            " the repository that has the driver.",
        ),
        "imex_reboot_needed": Row(
            WARNING,
            "changed driver parameters take effect after a reboot",
            "reboot the tray",
            message="NVreg_{options} of {file} take effect when the driver is loaded again; reboot the tray.",
        ),
    },
    "A change stops because of jobs or of objects of others": {
        "jobs_running": Row(
            ERROR,
            "jobs, claims or ComputeDomains run on what is to be changed, removed or created again",
            "wait for them or delete them, or set the variable that the finding names",
            messages={
                "moving": "{run} on trays that change their block ({jobs}): wait until they end, or set"
                " allow_moving_jobs (variable slurm_topology_allow_moving_jobs).",
                "partitions": "Partitions to remove still have jobs ({jobs}), which Slurm would end: set the tier's"
                " state to drain, and remove it when they have ended.",
                "imex": "Jobs run on this clique ({jobs}) and would break, because IMEX must stop for {reason}; wait"
                " for them, or allow the stop with option allow_jobs.",
                "job": "Job {job} has its IMEX domain on this tray and would lose it; drain the tray and run the role"
                " again when the job has ended, or set option force.",
            },
        ),
        "object_unmanaged": Row(
            ERROR,
            "an object or QoS of the same name is not managed by this collection",
            "use another name, let the collection manage it, or remove it",
            messages={
                "qos": "The QoS {qos} exists and does not belong to the tiers (its description is {description}): use"
                " another name, or set its description to {ours} to hand it over.",
            },
        ),
        "live_changes_lost": Row(
            ERROR,
            "gate: a reconfigure would undo live changes of partitions, nodes or settings, or no sandbox can show that",
            "write them into slurm.conf, or name the gate in the override that the message names",
            message="{what}: write the live values into slurm.conf, or set override (variable slurm_topology_override)"
            " to {gates} if this is intended.",
        ),
        "base_shrinks": Row(
            ERROR,
            "gate: the base block size would be smaller than the running one",
            "complete the clique, set slurm_topology_min_block_size, or name the gate in slurm_topology_override",
            message=_GATE,
        ),
        "block_shrinks": Row(
            ERROR,
            "gate: a running block would keep fewer nodes",
            "check the fabric file, name the gate in slurm_topology_override if it is intended",
            message=_GATE,
        ),
        "block_vanishes": Row(
            ERROR,
            "gate: a running block would keep no node",
            "check the fabric file, name the gate in slurm_topology_override if it is intended",
            message=_GATE,
        ),
        "cluster_default_changes": Row(
            ERROR,
            "gate: partitions without Topology= would use another topology",
            "set slurm_topology_cluster_default, or name the gate in slurm_topology_override if it is intended",
            message=_GATE,
            messages={
                "default": "{what}: set cluster_default (variable slurm_topology_cluster_default) to {default} to keep"
                " it, or set override (variable slurm_topology_override) to {gates} if this is intended.",
            },
        ),
        "nodes_lose_block": Row(
            ERROR,
            "gate: nodes of running blocks would be in no block",
            "check the fabric file, name the gate in slurm_topology_override if it is intended",
            message=_GATE,
        ),
        "slurm_gate_overridden": Row(
            WARNING,
            "what would stop the apply is allowed by an option: a gate, or jobs on trays that move",
            "none",
            messages={
                "jobs": "{run} on trays that change their block ({jobs}): the jobs keep their trays.",
                "gate": "The gate {gate} is overridden: {what}.",
            },
        ),
    },
    "Slurm runs another topology than the fabric file": {
        "slurm_unreachable": Row(
            ERROR,
            "a Slurm controller, slurmctld or slurmdbd did not respond",
            "start slurmctld (systemctl start slurmctld), or correct the reason that the finding names",
            "",
            "slurmctld, slurmdbd or its host is down",
            "scontrol ping, and for tiers sacctmgr show cluster",
            messages={
                "imex": "IMEX of this clique must stop for {reason}, and Slurm did not report whether jobs run there"
                " ({error}); bring slurmctld back, or allow the stop with option allow_jobs.",
                "imex_node": "IMEX of this clique must stop for {reason}, and Slurm did not report whether jobs run"
                " there ({error}); set fabric_slurm_node of these trays to their NodeName, then discover and accept"
                " again.",
            },
        ),
        "slurmd_newer": Row(
            ERROR,
            "slurmd of a tray is of a newer release than slurmctld",
            "upgrade slurmctld first",
            DRIVER,
            "the trays were upgraded before the controller",
            "upgrade slurmctld, then slurmd",
        ),
        "slurm_blocks_differ": Row(
            ERROR,
            "slurmctld has no block topology, lacks the block of a clique, or has a tray in another block or in none",
            "run the playbook slurm",
            SLURM,
            "the topology file was edited by hand or replaced, or is older than the fabric file",
            _SLURM,
        ),
        "slurm_block_overlap": Row(
            ERROR,
            "a node is in two blocks",
            "keep it only in the block of its clique",
            SLURM,
            "the topology file was edited by hand; slurmctld accepts a node in two blocks",
            _SLURM,
            messages={
                "blocks": "The node {tray} is in the blocks {first} and {block}, which slurmctld does not report: list"
                " it only in the block of its clique.",
                "twice": "The node {tray} is listed {number} times in block {block}: two trays have one slurm_node in"
                " the fabric file; give each its own with fabric_slurm_node, then run discover and accept.",
            },
        ),
        "slurm_node_unclaimed": Row(
            ERROR,
            "slurmctld has a node in the block of a clique that the fabric file lacks, so jobs may leave the clique",
            "discover the tray if it belongs there, then run the playbook slurm",
            SLURM,
            "the tray was removed from the fabric file or never discovered, or the file was edited by hand",
            _SLURM,
        ),
        "slurm_topology_differs": Row(
            WARNING,
            "slurmctld runs another topology than its file, or has a tray in another block than that of its clique",
            "run the playbook slurm, or scontrol reconfigure",
            SLURM,
            "the file was changed and slurmctld has not loaded it",
            _SLURM,
            message="slurmctld runs another topology than {path} has: run slurm_topology or scontrol reconfigure.",
        ),
        "slurm_reconfigure_needed": Row(
            ERROR,
            "slurmctld schedules otherwise than the blocks that it shows allow: it refuses a job, or ignores segments",
            "run scontrol reconfigure on the Slurm controller",
            SLURM,
            "what slurmctld schedules with differs from its files, as after scontrol update of a node or partition",
            "on the Slurm controller: scontrol reconfigure",
        ),
        "slurm_jobs_unanswered": Row(
            WARNING,
            "slurmctld did not answer where it would place jobs, or allocates no block for its benchmark",
            "wait for the jobs or correct the reason that the finding names, or set verify_slurm_test_seconds to 0",
        ),
        "slurm_topology_other_writer": Row(
            WARNING,
            "two programs write Slurm's topology file",
            "let one program write it, or set verify_slurm_topology_owner",
            messages={
                "ours": "slurm_topology wrote {path} last, which another program is meant to write: remove the role"
                " slurm_topology from the site's playbooks, or set owner to collection.",
                "other": "Another program than slurm_topology wrote {path} last; it begins with {line}: let only one"
                " of them write it, or set owner to other where that program is meant to.",
            },
        ),
    },
    "Slurm's files cannot be written as they are": {
        "slurm_no_blocks": Row(
            ERROR,
            "the topology has no block, or none with a node",
            "run the playbooks discover and accept first",
            messages={
                "no_block": "The topology has no block: run the playbook discover first, so that the fabric file has"
                " cliques.",
                "no_node": "No block of the topology has a node: run the playbook discover first, so that its cliques"
                " have trays.",
                "no_base": "No block of the topology has a node and no block size is given: run the playbook discover"
                " first.",
            },
        ),
        "slurm_block_invalid": Row(
            ERROR,
            "slurmctld would reject a block: a name, an empty block, a duplicate, too many nodes",
            "correct the fabric file or slurm_topology_other_topologies, or upgrade Slurm",
            messages={
                "name": "The block name {name} is not valid in a topology file: use only letters, digits, '.', '_' and"
                " '-'.",
                "twice": "The block {block} is defined {number} times: give each clique a block of its own.",
                "empty": "The block {block} has no nodes, which Slurm {version} refuses: leave it out, or upgrade to"
                " 25.05.",
                "node": "The node name {node} in block {block} is not one that Slurm can list: set fabric_slurm_node"
                " of that tray to its NodeName, then run discover and accept.",
                "hostlist": "The block {block} has a hostlist that Slurm cannot read: {error}",
                "other_hostlist": "The hostlist of block {block} does not name its nodes: report this as a bug of the"
                " collection.",
                "too_many": "The topology has {nodes} nodes, and Slurm supports at most {most}: split the cluster.",
            },
        ),
        "slurm_block_size": Row(
            ERROR,
            "a block or a group of cliques does not fit the block sizes (the base size times a power of two)",
            "correct slurm_topology_block_sizes, or the groups (edit_groups)",
            messages={
                "groups": "Slurm cannot aggregate the groups of cliques, since {problem}: give all groups the same"
                " number of blocks, 1, 2, 4, 8 and so on, in the fabric file (playbook accept, variable edit_groups),"
                " or set block_sizes (variable slurm_topology_block_sizes) to {base} alone.",
                "short": "The block {block} has {nodes}{unknown}, fewer than the base block size {base}, which Slurm"
                " {version} refuses: set block_sizes to at most the smallest block, add the missing nodes to"
                " slurm.conf, or upgrade to 25.05.",
                "no_number": "The block size {size} is not a number of nodes: set block_sizes to numbers from 1.",
                "no_power": "The block size {size} is not the base size {base} times a power of two: set block_sizes"
                " to {base}, {double}, {fourfold} and so on.",
                "no_level": "The block size {size} is more than {most} times the base size {base}, and Slurm has"
                " {levels} levels: leave it out of block_sizes.",
                "no_field": "The base block size {base} is more than Slurm can store ({most}): choose a smaller one.",
            },
        ),
        "slurm_blocks_limited": Row(
            WARNING,
            "Slurm works with less than the fabric allows: unequal blocks or groups",
            "set slurm_topology_block_sizes or edit_groups, complete the clique, or correct"
            " slurm_topology_other_topologies",
            messages={
                "unequal": "The block {large} has {most} and {block} {fewest}, so aggregated blocks would not be"
                " groups of equal cliques and only {sizes} is set: split all domains alike, or set block_sizes"
                " (variable slurm_topology_block_sizes).",
                "no_group": "{names} in no group, so Slurm cannot aggregate the others and the base block size {base}"
                " is set alone: give all cliques a group in the fabric file (playbook accept, variable edit_groups).",
                "aggregates": "The aggregated blocks change, {blocks} are no longer one: keep retired blocks as"
                " placeholders (25.05), or inform the users of the larger sizes.",
                "left_out": "Block {block} ({number}: {nodes}) is left out, since min_block_size (variable"
                " slurm_topology_min_block_size) is {minimum}: its nodes are in no block; complete the clique, or"
                " upgrade to 25.05.",
                "last_group": "A job of more than {nodes} nodes is placed only if it has room without the last {last},"
                " since Slurm counts whole groups of {group} only: add the block size {size}, or placeholders.",
                "one_group": "A job of more than {nodes} nodes never starts, since Slurm counts whole groups of"
                " {group} only: add the block size {size}.",
            },
        ),
        "slurm_clique_above_base": Row(
            WARNING,
            "a clique, segment or tier is larger than the base block size, so a job may be spread over blocks",
            "give the clique a partition of its own, set per_block for the tier, or use smaller segments",
            messages={
                "segment": "A segment of {segment} nodes fits in no block, so --segment={segment} spreads each over"
                " several cliques: use at most {largest}.",
                "tier": "The partition {partition} has several blocks, of which {blocks} is above the base block size"
                " {base}, so Slurm {version} may spread a job of {more} trays or more: set per_block for this tier.",
                "rehearsal": "Rehearsal: {job}, as many as a whole block has, is spread {where} while no block is"
                " free, because the base block size is {base}: give such a block a partition of its own.",
                "block": "The block {block} has {number} nodes and the base block size is {base}, so Slurm {version}"
                " may spread a job of {more} to {number} nodes over several blocks: give it a partition of that"
                " block's nodes, or {how}.",
            },
        ),
        "slurm_segment": Row(
            ERROR,
            "a --segment that jobs or a tier use is rejected or fits into no block",
            "use smaller segments",
            messages={
                "refused": "Jobs with --segment={segment} are refused, since the base block size is {limit} and Slurm"
                " {version} accepts no larger segment: use at most {limit}.",
                "no_number": "The segment {segment} is not a number of nodes: set segments to numbers from 1.",
                "no_block": "No block can hold --segment={segment}: the largest has {nodes}, use at most {largest}.",
                "above_base": "The {name} segment {segment} of partition {partition} is above the base block size"
                " {limit}, which Slurm {version} refuses: use at most {limit}.",
                "above_blocks": "The {name} segment {segment} of partition {partition} fits in none of its blocks, the"
                " largest of which has {size}: use at most {largest}.",
            },
        ),
        "slurm_node_unknown": Row(
            WARNING,
            "Slurm does not have a node of a block",
            "add it to slurm.conf",
            message="Slurm has no node {nodes} of block {block}: add NodeName lines to slurm.conf, or correct"
            " fabric_slurm_node and run discover and accept.",
        ),
        "slurm_hardware_assumed": Row(
            WARNING,
            "the hardware of a tray was never read or is impossible, so its line is the usual one or stays",
            "bring the tray up, run slurmd -C there, and run the role slurm again",
        ),
        "slurm_topology_foreign": Row(
            ERROR,
            "a topology file or topology of the site would be lost, hides the new one, or is not read by this Slurm",
            "move that file away, or set slurm_topology_name or slurm_topology_format: auto",
            messages={
                "yaml": "Slurm {version} does not read topology.yaml (25.05 does): set format to auto or conf.",
                "tree": "{path} has lines of a tree or Include lines, which would be lost: move it away first.",
                "name": "The topology {name} of the site is of kind {kind} and would be lost: set slurm_topology_name"
                " to another name.",
                "other_file": "topology.yaml hides the new topology.conf: remove it, or set format to auto.",
            },
        ),
        "slurm_conf_inconsistent": Row(
            ERROR,
            "slurm.conf lacks a line that is needed, or has one that contradicts a managed setting",
            "correct the line that the finding names",
            messages={
                **_SETTING,
                "topology_name": "The topology name {name} is not valid in slurm.conf: use only letters, digits, '.',"
                " '_' and '-'.",
                "topology_twice": "{number} topologies are named {name}, of which Slurm uses the first: give each its"
                " own name.",
                "partition_topology": "The partition {partition} has Topology={topology}, which the new topology file"
                " does not have ({known}): set topology_name to it, or change the partition.",
                "cluster_default": "The cluster's default topology {default} is not in the file ({known}): correct"
                " cluster_default.",
                "include": "{path} has no line {line}: add it, or set manage_conf to true.",
                "own_filter": "{script} is the site's own and stays: add the policy for segments to it, or set"
                " SBATCH_SEGMENT_SIZE.",
                "no_lua": "{folders} has no cli_filter_lua.so: install Slurm with Lua, or set SBATCH_SEGMENT_SIZE.",
                "copy_filter": "Slurm {version} applies segments where jobs are submitted: copy {script} next to"
                " slurm.conf on each host that submits jobs, then set CliFilterPlugins={plugins} in slurm.conf.",
                "job_submit": "JobSubmitPlugins={given} in slurm.conf does not load the script for segments: set"
                " JobSubmitPlugins={plugins} there.",
                "own_script": "{script} is the site's own and does not call {policy}: add the line from the head of"
                " that file.",
                "partition": "The partition {partition} is defined in {file}: remove it there, or rename the tier.",
                "node_line": "The NodeName line of {nodes} in slurm.conf has Topology={topology}, but {why}: remove"
                " Topology= from that line, or correct it.",
                "node_line_differs": "The NodeName line of {nodes} in slurm.conf has Topology={topology}, which {why}:"
                " remove Topology= from that line, or correct it.",
                "no_file": "There is no slurm.conf on this tray, so no job would get an IMEX domain; bring up Slurm"
                " first, or set option slurm_conf.",
                "prolog_flags": "PrologFlags in {path} has no Alloc, so a tray's prolog would run at its first step"
                " only while the others wait for it; add PrologFlags=Alloc and run scontrol reconfigure.",
                "timeout": "{setting} in {path} would end the program before it can report why IMEX is not ready,"
                " which may take {seconds} s; raise that limit, or lower options wait and stop_wait.",
                "prolog": "{path} does not run prolog and epilog of IMEX per job; add {lines} (an existing Prolog may"
                " call {program} prolog instead), and run scontrol reconfigure.",
            },
        ),
        "slurm_select_type": Row(
            ERROR,
            "SelectType is not select/cons_tres",
            "set SelectType=select/cons_tres in slurm.conf",
            messages=_SETTING,
        ),
        "slurm_plugin_missing": Row(
            ERROR,
            "TopologyPlugin is not set, so topology.conf is not read",
            "set TopologyPlugin=topology/block",
            messages=_SETTING,
        ),
        "slurm_conf_advice": Row(
            WARNING,
            "slurm.conf works, and a setting or file lets jobs do what they should not",
            "correct the line or file that the finding names",
            messages={
                **_SETTING,
                "ranks": "The order of the node names alternates between blocks, and ranks follow the names: add"
                " TopologyParam=BlockAsNodeRank to slurm.conf, or set manage_conf to true.",
                "other_file": "topology.conf is no longer read, since there is a topology.yaml: remove it.",
                "other_file_later": "topology.yaml is next to topology.conf and will hide it after an upgrade to"
                " 25.05: remove it.",
                "qos_named": "The QoS {qos} has no tier any more, but partition {partition} still names it: remove it"
                " there first.",
                "open": "The partition {partition} of {where} gives all users the trays of {tiers}: set AllowAccounts,"
                " AllowQos or AllowGroups, or other nodes.",
                "enforce": "AccountingStorageEnforce is {value}, so Slurm does not enforce the tiers' QoS: set"
                " associations,limits,qos in slurm.conf.",
                "preempt": "PreemptType is not preempt/qos, so no tier preempts another: set it in slurm.conf.",
                "shared": "Jobs of {partitions} may share trays and {path} has no GresTypes=gpu (or has shard or mps"
                " beside it), so every job of several trays that is not submitted with --exclusive is cancelled; set"
                " Exclusive=NODE (before 26.05 OverSubscribe=EXCLUSIVE, in slurm_tiers exclusive: node) for the"
                " partition, or GresTypes=gpu.",
                "emptied": "{file} was emptied and stays, because {key} in {path} matches no other file, which Slurm"
                " treats as an error; remove that line, run scontrol reconfigure, and run the role again.",
            },
        ),
        "slurm_conf_note": Row(
            INFO,
            "a setting has no effect, or was changed manually",
            "none, or correct what the finding names",
            messages={
                "size_twice": "The block size {size} is listed {number} times: list it once.",
                "size_unused": "The block size {size} has no effect, since {covering} already covers all {blocks} and"
                " {nodes}: leave it out until there are more.",
                "plugin": "TopologyPlugin={value} in slurm.conf has no effect next to topology.yaml: remove the line.",
                "granted": "The {subject} was granted the QoS {qos} manually and keeps it: revoke it if unwanted.",
                "segments": "The segments of {partitions} are not enforced: set segment_script to true to have Slurm"
                " enforce them.",
                "state": "The state of partition {partition} was set to {state} manually and stays until the tier"
                " changes: set it back if unwanted.",
                "weight": "PriorityWeightQOS is 0, so the priorities of the tiers' QoS have no effect: set it in"
                " slurm.conf.",
                "topology": "The topology {name} ({kind}) stays next to {own}.",
                "task_prolog": "A batch job that runs without IMEX has no line about that in its log without a"
                " TaskProlog; add TaskProlog={program} to {path}, or call {program} task from the site's own"
                " TaskProlog.",
            },
        ),
        "release_old": Row(
            WARNING,
            "this release of Slurm or Kubernetes works with limits",
            "plan the upgrade that the finding names",
            messages={
                "empty_blocks": "Slurm {version} does not support empty blocks, so {empty} is left out: the blocks"
                " after it move up, which shifts the larger block sizes; use only the base size, or upgrade to 25.05.",
                "power_saving": "Slurm {version} drops powered-down nodes from their blocks until the next"
                " reconfigure: upgrade to 25.11.4 or later.",
                "update": "Slurm {version} takes a node out of block scheduling when scontrol update names a block"
                " that the node is in already, and {others} has blocks as well: reconfigure after such a command, or"
                " upgrade to 26.05.4 or later.",
                "one_topology": "Slurm {version} with topology.conf has one topology for all nodes, so {others} is"
                " left out: keep nodes without GPUs in partitions of their own, or upgrade to 25.05.",
            },
        ),
    },
    "A rehearsal or benchmark fails": {
        "slurm_rehearsal_refused": Row(
            ERROR,
            "in a rehearsal slurmctld rejects the new files, or a required job would stay pending; or none finished",
            "correct the line or reason that the finding names",
            messages={
                **_REHEARSAL,
                "files": "In the rehearsal slurmctld {version} refuses the new files ({error}): correct the setting"
                " that it names; nothing was written.",
                "block": "Rehearsal: {job} in block {block}, which has {size}, {why}: compare the block with"
                " slurm.conf.",
                "spread": "Rehearsal: {job}, no more than the base block size {base}, would be spread {where}: compare"
                " the blocks with slurm.conf and Slurm's release notes.",
            },
        ),
        "slurm_rehearsal_job": Row(
            WARNING,
            "in a rehearsal a job would stay pending for ever, or was not evaluated in time",
            "correct its size or segment or the partition's trays and limits, or raise slurm_topology_rehearse_timeout",
            messages={
                **_REHEARSAL,
                "all": "Rehearsal: {job}, all that the blocks have, never starts without --segment, {why}: inform the"
                " users to set --segment={segment} for jobs of so many trays.",
                "past": "Rehearsal: {job} in partition {partition}, as one of the last {days} days, would be pending"
                " for ever ({reason}): compare the blocks and their size with what its user needs.",
            },
        ),
        "slurm_rehearsal_skipped": Row(
            INFO,
            "the apply was not rehearsed",
            "run it as root on the controller",
            messages=_REHEARSAL,
        ),
        "benchmark_failed": Row(
            ERROR,
            "a benchmark failed, was slow, ran elsewhere than requested, or had no IMEX channel of its own",
            "check the output that the finding quotes, SwitchType=switch/nvidia_imex, and the NVLink switches",
        ),
    },
    "A Slurm tier does not work": {
        "slurm_tier_differs": Row(
            ERROR,
            "the partition or QoS of a tier differs from slurm_tiers",
            "run the playbook slurm with --tags tiers",
            TIERS,
            "it was changed by hand, or its definition changed since the last run",
            _TIERS,
        ),
        "slurm_tier_unknown": Row(
            ERROR,
            "a tier names a node, QoS, topology, TRES or account that Slurm does not have, or Slurm has no accounting",
            "create it, leave it out of the tier, or set up slurmdbd and slurm_tiers_create_accounts",
            messages={
                "no_accounting": "The tiers have QoS or accounts, and this Slurm has no accounting"
                " (AccountingStorageType is {type}): set accounting_storage/slurmdbd, or leave them out.",
                "nodes": "Slurm does not have {number} of partition {partition} ({nodes}) and would not start: add"
                " NodeName lines, or correct fabric_slurm_node and run discover and accept.",
                "topology": "The partition {partition} names the topology {topology}, which slurmctld does not run:"
                " apply slurm_topology first, or correct the tier's topology.",
                "tres": "The QoS {qos} limits {kinds}, which Slurm does not count: add it to AccountingStorageTRES.",
                "qos": "The tier {tier} names the QoS {qos}, which does not exist: add it, or leave it out.",
                "accounts": "slurmdbd has no {names} in cluster {cluster}: add it with sacctmgr, or set"
                " create_accounts to true to create those that are granted a QoS.",
            },
        ),
    },
    "Kubernetes has other labels or nodes than the fabric file": {
        "k8s_unreachable": Row(
            ERROR,
            "the Kubernetes API server did not respond",
            "check the kubeconfig and the API server",
            KUBERNETES,
            "the API server is down, or the kubeconfig is outdated",
            "kubectl get --raw /readyz",
        ),
        "k8s_node_missing": Row(
            WARNING,
            "a tray has no Kubernetes node, or its kubernetes_node is no valid node name",
            "join it, or set fabric_kubernetes_node, then run discover and accept",
            KUBERNETES,
            "the tray never joined the cluster, or its Node was deleted",
            "kubectl get nodes",
        ),
        "node_not_ready": Row(
            INFO,
            "the Kubernetes node of a tray is NotReady, so its labels may be stale",
            "run kubectl describe node",
            KUBERNETES,
            "the kubelet does not report its status",
            "kubectl describe node {kubernetes_node}",
        ),
        "k8s_clique_label_missing": Row(
            WARNING,
            "the node of a tray lacks its clique label",
            "restart the label's writer on that node and check its log",
            KUBERNETES,
            "the label was removed, or gpu-feature-discovery does not run on the node",
            _LABEL,
        ),
        "k8s_clique_label_wrong": Row(
            ERROR,
            "the clique label of a node is not the clique of its GPUs",
            "restart the label's writer on that node and check its log",
            KUBERNETES,
            "the label was set by hand, or gpu-feature-discovery has not updated it since the GPUs changed",
            _LABEL,
        ),
        "k8s_clique_label_writers": Row(
            ERROR,
            "no running program, or more than one, writes the clique label",
            "keep or start exactly one writer, and name it in k8s_topology_label_writer",
        ),
        "k8s_clique_label_unknown_writer": Row(
            WARNING,
            "an unknown program, or one that no longer runs, wrote the clique label",
            "find the field manager that the finding names, or let the present writer overwrite the label",
        ),
        "k8s_label_missing": Row(
            WARNING,
            "nodes lack a label that Kueue's flavor selects",
            "set k8s_topology_flavor_labels, or label the nodes",
        ),
        "k8s_topograph_deprecated": Row(
            INFO,
            "nodes have labels of Topograph 0.5 or older",
            "let Topograph 1.0 write its labels, then remove the old ones; see k8s-topology.md",
        ),
        "k8s_scheduler_missing": Row(
            ERROR, "a requested scheduler is not installed", "install it, or remove it from k8s_topology_schedulers"
        ),
        "k8s_apply_incomplete": Row(
            ERROR, "some writes succeeded and others failed", "run the role again once the cause is fixed"
        ),
    },
    "The DRA driver cannot be installed": {
        "dra_kubernetes_too_old": Row(
            ERROR,
            "the chart does not support this version of Kubernetes, or the API server does not serve resource.k8s.io",
            "upgrade to 1.34.2 or later, or enable DRA",
        ),
        "dra_driver_unsuitable": Row(
            ERROR,
            "the NVIDIA driver of a tray is too old, differs within the clique, or has no IMEX channels",
            "install one version that supports ComputeDomains on all trays of the clique",
        ),
        "dra_device_plugin": Row(
            ERROR,
            "a device plugin allocates the GPUs that the DRA driver would allocate too",
            "remove the device plugin from those nodes first, see docs/dra-driver.md",
        ),
        "dra_clique_unknown": Row(
            ERROR, "the GPUs of a tray, or a ComputeDomain's daemon, report no clique", "repair the tray's fabric"
        ),
        "dra_clique_size": Row(
            WARNING, "a clique has more nodes than the driver allows in an IMEX domain", "raise the limit"
        ),
        "dra_node_not_selected": Row(
            ERROR,
            "the driver would not run, or does not run, on a node, or a tray is no node of the cluster",
            "join it or correct its kubernetes_node, and set a label that its affinity selects",
        ),
        "dra_node_setup": Row(
            ERROR,
            "a node has no CDI in its container runtime, or other paths of driver or kubelet than the values",
            "enable CDI or upgrade the runtime, and correct the paths in dra_driver_values",
        ),
        "dra_network_policy": Row(
            WARNING, "a NetworkPolicy may block traffic between IMEX daemons", "allow their ports"
        ),
        "dra_value_refused": Row(
            ERROR,
            "the driver's chart or the API server rejects the values, or the driver exits because of them",
            "correct dra_driver_values",
        ),
        "dra_insufficient_permissions": Row(
            ERROR,
            "the account cannot list the objects that a removal or the allocation of GPUs depends on",
            "grant it the verb list on them",
        ),
        "dra_not_readable": Row(
            WARNING,
            "part of the cluster or of the trays could not be read",
            "grant the account that right, or repair the tray",
        ),
        "dra_other_install": Row(
            ERROR,
            "another installation of the driver, or another field manager of its CRDs, exists",
            "keep one of the two",
        ),
        "dra_release_failed": Row(
            ERROR,
            "the release is missing, incomplete, interrupted or newer than the chart, or Helm could not install it",
            "correct what the message names, then install the release again or roll it back",
        ),
        "dra_crd_stale": Row(
            WARNING, "a CRD of the driver differs from the chart's", "run the role dra_driver with the tag crds"
        ),
        "dra_upgrade_drops": Row(
            WARNING, "an upgrade from 25.x drops a value or an object", "set the value again if it is needed"
        ),
        "dra_release_old": Row(INFO, "the release is of a 25.x chart, whose object names are kept", "none"),
    },
    "ComputeDomains or the DRA driver do not work": {
        "dra_plugin_unready": Row(
            ERROR,
            "pods of the driver, a daemon of a ComputeDomain, a claim or a probe are not ready",
            "check the log of the pod or the object that the finding names",
        ),
        "dra_node_outdated": Row(
            ERROR,
            "what the DRA driver publishes for a node differs from its GPUs: no ResourceSlice, fewer GPUs, or another"
            " clique in a ComputeDomainClique",
            "restart the plugin on that node and check its log, then restart the workload",
            KUBERNETES,
            "the DRA driver's kubelet plugin does not run on the node, or has not updated since the GPUs changed",
            _PLUGIN,
        ),
        "k8s_domain_daemon_down": Row(
            WARNING,
            "the IMEX daemon of a ComputeDomain is not ready on a node",
            "check the log of its pod on that node",
            KUBERNETES,
            "the IMEX daemon of the ComputeDomain is not ready on that node",
            "kubectl get pods -A -o wide --field-selector spec.nodeName={kubernetes_node}",
        ),
        "dra_domain_stuck": Row(
            ERROR,
            "the deletion of a ComputeDomain or of a probe does not finish",
            "check that the driver's controller runs",
        ),
        "dra_domain_leftovers": Row(WARNING, "a deleted ComputeDomain left objects behind", "wait, then delete them"),
        "dra_domain_spans": Row(
            WARNING,
            "a ComputeDomain spans several cliques, or an nvbandwidth job failed or succeeded across two",
            "bind its workload to one clique, and check the log of the launcher",
        ),
        "dra_bandwidth_untested": Row(
            INFO, "no nvbandwidth job has succeeded in a clique yet", "run nvbandwidth in it"
        ),
        "dra_dcgm_imex": Row(INFO, "DCGM monitors IMEX, which the driver owns", "exclude IMEX from its health watches"),
    },
}
"""Symptom -> code -> row, in the order in which somebody who searches by a symptom reads them."""

CATALOGUE: dict[str, Row] = {code: row for rows in SYMPTOMS.values() for code, row in rows.items()}


def finding(code: str, message: str, **subject: Unpack[Subject]) -> Finding:
    """One finding; KeyError for a code without a row, which is a bug of this collection."""
    return {"code": code, "severity": CATALOGUE[code].severity, "message": message, **subject}


def worded(stated: Mapping[str, Any]) -> Finding:
    """A finding of a host with severity and message; KeyError for a code without a row.

    ``stated``: a HostFinding in the types that schemas.FINDINGS bounds, or one that has its message already. Values are
    inserted as text, into messages of this table alone.
    """
    row = CATALOGUE[stated["code"]]
    subjects = {name: stated[name] for name in ("part", *Subject.__annotations__) if name in stated}
    message = stated.get("message") or _message(row, {"gpu": None, **subjects}, stated)
    return finding(stated["code"], message[:MAX_MESSAGE], **subjects)


def _message(row: Row, subjects: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    general = f"{row.sentence[0].upper()}{row.sentence[1:]}; {row.remedy}."
    try:
        values = {name: _text(value) for name, value in stated.get("values", {}).items()}
        case = stated.get("case")
        template = row.messages.get(case, general) if case else row.message or general
        return template.format_map({**values, **subjects})
    except KeyError:  # a value or code that is not known here: of a host that is compromised, or of another release
        return general


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return worded(value)["message"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return summarize(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
