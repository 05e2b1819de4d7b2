# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the changes from the present Slurm to the desired tiers. Reads, writes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The order keeps Slurm consistent at every step: QoS and grants are created before a partition names them, and partitions
are removed before the QoS that they named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackscale.nvlink.plugins.module_utils import host
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import files, live, rules, stopping
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import TIERS_NAME
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf_folder import PREVIOUS, REMOVED
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import accounting, segments, tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.accounting import Records, Sacctmgr, Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.tiers import DesiredTiers, Partition, Written
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology import surveying
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.topology.surveying import Survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize


@dataclass(frozen=True)
class Policy:
    """The changes outside its own file that the site permits."""

    manage_conf: bool = False
    create_accounts: bool = False
    segment_script: bool = False


@dataclass
class TierSurvey:
    """The present state. file: the file of partitions. records: None where slurmdbd's records are not needed."""

    observed: Survey
    partitions: list[dict[str, str]]
    nodes: frozenset[str]
    file: bytes | None
    records: Records | None = None

    @property
    def path(self) -> str:
        return os.path.join(self.observed.conf_dir, TIERS_NAME)

    @property
    def cluster(self) -> str:
        return self.observed.config.get("clustername", "").lower()

    @property
    def base(self) -> int:
        """The running base block size, 0 without blocks."""
        return min((line.size for line in self.observed.shown if not line.aggregated and line.size), default=0)

    def written(self) -> Written:
        return tiers.parse((self.file or b"").decode("utf-8", "replace"))


@dataclass
class TierPlan:
    """The changes, in this order: before, the files, a reconfigure, after; difference: the same in words.

    writes: as Transaction has them, in their order. removed: the partitions that go.
    """

    survey: TierSurvey
    desired: DesiredTiers
    findings: list[HostFinding]
    before: list[Step] = field(default_factory=list)
    writes: dict[str, bytes | None] = field(default_factory=dict)
    reconfigure: bool = False
    removed: tuple[str, ...] = ()
    after: list[Step] = field(default_factory=list)
    difference: list[str] = field(default_factory=list)
    keep: str = PREVIOUS

    @property
    def changed(self) -> bool:
        return bool(self.before or self.writes or self.reconfigure or self.after)

    def own(self) -> set[str]:
        """The partitions of tiers, those that are removed included."""
        return {*(partition.name for partition in self.desired.partitions), *self.removed}

    def require_no_loss(self, override: str) -> None:
        """In check mode the refusal that Transaction has in a run."""
        observed = self.survey.observed
        if override and (self.writes or self.reconfigure) and not observed.acting:
            live.require_none(observed.slurm, observed.conf_dir, self.writes, override, self.own())

    def stopped_by(self) -> list[HostFinding]:
        return stopping.stopping(self.findings)

    def problem(self, records: Iterable[Mapping[str, str]]) -> str:
        """The first difference between running and desired partitions in a few words; empty where there is none."""
        running = {record.get("PartitionName", "").lower(): record for record in records}
        for partition in self.desired.partitions:
            record = running.get(partition.name.lower())
            if record is None:
                return f"partition {partition.name} is missing"
            differs = tiers.differences(partition, record)
            if differs:
                return f"of partition {partition.name} {differs[0]}"
        kept = [name for name in self.removed if name.lower() in running]
        return f"partition {kept[0]} still exists" if kept else ""


# ---------------------------------------------------------------------------------------------------------- inspecting


def inspect(slurm: Slurm, conf_dir: str) -> TierSurvey:
    """Read all but slurmdbd; SlurmError where Slurm is too old, does not answer or has no slurm.conf there."""
    observed = surveying.survey(slurm, conf_dir, "auto")
    file = host.read(os.path.join(conf_dir, TIERS_NAME))
    return TierSurvey(observed, running_partitions(slurm), slurm.nodes(), file)


def running_partitions(slurm: Slurm) -> list[dict[str, str]]:
    records = files.parse_records(slurm.scontrol("-a", "-o", "show", "partitions"))
    return [record for record in records if "PartitionName" in record]


# ----------------------------------------------------------------------------------------------------------- planning


