# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the tiers that are wanted and the Slurm that is there to what would be done. Reads, writes nothing.

Private to this collection; it may change in any release. Python 3.9, standard library only.

The order of what is done keeps every moment sound: QoS and grants are made before a partition names them, partitions go
before the QoS that they named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.findings import finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.hostlist import HostlistError, expand
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import accounting, files, rules, segments, tiers
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.accounting import Records, Sacctmgr, Step
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.files import Block, SlurmError
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Slurm, reason
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.surveying import Survey, read_file, survey
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import Partition, Wanted, Written
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import summarize

Finding = dict[str, Any]


@dataclass(frozen=True)
class Policy:
    """What the site lets this collection do beside its own file."""

    manage_conf: bool = False
    create_accounts: bool = False
    segment_script: bool = False


@dataclass
class TierSurvey:
    """What is there. records: None where nothing of slurmdbd matters; foreign: partition in lower case -> its file."""

    seen: Survey
    partitions: list[dict[str, str]]
    nodes: frozenset[str]
    foreign: Mapping[str, str]
    includes_ours: bool
    job_submit: str | None
    file: bytes | None
    records: Records | None = None

    @property
    def path(self) -> str:
        return os.path.join(self.seen.conf_dir, tiers.INCLUDE_NAME)

    @property
    def cluster(self) -> str:
        return self.seen.config.get("clustername", "").lower()

    @property
    def base(self) -> int:
        """The base block size that runs, 0 where no blocks do."""
        sizes = [line.size for line in self.seen.shown if not line.aggregated and line.size]
        return min(sizes) if sizes else 0

    def written(self) -> Written:
        return tiers.parse(self.file.decode("utf-8", "replace")) if self.file is not None else Written()


@dataclass
class TierPlan:
    """What would be done, in this order: before, the files, a reconfigure, after; and its words."""

    survey: TierSurvey
    wanted: Wanted
    findings: list[Finding]
    before: list[Step] = field(default_factory=list)
    writes: dict[str, bytes] = field(default_factory=dict)
    reconfigure: bool = False
    removed: tuple[str, ...] = ()
    after: list[Step] = field(default_factory=list)
    difference: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.before or self.writes or self.reconfigure or self.after)

    def stopped_by(self) -> list[Finding]:
        return [found for found in self.findings if found["severity"] == "error"]

    def problem(self, records: Iterable[Mapping[str, str]]) -> str:
        """In what the partitions that run differ from the wanted ones, in a few words; empty where they do not."""
        running = {record.get("PartitionName", "").lower(): record for record in records}
        for partition in self.wanted.partitions:
            record = running.get(partition.name.lower())
            if record is None:
                return f"partition {partition.name} is not there"
            differs = tiers.differences(partition, record)
            if differs:
                return f"of partition {partition.name} {differs[0]}"
        gone = [name for name in self.removed if name.lower() in running]
        return f"partition {gone[0]} is still there" if gone else ""


# ------------------------------------------------------------------------------------------------------------ looking


def look(slurm: Slurm, conf_dir: str) -> TierSurvey:
    """Everything but slurmdbd; SlurmError where Slurm is too old, does not answer or has no slurm.conf there."""
    seen = survey(slurm, conf_dir, "auto")
    foreign: dict[str, str] = {}
    ours = False
    job_submit = None
    for name, line in _conf_lines(conf_dir):
        if name is None:
            ours = True
            continue
        pairs = files.key_values(line)
        lowered = {key.lower(): value for key, value in pairs}
        if pairs and pairs[0][0].lower() == "partitionname":
            foreign.setdefault(pairs[0][1].lower(), name)
        job_submit = lowered.get("jobsubmitplugins", job_submit)
    file = read_file(os.path.join(conf_dir, tiers.INCLUDE_NAME))
    return TierSurvey(seen, running_partitions(slurm), slurm.nodes(), foreign, ours, job_submit, file)


