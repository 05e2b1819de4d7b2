# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the changes from the present Slurm to the desired tiers. Pure.

The order keeps Slurm consistent at every step: QoS and grants are created before a partition names them, and partitions
are removed before the QoS that they named.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments
from ansible_collections.rackscale.nvlink.plugins.module_utils.host_findings import HostFinding, Value, host_finding
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import rules
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.conf import (
    POLICY_NAME,
    SCRIPT_NAME,
    TIERS_NAME,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import Block, SlurmError, names_of
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers import partitions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.tiers.partitions import Partition
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import accounting, changes, segments, tiers
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.accounting import Records, Step
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.observed import Observed
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm.tiers import DesiredTiers, Written


@dataclass(kw_only=True)
class TierPlan(changes.Change):
    """The changes, in this order: before, the files, a reconfigure, after.

    removed: the partitions that go. records: None where slurmdbd's are not needed.
    """

    desired: DesiredTiers
    before: list[Step] = field(default_factory=list)
    removed: tuple[str, ...] = ()
    after: list[Step] = field(default_factory=list)
    records: Records | None = None

    @property
    def path(self) -> str:
        """The file of partitions."""
        return os.path.join(self.observed.conf_dir, TIERS_NAME)

    @property
    def changed(self) -> bool:
        return super().changed or bool(self.before or self.after)

    @property
    def leaving(self) -> list[str]:
        running = {record["PartitionName"] for record in self.observed.partition_records}
        return [] if self.observed.acting else [name for name in self.removed if name in running]

    @property
    def own(self) -> list[str]:
        return [*(partition.name for partition in self.desired.partitions), *self.removed]

    def change(self, override: str) -> dict[str, Any]:
        """The option ``change`` of the step tiers; override: as of Transaction."""
        return {
            **self.files(),
            "checksums": dict(self.observed.checksums),
            "columns": accounting.COLUMNS,
            "before": [vars(step) for step in self.before],
            "after": [vars(step) for step in self.after],
            "partitions": [[partition.name, partition.settings] for partition in self.desired.partitions],
            "removed": self.removed,
            "leaving": self.leaving,
            "load": self.reconfigure,
            "override": override,
        }

    def result(self, stopped: bool) -> dict[str, Any]:
        """The result of slurm_tiers, without a rehearsal; stopped: nothing was changed."""
        partitions = {partition.name: list(partition.nodes) for partition in self.desired.partitions}
        return {**super().result(stopped), "path": self.path, "partitions": partitions}


# ----------------------------------------------------------------------------------------------------------- planning


def plan(observed: Observed, desired: DesiredTiers, blocks: Sequence[Block], options: Arguments) -> TierPlan:
    """Compare; SlurmError where tiers have records in slurmdbd and it has not answered.

    options: those of slurm_tiers, which say what the site permits outside of the file of partitions.
    """
    written = tiers.parse(observed.texts.get(TIERS_NAME, ""))
    made = TierPlan(observed=observed, desired=desired)
    made.findings += list(_partition_findings(observed, desired, blocks))
    names = {partition.name.lower() for partition in desired.partitions}
    made.removed = tuple(known.name for known in written.partitions if known.name.lower() not in names)
    if observed.acting:
        # On a standby only the file is written; the active controller has done the rest.
        _files(made, options)
        made.difference += _differences(made, written)
        return made
    # Without slurmdbd any name is an account.
    has_accounts = desired.named_accounts and "slurmdbd" in observed.config.get("accountingstoragetype", "")
    named = desired.qos or desired.grants or desired.other_qos
    if named or has_accounts or written.qos or written.grants:
        _accounting(made, written, options["create_accounts"])
    _files(made, options)
    problem = partitions.problem(desired.partitions, made.removed, observed.partition_records)
    made.reconfigure = bool(made.written or (problem and observed.includes_tiers))
    before = [step.description for step in made.before if step.description]
    made.difference = before + _differences(made, written) + [step.description for step in made.after]
    if made.reconfigure and not made.written:
        made.difference.append(f"slurmctld: {problem}; it loads {TIERS_NAME} again")
    return made


def plan_removal(observed: Observed) -> TierPlan:
    """What removing the tiers takes besides their files: the QoS and grants, once no partition names them.

    slurmdbd counts also where the file of partitions is gone, so that a removal that was cut off is completed.
    """
    written = tiers.parse(observed.texts.get(TIERS_NAME, ""))
    made = TierPlan(observed=observed, desired=DesiredTiers())
    made.removed = tuple(known.name for known in written.partitions)
    if not observed.acting and "slurmdbd" in observed.config.get("accountingstoragetype", ""):
        _accounting(made, written, False)
    made.difference = [f"partition {name}: removed" for name in made.removed]
    made.difference += [step.description for step in made.after]
    return made


def _accounting(made: TierPlan, written: Written, create_accounts: bool) -> None:
    observed, desired = made.observed, made.desired
    config = observed.config
    if "slurmdbd" not in config.get("accountingstoragetype", ""):
        made.findings.append(
            host_finding("slurm_tier_unknown", "no_accounting", type=config.get("accountingstoragetype") or "unset")
        )
        return
    if observed.unanswered:
        raise SlurmError(observed.unanswered)
    cluster = observed.cluster
    made.records = records = accounting.parse(observed.records)
    made.findings += list(_record_findings(observed, records, desired, create_accounts))
    own = {name for name, record in records.qos.items() if accounting.is_ours(record, cluster)}
    made.before = accounting.qos_steps(
        [qos for qos in desired.qos if qos.name in own or qos.name not in records.qos], records, cluster
    )
    if create_accounts:
        made.before += accounting.account_steps(desired.grants, records, cluster)
    made.before += accounting.grant_steps({*desired.grants} - records.grants, "+=", cluster)
    dropped = own - {qos.name for qos in desired.qos}
    for name in sorted(dropped):
        user = _user_of(observed, name)
        if user:
            dropped.remove(name)
            made.findings.append(host_finding("slurm_conf_advice", "qos_named", qos=name, partition=user))
    revoked = {grant for grant in written.grants - set(desired.grants) if grant.qos not in dropped}
    made.after = accounting.grant_steps(revoked & records.grants, "-=", cluster) + accounting.delete_steps(dropped)


def _user_of(observed: Observed, qos: str) -> str:
    """A partition outside the tiers that names a QoS; empty where there is none."""
    for record in observed.partition_records:
        if record["PartitionName"].lower() not in observed.site_partitions:
            continue
        if qos in (record.get("QoS", ""), *record.get("AllowQos", "").split(",")):
            return record["PartitionName"]
    return ""


def _files(made: TierPlan, options: Arguments) -> None:
    """The new text of each file that changes, in the order of the map."""
    observed, desired = made.observed, made.desired
    file = observed.texts.get(TIERS_NAME)
    if file is None and not desired.partitions and not observed.includes_tiers:
        return
    settings: dict[str, str] = {}
    if desired.segments:
        settings = _segment_files(made, options)
    _write(
        made, TIERS_NAME, tiers.render(desired.partitions, (qos.name for qos in desired.qos), desired.grants, settings)
    )
    made.includes = TIERS_NAME if options["manage_conf"] and not observed.includes_tiers else ""
    if not options["manage_conf"] and not observed.includes_tiers:
        line = f"Include {TIERS_NAME}"
        made.findings.append(host_finding("slurm_conf_inconsistent", "include", path=observed.main, line=line))


def _segment_files(made: TierPlan, options: Arguments) -> dict[str, str]:
    """Add the scripts that apply the policy for segments; returns the setting that loads them."""
    names = summarize(sorted(made.desired.segments))
    if not options["segment_script"]:
        made.findings.append(host_finding("slurm_conf_note", "segments", partitions=names))
        return {}
    if made.observed.version < tiers.SEGMENT_SINCE:
        version = made.observed.version_text
        made.findings.append(host_finding("release_old", "segments", partitions=names, version=version))
        return {}
    path, script = (os.path.join(made.observed.conf_dir, name) for name in (POLICY_NAME, SCRIPT_NAME))
    plugins = [name.strip() for name in made.observed.settings.get("jobsubmitplugins", "").split(",") if name.strip()]
    if plugins and "lua" not in plugins:
        needed = ",".join([*plugins, "lua"])
        made.findings.append(
            host_finding("slurm_conf_inconsistent", "job_submit", given=",".join(plugins), plugins=needed)
        )
        return {}
    there = made.observed.texts.get(SCRIPT_NAME)
    if segments.is_ours(there):
        _write(made, SCRIPT_NAME, segments.script_text(path))
    elif POLICY_NAME not in (there or ""):
        made.findings.append(host_finding("slurm_conf_inconsistent", "own_script", script=script, policy=POLICY_NAME))
    _write(made, POLICY_NAME, segments.policy_text(made.desired.segments, path))
    return {} if plugins else {"JobSubmitPlugins": "lua"}


def _write(made: TierPlan, name: str, text: str) -> None:
    if made.observed.texts.get(name) != text:
        made.writes[os.path.join(made.observed.conf_dir, name)] = text


def _differences(made: TierPlan, written: Written) -> list[str]:
    """A line for each partition that is added, changed or removed, and for each other file."""
    old = {known.name: known for known in written.partitions}
    lines = []
    for partition in made.desired.partitions:
        known = old.get(partition.name)
        if known is None:
            limits = (f", {key}={value}" for key, value in partition.settings if key != "Nodes")
            where = summarize(partition.blocks or partition.nodes)
            lines.append(f"partition {partition.name}: new, {where}{''.join(limits)}")
        elif changes := _changes(known, partition):
            lines.append(f"partition {partition.name}: {', '.join(changes)}")
    lines += [f"partition {name}: removed" for name in made.removed]
    if made.path in made.writes and not lines:
        lines.append(f"{TIERS_NAME}: {'rewritten' if TIERS_NAME in made.observed.texts else 'created'}")
    lines += [f"{os.path.basename(path)}: written" for path in made.writes if path != made.path]
    return [*lines, f"slurm.conf: gets the line Include {TIERS_NAME}"] if made.includes else lines


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


def _partition_findings(observed: Observed, desired: DesiredTiers, blocks: Sequence[Block]) -> Iterator[HostFinding]:
    topologies = {known.name for known in observed.running}
    sizes = {block.name: len(set(block.nodes)) for block in blocks}
    base = observed.base
    existing = {node.name for node in observed.nodes}
    for partition in desired.partitions:
        name = partition.name
        where = observed.site_partitions.get(name.lower())
        if where is not None:
            yield host_finding("slurm_conf_inconsistent", "partition", partition=name, file=where)
        unknown = [node for node in partition.nodes if node not in existing]
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
                version=observed.version_text,
            )
        yield from _segment_findings(observed, partition, desired, sizes)
    yield from _open_partitions(observed, desired)