def plan(survey: TierSurvey, desired: DesiredTiers, blocks: Sequence[Block], policy: Policy) -> TierPlan:
    """Compare; queries slurmdbd where tiers have records there, writes nothing."""
    written = survey.written()
    made = TierPlan(survey, desired, [])
    made.findings += list(_partition_findings(survey, desired, blocks))
    names = {partition.name.lower() for partition in desired.partitions}
    made.removed = tuple(known.name for known in written.partitions if known.name.lower() not in names)
    if survey.observed.acting:
        # On a standby only the file is written; the active controller has done the rest.
        _files(made, written, policy)
        made.difference += _differences(made, written)
        return made
    if desired.needs_accounting or written.qos or written.grants:
        _accounting(made, written, policy)
    _files(made, written, policy)
    made.findings += list(_jobs(made))
    problem = made.problem(survey.partitions)
    made.reconfigure = bool(made.writes or (problem and survey.observed.conf.includes_tiers))
    before = [step.description for step in made.before if step.description]
    made.difference = before + _differences(made, written) + [step.description for step in made.after]
    if made.reconfigure and not made.writes:
        made.difference.append(f"slurmctld: {problem}; it loads {TIERS_NAME} again")
    return made


def plan_removal(survey: TierSurvey, files_of_tiers: Mapping[str, bytes | None], lines: Sequence[str]) -> TierPlan:
    """What removing the tiers takes: their files, and the QoS and grants, once no partition names them.

    files_of_tiers, lines: the removal of the files, and the same in words. slurmdbd is queried also where the file of
    partitions is gone, so that a removal that was cut off is completed.
    """
    written = survey.written()
    made = TierPlan(survey, DesiredTiers(), [], writes=dict(files_of_tiers), keep=REMOVED)
    made.reconfigure = bool(made.writes)
    made.removed = tuple(known.name for known in written.partitions)
    if not survey.observed.acting:
        if "slurmdbd" in survey.observed.config.get("accountingstoragetype", ""):
            _accounting(made, written, Policy())
        made.findings += list(_jobs(made))
    made.difference = [f"partition {name}: removed" for name in made.removed]
    made.difference += [*(step.description for step in made.after), *lines]
    return made


def _accounting(made: TierPlan, written: Written, policy: Policy) -> None:
    survey, desired = made.survey, made.desired
    config = survey.observed.config
    if "slurmdbd" not in config.get("accountingstoragetype", ""):
        made.findings.append(
            host_finding("slurm_tier_unknown", "no_accounting", type=config.get("accountingstoragetype") or "unset")
        )
        return
    cluster = survey.cluster
    survey.records = records = Sacctmgr(survey.observed.slurm, cluster).records()
    made.findings += list(_record_findings(survey, desired, policy))
    own = {name for name, record in records.qos.items() if accounting.is_ours(record, cluster)}
    made.before = accounting.qos_steps(
        [qos for qos in desired.qos if qos.name in own or qos.name not in records.qos], records, cluster
    )
    if policy.create_accounts:
        made.before += accounting.account_steps(desired.grants, records, cluster)
    made.before += accounting.grant_steps(desired.grants, records, cluster)
    dropped = own - {qos.name for qos in desired.qos}
    for name in sorted(dropped):
        user = _user_of(survey, name)
        if user:
            dropped.remove(name)
            made.findings.append(host_finding("slurm_conf_advice", "qos_named", qos=name, partition=user))
    revoked = {grant for grant in written.grants - set(desired.grants) if grant.qos not in dropped}
    made.after = accounting.revoke_steps(revoked, records, cluster) + accounting.delete_steps(dropped)
    manual = records.grants - written.grants - set(desired.grants)
    for grant in sorted(grant for grant in manual if grant.qos in own):
        made.findings.append(host_finding("slurm_conf_note", "granted", subject=grant.subject(), qos=grant.qos))


def _user_of(survey: TierSurvey, qos: str) -> str:
    """A partition outside the tiers that names a QoS; empty where there is none."""
    for record in survey.partitions:
        if record["PartitionName"].lower() not in survey.observed.conf.partitions:
            continue
        if qos in (record.get("QoS", ""), *record.get("AllowQos", "").split(",")):
            return record["PartitionName"]
    return ""