def running_partitions(slurm: Slurm) -> list[dict[str, str]]:
    records = files.parse_records(slurm.ask("-a", "-o", "show", "partitions"))
    return [record for record in records if "PartitionName" in record]


def _conf_lines(conf_dir: str) -> Iterator[tuple[str | None, str]]:
    """The lines of slurm.conf and its includes with their file; (None, "") for the Include of our own file."""
    cluster = ""
    pending = [(os.path.join(conf_dir, "slurm.conf"), 0)]
    while pending:
        path, depth = pending.pop(0)
        data = read_file(path) or b""
        for line in files.logical_lines(data.decode("utf-8", "replace")):
            words = line.split(None, 1)
            if words[0].lower() == "include" and len(words) == 2:
                target = words[1].strip().strip("\"'").replace("%c", cluster.lower())
                if os.path.basename(target) == tiers.INCLUDE_NAME:
                    yield None, ""
                elif depth < 10:
                    pending.append((os.path.join(conf_dir, target), depth + 1))
                continue
            cluster = next((value for key, value in files.key_values(line) if key.lower() == "clustername"), cluster)
            yield path, line


# ----------------------------------------------------------------------------------------------------------- planning


def plan(seen: TierSurvey, wanted: Wanted, blocks: Sequence[Block], policy: Policy) -> TierPlan:
    """Compare; asks slurmdbd where tiers have records there, writes nothing."""
    written = seen.written()
    made = TierPlan(seen, wanted, [])
    made.findings += list(_partition_findings(seen, wanted, blocks))
    names = {partition.name.lower() for partition in wanted.partitions}
    made.removed = tuple(known.name for known in written.partitions if known.name.lower() not in names)
    if seen.seen.acting:
        # A standby only keeps the file; the controller in charge has done all else.
        _files(made, written, policy)
        made.difference += _differences(made, written)
        return made
    if wanted.needs_accounting or written.qos or written.grants:
        _accounting(made, written, policy)
    _files(made, written, policy)
    made.findings += list(_jobs(made))
    problem = made.problem(seen.partitions)
    made.reconfigure = bool(made.writes or (problem and seen.includes_ours))
    before = [step.told for step in made.before if step.told]
    made.difference = before + _differences(made, written) + [step.told for step in made.after]
    if made.reconfigure and not made.writes:
        made.difference.append(f"slurmctld: {problem}, and reads {tiers.INCLUDE_NAME} again")
    return made


def plan_removal(seen: TierSurvey) -> TierPlan:
    """What removing the tiers takes besides their files: the QoS and grants, once no partition names them.

    slurmdbd is queried also where the file of partitions is gone, so that a removal that was cut off is completed.
    """
    written = seen.written()
    made = TierPlan(seen, Wanted(), [])
    made.removed = tuple(known.name for known in written.partitions)
    if not seen.seen.acting:
        if "slurmdbd" in seen.seen.config.get("accountingstoragetype", ""):
            _accounting(made, written, Policy())
        made.findings += list(_jobs(made))
    made.difference = [f"partition {name}: removed" for name in made.removed]
    made.difference += [step.told for step in made.after if step.told]
    return made