def _segment_findings(
    observed: Observed, partition: Partition, desired: DesiredTiers, sizes: Mapping[str, int]
) -> Iterator[HostFinding]:
    rule = desired.segments.get(partition.name)
    if rule is None:
        return
    limit = rules.segment_limit(observed.version, observed.base) if observed.base else None
    largest = max((sizes.get(name, 0) for name in partition.blocks), default=0)
    for name, value in (("default", rule.default), ("max", rule.maximum)):
        of: dict[str, Value] = {"name": name, "segment": value, "partition": partition.name}
        if limit is not None and value > limit:
            yield host_finding("slurm_segment", "above_base", limit=limit, version=observed.version_text, **of)
        elif value > largest:
            yield host_finding("slurm_segment", "above_blocks", size=count(largest, "tray"), largest=largest, **of)


def _open_partitions(observed: Observed, desired: DesiredTiers) -> Iterator[HostFinding]:
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
    for record in observed.partition_records:
        name = record["PartitionName"]
        where = observed.site_partitions.get(name.lower())
        if where is None or any(record.get(key, "ALL") != "ALL" for key in limits):
            continue
        unrestricted.append((name, where, names_of(record.get("Nodes", ""))))
    for name, where, nodes in unrestricted:
        reached = sorted({tier for node in nodes for tier in closed.get(node, [])})
        if reached:
            yield host_finding("slurm_conf_advice", "open", partition=name, where=where, tiers=summarize(reached))


