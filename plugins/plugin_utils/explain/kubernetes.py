# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod or a ComputeDomain waits: pure functions of a snapshot that was read with the schedulers' queues.

A pod needs a tray, so its answer is what keeps each tray from it, in three steps that add what must come free: what
other pods hold, what an operator can open, what never fits. Where enough trays are free, or a needed list could not be
read, the answer is the scheduler's own word. A sentence is written from names and words of users: _answer() cleans it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import (
    JOBS,
    MAX_ROWS,
    NEVER,
    NOTHING,
    OPERATOR,
    SLURM,
    Answer,
    Change,
    Proposal,
    Row,
    clean,
    clean_line,
    trays,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    checks,
    device_plugins,
    domains,
    node_selection,
    preflight,
    stranded,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import name_of, namespace_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import POD_GROUP, Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped

_VERBS = {
    JOBS: "waits for other pods to end",
    OPERATOR: "waits for an operator",
    NEVER: "never starts as it is",
    SLURM: "waits for its scheduler",
    NOTHING: "waits for nothing",
}
_FREE, _CORDONED = ("", "free"), (OPERATOR, "cordoned")
_NO_LEVEL = re.compile(r"no topology domains? at level:? *([\w./-]*\w)")
_NEAR = ("spec", "affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class _Why(NamedTuple):
    """waits_for; the cause, without the name of what waits; rows; and the arguments of kubectl that may end it."""

    word: str
    cause: str
    rows: tuple[Row, ...] = ()
    change: tuple[str, ...] = ()


def of_pod(snapshot: Snapshot, namespace: str, name: str) -> Answer:
    """Why this pod waits, or where it is."""
    view, subject = _View(snapshot), f"{namespace}/{name}"
    why = view.pod(view.pods[subject]) if subject in view.pods else _Why(NOTHING, f"it is gone{view.or_not('pods')}")
    return _answer("pod", subject, f"Pod {subject}", why)


def of_compute_domain(snapshot: Snapshot, namespace: str, name: str) -> Answer:
    """Why the workload of this ComputeDomain waits, why its deletion does, or where NVLink ends inside it."""
    view, subject = _View(snapshot), f"{namespace}/{name}"
    found = [view.domain(row) for row in snapshot["compute_domains"] if name_of(row) == subject]
    why = found[0] if found else _Why(NOTHING, f"it is gone{view.or_not('computedomains')}")
    return _answer("compute_domain", subject, f"ComputeDomain {subject}", why)


def waiting(snapshot: Snapshot) -> Answer:
    """All pods, deleted ComputeDomains and Workloads of Kueue that wait: their causes, the most frequent first."""
    causes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for subject, why in _View(snapshot).all():
        if why.word != NOTHING:
            causes[why.word, why.cause].append(subject)
    total = sum(map(len, causes.values()))
    ranked = sorted(causes.items(), key=lambda row: (-len(row[1]), row[0]))
    rows = tuple(Row(f"{_VERBS[word]}: {cause}", len(who), total, tuple(who)) for (word, cause), who in ranked)
    most = f": {len(ranked[0][1])} {rows[0].what}" if ranked else ""
    return _answer("queue", "", "", _Why(ranked[0][0][0] if ranked else NOTHING, f"of {total} that wait{most}", rows))


def confirmed(answer: Answer, accepts: Callable[[tuple[str, ...]], bool]) -> Answer:
    """The answer with its change if the API server accepts it, in a dry run of these arguments of kubectl."""
    for proposal in answer.proposals:
        if accepts(proposal.options):
            command = f"kubectl {' '.join(proposal.options)}"
            return answer._replace(change=Change(f"It could start after {command}", f"{command} --dry-run=server"))
    return answer


def _answer(kind: str, subject: str, who: str, why: _Why) -> Answer:
    sentence = f"{who} {_VERBS[why.word]}: {why.cause}." if who else f"In Kubernetes {why.cause}."
    rows = [Row(clean(row.what), row.count, row.of, tuple(map(clean, row.names))) for row in why.rows[:MAX_ROWS]]
    proposals = (Proposal(why.change, 1),) if why.change else ()
    line = " ".join(clean_line(sentence).split())
    return Answer(kind, clean(subject), why.word, line, tuple(rows), None, proposals)


def _part(item: Object, *keys: str) -> Object:
    for key in keys:
        item = mapped(item.get(key))
    return item


def _rows(item: Object, *keys: str) -> list[Object]:
    return [mapped(row) for row in as_list(_part(item, *keys[:-1]).get(keys[-1]))]


def _owners(item: Object) -> list[Object]:
    return _rows(item, "metadata", "ownerReferences")


def _said(item: Object, kind: str, at: str = "conditions") -> str:
    """What a scheduler says of an object in its condition of a kind; KAI has one for each pool of nodes."""
    found = [row for row in _rows(item, "status", at) if row.get("type") == kind and row.get("message")]
    return clean(str(found[-1]["message"])) if found else ""


def _pods(names: Collection[str]) -> str:
    return (
        f"{'pod' if len(names) == 1 else 'pods'} {summarize([*map(clean, sorted(names)[:3]), *sorted(names)[3:]], 3)}"
    )


def _template(domain: Object) -> str:
    return f"{namespace_of(domain)}/{_part(domain, 'spec', 'channel', 'resourceClaimTemplate').get('name')}"


def _templates(pod: Object) -> list[str]:
    """The claim templates of a pod, as namespace/name."""
    names = [row.get("resourceClaimTemplateName") for row in _rows(pod, "spec", "resourceClaims")]
    return [f"{namespace_of(pod)}/{name}" for name in names if name]


class _View:
    """A snapshot, indexed once for many pods; ComputeDomains by the names of stranded.owners()."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._known = snapshot, dict[str, _Why]()
        self.pods = {name_of(pod): pod for pod in snapshot["pods"]}
        self._trays = {name: node for name, node in preflight.expected_nodes(snapshot, {}).items() if node is not None}
        self._clique = {name: node_selection.labels(node).get(CLIQUE) for name, node in self._trays.items()}
        self._taken, self._used = stranded.owners(snapshot), stranded.allocated(snapshot)
        self._channels = domains.Channels(snapshot)
        specs = (_part(row, "spec") for row in snapshot["slices"])
        self._registered = {spec.get("nodeName") for spec in specs if spec.get("driver") == domains.DOMAIN_DRIVER}
        self._domains = {_template(row): row for row in snapshot["compute_domains"]}
        self._templates = {name_of(row) for row in snapshot["claim_templates"]}
        self._groups = {name_of(row): row for row in snapshot["pod_groups"]}
        self._workloads = {one.get("uid"): row for row in snapshot["workloads"] for one in _owners(row)}
        self._with_gpus: dict[str, set[str]] = defaultdict(set)
        for name, pod in self.pods.items():
            if device_plugins.requested(pod):
                self._with_gpus[str(_part(pod, "spec").get("nodeName"))].add(name)
        self._users: dict[str, set[str]] = defaultdict(set)
        self._holders: dict[str, tuple[str, str]] = {}
        names = {domains.uid_of(row): name_of(row) for row in snapshot["compute_domains"]}
        for claim in snapshot["claims"]:
            uid = domains.domain_of(claim)
            users = {f"{namespace_of(claim)}/{row.get('name')}" for row in _rows(claim, "status", "reservedFor")}
            self._users[names.get(str(uid), f"deleted ComputeDomain {uid}")] |= users

    def or_not(self, resource: str) -> str:
        """What to add where a list that the account may not read would tell more."""
        unread = any(f" {resource};" in row for row in self._snapshot["not_readable"])
        return f", or unknown: the account may not list {resource}" if unread else ""

    def all(self) -> Iterator[tuple[str, _Why]]:
        asking = (pod for pod in self.pods.values() if _templates(pod) or device_plugins.requested(pod))
        yield from ((f"pod {name_of(pod)}", self.pod(pod)) for pod in asking)
        deleted = (row for row in self._snapshot["compute_domains"] if "deletionTimestamp" in _part(row, "metadata"))
        yield from ((f"ComputeDomain {name_of(row)}", self.domain(row)) for row in deleted)
        for row in self._snapshot["workloads"]:
            # A Job has no pods before its Workload has quota.
            of_pods = any(owner.get("kind") == "Pod" for owner in _owners(row))
            if not of_pods and not _part(row, "status").get("admission"):
                yield f"Workload {name_of(row)}", self._kueue(row)

    def pod(self, pod: Object) -> _Why:
        spec, metadata = _part(pod, "spec"), _part(pod, "metadata")
        domain = next((self._domains[name] for name in _templates(pod) if name in self._domains), None)
        if spec.get("nodeName"):
            return self._placed(pod, str(spec["nodeName"]), domain)
        if why := self._without_template(_templates(pod)):
            return why
        if spec.get("schedulingGates") and metadata.get("uid") in self._workloads:
            return self._kueue(self._workloads[metadata.get("uid")])
        name = f"{namespace_of(pod)}/{_part(metadata, 'annotations').get(POD_GROUP)}"
        group = self._groups.get(name, {})
        said = _said(group, "UnschedulableOnNodePool", "schedulingConditions") or _said(pod, "PodScheduled")
        # The pods of a workload are alike, and so is what keeps them.
        key = repr((spec, name, said))
        if key not in self._known:
            own = _Why(SLURM, f"{clean(str(spec.get('schedulerName')))} says {said or 'nothing yet'}")
            why = None if spec.get("schedulingGates") else self._unplaced(pod, domain, _part(group, "spec"))
            self._known[key] = why or own
        return self._known[key]

    def domain(self, domain: Object) -> _Why:
        template, users = _template(domain), self._users[name_of(domain)]
        if "deletionTimestamp" in _part(domain, "metadata"):
            held = f"held by {_pods(users)}" if users else "only the driver's controller removes its finalizer"
            return (not users and self._controller()) or _Why(JOBS if users else OPERATOR, f"it is in deletion, {held}")
        if why := self._without_template([template]):
            return why
        for name, pod in self.pods.items():
            same = [one for one in _templates(pod) if one.partition("/")[2] == template.partition("/")[2]]
            why = self.pod(pod) if template in same or self._without_template(same) else None
            if why and why.word != NOTHING:
                return why._replace(cause=f"pod {name} {_VERBS[why.word]}: {why.cause}")
        for node, reason in sorted(self._channels.pending(domain).items()):
            return self._daemon(domain, node, reason)
        return self._where(domain, f"{count(len(self._channels.members(domain)), 'daemon')} ready")

    def _placed(self, pod: Object, node: str, domain: Object | None) -> _Why:
        rows = _rows(pod, "status", "conditions")
        is_ready = any(row.get("type") == domains.READY and row.get("status") == "True" for row in rows)
        reason = None if domain is None or is_ready else self._channels.pending(domain).get(node)
        if domain is None or not reason:
            return self._where(domain, f"it {'runs' if is_ready else 'starts'} on {node}")
        return self._daemon(domain, node, reason)

    def _daemon(self, domain: Object, node: str, reason: str) -> _Why:
        for other in self._taken.get(node, ()):
            if other != name_of(domain):
                word, cause = self._held_by(other)
                return _Why(word, f"its tray {node} is {cause}")
        log = f"read the log of computedomain-daemon-{domains.uid_of(domain)} there"
        unit = f"{reason} on {node}: {log}, and keep the unit nvidia-imex.service of {node} masked"
        return self._controller() or _Why(OPERATOR, unit)

    def _where(self, domain: Object | None, text: str) -> _Why:
        cliques: dict[str, list[str]] = defaultdict(list)
        for node, member in sorted(self._channels.members(domain).items() if domain is not None else ()):
            cliques[member.clique or "unknown"].append(node)
        if len(cliques) < 2:
            return _Why(NOTHING, text)
        ends = " and ".join(trays(names) for names in cliques.values())
        rows = [Row(f"in clique {name}", len(names), None, tuple(names)) for name, names in cliques.items()]
        return _Why(NOTHING, f"{text}, in {len(cliques)} cliques: NVLink ends between {ends}", tuple(rows))

    def _without_template(self, claims: list[str]) -> _Why | None:
        """Where the claim template of a pod is not in its namespace; None where it is, or may be."""
        missing = next((name for name in claims if name not in self._templates), None)
        if missing is None or self.or_not("resourceclaimtemplates"):
            return None
        namespace, _slash, template = missing.partition("/")
        if missing in self._domains:
            late = f"the driver's controller has not made the claim template {template}; read its log"
            return self._controller() or _Why(OPERATOR, late)
        others = {one.partition("/")[0] for one in {*self._templates, *self._domains} if one.endswith(f"/{template}")}
        where = f"in namespace {summarize(sorted(others), 3)}, not in {namespace}" if others else "missing"
        return _Why(NEVER, f"the claim template {template} is {where}")

    def _controller(self) -> _Why | None:
        """Where no replica of the driver's controller is available."""
        for row in checks.controller(self._snapshot, 0):
            return _Why(OPERATOR, row["message"].rstrip("."))
        return None

    def _kueue(self, workload: Object) -> _Why:
        said = _said(workload, "QuotaReserved") or "nothing yet"
        found = _NO_LEVEL.search(said)
        lack = [name for name, node in self._trays.items() if found and found[1] not in node_selection.labels(node)]
        if not found or not lack:
            return _Why(SLURM, f"Kueue says {said}")
        cause = f"without the label {found[1]}{self._writer() if found[1] == CLIQUE else ''}"
        text = f"Kueue has no topology domain at level {found[1]}: {len(lack)} of {len(self._trays)} trays {cause}"
        return _Why(OPERATOR, f"{text} ({trays(lack)})", (Row(cause, len(lack), len(self._trays), tuple(lack)),))

    def _writer(self) -> str:
        """Who writes the clique label."""
        rows = (_part(node, "metadata").get("cliqueManagers") for node in self._trays.values())
        past = {str(one) for row in rows for one in as_list(row)}
        running = labels.running_writers(self._snapshot["daemon_sets"])
        who = sorted({labels.TITLES.get(labels.MANAGERS.get(one, one), one) for one in running or past})
        return f", which {' and '.join(who) or 'no known program'} writes here{self.or_not('daemonsets')}"

    def _unplaced(self, pod: Object, domain: Object | None, gang: Object) -> _Why | None:
        """What keeps trays from a pod or its gang; None where enough are free, or what is needed is not known."""
        if (domain is None and not device_plugins.requested(pod)) or stranded.unreadable(self._snapshot):
            return None
        # A gang without a ComputeDomain may have several pods on a tray.
        need = int(gang.get("minMember") or 1) if domain is not None else 1
        in_one = _part(gang, "topologyConstraint").get("requiredTopologyLevel") == CLIQUE
        near = self._near(pod)
        kept = {name: self._keeps(node, pod, domain, near) for name, node in self._trays.items()}
        places: dict[object, list[str]] = defaultdict(list)
        for name in sorted(kept):
            places[self._clique[name] if in_one else ""].append(name)
        best, word, counted = list[str](), "", list[str]()
        for word in ("", JOBS, OPERATOR, NEVER):
            counted.append(word)
            best = max(places.values(), key=lambda names: sum(kept[name][0] in counted for name in names), default=[])
            if sum(kept[name][0] in counted for name in best) >= need:
                break
        if not word:
            return None
        causes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name in best:
            causes[kept[name]].append(name)
        ranked = sorted(causes.items(), key=lambda row: -len(row[1]))
        rows = tuple(Row(why[1], len(names), len(best), tuple(names)) for why, names in ranked)
        texts = [f"{row.count} of {row.of} trays {row.what} ({trays(row.names)})" for row in rows]
        texts = [text for text, (why, _names) in zip(texts, ranked, strict=True) if why[0] == word][:3]
        if need > 1:
            where = " in one clique" if in_one else ""
            texts.insert(0, f"its gang needs {need} trays{where}, {len(causes[_FREE])} are free")
        change = ("uncordon", causes[_CORDONED][0]) if word == OPERATOR and causes[_CORDONED] else ()
        return _Why(word, "; ".join(texts), rows, change)

    def _near(self, pod: Object) -> set[object]:
        """The cliques of the pods with which this one must share its clique; empty where it need not."""
        terms = [term for term in _rows(pod, *_NEAR) if term.get("topologyKey") == CLIQUE]
        selectors = [_part(term, "labelSelector") for term in terms]
        found: set[object] = set()
        for one in self.pods.values() if terms else ():
            has = node_selection.labels(one)
            if namespace_of(one) == namespace_of(pod) and all(node_selection.matches(has, row) for row in selectors):
                found.add(self._clique.get(str(_part(one, "spec").get("nodeName"))))
        return found - {None}

    def _keeps(self, node: Object, pod: Object, domain: Object | None, near: set[object]) -> tuple[str, str]:
        """The word and the cause that keep a tray from a pod, else _FREE."""
        name, has, spec = name_of(node), node_selection.labels(node), _part(pod, "spec")
        if not node_selection.fits(spec, has):
            wanted = {_part(spec, "nodeSelector").get(CLIQUE), *self._clique.values()}
            if CLIQUE not in has and any(node_selection.fits(spec, {**has, CLIQUE: one}) for one in wanted):
                return OPERATOR, f"without the label {CLIQUE}{self._writer()}"
            return NEVER, "not what its node selector asks for"
        if domains.is_lost(node):
            return OPERATOR, "without a kubelet that reports Ready"
        if taint := node_selection.untolerated(node, as_list(spec.get("tolerations")), frozenset()):
            return _CORDONED if _part(node, "spec").get("unschedulable") else (OPERATOR, f"with the taint {taint}")
        if near and has.get(CLIQUE) not in near:
            return NEVER, "outside the clique of the pods that it must be with"
        if domain is not None:
            if name not in self._registered:
                return OPERATOR, "without a ResourceSlice of the driver's plugin"
            for other in self._taken.get(name, ()):
                if other != name_of(domain):
                    return self._held_by(other)
            if name in self._channels.allocated(domain):
                return NEVER, "with a pod of its ComputeDomain, one a tray"
        # Without a capacity DRA allocates the GPUs: what is free is for the scheduler to say.
        capacity, gpus = device_plugins.capacity(node), device_plugins.requested(pod)
        if capacity and capacity < gpus:
            return NEVER, f"with {count(capacity, 'GPU')}, not {gpus}"
        if capacity and capacity - self._used[name] < gpus:
            return JOBS, f"with GPUs in use by {_pods(self._with_gpus[name])}"
        return _FREE

    def _held_by(self, owner: str) -> tuple[str, str]:
        if owner not in self._holders:
            users, whose = self._users[owner], owner if owner.startswith("deleted ") else f"ComputeDomain {owner}"
            until = f"until {_pods(users)} end" if users else "without a pod, until the driver's controller cleans up"
            self._holders[owner] = (JOBS if users else OPERATOR, f"of {whose} {until}")
        return self._holders[owner]