def _accounting(made: TierPlan, written: Written, policy: Policy) -> None:
    seen, wanted = made.survey, made.wanted
    config = seen.seen.config
    if "slurmdbd" not in config.get("accountingstoragetype", ""):
        message = (
            "The tiers have QoS or accounts, and this Slurm keeps no accounts (AccountingStorageType is"
            f" {config.get('accountingstoragetype') or 'unset'}): set accounting_storage/slurmdbd, or leave them out."
        )
        made.findings.append(finding("slurm_tier_accounting", message))
        return
    cluster = seen.cluster
    seen.records = records = Sacctmgr(seen.seen.slurm, cluster).records()
    made.findings += list(_record_findings(seen, wanted, policy))
    mine = {name for name, record in records.qos.items() if accounting.is_ours(record, cluster)}
    made.before = accounting.qos_steps(
        [qos for qos in wanted.qos if qos.name in mine or qos.name not in records.qos], records, cluster
    )
    if policy.create_accounts:
        made.before += accounting.account_steps(wanted.grants, records, cluster)
    made.before += accounting.grant_steps(wanted.grants, records, cluster)
    dropped = mine - {qos.name for qos in wanted.qos}
    kept = {name: user for name in dropped for user in [_user_of(seen, name)] if user}
    for name, user in sorted(kept.items()):
        message = f"The QoS {name} is no tier's any more, and partition {user} still names it: take it off there first."
        made.findings.append(finding("slurm_tier_qos_used", message))
    gone = {grant for grant in written.grants - set(wanted.grants) if grant.qos not in dropped - set(kept)}
    made.after = accounting.revoke_steps(gone, records, cluster) + accounting.delete_steps(dropped - set(kept))
    by_hand = {
        grant
        for grant in records.grants()
        if grant.qos in mine and grant not in written.grants and grant not in wanted.grants
    }
    for grant in sorted(by_hand):
        message = f"The {grant.subject()} has the QoS {grant.qos} by hand, and keeps it: revoke it if it is not meant."
        made.findings.append(finding("slurm_tier_grant_by_hand", message))


def _user_of(seen: TierSurvey, qos: str) -> str:
    """A partition of somebody else's that names a QoS; empty where there is none."""
    for record in seen.partitions:
        if record["PartitionName"].lower() not in seen.foreign:
            continue
        if qos in (record.get("QoS", ""), *record.get("AllowQos", "").split(",")):
            return record["PartitionName"]
    return ""


def _files(made: TierPlan, written: Written, policy: Policy) -> None:
    """The new bytes of each file that changes, in the order of the map."""
    seen, wanted = made.survey, made.wanted
    if seen.file is None and not wanted.partitions and not seen.includes_ours:
        return
    settings: dict[str, str] = {}
    if wanted.segments:
        settings = _segment_files(made, policy)
    text = tiers.render(wanted.partitions, (qos.name for qos in wanted.qos), wanted.grants, settings)
    if seen.file != text.encode():
        made.writes[seen.path] = text.encode()
    if not seen.includes_ours:
        line = f"Include {tiers.INCLUDE_NAME}"
        if policy.manage_conf:
            conf = seen.seen.conf.path
            data = read_file(conf) or b""
            end = b"" if data.endswith(b"\n") or not data else b"\n"
            made.writes[conf] = data + end + f"{line}\n".encode()
        else:
            message = f"{seen.seen.conf.path} has no line {line}: add it, or set slurm_tiers_manage_conf to true."
            made.findings.append(finding("slurm_tier_include", message))


def _segment_files(made: TierPlan, policy: Policy) -> dict[str, str]:
    """The scripts of the policy for segments, and the setting that loads them."""
    seen, version = made.survey, made.survey.seen.version
    some = summarize(sorted(made.wanted.segments))
    if version < tiers.SEGMENT_SINCE:
        message = (
            f"The segments of {some} are only advice, since job_submit/lua of Slurm {rules.show_version(version)} does"
            " not know them (25.11.2 does): tell your users, or set SBATCH_SEGMENT_SIZE for them."
        )
    elif not policy.segment_script:
        message = f"The segments of {some} are only advice: set slurm_tiers_segment_script to have Slurm hold to them."
    else:
        return _scripts(made, seen)
    made.findings.append(finding("slurm_tier_segment_advice", message))
    return {}