def _record_findings(
    observed: Observed, records: Records, desired: DesiredTiers, create_accounts: bool
) -> Iterator[HostFinding]:
    config, cluster = observed.config, observed.cluster
    known = {*records.qos, *(qos.name for qos in desired.qos)}
    for qos in desired.qos:
        record = records.qos.get(qos.name)
        if record is not None and not accounting.is_ours(record, cluster):
            yield host_finding(
                "object_unmanaged",
                "qos",
                qos=qos.name,
                description=repr(record.description[:60]),
                ours=repr(accounting.mark(cluster)),
            )
        counts = [value for value in accounting.canonical(qos).values() if isinstance(value, dict)]
        missing = sorted(set().union(*counts) - records.tres)
        if missing:
            yield host_finding("slurm_tier_unknown", "tres", qos=qos.name, kinds=summarize(missing))
    for tier, name in desired.other_qos:
        if name not in known:
            yield host_finding("slurm_tier_unknown", "qos", tier=tier, qos=name)
    wanted = () if create_accounts else desired.grants
    subjects = [grant.subject() for grant in wanted if (grant.account, grant.user) not in records.members]
    # slurmctld drops a name that does not exist, and 24.11 starts nevertheless.
    for name in sorted(desired.named_accounts - {grant.account for grant in desired.grants}):
        if (name, "") not in records.members:
            subjects.append(f"account {name}")
    if subjects:
        names = summarize(dict.fromkeys(subjects))
        yield host_finding("slurm_tier_unknown", "accounts", names=names, cluster=cluster)
    enforced = {word.strip() for word in config.get("accountingstorageenforce", "").lower().split(",")}
    if desired.qos and not (enforced & {"limits", "safe", "all"} and enforced & {"qos", "all"}):
        yield host_finding("slurm_conf_advice", "enforce", value=config.get("accountingstorageenforce") or "unset")
    if any("preempt" in qos.settings for qos in desired.qos) and "qos" not in config.get("preempttype", ""):
        yield host_finding("slurm_conf_advice", "preempt")
    weight = config.get("priorityweightqos", "0")
    if any(qos.settings.get("priority") for qos in desired.qos) and weight in ("", "0"):
        yield host_finding("slurm_conf_note", "weight")
