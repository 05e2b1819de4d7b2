# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of findings: every reason code that this collection can report, with its severity and its remedy.

A finding is a plain dict, so that it travels as JSON unchanged::

    {"code": "gpu_lost", "severity": "error", "message": "One sentence with the remedy.", "gpu": 2}

Besides these three keys stand the subjects that apply: ``tray``, ``clique``, ``domain``, ``block`` (strings), ``gpu``
(index). A new code is one row here. Severity speaks of the subject alone: error, it cannot serve multi-node NVLink
jobs (or the thing to be written is wrong); warning, it can, and somebody should look; info, good to know. Whether a run
fails for it is the playbook's decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"


class Entry(NamedTuple):
    """One row of the catalogue; ``meaning`` and ``remedy`` are for documents, a message says both in one sentence."""

    severity: str
    meaning: str
    remedy: str


CATALOGUE: dict[str, Entry] = {
    # The tray cannot be read (fabric_facts).
    "driver_missing": Entry(
        ERROR, "the NVIDIA driver is not loaded", "load the nvidia kernel modules, or install the driver"
    ),
    "library_missing": Entry(
        ERROR,
        "the library libnvidia-ml.so.1 cannot be loaded",
        "install the driver's user-space packages of the loaded driver's version",
    ),
    "version_mismatch": Entry(
        ERROR,
        "the driver's kernel module and its libraries have different versions",
        "reboot the tray, or reload the nvidia modules, to run the installed driver",
    ),
    "no_gpu": Entry(
        ERROR, "the driver sees no GPU", "look for Xid messages in the kernel log and check the GPUs' power"
    ),
    "no_permission": Entry(
        ERROR, "the driver refuses this user", "run the task with become, or check the modes of /dev/nvidia*"
    ),
    "nvml_timeout": Entry(
        ERROR, "NVML did not answer in time", "look for Xid messages in the kernel log, a reboot often is the only cure"
    ),
    "nvml_failed": Entry(
        ERROR, "NVML failed in a way that has no row of its own", "run nvidia-smi on the tray by hand"
    ),
    "nvml_too_old": Entry(
        WARNING,
        "the driver has only the first version of the fabric call, which is never trusted",
        "use a driver of R550 or newer, or backend nvidia_smi",
    ),
    "smi_missing": Entry(ERROR, "nvidia-smi cannot be started", "install it, or name it with the option nvidia_smi"),
    "smi_timeout": Entry(
        ERROR,
        "nvidia-smi did not answer in time",
        "look for Xid messages in the kernel log, a reboot often is the cure",
    ),
    "smi_failed": Entry(
        ERROR, "nvidia-smi failed or printed something else", "run nvidia-smi -q -x on the tray by hand"
    ),
    "smi_not_xml": Entry(ERROR, "nvidia-smi printed text where XML was asked for", "run nvidia-smi -q -x by hand"),
    "smi_broken_xml": Entry(
        ERROR, "nvidia-smi's XML is cut off or broken", "run nvidia-smi -q -x by hand and look at the end of its output"
    ),
    "smi_refused_xml": Entry(
        ERROR,
        "nvidia-smi's XML declares entities, is too deep or too large, and was not read",
        "check what stands in the tray's PATH under the name nvidia-smi",
    ),
    "smi_exit": Entry(
        WARNING, "nvidia-smi gave an answer and an exit code other than 0", "look up the code in nvidia-smi's manual"
    ),
    "child_stuck": Entry(
        ERROR,
        "a process that asked the GPUs survived SIGKILL: it hangs in the kernel",
        "reboot the tray, nothing less ends that process",
    ),
    "backend_fallback": Entry(
        INFO, "the facts are from nvidia-smi because NVML could not be used", "repair NVML, or set backend nvidia_smi"
    ),
    "addresses_unknown": Entry(
        WARNING, "the tray's addresses could not be read", "look at its network, or give the addresses in the inventory"
    ),
    "unusable_value": Entry(
        WARNING, "something said a value that cannot be one, it was taken as unknown", "run nvidia-smi -q on the tray"
    ),
    # What the GPUs say (fabric_facts).
    "gpu_lost": Entry(
        ERROR, "a GPU has fallen off the bus", "drain the tray, reboot it, replace the GPU if it comes back"
    ),
    "gpu_reset_required": Entry(ERROR, "a GPU needs a reset", "drain the tray, then reset the GPU or reboot"),
    "gpu_count_unclear": Entry(
        ERROR,
        "nvidia-smi describes fewer GPUs than it counts",
        "run nvidia-smi -q on the tray and compare with its list",
    ),
    "gpus_disagree": Entry(
        ERROR,
        "the GPUs of one tray are in different NVLink domains or cliques",
        "check the NVLink partitions on the switch side, a tray's GPUs belong in one",
    ),
    "platform_disagrees": Entry(
        WARNING,
        "the GPUs of one tray name different chassis or slots",
        "check the tray's firmware, then ask its vendor",
    ),
    "fabric_not_supported": Entry(
        INFO, "the GPUs have no NVLink fabric", "none where they are PCIe cards, else check the driver's version"
    ),
    "fabric_node_local": Entry(
        INFO, "the NVLink fabric ends at this host (HGX, zero cluster UUID)", "none, such a host is in no clique"
    ),
    "fabric_uuid_zero": Entry(
        WARNING,
        "a tray of a rack (it names its chassis) is in a fabric whose cluster UUID is zero",
        "check the NMX controller, nothing to do where the NVLink fabric ends at the host (NVL4)",
    ),
    "gpus_part_attached": Entry(
        ERROR,
        "some GPUs of a tray are attached to the NVLink fabric and others have none",
        "run nvidia-smi -q on the tray, then reset or reboot it",
    ),
    "fabric_unknown": Entry(
        WARNING,
        "the GPUs of a tray do not all say whether they are in an NVLink fabric",
        "check that the driver is R550 or newer, and run nvidia-smi -q on the tray",
    ),
    "fabric_not_started": Entry(
        ERROR,
        "a GPU has not asked for its place in the fabric yet",
        "start nvidia-persistenced, then look at the NMX side",
    ),
    "fabric_in_progress": Entry(
        ERROR,
        "a GPU waits for the fabric manager's answer",
        "check the NMX controller and that an NVLink partition holds this GPU, CUDA calls hang until then",
    ),
    "fabric_refused": Entry(
        ERROR, "the fabric manager refused a GPU", "check on the switch side that an NVLink partition holds this GPU"
    ),
    "fabric_unhealthy": Entry(
        ERROR, "a GPU's NVLink fabric is unhealthy", "drain the tray and look at the NVLink switches' own health"
    ),
    "fabric_limited_capacity": Entry(
        WARNING, "a GPU's NVLink fabric has limited capacity", "look at the NVLink switches for parked or failed links"
    ),
    "fabric_degraded_bandwidth": Entry(
        WARNING, "a GPU's NVLink bandwidth is degraded", "look at the NVLink switches for failed links"
    ),
    "fabric_route_unhealthy": Entry(
        ERROR, "a GPU's NVLink routes could not be recovered", "drain the tray and reset its GPUs"
    ),
    "fabric_recovering": Entry(
        WARNING, "a GPU's NVLink routes or accesses are being recovered", "wait, then gather the facts again"
    ),
    "fabric_incorrect_configuration": Entry(
        ERROR, "the fabric manager calls a GPU's configuration incorrect", "correct the reason that it gives"
    ),
    "fabric_no_partition": Entry(
        WARNING, "a GPU is in no NVLink partition", "put it into a partition on the switch side"
    ),
    "mig_enabled": Entry(
        WARNING, "MIG is on, which turns NVLink between GPUs off", "turn MIG off on trays that run multi-node jobs"
    ),
    "recovery_action": Entry(
        WARNING, "the driver asks for an action on a GPU", "drain the tray and do what it asks for"
    ),
    # A tray asked for everything at once (tray_info).
    "tray_part_failed": Entry(
        ERROR, "a part of a tray's readings could not be taken", "run the part's own module on the tray, as imex_info"
    ),
    # What verify finds where two layers disagree: plugin_utils/verify/.
    "tray_moved": Entry(
        ERROR, "a tray's GPUs are in another clique than the fabric file says", "discover, look at the proposal, accept"
    ),
    "trays_swapped": Entry(
        ERROR,
        "two trays each have the GPUs that the fabric file gives to the other",
        "put them back, or discover and accept where they are meant to stand so",
    ),
    "clique_moved": Entry(
        ERROR,
        "all trays of a clique that answer are in another one than the fabric file says",
        "discover, look at the proposal, accept; or have the NVLink partition set back",
    ),
    "tray_slot_differs": Entry(
        WARNING, "a tray stands in another slot than the fabric file says", "discover, look at the proposal, accept"
    ),
    "imex_package_waits": Entry(
        WARNING, "another version of nvidia-imex is installed than runs", "restart the clique by the playbook imex"
    ),
    "slurmd_newer": Entry(ERROR, "a tray's slurmd is of a newer release than slurmctld", "upgrade slurmctld first"),
    "slurm_unanswered": Entry(ERROR, "a Slurm controller or slurmctld did not answer", "bring slurmctld back"),
    "slurm_topology_missing": Entry(ERROR, "slurmctld runs no block topology", "run the playbook slurm"),
    "slurm_tray_other_block": Entry(
        ERROR, "slurmctld has a tray in another block than the one of its clique", "run the playbook slurm"
    ),
    "slurm_tray_no_block": Entry(ERROR, "slurmctld has a tray in no block", "run the playbook slurm"),
    "slurm_block_missing": Entry(ERROR, "slurmctld does not run the block of a clique", "run the playbook slurm"),
    "slurm_tier_differs": Entry(
        ERROR, "a tier's partition or QoS is not as the tiers say", "run the playbook slurm with --tags tiers"
    ),
    "slurm_tier_unread": Entry(
        ERROR, "the tiers could not be compared with Slurm", "see the reason, then verify again"
    ),
    "k8s_unreachable": Entry(
        ERROR, "the API server of Kubernetes did not answer", "check the kubeconfig and the API server"
    ),
    "k8s_domain_clique_wrong": Entry(
        ERROR,
        "a ComputeDomainClique holds a node of another clique than the fabric file",
        "restart the DRA driver's plugin on that node, then the workload",
    ),
    "k8s_domain_daemon_down": Entry(
        WARNING, "the IMEX daemon of a ComputeDomain is not ready on a node", "see the log of its pod on that node"
    ),
    "dra_gpus_differ": Entry(
        ERROR, "the DRA driver publishes fewer GPUs than the fabric file has", "see the plugin's log on that node"
    ),
    # Jobs that try a block: plugin_utils/verify/benchmarks.py.
    "benchmark_held": Entry(WARNING, "Slurm does not give a block up for its trial", "wait for the jobs on it"),
    "benchmark_failed": Entry(ERROR, "a program that tries a block failed or found a fault", "see what it says of it"),
    "benchmark_slow": Entry(
        ERROR, "a bandwidth is below what the site wants", "look at the NVLink switches and the fabric"
    ),
    "benchmark_misplaced": Entry(ERROR, "a job ran on other trays or in another block than it asked for", "run verify"),
    "benchmark_no_channel": Entry(ERROR, "a job has no IMEX channel on a tray", "see SwitchType and the role imex"),
    "benchmark_channel_shared": Entry(
        ERROR, "two jobs that run side by side have one IMEX channel", "set SwitchType=switch/nvidia_imex"
    ),
    # Several sources at once: plugin_utils/fabric/merging.py.
    "source_failed": Entry(WARNING, "a source failed, the fabric file stands", "see its reason, then discover again"),
    "source_incomplete": Entry(
        WARNING, "a source answered, but not all that it was asked", "see its reason, then discover again"
    ),
    "sources_disagree": Entry(
        WARNING,
        "two sources name different cliques, GPUs, slots or clusters for one tray, the one earlier in sources decides",
        "correct the source that is wrong, or the order of sources",
    ),
    "too_few_answers": Entry(
        WARNING,
        "a source answers for fewer trays than min_answer percent, the fabric file stands",
        "bring the trays or the source back, then discover again",
    ),
    # Places: plugin_utils/fabric/placement.py.
    "acceptance_pending": Entry(
        INFO, "a tray is seen in a place that is proposed and not accepted yet", "look at the proposal and accept it"
    ),
    "block_contradicts": Entry(
        WARNING,
        "a running Slurm has a tray in another block than the one of its clique",
        "apply the topology with the playbook slurm, or correct the block's name in the fabric file",
    ),
    "block_unclaimed": Entry(
        WARNING,
        "a running Slurm has a block whose trays nobody knows, so an apply would leave it without nodes",
        "discover its trays before the topology is applied, or let them go",
    ),
    "clique_shrank": Entry(
        ERROR,
        "gate: trays leave a clique or domain that then has fewer than expected",
        "look at the proposal, name the gate in override if that is meant",
    ),
    "domain_incomplete": Entry(
        WARNING, "an NVLink domain has fewer trays than expected", "discover the others, or correct expected_trays"
    ),
    "domain_merged": Entry(
        ERROR,
        "gate: all trays of an NVLink domain go into another one",
        "look at the switches, name the gate in override if that is meant",
    ),
    "domain_name_taken": Entry(
        WARNING, "the site gives one name to two NVLink domains", "correct domain_names before the proposal is accepted"
    ),
    "domain_split": Entry(
        ERROR,
        "gate: the trays of one NVLink domain part into several",
        "look at the switches, name the gate in override if that is meant",
    ),
    "domain_two_chassis": Entry(
        INFO, "an NVLink domain spans several chassis, as NVL36x2 does", "none, unless the site has no such system"
    ),
    "drivers_differ": Entry(
        WARNING, "the trays of a clique run different drivers", "install one version on all its trays"
    ),
    "expected_tray_missing": Entry(
        WARNING, "trays that the site declares have no place", "discover them, or correct expected"
    ),
    "gpu_missing": Entry(
        WARNING, "an attached tray shows fewer GPUs than it had when it was placed", "reset or replace the missing GPU"
    ),
    "illegal_tray_name": Entry(
        ERROR, "a tray's inventory name cannot stand in a hostlist", "rename it in the inventory"
    ),
    "mixed_cliques": Entry(
        ERROR,
        "gate: a tray whose GPUs are in different cliques enters the one that most of them name",
        "give its GPUs one NVLink partition, name the gate in override if that is meant",
    ),
    "moved_percent": Entry(
        ERROR, "gate: more trays move in one go than moved_percent", "look at the proposal, accept it if it is meant"
    ),
    "not_a_tray": Entry(INFO, "a host without GPUs and without a place was asked", "leave it out of fabric_hosts"),
    "source_too_old": Entry(
        ERROR, "gate: places change by observations older than max_age", "ask anew, or correct the source's clock"
    ),
    "tray_elsewhere": Entry(
        WARNING,
        "a tray is in another NVLink domain than the site declares",
        "look where it stands, or correct expected",
    ),
    "tray_in_no_cluster": Entry(
        WARNING,
        "trays are in none of the Slurm and Kubernetes clusters that share the fabric",
        "set fabric_slurm_cluster or fabric_kubernetes_cluster of them",
    ),
    "tray_known_twice": Entry(
        ERROR, "two inventory names show the same GPUs", "give one tray one name in inventory and fabric file"
    ),
    "tray_not_attached": Entry(
        WARNING, "a tray answers, but names no clique that all its GPUs share", "see the tray's other findings"
    ),
    "tray_replaced": Entry(INFO, "all GPUs of a tray are new", "accept the proposal if the tray was swapped"),
    "tray_unreachable": Entry(WARNING, "a tray could not be asked", "bring it back, then discover again"),
    "unknown_trays": Entry(
        ERROR,
        "gate: trays get a place that are neither declared by the site nor in the fabric file",
        "add them to expected, or name the gate in override",
    ),
    # What other services keep of trays: plugin_utils/sources and plugin_utils/collector.py.
    "clique_label_unusable": Entry(
        WARNING, "a node's label nvidia.com/gpu.clique names no clique", "see which pod writes the label, and its log"
    ),
    "domain_no_clique": Entry(
        WARNING,
        "Topograph's domain of a tray is no clique, so it says nothing of its place",
        "let Topograph ask nvidia-smi or the label nvidia.com/gpu.clique, and write topology.conf",
    ),
    "gateway_unusable": Entry(
        WARNING, "gateways to the trays cannot be used, so the trays behind them were not asked", "bring them back"
    ),
    "node_not_ready": Entry(
        INFO, "a tray's Kubernetes node is NotReady, so its labels may be old", "see kubectl describe node"
    ),
    "tray_listed_twice": Entry(
        WARNING, "a source lists one tray twice", "correct its list, or the expression that gives a tray's name"
    ),
    "trays_unnamed": Entry(
        WARNING, "a source lists trays without a usable name", "correct its list, or the expression that gives the name"
    ),
    # Cliques in Kubernetes: plugin_utils/render/schedulers.py, plugin_utils/kubernetes/.
    "k8s_clique_label_orphaned": Entry(
        WARNING,
        "a clique label was written by a program that no longer runs",
        "let the program that writes the label now overwrite it",
    ),
    "k8s_clique_label_missing": Entry(
        WARNING, "a tray's node lacks its clique label", "see the log of the label's writer on that node"
    ),
    "k8s_clique_label_stale": Entry(
        ERROR, "a node's label names a former clique of its GPUs", "restart the label's writer on that node"
    ),
    "k8s_clique_label_unplaced": Entry(
        WARNING, "a node has a clique label and no place in the fabric file", "discover and accept the fabric"
    ),
    "k8s_clique_label_wrong": Entry(
        ERROR, "a node's label names another clique than the fabric file", "discover again, then correct the wrong one"
    ),
    "k8s_clique_label_no_writer": Entry(
        ERROR, "no running program writes the clique label", "start the chosen writer, or choose another one"
    ),
    "k8s_clique_label_multiple_writers": Entry(ERROR, "two programs write the clique label", "switch one of them off"),
    "k8s_clique_label_unknown_writer": Entry(
        WARNING, "an unknown program writes the clique label", "find the field manager that the finding names"
    ),
    "k8s_flavor_label_missing": Entry(
        WARNING, "nodes lack a label by which Kueue's flavor selects them", "set flavor_labels, or label the nodes"
    ),
    "k8s_node_missing": Entry(WARNING, "a tray has no node in Kubernetes", "join it, or set nvlink_kubernetes_node"),
    "k8s_node_name": Entry(
        WARNING, "a tray's kubernetes_node is no valid name of a node", "set nvlink_kubernetes_node"
    ),
    "k8s_object_unmanaged": Entry(
        ERROR,
        "an object of the same name is not managed by this collection",
        "choose another name, or remove the object",
    ),
    "k8s_object_name": Entry(
        WARNING, "two cliques would have one name in Kubernetes", "rename one of them in the fabric file"
    ),
    "k8s_recreate_required": Entry(
        ERROR, "an object must be deleted and created again to change", "set allow_recreate when its workloads may wait"
    ),
    "k8s_scheduler_missing": Entry(
        ERROR, "a requested scheduler is not installed", "install it, or remove it from schedulers"
    ),
    "k8s_topograph_in_use": Entry(
        ERROR, "Topograph's old labels are still in use, so they stay", "finish the migration when nothing names them"
    ),
    "k8s_topograph_label_lost": Entry(
        WARNING, "nodes lose the only label of Topograph that they have", "let Topograph 1.0 write its labels"
    ),
    "k8s_topograph_deprecated": Entry(
        INFO, "nodes have labels of Topograph 0.5 or older", "migrate them with topograph: add, then topograph: finish"
    ),
    "k8s_apply_incomplete": Entry(
        ERROR, "some writes were made and others failed", "run again once the cause is fixed"
    ),
    "k8s_runai_conflict": Entry(
        ERROR, "Run:ai has a network topology of that name with other levels", "choose another name, or remove it there"
    ),
    # IMEX node lists: plugin_utils/render/imex.py.
    "imex_address_duplicate": Entry(
        ERROR, "two trays of a clique have one IMEX address, no list is written", "give each tray its own address"
    ),
    "imex_address_missing": Entry(
        ERROR,
        "a tray has no IMEX address, so its clique's list is not written",
        "widen imex_network, or set the address in the fabric file",
    ),
    # IMEX on a tray: module_utils/imex/facts.py; on a clique: module_utils/imex/verdict.py.
    "imex_channel_beside_slurm": Entry(
        WARNING,
        "a channel device stands where Slurm's switch/nvidia_imex gives each job one, and a reconfigure removes it",
        "leave imex_channels empty and set imex_create_channel0 to false",
    ),
    "imex_channel_missing": Entry(
        INFO, "IMEX runs and there is no channel device", "let the imex role make one, or use switch/nvidia_imex"
    ),
    "imex_channel_stale": Entry(
        ERROR, "a channel device has the major of an earlier boot", "remove it and make it anew"
    ),
    "imex_channels_off": Entry(
        WARNING, "the driver offers no IMEX channels", "set NVreg_ImexChannelCount above 0, then reboot"
    ),
    "imex_cmd_disabled": Entry(
        WARNING, "the daemon's command service is off, nobody can ask it", "set IMEX_CMD_ENABLED to 1"
    ),
    "imex_config_missing": Entry(ERROR, "config.cfg of nvidia-imex cannot be read", "reinstall the package"),
    "imex_ctl_failed": Entry(
        ERROR, "nvidia-imex-ctl gave no usable answer", "run nvidia-imex-ctl -N by hand on the tray"
    ),
    "imex_domain_degraded": Entry(
        WARNING, "a tray sees all its peers, and its domain is not up", "look at the other members of the clique"
    ),
    "imex_foreign_daemon": Entry(
        WARNING, "an IMEX daemon of no known owner runs", "stop it, and start IMEX by its owner"
    ),
    "imex_in_use": Entry(
        ERROR, "the driver's one IMEX session belongs to another daemon", "stop the other owner of IMEX on this host"
    ),
    # imex_owner job: module_utils/imex/job_files.py and job_host.py.
    "imex_job_no_slurm": Entry(
        ERROR, "a tray that is to give each job its IMEX has no slurm.conf", "set imex_job_slurm_conf, or another owner"
    ),
    "imex_job_not_member": Entry(
        WARNING, "a tray is in no clique, so its jobs get no IMEX", "place the tray in the fabric file"
    ),
    "imex_job_prolog_empty": Entry(
        WARNING, "an empty prolog of a former owner stays, as Slurm needs one", "take Prolog and Epilog from slurm.conf"
    ),
    "imex_job_prolog_flags": Entry(
        ERROR, "PrologFlags has no Alloc, so the trays' prologs do not run together", "add PrologFlags=Alloc"
    ),
    "imex_job_prolog_unset": Entry(
        ERROR, "slurm.conf does not run the prolog and epilog of IMEX", "add the lines that the message names"
    ),
    "imex_job_runs": Entry(ERROR, "a job still has its IMEX on this tray", "drain the tray and run the role again"),
    "imex_job_task_prolog": Entry(
        INFO, "a batch job that runs without IMEX cannot say so in its log", "add the TaskProlog that the message names"
    ),
    "imex_job_wait_too_long": Entry(
        ERROR, "Slurm would end the prolog or epilog before its own wait", "raise Slurm's limit or lower imex_job_wait"
    ),
    "imex_list_differs": Entry(
        ERROR,
        "members of an IMEX domain started with different lists (!M!)",
        "write one list on all trays of the clique, then stop all and start all",
    ),
    "imex_list_edited": Entry(
        WARNING, "the list is not the one that the role wrote", "run the imex role on the whole clique"
    ),
    "imex_list_not_running": Entry(
        WARNING, "the list was written after the daemon started", "restart the daemons of the whole clique together"
    ),
    "imex_list_unusable": Entry(
        ERROR, "a line of the list is empty, a comment, twice there or no address", "write the list anew"
    ),
    "imex_member_unasked": Entry(WARNING, "a member of the clique could not be asked", "bring the tray back"),
    "imex_missing": Entry(INFO, "nvidia-imex is not installed", "run the imex role where IMEX is wanted"),
    "imex_no_own_address": Entry(
        ERROR, "no line of the list is an address of the tray", "correct imex_address in the fabric file"
    ),
    "imex_not_configured": Entry(ERROR, "IMEX has no list of nodes", "run the imex role"),
    "imex_not_ready": Entry(ERROR, "the daemon runs and is not ready", "see its log for what it waits for"),
    "imex_pair_blind": Entry(
        ERROR, "two ready members do not see each other", "open port 50000 both ways, then restart the clique"
    ),
    "imex_peer_lost": Entry(
        WARNING, "a tray is not connected to some peers", "look at those trays, and at ports 50000 and 50005"
    ),
    "imex_peer_version": Entry(
        ERROR, "members of an IMEX domain have different versions (!V!)", "install one version on the whole clique"
    ),
    "imex_persist_left": Entry(
        INFO, "a persist file is left of an unclean stop", "remove it once no job of that time runs"
    ),
    "imex_timeout": Entry(
        ERROR, "nvidia-imex-ctl hangs", "drain the tray and restart the daemon, reboot if it hangs again"
    ),
    "imex_two_owners": Entry(ERROR, "two owners of IMEX on one host", "leave one of them"),
    "imex_unit_down": Entry(ERROR, "nvidia-imex.service is enabled and does not run", "see its journal, start it"),
    "imex_unit_starting": Entry(
        ERROR, "the daemon runs and the start of its unit does not end", "see its journal, restart it"
    ),
    "imex_unit_failed": Entry(ERROR, "nvidia-imex.service has failed", "remove the cause, reset-failed, start it"),
    "imex_version_mismatch": Entry(
        ERROR, "nvidia-imex is not of the driver's version", "install the package of the driver's exact version"
    ),
    "imex_waiting_for_recovery": Entry(
        ERROR,
        "after an unclean stop the daemon waits for its peers of before",
        "bring them back, or restart the clique with a changed list or IMEX_WAIT_FOR_QUORUM=NONE",
    ),
    # Changes of IMEX: module_utils/imex/domain.py and tray.py, plugin_utils/imex/clique.py.
    "imex_change_held": Entry(
        ERROR,
        "a clique's IMEX must restart as a whole, and a member in trouble runs its daemon on",
        "correct that tray, or stop its daemon",
    ),
    "imex_clique_partial": Entry(
        ERROR, "a change of a clique's IMEX leaves out some of its trays", "run it on the whole clique"
    ),
    "imex_driver_unknown": Entry(
        ERROR, "the loaded driver's version cannot be read", "load the driver, or set imex_version"
    ),
    "imex_jobs_running": Entry(
        ERROR, "IMEX of a clique must stop and jobs run on it", "wait for the jobs, or set imex_allow_jobs"
    ),
    "imex_jobs_unknown": Entry(
        ERROR, "IMEX of a clique must stop and Slurm does not say whether jobs run", "bring slurmctld back"
    ),
    "imex_package_missing": Entry(
        ERROR, "no repository has nvidia-imex of the driver's version", "add the repository that the driver came from"
    ),
    "imex_port_blocked": Entry(ERROR, "a port of a member takes no connection from others", "open it for the members"),
    "imex_reboot_needed": Entry(WARNING, "options of the driver wait for a reboot", "reboot the tray"),
    "imex_list_outdated": Entry(
        WARNING, "a tray could not be given its clique's list", "bring it back, and run the role imex on it"
    ),
    # Slurm's topology: module_utils/slurm/rules.py and planning.py.
    "slurm_hardware_assumed": Entry(
        WARNING,
        "a tray that Slurm is to know has never told its hardware, so its clique's usual one is written",
        "bring the tray up and run the role slurm again",
    ),
    "slurm_aggregates_shift": Entry("warning", "Blocks above the base size are cut anew.", "Keep retired blocks."),
    "slurm_block_duplicate": Entry("error", "Two blocks have one name.", "Give each clique a block of its own."),
    "slurm_block_empty": Entry("error", "A block has no nodes, before Slurm 25.05.", "Leave it out, or upgrade."),
    "slurm_block_name": Entry("error", "A block's name cannot stand in a topology file.", "Use letters, digits, . _ -"),
    "slurm_block_overlap": Entry("error", "A node stands in two blocks.", "Leave it in the one of its clique."),
    "slurm_block_short": Entry("error", "A block is below the base size, before Slurm 25.05.", "Lower the base size."),
    "slurm_block_size": Entry("error", "A block size is not the base times a power of two.", "Correct block_sizes."),
    "slurm_block_size_rest": Entry("warning", "Large jobs get none of the last blocks.", "Add a block size."),
    "slurm_block_size_unused": Entry("info", "A block size has no effect.", "Leave it out."),
    "slurm_block_unknown": Entry("error", "Slurm knows no node of a block.", "Set nvlink_slurm_node."),
    "slurm_channels_beyond_driver": Entry(
        "warning", "Slurm may give a job an IMEX channel that a driver lacks.", "Lower slurm_imex_channels."
    ),
    "slurm_channels_few": Entry(
        "warning",
        "There are fewer IMEX channels than nodes.",
        "Raise NVreg_ImexChannelCount, then slurm_imex_channels.",
    ),
    "slurm_channels_none": Entry(
        "warning",
        "Before Slurm 25.11 no job is given an IMEX channel, for a driver with two of them.",
        "Raise NVreg_ImexChannelCount to 3 or more, or upgrade.",
    ),
    "slurm_clique_above_base": Entry("warning", "A clique is larger than the base size.", "Give it a partition."),
    "slurm_cluster_default": Entry("error", "The cluster's default topology is missing.", "Correct cluster_default."),
    "slurm_conf_contrary": Entry("error", "slurm.conf contradicts what is to be managed.", "Change that line."),
    "slurm_format": Entry("error", "This Slurm does not read that topology file.", "Set format to auto."),
    "slurm_hostlist": Entry("error", "A block's hostlist does not name its nodes.", "Report it as a bug."),
    "slurm_jobs_move": Entry("warning", "Jobs run on trays that change their block.", "None: they run on."),
    "slurm_jobs_on_moving_trays": Entry("error", "Jobs run on trays that change their block.", "Wait, or allow it."),
    "slurm_no_blocks": Entry("error", "The topology has no block.", "Discover the fabric first."),
    "slurm_no_nodes": Entry("error", "No block of the topology has a node.", "Discover the fabric first."),
    "slurm_node_name": Entry("error", "A node's name cannot stand in a hostlist.", "Set nvlink_slurm_node."),
    "slurm_node_rank": Entry("warning", "Ranks follow node names that interleave blocks.", "Set BlockAsNodeRank."),
    "slurm_node_topology": Entry("error", "A NodeName line wins over the topology file.", "Take Topology= off it."),
    "slurm_node_uncovered": Entry("warning", "A partition has nodes in no block.", "Place them, or part them."),
    "slurm_node_unknown": Entry("warning", "Slurm does not know a node of a block.", "Add it to slurm.conf."),
    "slurm_other_topology": Entry("info", "Another topology runs beside this one.", "None."),
    "slurm_partition_topology": Entry("error", "A partition names a missing topology.", "Correct its Topology=."),
    "slurm_placeholder_left_out": Entry("warning", "A retired block cannot be kept, before 25.05.", "Upgrade Slurm."),
    "slurm_plugin_inconsistent": Entry("error", "Another TopologyPlugin is set.", "Change TopologyPlugin."),
    "slurm_plugin_ignored": Entry("info", "TopologyPlugin has no effect beside topology.yaml.", "Remove the line."),
    "slurm_plugin_missing": Entry("error", "TopologyPlugin is not set, topology.conf is not read.", "Set it."),
    "slurm_prolog_flags": Entry("warning", "The prolog does not run at allocation.", "Set PrologFlags=Alloc."),
    "slurm_rehearsal_block": Entry(
        "error", "In a rehearsal a job of a block's size is not placed in its block.", "See the message."
    ),
    "slurm_rehearsal_job": Entry("warning", "In a rehearsal a job would be pending for ever.", "Correct its size."),
    "slurm_rehearsal_job_required": Entry(
        "error", "In a rehearsal a required job would be pending for ever.", "Correct its size."
    ),
    "slurm_rehearsal_missing": Entry(
        "error", "rehearse is always, and the rehearsal did not run to its end.", "See the reason."
    ),
    "slurm_rehearsal_refused": Entry(
        "error", "In a rehearsal slurmctld refuses the new files.", "Correct the setting that it names."
    ),
    "slurm_rehearsal_skipped": Entry("info", "The apply was not rehearsed.", "Run it as root on the controller."),
    "slurm_rehearsal_spread": Entry("warning", "A job of a clique's size may be spread.", "Give it a partition."),
    "slurm_rehearsal_unfinished": Entry("warning", "A rehearsal did not end in time.", "Raise rehearse_timeout."),
    "slurm_release": Entry("warning", "This release loses nodes of blocks.", "Upgrade Slurm."),
    "slurm_segment": Entry("error", "A --segment that jobs use is refused or fits nowhere.", "Use smaller segments."),
    "slurm_segment_spread": Entry("warning", "A --segment is larger than any block.", "Use smaller segments."),
    "slurm_select_type": Entry("error", "SelectType is not select/cons_tres.", "Set it in slurm.conf."),
    "slurm_switches": Entry("error", "slurmctld refuses a tree of switches.", "Correct the switches."),
    "slurm_switches_doubtful": Entry("warning", "A tree does not work as written.", "Correct the switches."),
    "slurm_topologies_one": Entry("warning", "This Slurm has one topology only.", "Upgrade to 25.05."),
    "slurm_too_large": Entry("error", "More nodes or blocks than Slurm can hold.", "Split the cluster."),
    "slurm_topology_differs": Entry("warning", "slurmctld runs another topology than its file.", "Reconfigure."),
    "slurm_topology_name": Entry("error", "A topology's name cannot stand in slurm.conf.", "Use letters and digits."),
    "slurm_topology_foreign": Entry("error", "topology.conf holds a tree or Include lines.", "Move it away first."),
    "slurm_twin_hides": Entry("error", "topology.yaml hides topology.conf.", "Remove it, or set format to auto."),
    "slurm_twin_left": Entry("warning", "The other topology file is left over.", "Remove it."),
    # Tiers: module_utils/slurm/tier_plan.py.
    "slurm_tier_account_missing": Entry("error", "slurmdbd lacks an account or user of a tier.", "Add it."),
    "slurm_tier_accounting": Entry("error", "Tiers have QoS, and this Slurm has no slurmdbd.", "Set up slurmdbd."),
    "slurm_tier_enforce": Entry("warning", "Slurm does not enforce QoS.", "Set AccountingStorageEnforce."),
    "slurm_tier_grant_by_hand": Entry("info", "A tier's QoS is also granted manually.", "Revoke it, or leave it."),
    "slurm_tier_include": Entry("error", "slurm.conf does not include the partitions.", "Add the Include line."),
    "slurm_tier_jobs": Entry("error", "A partition to remove still has jobs.", "Drain it first."),
    "slurm_tier_node_unknown": Entry("error", "Slurm does not know a node of a tier.", "Add it to slurm.conf."),
    "slurm_tier_open_partition": Entry("warning", "Another partition gives all users a tier's trays.", "Restrict it."),
    "slurm_tier_partition_foreign": Entry("error", "slurm.conf defines a tier's partition.", "Remove it there."),
    "slurm_tier_preempt": Entry("warning", "Preemption by QoS is off.", "Set PreemptType=preempt/qos."),
    "slurm_tier_priority": Entry("info", "The priority of QoS has no weight.", "Set PriorityWeightQOS."),
    "slurm_tier_qos_foreign": Entry(
        "error", "A QoS of a tier's name exists and is not managed here.", "Use another name, or hand it over."
    ),
    "slurm_tier_qos_unknown": Entry("error", "A tier names a QoS that does not exist.", "Add it, or leave it out."),
    "slurm_tier_qos_used": Entry("warning", "A QoS to remove is still in use.", "Remove it from that partition."),
    "slurm_tier_segment": Entry("error", "A tier's segment is refused or fits nowhere.", "Use a smaller one."),
    "slurm_tier_segment_advice": Entry("info", "A tier's segments are not enforced.", "Use the script, from 25.11.2."),
    "slurm_tier_segment_script": Entry("error", "The script for segments is not called.", "Add the line it names."),
    "slurm_tier_spans": Entry("warning", "A tier's clique is above the base size.", "Set per_block for the tier."),
    "slurm_tier_state": Entry("info", "A tier's partition is in another state, set manually.", "None, or set it back."),
    "slurm_tier_topology": Entry("error", "A tier names a topology that does not run.", "Apply slurm_topology first."),
    "slurm_tier_tres_unknown": Entry(
        "error", "A QoS limits a resource that Slurm does not count.", "Set AccountingStorageTRES."
    ),
    # The DRA driver's values: plugin_utils/dra/values.py.
    "dra_gate_conflict": Entry(
        ERROR, "feature gates exclude each other, so the driver exits at start", "switch one of them off"
    ),
    "dra_value_refused": Entry(ERROR, "the driver's chart rejects the values", "correct the values"),
    "dra_value_unknown": Entry(ERROR, "the driver's chart has no such key", "correct the key"),
    "dra_value_wrong": Entry(ERROR, "the driver's chart cannot use a value of this kind", "correct the value"),
    # The DRA driver's preflight: plugin_utils/dra/preflight.py.
    "dra_api_missing": Entry(
        ERROR, "the API server does not serve resource.k8s.io", "enable DRA, or upgrade Kubernetes"
    ),
    "dra_bandwidth_failed": Entry(
        WARNING, "an nvbandwidth job failed, or succeeded across two cliques", "see the log of its launcher"
    ),
    "dra_bandwidth_unproven": Entry(INFO, "no nvbandwidth job has succeeded in a clique yet", "run nvbandwidth there"),
    "dra_insufficient_permissions": Entry(
        ERROR, "the account cannot list what must be known before a removal", "give it the verb list"
    ),
    "dra_channels_missing": Entry(
        ERROR, "the kernel of a tray has no IMEX channels", "load the driver, check its version"
    ),
    "dra_claim_lost": Entry(
        ERROR, "a claim was in use before an upgrade and is not now", "see its pod and the plugin's log"
    ),
    "dra_claims_in_use": Entry(
        ERROR, "pods use the driver's devices, so the driver cannot be removed", "delete the pods first"
    ),
    "dra_class_missing": Entry(ERROR, "a DeviceClass of the driver is missing", "install the release again"),
    "dra_dcgm_imex": Entry(INFO, "DCGM monitors IMEX, which the driver owns", "exclude IMEX from its health watches"),
    "dra_domain_leftovers": Entry(WARNING, "a deleted ComputeDomain has left objects behind", "wait, then remove them"),
    "dra_domain_spans": Entry(WARNING, "a ComputeDomain spans several cliques", "bind its workload to one clique"),
    "dra_domain_stuck": Entry(
        ERROR, "the deletion of a ComputeDomain does not finish", "check that the driver's controller runs"
    ),
    "dra_domain_unready": Entry(ERROR, "the daemon of a ComputeDomain is not ready on a node", "see its log there"),
    "dra_domain_without_imex": Entry(
        ERROR, "the daemon of a ComputeDomain finds no clique", "repair the fabric of that tray"
    ),
    "dra_downgrade": Entry(ERROR, "the installed driver is newer than the chart", "pin its version or a later one"),
    "dra_label_missing": Entry(
        ERROR, "a node lacks the clique label", "see the log of the label's writer on that node"
    ),
    "dra_label_wrong": Entry(
        ERROR, "a node's clique label differs from its GPUs", "restart the label's writer on that node"
    ),
    "dra_plugin_unscheduled": Entry(ERROR, "the driver's DaemonSet is scheduled on no node", "label the nodes"),
    "dra_plugin_missing": Entry(ERROR, "the driver's DaemonSet is missing", "install the release"),
    "dra_plugin_incomplete": Entry(ERROR, "the driver runs on too few nodes", "label or untaint the others"),
    "dra_plugin_unready": Entry(ERROR, "pods of the driver are not ready", "see their log"),
    "dra_probe_cliques_merged": Entry(
        ERROR, "the daemons of a probe across two cliques joined the wrong cliques", "compare the label with the GPUs"
    ),
    "dra_probe_failed": Entry(
        ERROR, "the channel of a probe does not reach its pods", "see the object that the finding names"
    ),
    "dra_probe_leftovers": Entry(ERROR, "a probe has left objects behind", "check that the driver's controller runs"),
    "dra_release_pending": Entry(ERROR, "a Helm operation was interrupted", "roll the release back, or uninstall it"),
    "dra_slice_missing": Entry(
        ERROR, "the driver publishes no ResourceSlice for a node", "see the plugin's log on that node"
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
    "dra_imex_owner": Entry(ERROR, "another owner of IMEX exists on a tray or node", "leave IMEX to one owner"),
    "dra_imex_unit": Entry(
        ERROR, "nvidia-imex.service is not in the state that the mode requires", "run the role imex"
    ),
    "dra_imex_version": Entry(
        ERROR, "IMEX and the driver differ in version", "install the IMEX of the driver's version"
    ),
    "dra_kubelet_root": Entry(ERROR, "the kubelet's folder differs from the one in the values", "correct the paths"),
    "dra_kubernetes_old": Entry(WARNING, "Kubernetes is older than the recommended release", "plan an upgrade"),
    "dra_kubernetes_too_old": Entry(
        ERROR, "the chart does not support this version of Kubernetes", "upgrade to 1.34.2 or later"
    ),
    "dra_label_no_writer": Entry(ERROR, "no program writes the clique label", "choose one writer"),
    "dra_label_multiple_writers": Entry(ERROR, "several programs write the clique label", "keep one of them"),
    "dra_network_policy": Entry(WARNING, "a NetworkPolicy may block traffic between IMEX daemons", "open their ports"),
    "dra_node_missing": Entry(ERROR, "a tray is no node of the cluster", "join it, or correct its kubernetes_node"),
    "dra_node_not_selected": Entry(
        ERROR, "the driver would not run on a node", "set a label that its affinity selects"
    ),
    "dra_not_readable": Entry(
        WARNING,
        "part of the cluster or of the trays could not be read",
        "give the account the right, or repair the tray",
    ),
    "dra_other_install": Entry(ERROR, "another installation of the driver exists", "keep one of the two"),
    "dra_release_old": Entry(INFO, "the release is of a 25.x chart, whose object names are kept", "none"),
    "dra_runtime_cdi": Entry(
        ERROR, "the container runtime of a node has no CDI, or has it disabled", "upgrade the runtime, or enable CDI"
    ),
    "dra_upgrade_drops": Entry(
        WARNING, "an upgrade from 25.x drops a value or an object", "write the value again if it is needed"
    ),
    "dra_waves_pending": Entry(INFO, "nodes still wait for the wave that installs the driver", "continue the rollout"),
}


def finding(code: str, message: str, **subject: Any) -> dict[str, Any]:
    """One finding; KeyError for a code without a row, for that is a mistake in this collection."""
    return {"code": code, "severity": CATALOGUE[code].severity, "message": message, **subject}