def _scripts(made: TierPlan, seen: TierSurvey) -> dict[str, str]:
    conf_dir = seen.seen.conf_dir
    path, script = (os.path.join(conf_dir, name) for name in (segments.POLICY_NAME, segments.SCRIPT_NAME))
    plugins = [name.strip() for name in (seen.job_submit or "").split(",") if name.strip()]
    if plugins and "lua" not in plugins:
        message = (
            f"JobSubmitPlugins={seen.job_submit} in slurm.conf leaves no room for the segments' script: write"
            f" JobSubmitPlugins={','.join([*plugins, 'lua'])} there."
        )
        made.findings.append(finding("slurm_tier_segment_script", message))
        return {}
    there = read_file(script)
    if there is not None and not there.startswith(segments.HEADER.encode()):
        if segments.POLICY_NAME.encode() not in there:
            message = (
                f"{script} is the site's own and does not call {segments.POLICY_NAME}: add the line that stands in the"
                " head of that file."
            )
            made.findings.append(finding("slurm_tier_segment_script", message))
    else:
        text = segments.script_text(path).encode()
        if there != text:
            made.writes[script] = text
    text = segments.policy_text(made.wanted.segments, path).encode()
    if read_file(path) != text:
        made.writes[path] = text
    return {} if plugins else {"JobSubmitPlugins": "lua"}


def _differences(made: TierPlan, written: Written) -> list[str]:
    """A line for each partition that is new, changes or goes, and for each other file."""
    old = {known.name: known for known in written.partitions}
    lines = []
    for partition in made.wanted.partitions:
        known = old.get(partition.name)
        if known is None:
            lines.append(f"partition {partition.name}: new, {summarize(partition.blocks or partition.nodes)}")
        elif known.fingerprint() != partition.fingerprint():
            lines.append(f"partition {partition.name}: {', '.join(_changes(known, partition))}")
    lines += [f"partition {name}: removed" for name in made.removed]
    if made.survey.path in made.writes and not lines:
        edited = "was changed by hand and is written anew" if not written.intact else "written anew"
        lines.append(f"{tiers.INCLUDE_NAME}: {edited if made.survey.file is not None else 'created'}")
    for path in made.writes:
        if path == made.survey.seen.conf.path:
            lines.append(f"slurm.conf: gets the line Include {tiers.INCLUDE_NAME}")
        elif path != made.survey.path:
            lines.append(f"{os.path.basename(path)}: written")
    return lines


def _changes(old: Partition, new: Partition) -> list[str]:
    told = []
    for sign, names in (
        ("+", [node for node in new.nodes if node not in set(old.nodes)]),
        ("-", [node for node in old.nodes if node not in set(new.nodes)]),
    ):
        if names:
            told.append(f"{sign} {summarize(names)}")
    keys = {key.lower(): key for key, _value in (*old.settings, *new.settings) if key.lower() != "nodes"}
    for key in keys.values():
        before, after = old.get(key), new.get(key)
        if before != after:
            told.append(f"{key} {before or 'unset'} -> {after or 'unset'}")
    return told


# ----------------------------------------------------------------------------------------------------------- findings


def _partition_findings(seen: TierSurvey, wanted: Wanted, blocks: Sequence[Block]) -> Iterator[Finding]:
    topologies = {known.name for known in seen.seen.running}
    sizes = {block.name: len(set(block.nodes)) for block in blocks}
    base = seen.base
    for partition in wanted.partitions:
        where = seen.foreign.get(partition.name.lower())
        if where is not None:
            message = f"The partition {partition.name} is defined in {where}: take it out there, or rename the tier."
            yield finding("slurm_tier_partition_foreign", message)
        unknown = [node for node in partition.nodes if node not in seen.nodes]
        if unknown:
            message = (
                f"Slurm knows no node {summarize(unknown)} of partition {partition.name}, and would not start: add"
                " NodeName lines, or correct nvlink_slurm_node."
            )
            yield finding("slurm_tier_node_unknown", message)
        topology = partition.get("Topology")
        if topology and topology not in topologies:
            message = (
                f"The partition {partition.name} names the topology {topology}, which does not run: apply"
                " slurm_topology first, or correct the tier's topology."
            )
            yield finding("slurm_tier_topology", message)
        large = [name for name in partition.blocks if base and sizes.get(name, 0) > base]
        if large and len(partition.blocks) > 1:
            message = (
                f"The partition {partition.name} holds several blocks, of which {summarize(large)} is above the base"
                f" block size {base}, so a job of {base + 1} trays or more may be spread: set per_block for this tier."
            )
            yield finding("slurm_tier_spans", message)
        yield from _segment_findings(seen, partition, wanted, sizes)
        state = next(
            (
                record.get("State", "")
                for record in seen.partitions
                if record["PartitionName"] == partition.name and record.get("State", "") != partition.get("State")
            ),
            "",
        )
        if state and partition.get("State") == _state(seen.written(), partition.name):
            message = f"The partition {partition.name} is {state} by hand, and stays so until it is reconfigured."
            yield finding("slurm_tier_state", message)
    yield from _open_partitions(seen, wanted)


