# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod or a ComputeDomain waits: pure functions of a snapshot that was read with the schedulers' queues.

A pod needs a tray, so its answer is what keeps each tray from it: what other pods hold, what an operator can open, or
what never fits. Where enough trays are free, or a needed list could not be read, the answer is the scheduler's own
word; what verify checks too is in verify's words. Names and words of users are in all of these: _answer() cleans them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain.sentences import (
    JOBS,
    MAX_ROWS,
    NEVER,
    NOTHING,
    OPERATOR,
    WORDS,
    Answer,
    Change,
    Row,
    clean,
    counted,
    trays,
)
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, one_line, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import (
    checks,
    device_plugins,
    domains,
    node_selection,
    preflight,
    stranded,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.chart_values import value
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.preflight import name_of, namespace_of
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import POD_GROUP, Snapshot
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain.health import Health
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes import labels
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.cliques import CLIQUE
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object, as_list, mapped, whole

KUBERNETES = "kubernetes"
"""waits_for where the answer is the word of a scheduler, of Kueue or of a kubelet."""
MAX_REQUESTS = 8
"""Different requests of pods whose trays are compared, the most frequent first; others have their scheduler's word."""
_VERBS = {
    **WORDS,
    JOBS: "waits for other pods to end",
    NEVER: "never starts as it is",
    KUBERNETES: "waits for Kubernetes",
}
_FREE, _IN_USE, _CORDONED = ("", "free"), (JOBS, "with GPUs in use"), (OPERATOR, "cordoned")
_ORDER = ("", JOBS, OPERATOR, NEVER)
_NO_LEVEL = re.compile(r"no topology domains? at level:? *([\w./-]*\w)")
_NEAR = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_OWNERS, _CONDITIONS = "metadata.ownerReferences", "status.conditions"


class _Why(NamedTuple):
    """waits_for; the cause, without the name of what waits; the evidence; a node that could be uncordoned for it."""

    word: str
    cause: str
    rows: Sequence[Row] = ()
    uncordon: str = ""


def of_object(snapshot: Snapshot, kind: str, subject: str, health: Health, accepts: Callable[[str], bool]) -> Answer:
    """Why a pod or compute_domain, NAMESPACE/NAME, waits, or where it is; NvlinkError where there is none.

    health: that of the nodes. accepts: whether the API server accepts in a dry run that this node is uncordoned.
    """
    view = _View(snapshot, health)
    items, explain = (view.pods, view.pod) if kind == "pod" else (view.domains, view.domain)
    title, resource = ("Pod", "pods") if kind == "pod" else ("ComputeDomain", "computedomains")
    if subject not in items:
        remedy = f"name one that kubectl get {resource} --all-namespaces lists"
        raise NvlinkError(view.unread(resource) or f"{title} {subject} is not in the cluster, or has ended: {remedy}")
    why, command = explain(items[subject]), "kubectl uncordon "
    change = Change(f"It could start after {command}{why.uncordon}", f"{command}{why.uncordon} --dry-run=server")
    cause = why.cause.replace(f"{title} {subject} ", "it ", 1).rstrip(".")
    sentence = f"{title} {subject} {_VERBS[why.word]}: {cause}."
    return _answer(kind, subject, sentence, why, change if why.uncordon and accepts(why.uncordon) else None)


def waiting(snapshot: Snapshot) -> Answer:
    """All pods, deleted ComputeDomains and Workloads of Kueue that wait: their causes, the most frequent first."""
    causes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for subject, why in _View(snapshot, {}).all():
        if why.word != NOTHING:
            causes[why.word, why.cause].append(subject)
    word, rows = counted(causes, _VERBS)
    total = sum(map(len, causes.values()))
    sentence = f"{total or 'Nothing'} {'wait' if total > 1 else 'waits'} in Kubernetes."
    return _answer("queue", "", sentence, _Why(word, "", rows), None)


def _answer(kind: str, subject: str, sentence: str, why: _Why, change: Change | None) -> Answer:
    rows = [Row(clean(row.what), row.count, row.of, tuple(map(clean, row.names))) for row in why.rows[:MAX_ROWS]]
    return Answer(kind, clean(subject), why.word, one_line(sentence), tuple(rows), change)


def _rows(item: Object, path: str) -> list[Object]:
    return [mapped(row) for row in as_list(value(item, path))]


def _said(item: Object, kind: str, at: str = _CONDITIONS) -> str:
    """What a condition of a kind says; KAI has one for each pool of nodes."""
    found = [row["message"] for row in _rows(item, at) if row.get("type") == kind and row.get("message")]
    return clean(str(found[-1])) if found else "nothing yet"


def _template(domain: Object) -> str:
    return f"{namespace_of(domain)}/{value(domain, 'spec.channel.resourceClaimTemplate.name')}"


def _templates(pod: Object) -> list[str]:
    """The claim templates of a pod, as namespace/name."""
    names = [row.get("resourceClaimTemplateName") for row in _rows(pod, "spec.resourceClaims")]
    return [f"{namespace_of(pod)}/{name}" for name in names if name]


def _pods(names: Collection[str]) -> str:
    return f"{'pod' if len(names) == 1 else 'pods'} {summarize(sorted(names), 3)}"


def _held(owner: str, users: Collection[str]) -> tuple[str, str]:
    """What must end before the trays of another ComputeDomain are free."""
    whose = owner if owner.startswith("deleted ") else f"ComputeDomain {owner}"
    if not users:
        return OPERATOR, f"of {whose} without a pod, until the driver's controller cleans up"
    return JOBS, f"of {whose} until {_pods(users)} {'ends' if len(users) == 1 else 'end'}"


def _uncordoned(node: Object) -> Object:
    """The node after kubectl uncordon: nothing else that keeps pods off is undone by it."""
    taints = [row for row in _rows(node, "spec.taints") if row.get("key") != "node.kubernetes.io/unschedulable"]
    return {**node, "spec": {"taints": taints}}


def _request(pod: Object) -> str:
    """What is the same for pods of one workload, and so is what keeps them: a pod that has a node waits for none."""
    return repr((namespace_of(pod), value(pod, "spec"), value(pod, "metadata.annotations")))


class _View:
    """A snapshot, indexed once for many pods; ComputeDomains by the names of stranded.owners()."""

    def __init__(self, snapshot: Snapshot, health: Health) -> None:
        self._snapshot, self._health, self._known = snapshot, health, dict[str, _Why | None]()
        self.pods = {name_of(row): row for row in snapshot["pods"]}
        self.domains = {name_of(row): row for row in snapshot["compute_domains"]}
        self._by_template = {_template(row): row for row in snapshot["compute_domains"]}
        self._templates = {name_of(row) for row in snapshot["claim_templates"]}
        self._workloads = {row.get("uid"): one for one in snapshot["workloads"] for row in _rows(one, _OWNERS)}
        self._groups = {name_of(row): row for row in snapshot["pod_groups"]}
        self._used, self._channels = stranded.allocated(snapshot), domains.Channels(snapshot)
        expected = {*preflight.expected_nodes(snapshot, {}), *self._channels.registered}
        self._trays = {name_of(node): node for node in snapshot["nodes"] if name_of(node) in expected}
        self._clique = {name: node_selection.labels(node).get(CLIQUE) for name, node in self._trays.items()}
        self._users: dict[str, set[str]] = defaultdict(set)
        names = {domains.uid_of(row): name for name, row in self.domains.items()}
        for claim in snapshot["claims"]:
            uid, rows = domains.domain_of(claim), _rows(claim, "status.reservedFor")
            users = {f"{namespace_of(claim)}/{row.get('name')}" for row in rows}
            self._users[names.get(str(uid), f"deleted ComputeDomain {uid}")] |= users
        self._owners = stranded.owners(snapshot)
        self._held = {one: _held(one, self._users[one]) for one in set(chain.from_iterable(self._owners.values()))}
        # In verify's words.
        plan = preflight.live_plan(snapshot)
        self._findings = checks.running(snapshot, plan is not None and plan.host_managed)
        stopped = [_Why(OPERATOR, row["message"].replace("The ", "the ", 1)) for row in checks.controller(snapshot, 0)]
        self._stopped = stopped[0] if stopped else None
        # Who writes the clique label: what runs, else what has written it.
        past = {str(one) for node in self._trays.values() for one in as_list(value(node, "metadata.cliqueManagers"))}
        running = labels.running_writers(snapshot["daemon_sets"]) or past
        who = sorted(labels.TITLES.get(labels.MANAGERS.get(one, one), one) for one in running)
        writers = " and ".join(who) or "no known program"
        self._unlabelled = OPERATOR, f"without the label {CLIQUE}, which {writers} writes here"

    def unread(self, resource: str) -> str:
        """Why a list could not be read; empty for one that was."""
        return next((row for row in self._snapshot["not_readable"] if f" {resource};" in row), "")

    def all(self) -> Iterator[tuple[str, _Why]]:
        pods = [row for row in self.pods.values() if _templates(row) or device_plugins.requested(row)]
        often = Counter(map(_request, pods))
        deleted = (row for row in self.domains.values() if value(row, "metadata.deletionTimestamp"))
        yield from (
            (f"pod {name_of(row)}", self.pod(row)) for row in sorted(pods, key=lambda row: -often[_request(row)])
        )
        yield from ((f"ComputeDomain {name_of(row)}", self.domain(row)) for row in deleted)
        for row in self._snapshot["workloads"]:
            # A Job has no pods before its Workload has quota; the Workload of a pod is the pod's answer.
            of_pod = any(one.get("kind") == "Pod" for one in _rows(row, _OWNERS))
            if not of_pod and not value(row, "status.admission"):
                yield f"Workload {name_of(row)}", self._kueue(row)

    def pod(self, pod: Object) -> _Why:
        claims, node = _templates(pod), value(pod, "spec.nodeName")
        domain = next((self._by_template[name] for name in claims if name in self._by_template), None)
        if node:
            return self._placed(pod, node, domain)
        if why := self._without_template(claims):
            return why
        is_gated, workload = value(pod, "spec.schedulingGates"), self._workloads.get(value(pod, "metadata.uid"))
        if is_gated and workload:
            return self._kueue(workload)
        group = self._groups.get(f"{namespace_of(pod)}/{value(pod, 'metadata.annotations', {}).get(POD_GROUP)}")
        of_group = _said(group, "UnschedulableOnNodePool", "status.schedulingConditions") if group else ""
        request = _request(pod)
        if request not in self._known and len(self._known) < MAX_REQUESTS and not is_gated:
            self._known[request] = self._kept(pod, domain, mapped(value(group, "spec")))
        own = f"{clean(str(value(pod, 'spec.schedulerName')))} says {of_group or _said(pod, 'PodScheduled')}"
        return self._known.get(request) or _Why(KUBERNETES, own)

    def domain(self, domain: Object) -> _Why:
        template, users = _template(domain), self._users[name_of(domain)]
        if value(domain, "metadata.deletionTimestamp"):
            late = self._stopped or _Why(OPERATOR, "it is in deletion; read the log of the driver's controller")
            return _Why(JOBS, f"it is in deletion, held by {_pods(users)}") if users else late
        if why := self._without_template([template]):
            return why
        for name, pod in self.pods.items():
            # Of another namespace too, where this name is no template.
            same = [one for one in _templates(pod) if one.partition("/")[2] == template.partition("/")[2]]
            why = self.pod(pod) if template in same or self._without_template(same) else None
            if why and why.word != NOTHING:
                return why._replace(cause=f"pod {name} {_VERBS[why.word]}: {why.cause}")
        ready = len(self._channels.members(domain))
        return self._found(domain) or _Why(NOTHING, f"{count(ready, 'daemon')} ready" if ready else "no pod uses it")

    def _placed(self, pod: Object, node: str, domain: Object | None) -> _Why:
        found = self._found(domain, node) if domain else None
        if all(row.get("type") != domains.READY or row.get("status") != "True" for row in _rows(pod, _CONDITIONS)):
            return found or _Why(KUBERNETES, f"the kubelet of {node} says {_said(pod, domains.READY)}")
        return _Why(NOTHING, f"it runs on {node}{f'; {found.cause}' if found else ''}")

    def _found(self, domain: Object, node: str = "") -> _Why | None:
        """What verify finds of a ComputeDomain; node: or of its daemon there."""
        for row in self._findings:
            if row.get("domain") == name_of(domain) and (not node or node in row.get("nodes", [node])):
                masked = ", and keep nvidia-imex.service masked there" if "nodes" in row else ""
                word = NOTHING if row["code"] == "dra_domain_spans" else OPERATOR
                return _Why(word, row["message"].rstrip(".") + masked)
        return None

    def _without_template(self, claims: list[str]) -> _Why | None:
        """Where a claim template of a pod is not in its namespace."""
        missing = next((name for name in claims if name not in self._templates), None)
        if missing is None or self.unread("resourceclaimtemplates"):
            return None
        namespace, _slash, template = missing.partition("/")
        if missing in self._by_template:
            late = f"the driver's controller has not made the claim template {template}; read its log"
            return self._stopped or _Why(OPERATOR, late)
        others = sorted(one.partition("/")[0] for one in self._templates if one.partition("/")[2] == template)
        where = f"in namespace {summarize(others, 3)}, not in {namespace}" if others else "missing"
        return _Why(NEVER, f"the claim template {template} is {where}")

    def _kueue(self, workload: Object) -> _Why:
        said = _said(workload, "QuotaReserved")
        level = _NO_LEVEL.search(said)
        has = {name: node for name, node in self._trays.items() if level and level[1] in node_selection.labels(node)}
        lack = self._trays.keys() - has.keys()
        # Kueue leaves out nodes that are cordoned, and those that its flavor does not select: those are for it to say.
        if not level or not lack or not all(value(node, "spec.unschedulable") for node in has.values()):
            return _Why(KUBERNETES, f"Kueue says {said}")
        cause = self._unlabelled[1] if level[1] == CLIQUE else f"without the label {level[1]}"
        text = f"Kueue has no topology domain at level {level[1]}: {len(lack)} of {count(len(self._trays), 'tray')} are"
        return _Why(OPERATOR, f"{text} {cause} ({trays(lack)}){f', {trays(has)} cordoned' if has else ''}")

    def _kept(self, pod: Object, domain: Object | None, gang: Object) -> _Why | None:
        """What keeps trays from a pod or its gang; None where enough are free, or what is needed is not known."""
        spec, near = mapped(pod["spec"]), any(row.get("topologyKey") == CLIQUE for row in _rows(pod, _NEAR))
        asks_gpus = device_plugins.requested(pod) and not near
        if not (domain or asks_gpus) or not self._trays or stranded.unreadable(self._snapshot):
            return None
        # A gang without a ComputeDomain may have several pods on a tray.
        there = self._channels.allocated(domain) if domain else {}
        need = max((whole(gang.get("minMember")) or 1) - len(there), 1) if domain else 1
        in_one = near or value(gang, "topologyConstraint.requiredTopologyLevel") == CLIQUE
        # The clique of the pods that are there already, to which a tray without the label may belong.
        begun = {self._clique.get(name) for name in there} if near else set()
        kept: dict[str, tuple[str, str]] = {}
        places: dict[object, list[str]] = defaultdict(list)
        for name, node in self._trays.items():
            has, clique = node_selection.labels(node), self._clique[name]
            is_unlabelled = clique is None and (in_one or not node_selection.fits(spec, has))
            asked = {CLIQUE: mapped(spec.get("nodeSelector")).get(CLIQUE, ""), **has}
            if node_selection.fits(spec, asked) and (not begun or clique in (None, *begun)):
                places[in_one and not begun and clique].append(name)
                kept[name] = self._unlabelled if is_unlabelled else self._keeps(node, pod, domain)

        def reach(names: list[str]) -> tuple[int, int]:
            """What must at least come free for all that is needed; how many trays are not free."""
            ranks = sorted(_ORDER.index(kept[name][0]) for name in names)
            return (ranks[need - 1] if need <= len(ranks) else len(_ORDER) - 1), sum(map(bool, ranks))

        if not places:
            return _Why(NEVER, f"none of {count(len(self._trays), 'tray')} has the labels that it selects")
        best = min(places.values(), key=reach)
        word = _ORDER[reach(best)[0]]
        if not word:
            return None
        causes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name in best:
            causes[kept[name]].append(name)
        ranked = sorted(causes.items(), key=lambda row: (row[0][0] != word, -len(row[1])))[:MAX_ROWS]
        rows = [Row(self._worded(why, {*names}), len(names), len(best), (trays(names),)) for why, names in ranked]
        first = rows[: sum(why[0] == word for why, _names in ranked)]
        texts = [f"{row.count} of {count(len(best), 'tray')} {row.what} ({row.names[0]})" for row in first]
        sick: dict[str, list[str]] = defaultdict(list)
        for name in best:
            if name in self._health and kept[name] != _FREE:
                sick[f"{self._health[name]['state']} by verify: {self._health[name]['reason']}"].append(name)
        rows += [Row(reason, len(names), len(best), (trays(names),)) for reason, names in sick.items()]
        free, where = len(causes[_FREE]), " in one clique" if in_one else ""
        if need > 1:
            free_of = f"{free} of {count(len(best), 'tray')} that it may use"
            texts.insert(0, f"it needs {count(need, 'tray')}{where}, and {free_of} are free")
        closed = causes[_CORDONED] if free + 1 >= need else []
        last = [name for name in closed if self._keeps(_uncordoned(self._trays[name]), pod, domain) == _FREE]
        return _Why(word, "; ".join(texts), rows, *last[:1])

    def _worded(self, why: tuple[str, str], names: Collection[str]) -> str:
        """The cause, with the pods that have the GPUs of these trays."""
        pods = self.pods.items() if why == _IN_USE else ()
        users = [name for name, pod in pods if value(pod, "spec.nodeName") in names and device_plugins.requested(pod)]
        return f"{why[1]} by {_pods(users)}" if users else why[1]

    def _keeps(self, node: Object, pod: Object, domain: Object | None) -> tuple[str, str]:
        """The word and the cause that keep a tray from a pod."""
        name, tolerations = name_of(node), as_list(value(pod, "spec.tolerations"))
        # Without a capacity DRA allocates the GPUs: what is free is for the scheduler to say.
        capacity, gpus = device_plugins.capacity(node), device_plugins.requested(pod)
        # What never fits comes first, and what must end last: a tray may have several causes.
        if domain and name in self._channels.allocated(domain):
            return NEVER, "with a pod of its ComputeDomain, one a tray"
        if capacity and capacity < gpus:
            return NEVER, f"with {count(capacity, 'GPU')}, not {gpus}"
        if domains.is_lost(node):
            return OPERATOR, "without a kubelet that reports Ready"
        if taint := node_selection.untolerated(node, tolerations, frozenset()):
            return _CORDONED if value(node, "spec.unschedulable") else (OPERATOR, f"with the taint {taint}")
        if domain and name not in self._channels.registered:
            return OPERATOR, "without a ResourceSlice of the driver's plugin"
        others = [self._held[one] for one in self._owners.get(name, ()) if domain and one != name_of(domain)]
        # That of a deleted ComputeDomain without a pod is an operator's.
        if others:
            return max(others, key=lambda why: _ORDER.index(why[0]))
        return _IN_USE if capacity and capacity - self._used[name] < gpus else _FREE
