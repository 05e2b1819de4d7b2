# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of doctor: plans and evaluates, and asks hosts; the module of the same name documents it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible_collections.rackscale.nvlink.plugins.module_utils import inspection, subsets
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.modules.doctor import ARGUMENTS, REQUIRED_IF, RETURN
from ansible_collections.rackscale.nvlink.plugins.plugin_utils import tray_report
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.capture import bundling as capture
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import host_checks, inventory, results
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.doctor import plan_steps as doctor
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import fabric_file, next_command, storage
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import schemas, trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.tray_action import GuardedAction
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import connections, hosts, reading

SCHEMAS = {step: schemas.of_return(RETURN, f"step={step}") for step in ("inspect", "capture")}
# The controller makes it of the times.
del SCHEMAS["inspect"]["clock"]
SCHEMAS["inspect"] |= {
    fact: tray_report.SCHEMA[fact] for fact in (f"ansible_facts.{subsets.FACTS[name]}" for name in inspection.SUBSETS)
}
# Step -> (seconds to connect, to copy the module, to start Python and for what has limits of its own; how many calls
# may take the option timeout): each GPU backend once; NVML and nvidia-smi twice each and nvidia-imex-ctl six times, for
# the facts and as they print it.
_TIME_LIMITS = {"inspect": (120.0, 2), "capture": (60.0, 10), "logs": (60.0, 20)}


display = Display()


class ActionModule(GuardedAction):
    CHANGES = False

    def act(self, task_vars: Variables) -> Result:
        _validation, options = self.validate_argument_spec(argument_spec=ARGUMENTS, required_if=REQUIRED_IF)
        step = options["step"]
        if step == "inspect":
            return self._inspect(options, task_vars)
        if step == "capture":
            return self._ask(step, options, {}, task_vars)
        if step in ("plan", "evaluate"):
            return self._doctor(options, task_vars)
        path, of_run = absolute(options["path"]), (options["trays"], options["controllers"])
        if step == "plan_capture":
            return capture.plan(path, *of_run)
        return capture.write(path, *of_run, task_vars, self._task.check_mode)

    def _doctor(self, options: Arguments, task_vars: Variables) -> Result:
        read = inventory.read(options, task_vars)
        if options["step"] == "plan":
            return doctor.plan(read, options["fabric_file"])
        by_ssh = self._read(options, read.trays, task_vars) if options["tray_reading"] == "ssh" else None
        rows, found = doctor.evaluate(read, options["fabric_file"], task_vars, by_ssh)
        text = results.summary(rows, len(found.trays), host_checks.answered(found.trays))
        verdict = results.verdict(rows, text)
        if options["path"]:
            path = absolute(options["path"])
            files = {"doctor_file": path, "fabric_file": options["fabric_file"]}
            storage.check_output("doctor_file", files, b'"checks":')
            storage.write_atomic(path, fabric_file.encode(verdict), follow=True)
        file = options["fabric_file"]
        playbook = "doctor" if not verdict["ok"] else "site" if file and os.path.exists(file) else "discover"
        unset = " Set fabric_file: fabric.json for the group all." if verdict["ok"] and not file else ""
        last = f"{text}{unset}{next_command.sentence(playbook, extra=load_extra_vars(self._loader))}"
        failure = "" if verdict["ok"] or not options["fail"] else last
        # Ansible prints a failure by itself, below what is printed before.
        return {"verdict": verdict, "text": [*results.lines(rows), *([] if failure else [last])], "failure": failure}

    def _inspect(self, options: Arguments, task_vars: Variables) -> Result:
        """The host's report with its clock, or in `problem` why it gave none."""
        more: dict[str, Any] = {}
        if self._connection.transport == "local":
            more["connects"] = []  # a stand-in shares this machine
        elif options["role"] == "tray":
            tray, hostvars = str(task_vars["inventory_hostname"]), task_vars["hostvars"]
            more["connects"] = doctor.connects(tray, options["peer_ports"], options["controllers"], hostvars)
        asked = time.time()
        try:
            answer = self._ask("inspect", options, more, task_vars)
        except AnsibleError as error:
            # Reported in one line by the last play, in place of a report of each tray.
            answer = {"failed": True, "msg": str(error)}
        answer = doctor.clocked(answer, asked)
        if answer.get("failed"):
            return {"problem": str(answer.get("msg"))}
        return answer

    def _read(self, options: Arguments, trays: Iterable[str], task_vars: Variables) -> dict[str, Result]:
        """Tray -> its answer, read by ssh, of those that are in this run."""
        own = {name: options[name] for name in ("role", *subsets.Options._fields) if name in options}
        in_run, rest = set(options["hosts"]), _seconds("inspect", options)

        def accept(tray: str, answer: Result, asked_at: float) -> Result:
            return doctor.clocked(trust.answered(tray, answer, SCHEMAS["inspect"]), asked_at)

        def connects(tray: str) -> Arguments:
            to = doctor.connects(tray, options["peer_ports"], options["controllers"], task_vars["hostvars"])
            return {"connects": to}

        question = reading.Question("inspection", own, accept, math.ceil(rest), rest + connections.SENDING)
        known = hosts.Hosts(task_vars["hostvars"], self.evaluate)
        names, becomes = [tray for tray in trays if tray in in_run], self._play_context.become
        return connections.read(names, question, known, becomes, display, connects)

    def _ask(self, step: str, options: Arguments, more: dict[str, Any], task_vars: Variables) -> Result:
        module, seconds = "rackscale.nvlink.doctor", _seconds("logs" if options["logs"] else step, options)
        return self.run_module(module, {**self._task.args, **more}, task_vars, SCHEMAS[step], seconds)


def _seconds(step: str, options: Arguments) -> float:
    rest, times = _TIME_LIMITS[step]
    return rest + times * float(options["timeout"])