def _state(written: Written, name: str) -> str:
    return next((known.get("State") for known in written.partitions if known.name == name), "")


def _segment_findings(
    seen: TierSurvey, partition: Partition, wanted: Wanted, sizes: Mapping[str, int]
) -> Iterator[Finding]:
    rule = wanted.segments.get(partition.name)
    if rule is None:
        return
    limit = rules.segment_limit(seen.seen.version, seen.base) if seen.base else None
    largest = max((sizes.get(name, 0) for name in partition.blocks), default=0)
    for name, value in (("default", rule.default), ("maximum", rule.maximum)):
        if limit is not None and value > limit:
            message = (
                f"The {name} segment {value} of partition {partition.name} is above the base block size {limit}, and"
                f" Slurm {seen.seen.version_text} refuses such jobs: use at most {limit}."
            )
        elif value > largest:
            message = (
                f"The {name} segment {value} of partition {partition.name} fits in none of its blocks, the largest has"
                f" {largest} trays: use at most {largest}."
            )
        else:
            continue
        yield finding("slurm_tier_segment", message)


def _open_partitions(seen: TierSurvey, wanted: Wanted) -> Iterator[Finding]:
    """Partitions that let everybody onto the trays of a tier that does not: somebody else's, or another tier's."""
    limits = ("AllowAccounts", "AllowGroups", "AllowQos")
    closed: dict[str, list[str]] = {}
    ways: list[tuple[str, str, Iterable[str]]] = []
    for partition in wanted.partitions:
        if any(partition.get(key) for key in limits):
            for node in partition.nodes:
                closed.setdefault(node, []).append(partition.name)
        else:
            ways.append((partition.name, "slurm_tiers", partition.nodes))
    for record in seen.partitions:
        name = record["PartitionName"]
        if name.lower() not in seen.foreign or any(record.get(key, "ALL") != "ALL" for key in limits):
            continue
        with contextlib.suppress(HostlistError):
            there = expand("" if record.get("Nodes") == "(null)" else record.get("Nodes", ""))
            ways.append((name, seen.foreign[name.lower()], there))
    for name, where, nodes in ways:
        reached = sorted({tier for node in nodes for tier in closed.get(node, [])})
        if reached:
            message = (
                f"The partition {name} of {where} lets everybody onto the trays of {summarize(reached)}: give it"
                " AllowAccounts, AllowQos or AllowGroups, or other nodes."
            )
            yield finding("slurm_tier_open_partition", message)


