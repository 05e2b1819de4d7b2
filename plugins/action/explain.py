# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job, a tray, a pod or all that is queued waits.

Slurm is asked on its controller, with the health that is known here; Kubernetes from here, by the snapshot of verify.
"""

from __future__ import annotations

import os
import re

from ansible.errors import AnsibleActionFail
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.module_utils.explain import controller, sentences
from ansible_collections.rackscale.nvlink.plugins.modules.explain import DOCUMENTATION
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import login
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra.snapshot import Reader
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.explain import health, kubernetes
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.kubernetes.api import NODE, Cluster
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.slurm import steps
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

OPTIONS = {**steps.OF_CONTROLLER, **schemas.arguments(DOCUMENTATION)}
_NOTHING = "no scheduler is configured: set slurm_controller_hosts for jobs and trays, verify_kubeconfig for pods"
# No answer needs Helm's Secrets or the definitions.
_UNNEEDED = re.compile(r" (secrets|customresourcedefinitions);")
_OBJECT = re.compile(r"[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}")


class ActionModule(steps.SteppedAction):
    """The file of the answer reports the run and is written in check mode too."""

    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=OPTIONS)
        path = absolute(options["path"]) if options["path"] else None
        storage.check_output("path", {"path": path, "fabric_file": options["fabric_file"]}, b'"waits_for":')
        subject, of_job = options["pod"] or options["compute_domain"], options["job"] or options["segment"]
        questions = sum(map(bool, (of_job, options["tray"], options["pod"], options["compute_domain"])))
        if questions > 1 or (options["partition"] and not questions):
            raise AnsibleActionFail("explain: ask one question: a job, a tray, a segment, a pod or a ComputeDomain.")
        if subject and not _OBJECT.fullmatch(subject):
            raise AnsibleActionFail(f"explain: {shown(subject)} is no NAMESPACE/NAME, such as default/train-0.")
        asks_slurm = options["slurm"] and not subject
        asks_cluster = options["kubeconfig"] and not of_job and not options["tray"]
        if not asks_slurm and not asks_cluster:
            raise AnsibleActionFail(f"explain: {_NOTHING}.")
        result: Result = {"text": []}
        if asks_slurm:
            result = self.run_steps(task_vars, options, self._ask, controller.SECONDS)
        if asks_cluster and not result.get("failed"):
            result = _with_cluster(result, options, subject)
        if path and not result.get("failed"):
            document = {**result["answer"], **({"kubernetes": result["kubernetes"]} if "kubernetes" in result else {})}
            storage.write_atomic(path, fabric_file.encode(document), follow=True)
        return result

    def _ask(self) -> Result:
        options = self.options
        fabric, known = _health(options, "slurm_node")
        asked = {key: options[key] for key in ("job", "segment", "partition")}
        tray = fabric.trays[options["tray"]]["slurm_node"] if options["tray"] in fabric.trays else options["tray"]
        answer = self.step("explain", {**asked, "tray": tray, "health": known})
        return {"answer": answer["answer"], "text": answer["text"]}


def _health(options: Arguments, name: str) -> tuple[Fabric, health.Health]:
    """(the fabric, the health of its trays by this name)."""
    path = options["fabric_file"]
    fabric = fabric_file.load(path) if path and os.path.isfile(path) else Fabric()
    known = health.known(fabric, path, options["state_dir"], options["verdict_file"], name) if fabric.trays else {}
    return fabric, known


def _with_cluster(result: Result, options: Arguments, subject: str) -> Result:
    """The result with the answer of Kubernetes, beside that of Slurm where there is one."""
    try:
        answer, notes = _answered(options, subject)
    except NvlinkError as error:
        if "answer" not in result:
            raise
        note = f"what waits in Kubernetes: {str(error).rstrip('.')}"
        slurm = {**result["answer"], "unknown": [*result["answer"]["unknown"], note]}
        return {**result, "answer": slurm, "text": [*result["text"], f"Not known: {note}."]}
    text = sentences.text(answer, notes).splitlines()
    key = "kubernetes" if "answer" in result else "answer"
    return {**result, key: sentences.as_dict(answer, notes), "text": [*result["text"], *text]}


def _answered(options: Arguments, subject: str) -> tuple[sentences.Answer, list[str]]:
    """(the answer of Kubernetes, what could not be read)."""
    access = login.of_kubeconfig(options, "explain")
    snapshot = Reader(access).snapshot(queues=True)
    notes = [row for row in snapshot["not_readable"] if not _UNNEEDED.search(row)]

    def accepts(node: str) -> bool:
        client = Cluster("explain", access)
        url = f"{client.url}{NODE.path}/{node}?dryRun=All"
        body, headers = {"spec": {"unschedulable": None}}, {"Content-Type": "application/merge-patch+json"}
        return bool(client.send("PATCH", url, body, (403, 404, 409, 422), headers).status == 200)

    if not subject:
        return kubernetes.waiting(snapshot), notes
    _fabric, known = _health(options, "kubernetes_node")
    kind = "pod" if options["pod"] else "compute_domain"
    return kubernetes.of_object(snapshot, kind, subject, known, accepts), notes