def _files(made: TierPlan, written: Written, policy: Policy) -> None:
    """The new bytes of each file that changes, in the order of the map."""
    survey, desired = made.survey, made.desired
    if survey.file is None and not desired.partitions and not survey.observed.conf.includes_tiers:
        return
    settings: dict[str, str] = {}
    if desired.segments:
        settings = _segment_files(made, policy)
    text = tiers.render(desired.partitions, (qos.name for qos in desired.qos), desired.grants, settings)
    if survey.file != text.encode():
        made.writes[survey.path] = text.encode()
    if not survey.observed.conf.includes_tiers:
        line = f"Include {TIERS_NAME}"
        if policy.manage_conf:
            conf = survey.observed.conf.path
            data = host.read(conf) or b""
            end = b"" if data.endswith(b"\n") or not data else b"\n"
            made.writes[conf] = data + end + f"{line}\n".encode()
        else:
            made.findings.append(
                host_finding("slurm_conf_inconsistent", "include", path=survey.observed.conf.path, line=line)
            )


def _segment_files(made: TierPlan, policy: Policy) -> dict[str, str]:
    """Add the scripts that apply the policy for segments; returns the setting that loads them."""
    if not policy.segment_script:
        names = summarize(sorted(made.desired.segments))
        made.findings.append(host_finding("slurm_conf_note", "segments", partitions=names))
        return {}
    if made.survey.observed.version < tiers.SEGMENT_SINCE:
        return _client_script(made)
    return _scripts(made)


def _client_script(made: TierPlan) -> dict[str, str]:
    """Before 25.11.2: a script of the commands that submit jobs.

    Where CliFilterPlugins=lua is set, sbatch fails on a host without the script, so it is set where slurmctld sends
    both to all hosts (configless); elsewhere a finding asks for both.
    """
    observed = made.survey.observed
    script = os.path.join(observed.conf_dir, segments.CLIENT_NAME)
    plugins = _plugins(made, "clifilterplugins")
    if not segments.is_ours(host.read(script)):
        made.findings.append(host_finding("slurm_conf_inconsistent", "own_filter", script=script))
        return {}
    folders = observed.config.get("plugindir", "").split(":")
    if folders != [""] and not any(os.path.exists(os.path.join(folder, "cli_filter_lua.so")) for folder in folders):
        made.findings.append(host_finding("slurm_conf_inconsistent", "no_lua", folders=summarize(folders)))
        return {}
    default = next((known.name for known in made.desired.partitions if known.get("Default") == "YES"), "")
    _write(made, script, segments.client_text(made.desired.segments, default))
    if {"lua", "cli_filter/lua"} & set(plugins):
        return {}
    if not plugins and "enable_configless" in observed.config.get("slurmctldparameters", "").lower():
        return {"CliFilterPlugins": "lua"}
    needed = ",".join([*plugins, "lua"])
    made.findings.append(
        host_finding(
            "slurm_conf_inconsistent", "copy_filter", version=observed.version_text, script=script, plugins=needed
        )
    )
    return {}


def _scripts(made: TierPlan) -> dict[str, str]:
    path, script = (
        os.path.join(made.survey.observed.conf_dir, name) for name in (segments.POLICY_NAME, segments.SCRIPT_NAME)
    )
    plugins = _plugins(made, "jobsubmitplugins")
    if plugins and "lua" not in plugins:
        needed = ",".join([*plugins, "lua"])
        made.findings.append(
            host_finding("slurm_conf_inconsistent", "job_submit", given=",".join(plugins), plugins=needed)
        )
        return {}
    there = host.read(script)
    if segments.is_ours(there):
        _write(made, script, segments.script_text(path))
    elif segments.POLICY_NAME.encode() not in (there or b""):
        made.findings.append(
            host_finding("slurm_conf_inconsistent", "own_script", script=script, policy=segments.POLICY_NAME)
        )
    _write(made, path, segments.policy_text(made.desired.segments, path))
    return {} if plugins else {"JobSubmitPlugins": "lua"}


def _plugins(made: TierPlan, key: str) -> list[str]:
    """The plugins that slurm.conf names."""
    names = made.survey.observed.conf.settings.get(key, "").split(",")
    return [name.strip() for name in names if name.strip()]


def _write(made: TierPlan, path: str, text: str) -> None:
    if host.read(path) != text.encode():
        made.writes[path] = text.encode()


