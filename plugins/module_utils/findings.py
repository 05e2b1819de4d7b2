# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of findings: every reason code that this collection can report, with its severity and its remedy.

A finding is a plain dict, so that it travels as JSON unchanged::

    {"code": "gpu_lost", "severity": "error", "message": "One sentence with the remedy.", "gpu": 2}

Further keys are the subjects that apply: ``tray``, ``clique``, ``domain``, ``block`` (strings), ``gpu``
(index). A new code is one row here. The severity is that of the subject: error, it cannot serve multi-node NVLink
jobs (or the thing to be written is wrong); warning, it can, and somebody should check it; info, no action needed.
Whether a run fails for it is the playbook's decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"


class Entry(NamedTuple):
    """One row of the catalogue; ``meaning`` and ``remedy`` are for the docs, a message has both in one sentence."""

    severity: str
    meaning: str
    remedy: str


CATALOGUE: dict[str, Entry] = {
    # What a host returns: plugin_utils/guard/trust.py.
    "tray_facts_foreign": Entry(
        ERROR,
        "the facts of a host set a variable that only the site may set",
        "find out what sets it: a compromised host, or a cacheable fact of the site's own; delete the host's facts",
    ),
    "tray_answer_invalid": Entry(
        WARNING,
        "a host returned other data than the module documents; that part is dropped",
        "check the host: its Python or its shell changes the answers of modules",
    ),
    # Reading a tray: module_utils/gpu/facts.py.
    "driver_missing": Entry(
        ERROR, "the NVIDIA driver is not loaded", "load the nvidia kernel modules, or install the driver"
    ),
    "library_missing": Entry(
        ERROR, "libnvidia-ml.so.1 cannot be loaded", "install the user-space packages of the loaded driver's version"
    ),
    "version_mismatch": Entry(
        ERROR,
        "the driver's kernel module and its libraries have different versions",
        "reboot the tray, or reload the nvidia modules, to run the installed driver",
    ),
    "no_gpu": Entry(
        ERROR, "the driver finds no GPU", "check the kernel log for Xid messages (journalctl -k) and the GPUs' power"
    ),
    "no_permission": Entry(
        ERROR, "the driver refuses this user", "run the task with become: true, or check the modes of /dev/nvidia*"
    ),
    "nvml_timeout": Entry(
        ERROR,
        "NVML did not respond in time",
        "check the kernel log for Xid messages (journalctl -k); often only a reboot helps",
    ),
    "nvml_failed": Entry(ERROR, "NVML returned an error without a row of its own here", "run nvidia-smi on the tray"),
    "nvml_too_old": Entry(
        WARNING,
        "the driver has only version 1 of the fabric call, which is not used",
        "install driver R550 or newer, or set backend: nvidia_smi",
    ),
    "smi_missing": Entry(ERROR, "nvidia-smi cannot be started", "install it, or set the option nvidia_smi to its path"),
    "smi_timeout": Entry(
        ERROR,
        "nvidia-smi did not finish in time",
        "check the kernel log for Xid messages (journalctl -k); often only a reboot helps",
    ),
    "smi_failed": Entry(ERROR, "nvidia-smi failed or printed unexpected output", "run nvidia-smi -q -x on the tray"),
    "smi_not_xml": Entry(ERROR, "nvidia-smi printed text instead of XML", "run nvidia-smi -q -x on the tray"),
    "smi_broken_xml": Entry(
        ERROR,
        "the XML of nvidia-smi is truncated or malformed",
        "run nvidia-smi -q -x on the tray and check the end of its output",
    ),
    "smi_refused_xml": Entry(
        ERROR,
        "the XML of nvidia-smi declares entities, or is too deep or too large, and was not parsed",
        "check which program the tray's PATH has as nvidia-smi",
    ),
    "smi_exit": Entry(
        WARNING,
        "nvidia-smi printed its output and exited with a code other than 0",
        "look up the exit code in nvidia-smi's manual page",
    ),
    "child_stuck": Entry(
        ERROR,
        "a process that read the GPUs survived SIGKILL, it hangs in the kernel",
        "reboot the tray, nothing else ends that process",
    ),
    "backend_fallback": Entry(
        INFO, "the facts are from nvidia-smi because NVML could not be used", "repair NVML, or set backend: nvidia_smi"
    ),
    "addresses_unknown": Entry(
        WARNING, "the tray's addresses could not be read", "check its network, or set the addresses in the inventory"
    ),
    "unusable_value": Entry(
        WARNING, "a tool reported an impossible value, which counts as unknown", "run nvidia-smi -q on the tray"
    ),
    # State of the GPUs: module_utils/gpu/facts.py.
    "gpu_lost": Entry(
        ERROR, "a GPU has fallen off the bus", "drain the tray and reboot it, replace the GPU if that does not help"
    ),
    "gpu_reset_required": Entry(ERROR, "a GPU needs a reset", "drain the tray, then reset the GPU or reboot"),
    "gpu_count_unclear": Entry(
        ERROR,
        "nvidia-smi describes fewer GPUs than it counts, or cannot read one",
        "run nvidia-smi -q on the tray and compare it with nvidia-smi -L",
    ),
    "gpus_disagree": Entry(
        ERROR,
        "the GPUs of one tray are in different NVLink domains or cliques",
        "check the NVLink partitions on the switches, the GPUs of a tray belong in one",
    ),
    "platform_disagrees": Entry(
        WARNING,
        "the GPUs of one tray report different chassis or slots",
        "check the tray's firmware, then contact its vendor",
    ),
    "fabric_not_supported": Entry(
        INFO, "the GPUs have no NVLink fabric", "none for PCIe cards, else check the driver's version"
    ),
    "fabric_node_local": Entry(
        INFO, "the NVLink fabric ends at this host (HGX, cluster UUID of zeros)", "none, such a host is in no clique"
    ),
    "fabric_uuid_zero": Entry(
        WARNING,
        "a tray of a rack (it reports its chassis) is in a fabric whose cluster UUID is zero",
        "check the NMX controller; no action where the NVLink fabric ends at the host (NVL4)",
    ),
    "gpus_partly_attached": Entry(
        ERROR,
        "some GPUs of a tray are attached to the NVLink fabric and others have none",
        "run nvidia-smi -q on the tray, then reset its GPUs or reboot it",
    ),
    "fabric_unknown": Entry(
        WARNING,
        "not all GPUs of a tray report whether they are in an NVLink fabric",
        "check that the driver is R550 or newer, and run nvidia-smi -q on the tray",
    ),
    "fabric_not_started": Entry(
        ERROR,
        "a GPU has not started to register with the fabric manager",
        "start nvidia-persistenced, then check the NMX controller",
    ),
    "fabric_in_progress": Entry(
        ERROR,
        "a GPU waits for the fabric manager to register it",
        "check the NMX controller, on HGX the host's nvidia-fabricmanager, and that an NVLink partition has this GPU",
    ),
    "fabric_refused": Entry(
        ERROR, "the fabric manager rejected a GPU", "check on the switches that an NVLink partition has this GPU"
    ),
    "fabric_unhealthy": Entry(
        ERROR, "the NVLink fabric of a GPU is unhealthy", "drain the tray and check the health of the NVLink switches"
    ),
    "fabric_limited_capacity": Entry(
        WARNING,
        "the NVLink fabric of a GPU has limited capacity",
        "check the NVLink switches for disabled or failed links",
    ),
    "fabric_degraded_bandwidth": Entry(
        WARNING, "the NVLink bandwidth of a GPU is degraded", "check the NVLink switches for failed links"
    ),
    "fabric_route_unhealthy": Entry(
        ERROR, "the NVLink routes of a GPU could not be recovered", "drain the tray and reset its GPUs"
    ),
    "fabric_recovering": Entry(
        WARNING, "NVLink routes or accesses of a GPU are being recovered", "wait, then run fabric_facts again"
    ),
    "fabric_incorrect_configuration": Entry(
        ERROR,
        "the fabric manager reports an incorrect configuration of a GPU",
        "correct the reason that the finding names",
    ),
    "fabric_no_partition": Entry(WARNING, "a GPU is in no NVLink partition", "add it to a partition on the switches"),
    "fabric_cliques_smaller": Entry(
        WARNING,
        "GPUs of one clique are in different cliques for multicast or logical endpoints",
        "check the multicast limits of the NVLink partitions; NCCL forms smaller teams until then",
    ),
    "fabric_manager_disconnected": Entry(
        WARNING,
        "a GPU is disconnected from the fabric manager",
        "check the NMX controller, or on HGX the host's nvidia-fabricmanager",
    ),
    "mig_enabled": Entry(
        WARNING,
        "MIG mode is on, which disables NVLink between GPUs (info on a host without a multi-node fabric)",
        "disable MIG on trays that run multi-node jobs",
    ),
    "recovery_action": Entry(
        WARNING, "the driver requests a recovery action for a GPU", "drain the tray and run that action"
    ),
    # NVLinks: module_utils/gpu/links.py, the comparison with the last run in plugin_utils/verify/links.py.
    "nvlink_links_degraded": Entry(
        WARNING,
        "not all NVLinks of a GPU are active at the speed that most links of its tray have",
        "compare the links with their ports on the NVLink switch, drain the tray and reset the GPU, then reboot, then"
        " ask its vendor for service",
    ),
    "nvlink_links_unknown": Entry(
        INFO,
        "the NVLinks of a tray or GPU could not be read",
        "let fabric_facts use NVML (backend auto), and check the findings of the subset gpu",
    ),
    "nvlink_link_recovering": Entry(
        WARNING,
        "an NVLink went into recovery since the last run of verify",
        "drain the tray before the link fails, check its cable and its port on the NVLink switch",
    ),
    "nvlink_link_recovered": Entry(
        INFO,
        "an NVLink that had gone into recovery again and again has not since the last run of verify",
        "none, if the link was repaired; else keep watching it",
    ),
    "nvlink_xid": Entry(
        WARNING,
        "the kernel logged an NVLink error of a GPU (Xid 144 to 150)",
        "look the Xid up in NVIDIA's catalogue, check the links of that GPU and their ports on the NVLink switch",
    ),
    "kernel_log_unread": Entry(
        INFO,
        "the kernel log of a tray could not be read for Xids",
        "run the task with become: true, or let its user be in the group systemd-journal",
    ),
    # Subsets of fabric_facts: module_utils/subsets.py.
    "tray_subset_failed": Entry(
        ERROR,
        "a subset of a tray's facts could not be read",
        "run fabric_facts with that gather_subset alone on the tray, with -vvv",
    ),
    # Disagreement between two layers: plugin_utils/verify/.
    "tray_moved": Entry(
        ERROR,
        "the GPUs of a tray are in another clique than the fabric file has",
        "run the playbook discover, check the proposal, run accept",
    ),
    "trays_swapped": Entry(
        ERROR,
        "two trays each have the GPUs that the fabric file assigns to the other",
        "swap them back, or run the playbooks discover and accept",
    ),
    "clique_moved": Entry(
        ERROR,
        "all responding trays of a clique are in another one than the fabric file has",
        "run the playbooks discover and accept, or restore the NVLink partition on the switches",
    ),
    "tray_slot_differs": Entry(
        WARNING,
        "a tray is in another slot than the fabric file has",
        "run the playbook discover, check the proposal, run accept",
    ),
    "imex_package_pending": Entry(
        WARNING,
        "another version of nvidia-imex is installed than runs",
        "stop nvidia-imex on the whole clique while no job runs there, then start it with the playbook imex",
    ),
    "slurmd_newer": Entry(ERROR, "slurmd of a tray is of a newer release than slurmctld", "upgrade slurmctld first"),
    "slurm_unreachable": Entry(
        ERROR, "a Slurm controller or slurmctld did not respond", "start slurmctld (systemctl start slurmctld)"
    ),
    "slurm_topology_missing": Entry(ERROR, "slurmctld runs no block topology", "run the playbook slurm"),
    "slurm_tray_other_block": Entry(
        ERROR,
        "slurmctld has a tray in a block that is not its own in the fabric file, which may leave it out of all blocks",
        "run the playbook slurm",
    ),
    "slurm_node_unclaimed": Entry(
        ERROR,
        "slurmctld has a node in the block of a clique that the fabric file lacks, so jobs may leave the clique",
        "discover the tray if it belongs there, then run the playbook slurm",
    ),
    "slurm_tray_no_block": Entry(ERROR, "slurmctld has a tray in no block", "run the playbook slurm"),
    "slurm_block_missing": Entry(ERROR, "slurmctld lacks the block of a clique", "run the playbook slurm"),
    "slurm_tier_differs": Entry(
        ERROR, "the partition or QoS of a tier differs from slurm_tiers", "run the playbook slurm with --tags tiers"
    ),
    "slurm_tier_unreadable": Entry(
        ERROR,
        "the tiers could not be compared with Slurm",
        "correct the reason that the finding names, then run the playbook verify",
    ),
    "k8s_unreachable": Entry(
        ERROR, "the Kubernetes API server did not respond", "check the kubeconfig and the API server"
    ),
    "k8s_domain_clique_wrong": Entry(
        ERROR,
        "a ComputeDomainClique has a node of another clique than the fabric file",
        "restart the DRA driver's plugin on that node, then the workload",
    ),
    "k8s_domain_daemon_down": Entry(
        WARNING, "the IMEX daemon of a ComputeDomain is not ready on a node", "check the log of its pod on that node"
    ),
    "dra_gpus_differ": Entry(
        ERROR,
        "the DRA driver publishes fewer GPUs than the fabric file has",
        "restart the plugin on that node and check its log",
    ),
    # Benchmark jobs of a block: plugin_utils/verify/benchmarks.py.
    "benchmark_blocked": Entry(WARNING, "Slurm does not allocate a block for its benchmark", "wait for the jobs on it"),
    "benchmark_failed": Entry(
        ERROR, "a benchmark program failed or reported a fault", "check the output that the finding quotes"
    ),
    "benchmark_slow": Entry(
        ERROR,
        "a measured bandwidth is below the required one",
        "check the NVLink switches and the health of the fabric",
    ),
    "benchmark_misplaced": Entry(
        ERROR, "a benchmark job ran on other trays or in another block than requested", "run the playbook verify"
    ),
    "benchmark_no_channel": Entry(
        ERROR, "a benchmark job has no IMEX channel on a tray", "check SwitchType in slurm.conf and the role imex"
    ),
    "benchmark_channel_shared": Entry(
        ERROR, "two concurrent jobs have the same IMEX channel", "set SwitchType=switch/nvidia_imex"
    ),
    # Several sources at once: plugin_utils/fabric/merging.py.
    "source_failed": Entry(
        WARNING,
        "a source failed, the fabric file is kept",
        "correct the reason that the finding names, then run the playbook discover",
    ),
    "source_incomplete": Entry(
        WARNING,
        "a source returned only part of what was requested",
        "correct the reason that the finding names, then run the playbook discover",
    ),
    "sources_disagree": Entry(
        WARNING,
        "two sources report another clique, GPUs, slot or cluster of one tray; the earlier one in sources decides",
        "correct the source that is wrong, or the order of sources",
    ),
    "too_few_answers": Entry(
        WARNING,
        "a source has observations of fewer trays than min_answer percent, the fabric file is kept",
        "restore the trays or the source, then run the playbook discover",
    ),
    # Placement: plugin_utils/fabric, the steps of placement.py.
    "acceptance_pending": Entry(
        INFO,
        "a tray is observed in a position that is proposed and not accepted yet",
        "check the proposal and run the playbook accept",
    ),
    "block_mismatch": Entry(
        WARNING,
        "running Slurm has a tray in another block than that of its clique",
        "apply the topology with the playbook slurm, or correct the block's name in the fabric file",
    ),
    "block_unclaimed": Entry(
        WARNING,
        "running Slurm has a block of unknown trays, so an apply would leave it without nodes",
        "discover its trays before the topology is applied, or accept the removal",
    ),
    "chassis_added": Entry(
        ERROR,
        "gate: trays of a known NVLink domain report a chassis that the fabric file does not have",
        "check where the trays are installed, name the gate in fabric_override to accept it",
    ),
    "chassis_several_domains": Entry(
        INFO,
        "one chassis has several NVLink domains, as in mini-racks of Vera Rubin",
        "none, unless the site has no such system",
    ),
    "chassis_unconfirmed": Entry(
        WARNING,
        "one tray alone reports a chassis that its NVLink domain does not have; the fabric file does not get it",
        "check where the tray is installed, and its baseboard controller",
    ),
    "clique_in_no_group": Entry(
        WARNING,
        "cliques have no group while others have one, so Slurm cannot aggregate the groups",
        "give them a group with the playbook edit (edit_groups), so that all have the same number of cliques",
    ),
    "clique_shrank": Entry(
        ERROR,
        "gate: trays leave a clique or domain, which then has fewer than expected",
        "check the proposal, name the gate in fabric_override to accept it",
    ),
    "domain_incomplete": Entry(
        WARNING, "an NVLink domain has fewer trays than expected", "discover the others, or correct expected_trays"
    ),
    "domain_merged": Entry(
        ERROR,
        "gate: all trays of an NVLink domain move into another one",
        "check the switches, name the gate in fabric_override to accept it",
    ),
    "domain_name_taken": Entry(
        WARNING,
        "domain_names gives one name to two NVLink domains",
        "correct domain_names before the proposal is accepted",
    ),
    "domain_name_unused": Entry(
        WARNING,
        "fabric_domain_names has a name that no NVLink domain has",
        "discover the domain, or correct fabric_domain_names",
    ),
    "domain_uuid_changed": Entry(
        ERROR,
        "gate: a known NVLink domain reports another cluster UUID, as after its fabric was built again",
        "check the cause, name the gate in fabric_override to accept it; the message names blocks that would not stay",
    ),
    "clique_id_changed": Entry(
        ERROR,
        "gate: known cliques report other clique IDs, as after their NVLink partitions were created again",
        "check the cause, name the gate in fabric_override to accept it; names and blocks stay",
    ),
    "domain_split": Entry(
        ERROR,
        "gate: the trays of one NVLink domain split into several",
        "check the switches, name the gate in fabric_override to accept it",
    ),
    "domain_two_chassis": Entry(
        INFO, "an NVLink domain spans several chassis, as in NVL36x2", "none, unless the site has no such system"
    ),
    "drivers_differ": Entry(
        WARNING, "the trays of a clique run different driver versions", "install one version on all its trays"
    ),
    "expected_tray_missing": Entry(
        WARNING, "trays that the site declares are not in the fabric file", "discover them, or correct expected"
    ),
    "gpu_missing": Entry(
        WARNING,
        "an attached tray reports fewer GPUs than when it was placed",
        "reboot the tray; replace the GPU if it stays away",
    ),
    "illegal_tray_name": Entry(
        ERROR,
        "a tray's name is not valid in a Slurm hostlist, or is that of the controller or of a group of the inventory",
        "rename it in the inventory or in its source",
    ),
    "mixed_cliques": Entry(
        ERROR,
        "gate: a tray whose GPUs are in different cliques is placed in the one that most of them report",
        "put its GPUs into one NVLink partition, name the gate in fabric_override to accept it",
    ),
    "moved_percent": Entry(
        ERROR,
        "gate: more trays move at once than moved_percent",
        "check the proposal, name the gate in fabric_override to accept it",
    ),
    "not_a_tray": Entry(
        INFO, "a host without GPUs that is not in the fabric file was read", "remove it from fabric_hosts"
    ),
    "source_too_old": Entry(
        ERROR,
        "gate: positions change because of observations older than max_age",
        "discover again, or correct the source's clock",
    ),
    "tray_other_domain": Entry(
        WARNING,
        "a tray is in another NVLink domain than the site declares",
        "check where it is mounted, or correct expected",
    ),
    "tray_in_no_cluster": Entry(
        WARNING,
        "trays are in none of the Slurm and Kubernetes clusters that share the fabric",
        "set fabric_slurm_cluster or fabric_kubernetes_cluster for them",
    ),
    "tray_duplicate": Entry(
        ERROR, "two inventory names report the same GPUs", "use one name for one tray in inventory and fabric file"
    ),
    "tray_not_attached": Entry(
        WARNING, "a tray responds, but its GPUs do not report one common clique", "check the tray's other findings"
    ),
    "tray_replaced": Entry(INFO, "all GPUs of a tray are new", "accept the proposal if the tray was replaced"),
    "tray_unreachable": Entry(WARNING, "a tray could not be reached", "bring it up, then run the playbook discover"),
    "tray_partitions": Entry(
        ERROR,
        "gate: at least half of the trays of an NVLink domain are each alone in a clique",
        "ask the provider of the NVLink partitions, or set fabric_tray_partitions",
    ),
    "unknown_trays": Entry(
        ERROR,
        "gate: trays are placed that the site does not declare and the fabric file does not have",
        "add them to expected, or name the gate in fabric_override",
    ),
    # Sources: plugin_utils/sources and plugin_utils/sources/collector.py.
    "clique_label_unusable": Entry(
        WARNING,
        "the label nvidia.com/gpu.clique of a node is not a clique",
        "check the log of the pod that writes the label",
    ),
    "domain_no_clique": Entry(
        WARNING,
        "the Topograph domain of a tray is not a clique, so it does not place the tray",
        "let Topograph read nvidia-smi or the label nvidia.com/gpu.clique, and write topology.conf",
    ),
    "node_not_ready": Entry(
        INFO, "the Kubernetes node of a tray is NotReady, so its labels may be stale", "run kubectl describe node"
    ),
    "tray_listed_twice": Entry(
        WARNING, "a source lists one tray twice", "correct its list, or the expression that returns a tray's name"
    ),
    "trays_unnamed": Entry(
        WARNING,
        "a source lists trays without a valid name",
        "correct its list, or the expression that returns a tray's name",
    ),
    # Cliques in Kubernetes: plugin_utils/render/schedulers.py, plugin_utils/kubernetes/.
    "k8s_clique_label_orphaned": Entry(
        WARNING,
        "a clique label was written by a program that no longer runs",
        "let the present writer overwrite the label",
    ),
    "k8s_clique_label_missing": Entry(
        WARNING,
        "the node of a tray lacks its clique label",
        "restart the label's writer on that node and check its log",
    ),
    "k8s_clique_label_stale": Entry(
        ERROR, "the label of a node is a former clique of its GPUs", "restart the label's writer on that node"
    ),
    "k8s_clique_label_unplaced": Entry(
        WARNING, "a node has a clique label and is not in the fabric file", "run the playbooks discover and accept"
    ),
    "k8s_clique_label_wrong": Entry(
        ERROR,
        "the label of a node is another clique than in the fabric file",
        "run the playbook discover, then correct the wrong one",
    ),
    "k8s_clique_label_no_writer": Entry(
        ERROR,
        "no running program writes the clique label",
        "start the chosen writer, or set k8s_topology_label_writer to another one",
    ),
    "k8s_clique_label_multiple_writers": Entry(ERROR, "two programs write the clique label", "disable one of them"),
    "k8s_clique_label_unknown_writer": Entry(
        WARNING, "an unknown program writes the clique label", "find the field manager that the finding names"
    ),
    "k8s_flavor_label_missing": Entry(
        WARNING, "nodes lack a label that Kueue's flavor selects", "set k8s_topology_flavor_labels, or label the nodes"
    ),
    "k8s_node_missing": Entry(
        WARNING, "a tray has no Kubernetes node", "join it, or set fabric_kubernetes_node, then run discover and accept"
    ),
    "k8s_node_name": Entry(
        WARNING,
        "kubernetes_node of a tray is not a valid node name",
        "set fabric_kubernetes_node, then run discover and accept",
    ),
    "k8s_node_renamed": Entry(
        ERROR, "Kubernetes has a tray under another node name", "set fabric_kubernetes_node, discover and accept again"
    ),
    "k8s_object_unmanaged": Entry(
        ERROR,
        "an object of the same name is not managed by this collection",
        "choose another name, or remove the object",
    ),
    "k8s_object_name": Entry(
        WARNING, "two cliques would have the same name in Kubernetes", "rename one of them in the fabric file"
    ),
    "k8s_recreate_required": Entry(
        ERROR,
        "a change needs an object to be deleted and created again",
        "set k8s_topology_allow_recreate when its workloads may wait",
    ),
    "k8s_scheduler_missing": Entry(
        ERROR, "a requested scheduler is not installed", "install it, or remove it from k8s_topology_schedulers"
    ),
    "k8s_topograph_in_use": Entry(
        ERROR,
        "labels of Topograph 0.5 or older are still in use and are kept",
        "run the migration's last step when nothing uses them",
    ),
    "k8s_topograph_label_lost": Entry(
        WARNING, "nodes lose their only Topograph label", "let Topograph 1.0 write its labels"
    ),
    "k8s_topograph_deprecated": Entry(
        INFO,
        "nodes have labels of Topograph 0.5 or older",
        "migrate them with k8s_topology_topograph: add, then finish",
    ),
    "k8s_apply_incomplete": Entry(
        ERROR, "some writes succeeded and others failed", "run the role again once the cause is fixed"
    ),
    "k8s_runai_conflict": Entry(
        ERROR,
        "Run:ai has a network topology of that name with other levels",
        "choose another name, or delete it in Run:ai",
    ),
    # IMEX node lists: plugin_utils/render/imex.py.
    "imex_address_duplicate": Entry(
        ERROR,
        "two trays of a clique have the same IMEX address, so no list is written",
        "give each tray its own address",
    ),
    "imex_address_missing": Entry(
        ERROR,
        "a tray has no IMEX address, so its clique's list is not written",
        "widen imex_network, or set the address in the fabric file",
    ),
    # IMEX on a tray: module_utils/imex/facts.py; on a clique: module_utils/imex/verdict.py.
    "imex_channel_slurm_conflict": Entry(
        WARNING,
        "a channel device exists although switch/nvidia_imex makes one for each job; a reconfigure removes it",
        "leave imex_channels empty and set imex_create_channel0: false",
    ),
    "imex_channel_missing": Entry(
        INFO,
        "IMEX runs and there is no channel device",
        "set imex_channels for the role imex, or use switch/nvidia_imex",
    ),
    "imex_channel_stale": Entry(
        ERROR,
        "a channel device has the major number of an earlier boot",
        "set imex_channels and run the playbook imex, or remove it and create it again",
    ),
    "imex_channels_off": Entry(
        WARNING,
        "the driver offers no IMEX channels",
        "set imex_channel_count above 0, run the playbook imex, then reboot",
    ),
    "imex_cmd_disabled": Entry(
        WARNING, "the command service of the daemon is off, so its state cannot be read", "set IMEX_CMD_ENABLED to 1"
    ),
    "imex_config_missing": Entry(ERROR, "config.cfg of nvidia-imex cannot be read", "reinstall the package"),
    "imex_ctl_failed": Entry(ERROR, "nvidia-imex-ctl printed no usable output", "run nvidia-imex-ctl -N on the tray"),
    "imex_domain_degraded": Entry(
        WARNING,
        "a tray is connected to all its peers, and its domain is not up",
        "check the other members of the clique",
    ),
    "imex_foreign_daemon": Entry(
        WARNING, "an IMEX daemon without a known owner runs", "stop it, and start IMEX by its owner"
    ),
    "imex_in_use": Entry(
        ERROR, "another daemon has the driver's one IMEX session", "stop the other owner of IMEX on this host"
    ),
    # imex_owner job: module_utils/imex/job_files.py and job_host.py.
    "imex_job_no_slurm": Entry(
        ERROR, "a tray with imex_owner job has no slurm.conf", "set imex_job_slurm_conf, or another imex_owner"
    ),
    "imex_job_not_member": Entry(
        WARNING, "a tray is in no clique, so its jobs get no IMEX", "run the playbooks discover and accept for the tray"
    ),
    "imex_job_prolog_empty": Entry(
        WARNING,
        "an empty prolog of a former owner stays, because slurm.conf names it",
        "remove Prolog and Epilog from slurm.conf",
    ),
    "imex_job_prolog_flags": Entry(
        ERROR, "PrologFlags has no Alloc, so the prologs of a job's trays do not run together", "add PrologFlags=Alloc"
    ),
    "imex_job_prolog_unset": Entry(
        ERROR, "slurm.conf does not run the prolog and epilog of IMEX", "add the lines that the message names"
    ),
    "imex_job_runs": Entry(
        ERROR, "a job still has its IMEX daemon on this tray", "drain the tray and run the role imex again"
    ),
    "imex_job_shared_partition": Entry(
        WARNING,
        "jobs of several trays are cancelled in a partition whose jobs may share trays",
        "set Exclusive=NODE for the partition, or GresTypes=gpu",
    ),
    "imex_job_task_prolog": Entry(
        INFO,
        "a batch job that runs without IMEX cannot report that in its log",
        "add the TaskProlog that the message names",
    ),
    "imex_job_wait_too_long": Entry(
        ERROR,
        "Slurm would end the prolog or epilog before its own time limit",
        "raise Slurm's limit or lower imex_job_wait",
    ),
    "imex_list_differs": Entry(
        ERROR,
        "members of an IMEX domain started with different lists (!M!)",
        "write one list on all trays of the clique, then stop all daemons and start all",
    ),
    "imex_list_edited": Entry(
        WARNING, "the list is not the one that the role imex wrote", "run the role imex on the whole clique"
    ),
    "imex_list_not_running": Entry(
        WARNING, "the list was written after the daemon started", "restart the daemons of the whole clique together"
    ),
    "imex_list_unusable": Entry(
        ERROR,
        "a line of the list is empty, a comment, a duplicate or not an address",
        "run the role imex, which writes the list again",
    ),
    "imex_member_unreachable": Entry(WARNING, "a member of the clique could not be read", "bring the tray up"),
    "imex_missing": Entry(INFO, "nvidia-imex is not installed", "run the role imex where IMEX is needed"),
    "imex_no_own_address": Entry(
        ERROR, "no line of the list is an address of the tray", "correct imex_address in the fabric file"
    ),
    "imex_not_configured": Entry(ERROR, "IMEX has no node list", "run the role imex"),
    "imex_not_ready": Entry(ERROR, "the daemon runs and is not ready", "check its log for what it waits for"),
    "imex_pair_disconnected": Entry(
        ERROR,
        "two ready members are not connected",
        "open port 50000 in both directions, then restart the clique's daemons",
    ),
    "imex_peer_authentication": Entry(
        ERROR,
        "members of an IMEX domain cannot authenticate each other (!A!)",
        "check that their TLS files are of one authority and not expired, then restart the daemons of the clique",
    ),
    "imex_peer_lost": Entry(
        WARNING, "a tray is not connected to some peers", "check those trays, and ports 50000 and 50005"
    ),
    "imex_peer_version": Entry(
        ERROR, "members of an IMEX domain have different versions (!V!)", "install one version on the whole clique"
    ),
    "imex_persist_left": Entry(
        INFO, "a persist file is left from an unclean stop", "remove it once no job of that time runs"
    ),
    "imex_timeout": Entry(
        ERROR, "nvidia-imex-ctl hangs", "drain the tray and restart the daemon, reboot if it hangs again"
    ),
    "imex_two_owners": Entry(ERROR, "two owners of IMEX on one host", "keep one of them"),
    "imex_unit_down": Entry(
        ERROR, "nvidia-imex.service is enabled and does not run", "check journalctl -u nvidia-imex, then start it"
    ),
    "imex_unit_starting": Entry(
        ERROR,
        "the daemon runs and the start of its unit does not finish",
        "check journalctl -u nvidia-imex, then restart it",
    ),
    "imex_unit_failed": Entry(
        ERROR, "nvidia-imex.service has failed", "remove the cause, run systemctl reset-failed nvidia-imex, start it"
    ),
    "imex_version_mismatch": Entry(
        ERROR, "nvidia-imex does not have the driver's version", "install the package of the driver's exact version"
    ),
    "imex_waiting_for_recovery": Entry(
        ERROR,
        "after an unclean stop the daemon waits for its former peers",
        "bring them up, or restart the clique with a changed list or IMEX_WAIT_FOR_QUORUM=NONE",
    ),
    # Changes of IMEX: module_utils/imex/domain.py and tray.py, plugin_utils/imex/clique.py.
    "imex_change_blocked": Entry(
        ERROR,
        "IMEX of a clique must restart as a whole, and a faulty member still runs its daemon",
        "repair that tray, or stop its daemon",
    ),
    "imex_clique_partial": Entry(
        ERROR, "a change of a clique's IMEX leaves out some of its trays", "run the role imex on the whole clique"
    ),
    "imex_driver_unknown": Entry(
        ERROR, "the version of the loaded driver cannot be read", "load the driver, or set imex_version"
    ),
    "imex_jobs_running": Entry(
        ERROR, "IMEX of a clique must stop and jobs run on it", "wait for the jobs, or set imex_allow_jobs"
    ),
    "imex_jobs_unknown": Entry(
        ERROR, "IMEX of a clique must stop and Slurm does not report whether jobs run", "start slurmctld"
    ),
    "imex_package_missing": Entry(
        ERROR,
        "no repository has nvidia-imex of the driver's version",
        "add the repository that the driver was installed from",
    ),
    "imex_port_blocked": Entry(
        ERROR, "a port of a member refuses connections of other members", "open it for the members"
    ),
    "imex_reboot_needed": Entry(WARNING, "changed driver parameters take effect after a reboot", "reboot the tray"),
    "imex_list_outdated": Entry(
        WARNING, "the list of a clique could not be written on a tray", "bring the tray up and run the role imex on it"
    ),
    # Slurm's topology: module_utils/slurm/rules.py and planning.py.
    "slurm_hardware_assumed": Entry(
        WARNING,
        "the hardware of a tray was never read, so the usual hardware of its clique is written",
        "bring the tray up and run the role slurm again",
    ),
    "slurm_hardware_invalid": Entry(
        WARNING,
        "a tray reports impossible hardware or IMEX channels, so its line in slurm.conf stays",
        "run slurmd -C on the tray, and check its root",
    ),
    "base_shrinks": Entry(
        ERROR,
        "gate: the base block size would be smaller than the running one",
        "complete the clique, set slurm_topology_min_block_size, or name the gate in slurm_topology_override",
    ),
    "block_shrinks": Entry(
        ERROR,
        "gate: a running block would keep fewer nodes",
        "check the fabric file, name the gate in slurm_topology_override if it is intended",
    ),
    "live_changes_lost": Entry(
        ERROR,
        "gate: a reconfigure would undo live changes of partitions, nodes or settings",
        "write them into slurm.conf, or name the gate in the override that the message names",
    ),
    "block_vanishes": Entry(
        ERROR,
        "gate: a running block would keep no node",
        "check the fabric file, name the gate in slurm_topology_override if it is intended",
    ),
    "cluster_default_changes": Entry(
        ERROR,
        "gate: partitions without Topology= would use another topology",
        "set slurm_topology_cluster_default, or name the gate in slurm_topology_override if it is intended",
    ),
    "nodes_lose_block": Entry(
        ERROR,
        "gate: nodes of running blocks would be in no block",
        "check the fabric file, name the gate in slurm_topology_override if it is intended",
    ),
    "slurm_aggregates_irregular": Entry(
        WARNING,
        "no aggregated blocks, since one block has at least twice the trays of another",
        "set slurm_topology_block_sizes",
    ),
    "slurm_aggregates_shift": Entry(WARNING, "blocks above the base size get other members", "keep retired blocks"),
    "slurm_block_duplicate": Entry(
        ERROR, "two blocks have the same name", "give each clique its own block name in the fabric file"
    ),
    "slurm_block_empty": Entry(
        ERROR, "a block has no nodes, which Slurm before 25.05 rejects", "leave the block out, or upgrade Slurm"
    ),
    "slurm_block_name": Entry(ERROR, "a block's name is not valid in a topology file", "use letters, digits and . _ -"),
    "slurm_block_overlap": Entry(ERROR, "a node is in two blocks", "keep it only in the block of its clique"),
    "slurm_block_short": Entry(
        ERROR,
        "a block is below the base block size, which Slurm before 25.05 rejects",
        "lower the first of slurm_topology_block_sizes",
    ),
    "slurm_block_size": Entry(
        ERROR, "a block size is not the base block size times a power of two", "correct slurm_topology_block_sizes"
    ),
    "slurm_block_size_remainder": Entry(
        WARNING, "large jobs cannot use the last blocks", "add a size to slurm_topology_block_sizes"
    ),
    "slurm_block_size_unused": Entry(INFO, "a block size has no effect", "remove it from slurm_topology_block_sizes"),
    "slurm_block_unknown": Entry(
        ERROR, "Slurm has none of the nodes of a block", "set fabric_slurm_node, then run discover and accept"
    ),
    "slurm_channels_beyond_driver": Entry(
        WARNING,
        "Slurm may give a job an IMEX channel that the driver of a tray lacks",
        "raise its NVreg_ImexChannelCount, or lower slurm_imex_channel_count",
    ),
    "slurm_channels_few": Entry(
        WARNING,
        "there are fewer IMEX channels than nodes",
        "raise NVreg_ImexChannelCount, then slurm_imex_channel_count",
    ),
    "slurm_channels_none": Entry(
        WARNING,
        "Slurm before 25.11 gives no job an IMEX channel where the driver has two",
        "raise NVreg_ImexChannelCount to 3 or more, or upgrade Slurm",
    ),
    "slurm_clique_above_base": Entry(
        WARNING, "a clique is larger than the base block size", "give it a partition of its own"
    ),
    "slurm_cluster_default": Entry(
        ERROR, "the default topology of the cluster is missing", "correct slurm_topology_cluster_default"
    ),
    "slurm_block_left_out": Entry(
        WARNING, "a clique is below slurm_topology_min_block_size and gets no block", "complete the clique"
    ),
    "slurm_conf_inconsistent": Entry(ERROR, "a line of slurm.conf contradicts a managed setting", "correct that line"),
    "slurm_format": Entry(ERROR, "this Slurm does not read that topology file", "set slurm_topology_format: auto"),
    "slurm_gate_overridden": Entry(WARNING, "a gate that would stop the apply is overridden", "none"),
    "slurm_groups_unaligned": Entry(
        ERROR,
        "Slurm cannot aggregate the groups of cliques that the fabric file names",
        "give all groups the same number of cliques, a power of two (edit_groups)",
    ),
    "slurm_hostlist": Entry(ERROR, "the hostlist of a block does not expand to its nodes", "report it as a bug"),
    "slurm_all_refused": Entry(
        ERROR,
        "slurmctld refuses a job of all usable trays, which its blocks allow",
        "run scontrol reconfigure on the Slurm controller",
    ),
    "slurm_block_refused": Entry(
        ERROR,
        "slurmctld refuses a job on trays that it shows in one block",
        "run scontrol reconfigure on the Slurm controller",
    ),
    "slurm_jobs_unanswered": Entry(
        WARNING,
        "slurmctld did not answer where it would place jobs",
        "correct the reason that the finding names, or set verify_slurm_test_seconds to 0",
    ),
    "slurm_segments_ignored": Entry(
        ERROR,
        "slurmctld places segments across blocks",
        "run scontrol reconfigure on the Slurm controller",
    ),
    "slurm_jobs_move": Entry(WARNING, "jobs run on trays that change their block", "none, the jobs continue"),
    "slurm_jobs_on_moving_trays": Entry(
        ERROR, "jobs run on trays that change their block", "wait for them, or set slurm_topology_allow_moving_jobs"
    ),
    "slurm_no_blocks": Entry(ERROR, "the topology has no block", "run the playbooks discover and accept first"),
    "slurm_no_nodes": Entry(
        ERROR, "no block of the topology has a node", "run the playbooks discover and accept first"
    ),
    "slurm_node_name": Entry(
        ERROR, "a node's name is not valid in a hostlist", "set fabric_slurm_node, then run discover and accept"
    ),
    "slurm_node_rank": Entry(WARNING, "task ranks follow node names that interleave the blocks", "set BlockAsNodeRank"),
    "slurm_node_renamed": Entry(
        ERROR, "Slurm has trays under other node names", "set fabric_slurm_node, discover and accept again"
    ),
    "slurm_node_topology": Entry(
        ERROR, "Topology= of a NodeName line overrides the topology file", "remove it from that line"
    ),
    "slurm_node_uncovered": Entry(
        WARNING, "a partition has nodes that are in no block", "place them, or split the partition"
    ),
    "slurm_node_unknown": Entry(WARNING, "Slurm does not have a node of a block", "add it to slurm.conf"),
    "slurm_other_topology": Entry(INFO, "slurmctld also runs another topology", "none"),
    "slurm_partition_topology": Entry(ERROR, "a partition names a missing topology", "correct its Topology="),
    "slurm_placeholder_left_out": Entry(
        WARNING, "Slurm before 25.05 cannot keep a retired block as a placeholder", "upgrade Slurm"
    ),
    "slurm_plugin_inconsistent": Entry(ERROR, "another TopologyPlugin is set", "set TopologyPlugin=topology/block"),
    "slurm_plugin_ignored": Entry(
        INFO, "TopologyPlugin has no effect with topology.yaml", "remove the line from slurm.conf"
    ),
    "slurm_plugin_missing": Entry(
        ERROR, "TopologyPlugin is not set, so topology.conf is not read", "set TopologyPlugin=topology/block"
    ),
    "slurm_prolog_flags": Entry(WARNING, "the prolog does not run at allocation", "set PrologFlags=Alloc"),
    "slurm_rehearsal_all": Entry(
        WARNING, "in a rehearsal a job of all trays never starts without a segment", "set --segment for such jobs"
    ),
    "slurm_rehearsal_block": Entry(
        ERROR, "in a rehearsal a job of the size of a block does not fit into it", "follow the message of the finding"
    ),
    "slurm_rehearsal_job": Entry(
        WARNING,
        "in a rehearsal a job would stay pending for ever",
        "correct its size, or the partition's trays and limits",
    ),
    "slurm_rehearsal_job_required": Entry(
        ERROR,
        "in a rehearsal a required job would stay pending for ever",
        "correct its size, or the partition's trays and limits",
    ),
    "slurm_rehearsal_past": Entry(
        WARNING,
        "a job like those of the last weeks would be pending for ever",
        "compare the blocks and the base block size with what its user needs",
    ),
    "slurm_rehearsal_missing": Entry(
        ERROR, "a rehearsal is required and did not finish", "correct the reason that the finding names"
    ),
    "slurm_rehearsal_refused": Entry(
        ERROR, "in a rehearsal slurmctld rejects the new files", "correct the line that the finding names"
    ),
    "slurm_rehearsal_skipped": Entry(INFO, "the apply was not rehearsed", "run it as root on the controller"),
    "slurm_rehearsal_spread": Entry(
        WARNING, "a job of the size of a clique may be spread over blocks", "give the clique a partition of its own"
    ),
    "slurm_rehearsal_unfinished": Entry(
        WARNING, "a rehearsal ended before all its jobs were judged", "raise slurm_topology_rehearse_timeout"
    ),
    "slurm_release": Entry(WARNING, "this Slurm release loses nodes of blocks", "upgrade Slurm"),
    "slurm_segment": Entry(
        ERROR, "a --segment that jobs use is rejected or fits into no block", "use smaller segments"
    ),
    "slurm_segment_spread": Entry(WARNING, "a --segment is larger than any block", "use smaller segments"),
    "slurm_select_type": Entry(
        ERROR, "SelectType is not select/cons_tres", "set SelectType=select/cons_tres in slurm.conf"
    ),
    "slurm_switches": Entry(ERROR, "slurmctld rejects the tree of switches", "correct slurm_topology_other_topologies"),
    "slurm_switches_suspect": Entry(
        WARNING,
        "slurmctld loads the tree of switches and uses only part of it",
        "correct slurm_topology_other_topologies",
    ),
    "slurm_topologies_one": Entry(WARNING, "this Slurm supports a single topology", "upgrade Slurm to 25.05"),
    "slurm_too_large": Entry(ERROR, "there are more nodes or blocks than Slurm supports", "split the cluster"),
    "slurm_topology_differs": Entry(
        WARNING, "slurmctld runs another topology than its file", "run the playbook slurm, or scontrol reconfigure"
    ),
    "slurm_topology_other_writer": Entry(
        WARNING,
        "two programs write Slurm's topology file",
        "let one program write it, or set verify_slurm_topology_owner",
    ),
    "slurm_topology_name": Entry(ERROR, "the name of a topology is not valid in slurm.conf", "use letters and digits"),
    "slurm_topology_foreign": Entry(
        ERROR, "lines or a topology of the site would be lost", "move that file away, or set slurm_topology_name"
    ),
    "slurm_topology_file_hidden": Entry(
        ERROR, "topology.yaml hides topology.conf", "remove topology.yaml, or set slurm_topology_format: auto"
    ),
    "slurm_topology_file_left": Entry(WARNING, "a topology file of the other format is left", "remove it"),
    # Tiers: module_utils/slurm/tiers/tier_plan.py.
    "slurm_tier_account_missing": Entry(
        ERROR, "slurmdbd lacks an account or user of a tier", "add it, or set slurm_tiers_create_accounts"
    ),
    "slurm_tier_accounting": Entry(ERROR, "tiers have QoS, and this Slurm has no accounting", "set up slurmdbd"),
    "slurm_tier_enforce": Entry(WARNING, "Slurm does not enforce QoS", "set AccountingStorageEnforce in slurm.conf"),
    "slurm_tier_grant_by_hand": Entry(
        INFO, "the QoS of a tier is also granted manually", "revoke the grant, or keep it"
    ),
    "slurm_tier_include": Entry(
        ERROR,
        "slurm.conf does not include the tiers' partitions",
        "add the Include line, or set slurm_tiers_manage_conf",
    ),
    "slurm_tier_jobs": Entry(ERROR, "a partition that is to be removed still has jobs", "drain it first"),
    "slurm_tier_node_unknown": Entry(ERROR, "Slurm does not have a node of a tier", "add it to slurm.conf"),
    "slurm_tier_open_partition": Entry(
        WARNING, "another partition gives everybody access to the trays of a tier", "restrict that partition"
    ),
    "slurm_tier_partition_foreign": Entry(
        ERROR, "slurm.conf itself defines the partition of a tier", "remove it from slurm.conf"
    ),
    "slurm_tier_preempt": Entry(WARNING, "preemption by QoS is off", "set PreemptType=preempt/qos"),
    "slurm_tier_priority": Entry(INFO, "the priority of QoS has no weight", "set PriorityWeightQOS"),
    "slurm_tier_qos_foreign": Entry(
        ERROR,
        "the QoS of a tier is not managed by this collection",
        "use another name, or let the collection manage it",
    ),
    "slurm_tier_qos_unknown": Entry(ERROR, "a tier names a QoS that does not exist", "create it, or leave it out"),
    "slurm_tier_qos_used": Entry(
        WARNING, "a QoS that is to be removed is still in use", "remove it from the partition that the finding names"
    ),
    "slurm_tier_segment": Entry(ERROR, "the segment of a tier is rejected or fits into no block", "use a smaller one"),
    "slurm_tier_segment_advice": Entry(
        INFO, "the segments of a tier are not enforced", "set slurm_tiers_segment_script, from Slurm 25.11.2"
    ),
    "slurm_tier_segment_script": Entry(
        ERROR, "slurm.conf does not run the segment script", "add the line that the finding names"
    ),
    "slurm_tier_spans": Entry(
        WARNING, "a clique of a tier is larger than the base block size", "set per_block for the tier"
    ),
    "slurm_tier_state": Entry(
        INFO, "the state of a tier's partition was changed manually", "none, or set it back with scontrol update"
    ),
    "slurm_tier_topology": Entry(
        ERROR, "a tier names a topology that slurmctld does not run", "run the role slurm_topology first"
    ),
    "slurm_tier_tres_unknown": Entry(
        ERROR, "a QoS limits a TRES that Slurm does not track", "add it to AccountingStorageTRES"
    ),
    # The DRA driver's values: plugin_utils/dra/values.py.
    "dra_gate_conflict": Entry(
        ERROR, "feature gates exclude each other, so the driver exits at start", "disable one of them"
    ),
    "dra_value_refused": Entry(ERROR, "the driver's chart rejects the values", "correct dra_driver_values"),
    "dra_value_unknown": Entry(ERROR, "the driver's chart has no such key", "correct the key in dra_driver_values"),
    "dra_value_wrong": Entry(
        ERROR, "a value has the wrong type for the driver's chart", "correct the value in dra_driver_values"
    ),
    # The DRA driver's preflight: plugin_utils/dra/preflight.py.
    "dra_api_missing": Entry(
        ERROR, "the API server does not serve resource.k8s.io", "enable DRA, or upgrade Kubernetes"
    ),
    "dra_bandwidth_failed": Entry(
        WARNING, "an nvbandwidth job failed, or succeeded across two cliques", "check the log of its launcher"
    ),
    "dra_bandwidth_untested": Entry(INFO, "no nvbandwidth job has succeeded in a clique yet", "run nvbandwidth in it"),
    "dra_device_plugin": Entry(
        ERROR,
        "a device plugin allocates the GPUs that the DRA driver would allocate too",
        "remove the device plugin from those nodes first, see docs/dra-driver.md",
    ),
    "dra_insufficient_permissions": Entry(
        ERROR,
        "the account cannot list the objects that a removal or the allocation of GPUs depends on",
        "grant it the verb list on them",
    ),
    "dra_channels_missing": Entry(
        ERROR, "the kernel of a tray has no IMEX channels", "load the driver, check its version"
    ),
    "dra_claim_lost": Entry(
        ERROR, "a ResourceClaim was in use before an upgrade and is not now", "check its pod and the plugin's log"
    ),
    "dra_claims_in_use": Entry(
        ERROR, "pods use the driver's devices, so the driver cannot be removed", "delete the pods first"
    ),
    "dra_class_missing": Entry(ERROR, "a DeviceClass of the driver is missing", "install the release again"),
    "dra_dcgm_imex": Entry(INFO, "DCGM monitors IMEX, which the driver owns", "exclude IMEX from its health watches"),
    "dra_domain_leftovers": Entry(WARNING, "a deleted ComputeDomain left objects behind", "wait, then delete them"),
    "dra_domain_spans": Entry(WARNING, "a ComputeDomain spans several cliques", "bind its workload to one clique"),
    "dra_domain_stuck": Entry(
        ERROR, "the deletion of a ComputeDomain does not finish", "check that the driver's controller runs"
    ),
    "dra_domain_unready": Entry(
        ERROR, "the daemon of a ComputeDomain is not ready on a node", "check its log on that node"
    ),
    "dra_domain_without_imex": Entry(
        ERROR, "the daemon of a ComputeDomain finds no clique", "repair the fabric of that tray"
    ),
    "dra_downgrade": Entry(ERROR, "the installed driver is newer than the chart", "pin its version or a later one"),
    "dra_label_missing": Entry(
        ERROR, "a node lacks the clique label", "check the log of the label's writer on that node"
    ),
    "dra_label_wrong": Entry(
        ERROR, "a node's clique label differs from its GPUs", "restart the label's writer on that node"
    ),
    "dra_plugin_unscheduled": Entry(ERROR, "the driver's DaemonSet is scheduled on no node", "label the nodes"),
    "dra_plugin_missing": Entry(ERROR, "the driver's DaemonSet is missing", "install the release"),
    "dra_plugin_incomplete": Entry(ERROR, "the driver runs on too few nodes", "label or untaint the others"),
    "dra_plugin_unready": Entry(ERROR, "pods of the driver are not ready", "check their logs"),
    "dra_probe_cliques_merged": Entry(
        ERROR, "the daemons of a probe across two cliques joined the wrong cliques", "compare the label with the GPUs"
    ),
    "dra_probe_failed": Entry(
        ERROR, "the channel of a probe is not available in its pods", "check the object that the finding names"
    ),
    "dra_probe_leftovers": Entry(ERROR, "a probe left objects behind", "check that the driver's controller runs"),
    "dra_release_pending": Entry(ERROR, "a Helm operation was interrupted", "roll the release back, or uninstall it"),
    "dra_slice_missing": Entry(
        ERROR, "the driver publishes no ResourceSlice for a node", "restart the plugin on that node and check its log"
    ),
    "dra_clique_size": Entry(
        WARNING, "a clique has more nodes than the driver allows in an IMEX domain", "raise the limit"
    ),
    "dra_clique_unknown": Entry(ERROR, "the GPUs of a tray report no clique", "repair the tray's fabric"),
    "dra_crd_conflict": Entry(
        ERROR, "another field manager owns a CRD of the driver", "remove the CRD there, or take it over"
    ),
    "dra_crd_stale": Entry(
        WARNING, "a CRD of the driver differs from the chart's", "run the role dra_driver with the tag crds"
    ),
    "dra_domains_active": Entry(
        ERROR, "ComputeDomains exist while IMEX or the driver is to change", "delete them and their workloads first"
    ),
    "dra_driver_root": Entry(ERROR, "the driver's programs are not below its root", "correct nvidiaDriverRoot"),
    "dra_driver_too_old": Entry(
        ERROR, "the NVIDIA driver of a tray is too old for ComputeDomains", "upgrade the driver"
    ),
    "dra_driver_versions": Entry(
        ERROR, "the trays of a clique have several driver versions", "install one version on all of them"
    ),
    "dra_fabric_unhealthy": Entry(
        WARNING, "the fabric of a tray is unhealthy, which the DRA driver does not check", "repair it"
    ),
    "dra_imex_owner": Entry(ERROR, "IMEX has another owner on a tray or node", "keep one owner of IMEX"),
    "dra_imex_unit": Entry(
        ERROR, "nvidia-imex.service is not in the state that the mode requires", "run the role imex"
    ),
    "dra_imex_version": Entry(
        ERROR, "IMEX and the driver have different versions", "install IMEX of the driver's version"
    ),
    "dra_kubelet_root": Entry(ERROR, "the kubelet's folder differs from the one in the values", "correct the paths"),
    "dra_kubernetes_old": Entry(WARNING, "Kubernetes is older than the recommended release", "plan an upgrade"),
    "dra_kubernetes_too_old": Entry(
        ERROR, "the chart does not support this version of Kubernetes", "upgrade to 1.34.2 or later"
    ),
    "dra_label_no_writer": Entry(ERROR, "no program writes the clique label", "choose one writer"),
    "dra_label_multiple_writers": Entry(ERROR, "several programs write the clique label", "keep one of them"),
    "dra_network_policy": Entry(WARNING, "a NetworkPolicy may block traffic between IMEX daemons", "allow their ports"),
    "dra_node_missing": Entry(ERROR, "a tray is no node of the cluster", "join it, or correct its kubernetes_node"),
    "dra_node_not_selected": Entry(
        ERROR, "the driver would not run on a node", "set a label that its affinity selects"
    ),
    "dra_not_readable": Entry(
        WARNING,
        "part of the cluster or of the trays could not be read",
        "grant the account that right, or repair the tray",
    ),
    "dra_object_refused": Entry(
        ERROR, "the API server would refuse an object of the driver's chart", "correct dra_driver_values"
    ),
    "dra_other_install": Entry(ERROR, "another installation of the driver exists", "keep one of the two"),
    "dra_release_failed": Entry(
        ERROR, "Helm could not install or upgrade the release", "correct what the message names"
    ),
    "dra_release_old": Entry(INFO, "the release is of a 25.x chart, whose object names are kept", "none"),
    "dra_runtime_cdi": Entry(
        ERROR, "the container runtime of a node has no CDI, or has it disabled", "upgrade the runtime, or enable CDI"
    ),
    "dra_upgrade_drops": Entry(
        WARNING, "an upgrade from 25.x drops a value or an object", "set the value again if it is needed"
    ),
    "dra_waves_pending": Entry(INFO, "nodes still wait for the wave that installs the driver", "continue the rollout"),
}


def finding(code: str, message: str, **subject: Any) -> dict[str, Any]:
    """One finding; KeyError for a code without a row, which is a bug of this collection."""
    return {"code": code, "severity": CATALOGUE[code].severity, "message": message, **subject}