def _record_findings(seen: TierSurvey, wanted: Wanted, policy: Policy) -> Iterator[Finding]:
    records, config = seen.records, seen.seen.config
    if records is None:
        return
    known = {*records.qos, *(qos.name for qos in wanted.qos)}
    for qos in wanted.qos:
        record = records.qos.get(qos.name)
        if record is not None and not accounting.is_ours(record, seen.cluster):
            message = (
                f"The QoS {qos.name} is not this collection's (its description is {record.description[:60]!r}, not"
                f" {accounting.mark(seen.cluster)!r}): name another, or give it that description to hand it over."
            )
            yield finding("slurm_tier_qos_foreign", message)
        settings = accounting.canonical(qos)
        kinds = {kind for value in settings.values() if isinstance(value, dict) for kind in value}
        missing = sorted(kinds - records.tres)
        if missing:
            message = (
                f"The QoS {qos.name} counts {summarize(missing)}, which Slurm does not keep account of: add it to"
                " AccountingStorageTRES."
            )
            yield finding("slurm_tier_tres_unknown", message)
    for tier, name in wanted.other_qos:
        if name not in known:
            message = f"The tier {tier} names the QoS {name}, which is not there: make it, or leave it out."
            yield finding("slurm_tier_qos_unknown", message)
    yield from _account_findings(seen, wanted, policy)
    enforced = {word.strip() for word in config.get("accountingstorageenforce", "").lower().split(",")}
    if wanted.qos and not (enforced & {"limits", "safe", "all"} and enforced & {"qos", "all"}):
        message = (
            f"AccountingStorageEnforce is {config.get('accountingstorageenforce') or 'unset'}, so Slurm does not hold"
            " to the tiers' QoS: set associations,limits,qos in slurm.conf."
        )
        yield finding("slurm_tier_enforce", message)
    if any("preempt" in qos.settings for qos in wanted.qos) and "qos" not in config.get("preempttype", ""):
        message = "PreemptType is not preempt/qos, so no tier preempts another: set it in slurm.conf."
        yield finding("slurm_tier_preempt", message)
    weight = config.get("priorityweightqos", "0")
    if any(qos.settings.get("priority") for qos in wanted.qos) and weight in ("", "0"):
        message = "PriorityWeightQOS is 0, so the priorities of the tiers' QoS have no effect: set it in slurm.conf."
        yield finding("slurm_tier_priority", message)


def _account_findings(seen: TierSurvey, wanted: Wanted, policy: Policy) -> Iterator[Finding]:
    records = seen.records
    if records is None:
        return
    missing: list[str] = []
    if not policy.create_accounts:
        for grant in wanted.grants:
            there = records.user(grant.account, grant.user) if grant.user else records.account(grant.account)
            if not there:
                missing.append(grant.subject())
    granted = {grant.account for grant in wanted.grants}
    for partition in wanted.partitions:
        # slurmctld drops a name that it does not know, and 24.11 starts all the same.
        for account in partition.get("AllowAccounts").split(","):
            if account and account.lower() not in granted and not records.account(account.lower()):
                missing.append(f"account {account}")
    if missing:
        message = (
            f"slurmdbd has no {summarize(dict.fromkeys(missing))} in cluster {seen.cluster}: add it with sacctmgr, or"
            " set slurm_tiers_create_accounts to true for what is granted a QoS."
        )
        yield finding("slurm_tier_account_missing", message)


def _jobs(made: TierPlan) -> Iterator[Finding]:
    """A partition that goes takes its jobs with it: slurmctld ends them when it no longer finds it."""
    running = {record["PartitionName"] for record in made.survey.partitions}
    gone = [name for name in made.removed if name in running]
    if not gone:
        return
    result = made.survey.seen.slurm.call("squeue", "-a", "-h", "-p", ",".join(gone), "-o", "%A %u %P")
    if result.rc != 0 or result.timed_out:
        raise SlurmError(f"squeue failed ({reason(result)}): see that slurmctld runs and answers.")
    jobs = [line.split() for line in result.stdout.splitlines() if len(line.split()) == 3]
    if jobs:
        told = summarize((f"job {job} of {user} in {partition}" for job, user, partition in jobs), limit=3)
        message = (
            f"Partitions that are to go still have jobs ({told}), which Slurm would end: set the tier's state to drain,"
            " and remove it when they have ended."
        )
        yield finding("slurm_tier_jobs", message)