def _differences(made: TierPlan, written: Written) -> list[str]:
    """A line for each partition that is added, changed or removed, and for each other file."""
    old = {known.name: known for known in written.partitions}
    lines = []
    for partition in made.desired.partitions:
        known = old.get(partition.name)
        if known is None:
            lines.append(f"partition {partition.name}: new, {summarize(partition.blocks or partition.nodes)}")
        elif changes := _changes(known, partition):
            lines.append(f"partition {partition.name}: {', '.join(changes)}")
    lines += [f"partition {name}: removed" for name in made.removed]
    if made.survey.path in made.writes and not lines:
        lines.append(f"{TIERS_NAME}: {'rewritten' if made.survey.file is not None else 'created'}")
    for path in made.writes:
        if path == made.survey.observed.conf.path:
            lines.append(f"slurm.conf: gets the line Include {TIERS_NAME}")
        elif path != made.survey.path:
            lines.append(f"{os.path.basename(path)}: written")
    return lines


def _changes(old: Partition, new: Partition) -> list[str]:
    changes = []
    for sign, these, others in (("+", new.nodes, set(old.nodes)), ("-", old.nodes, set(new.nodes))):
        names = [node for node in these if node not in others]
        if names:
            changes.append(f"{sign} {summarize(names)}")
    keys = {key.lower(): key for key, _value in (*old.settings, *new.settings) if key.lower() != "nodes"}
    for key in keys.values():
        before, after = old.get(key), new.get(key)
        if before != after:
            changes.append(f"{key} {before or 'unset'} -> {after or 'unset'}")
    return changes


# ----------------------------------------------------------------------------------------------------------- findings


def _partition_findings(survey: TierSurvey, desired: DesiredTiers, blocks: Sequence[Block]) -> Iterator[HostFinding]:
    topologies = {known.name for known in survey.observed.running}
    sizes = {block.name: len(set(block.nodes)) for block in blocks}
    base = survey.base
    running = {record["PartitionName"]: record for record in survey.partitions}
    before = {known.name: known.get("State") for known in survey.written().partitions}
    for partition in desired.partitions:
        name = partition.name
        where = survey.observed.conf.partitions.get(name.lower())
        if where is not None:
            yield host_finding("slurm_conf_inconsistent", "partition", partition=name, file=where)
        unknown = [node for node in partition.nodes if node not in survey.nodes]
        if unknown:
            number, nodes = count(len(unknown), "node"), summarize(unknown)
            yield host_finding("slurm_tier_unknown", "nodes", number=number, partition=name, nodes=nodes)
        topology = partition.get("Topology")
        if topology and topology not in topologies:
            yield host_finding("slurm_tier_unknown", "topology", partition=name, topology=topology)
        large = [block for block in partition.blocks if base and sizes.get(block, 0) > base]
        if large and len(partition.blocks) > 1:
            yield host_finding(
                "slurm_clique_above_base",
                "tier",
                partition=name,
                blocks=summarize(large),
                base=base,
                more=base + 1,
                version=survey.observed.version_text,
            )
        yield from _segment_findings(survey, partition, desired, sizes)
        state = running.get(name, {}).get("State", "")
        if state not in ("", partition.get("State")) and partition.get("State") == before.get(name):
            yield host_finding("slurm_conf_note", "state", partition=name, state=state)
    yield from _open_partitions(survey, desired)


def _segment_findings(
    survey: TierSurvey, partition: Partition, desired: DesiredTiers, sizes: Mapping[str, int]
) -> Iterator[HostFinding]:
    rule = desired.segments.get(partition.name)
    if rule is None:
        return
    limit = rules.segment_limit(survey.observed.version, survey.base) if survey.base else None
    largest = max((sizes.get(name, 0) for name in partition.blocks), default=0)
    for name, value in (("default", rule.default), ("max", rule.maximum)):
        of: dict[str, Value] = {"name": name, "segment": value, "partition": partition.name}
        if limit is not None and value > limit:
            yield host_finding("slurm_segment", "above_base", limit=limit, version=survey.observed.version_text, **of)
        elif value > largest:
            yield host_finding("slurm_segment", "above_blocks", size=count(largest, "tray"), largest=largest, **of)


def _open_partitions(survey: TierSurvey, desired: DesiredTiers) -> Iterator[HostFinding]:
    """Partitions that give all users the trays of a restricted tier: the site's, or another tier's."""
    limits = ("AllowAccounts", "AllowGroups", "AllowQos")
    closed: dict[str, list[str]] = {}
    unrestricted: list[tuple[str, str, Iterable[str]]] = []
    for partition in desired.partitions:
        if any(partition.get(key) for key in limits):
            for node in partition.nodes:
                closed.setdefault(node, []).append(partition.name)
        else:
            unrestricted.append((partition.name, "tiers", partition.nodes))
    for record in survey.partitions:
        name = record["PartitionName"]
        where = survey.observed.conf.partitions.get(name.lower())
        if where is None or any(record.get(key, "ALL") != "ALL" for key in limits):
            continue
        with contextlib.suppress(HostlistError):
            there = expand("" if record.get("Nodes") == "(null)" else record.get("Nodes", ""))
            unrestricted.append((name, where, there))
    for name, where, nodes in unrestricted:
        reached = sorted({tier for node in nodes for tier in closed.get(node, [])})
        if reached:
            yield host_finding("slurm_conf_advice", "open", partition=name, where=where, tiers=summarize(reached))


def _record_findings(survey: TierSurvey, desired: DesiredTiers, policy: Policy) -> Iterator[HostFinding]:
    records, config = survey.records or Records(), survey.observed.config
    known = {*records.qos, *(qos.name for qos in desired.qos)}
    for qos in desired.qos:
        record = records.qos.get(qos.name)
        if record is not None and not accounting.is_ours(record, survey.cluster):
            yield host_finding(
                "object_unmanaged",
                "qos",
                qos=qos.name,
                description=repr(record.description[:60]),
                ours=repr(accounting.mark(survey.cluster)),
            )
        counts = [value for value in accounting.canonical(qos).values() if isinstance(value, dict)]
        missing = sorted(set().union(*counts) - records.tres)
        if missing:
            yield host_finding("slurm_tier_unknown", "tres", qos=qos.name, kinds=summarize(missing))
    for tier, name in desired.other_qos:
        if name not in known:
            yield host_finding("slurm_tier_unknown", "qos", tier=tier, qos=name)
    wanted = () if policy.create_accounts else desired.grants
    subjects = [grant.subject() for grant in wanted if (grant.account, grant.user) not in records.members]
    # slurmctld drops a name that does not exist, and 24.11 starts nevertheless.
    named = {name for partition in desired.partitions for name in partition.get("AllowAccounts").lower().split(",")}
    for name in sorted(named - {"", *(grant.account for grant in desired.grants)}):
        if (name, "") not in records.members:
            subjects.append(f"account {name}")
    if subjects:
        names = summarize(dict.fromkeys(subjects))
        yield host_finding("slurm_tier_unknown", "accounts", names=names, cluster=survey.cluster)
    enforced = {word.strip() for word in config.get("accountingstorageenforce", "").lower().split(",")}
    if desired.qos and not (enforced & {"limits", "safe", "all"} and enforced & {"qos", "all"}):
        yield host_finding("slurm_conf_advice", "enforce", value=config.get("accountingstorageenforce") or "unset")
    if any("preempt" in qos.settings for qos in desired.qos) and "qos" not in config.get("preempttype", ""):
        yield host_finding("slurm_conf_advice", "preempt")
    weight = config.get("priorityweightqos", "0")
    if any(qos.settings.get("priority") for qos in desired.qos) and weight in ("", "0"):
        yield host_finding("slurm_conf_note", "weight")


def _jobs(made: TierPlan) -> Iterator[HostFinding]:
    """Refuse to remove a partition that has jobs: slurmctld would end them."""
    running = {record["PartitionName"] for record in made.survey.partitions}
    removed = [name for name in made.removed if name in running]
    if not removed:
        return
    result = made.survey.observed.slurm.call("squeue", "-a", "-h", "-p", ",".join(removed), "-o", "%A %u %P")
    if result.rc != 0 or result.timed_out:
        raise SlurmError(f"squeue failed ({result.reason}): start slurmctld, or see why it does not answer.")
    jobs = [line.split() for line in result.stdout.splitlines() if len(line.split()) == 3]
    if jobs:
        listed = summarize((f"job {job} of {user} in {partition}" for job, user, partition in jobs), limit=3)
        yield host_finding("jobs_running", "partitions", jobs=listed)
