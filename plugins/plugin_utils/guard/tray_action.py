# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base of the action plugins: refuses hosts with foreign facts, and limits time, memory and shape of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Arguments, Result, Variables
from ansible_collections.rackscale.nvlink.plugins.module_utils.errors import NvlinkError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard import trust
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.deadline import (
    deadline,
    kill_children,
    limited_memory,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.guard.schemas import Check
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run import site_variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import ended, printable

# Bytes that an answer may cost the worker. The answers of this collection's modules are below 1 MiB, and Ansible
# needs several times the size of an answer to parse it.
MAX_MEMORY = 256 * 1024 * 1024
# Options that are the same file for every action, wherever its playbook lies.
_FILES = frozenset({"fabric_file", "verdict_file", "junit_file"})
UNCHANGED: Mapping[str, Any] = MappingProxyType({"changed": False, "changes": [], "findings": []})
"""What act() need not return."""


class GuardedAction(ActionBase):
    """An action that does nothing for a host whose facts set variables of this collection (trust.foreign_variables).

    A subclass defines act() instead of run(). An option that is null is the same as one that is left out, so that a
    role can pass variables that it leaves empty.

    A task with run_once is not refused: it acts for all hosts, in the context of whichever comes first, so that host
    must not decide whether it runs; roles and playbooks give such a task no variable of that host.
    """

    CHANGES = True
    """Whether its result has `actions`: what was done, in order, on the controller and by modules on hosts."""
    _asked: tuple[str, Mapping[str, Check]] | None = None
    # While a module is asked: its host and its schema.

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        actions.begin()
        variables = task_vars or {}
        names = trust.foreign_variables(variables.get("ansible_facts"))
        if names and self.is_guarded() and not self._task.run_once:
            return {**result, **trust.refusal(str(variables.get("inventory_hostname")), names), **self._listed()}
        self._task.args = {
            option: absolute(value) if option in _FILES and isinstance(value, str) and value else value
            for option, value in self._task.args.items()
            if value is not None
        }
        try:
            return {**result, **UNCHANGED, **self.act(variables), **self._listed()}
        except NvlinkError as error:
            raise AnsibleActionFail(printable(ended(str(error))), result=self._listed()) from None
        except AnsibleActionFail as error:
            error.result.update(self._listed())
            raise

    def _listed(self) -> Result:
        return {"actions": actions.done()} if self.CHANGES else {}

    def is_guarded(self) -> bool:
        """Whether this task is refused; not one that only records what became of the host."""
        return True

    def act(self, task_vars: Variables) -> Result:
        """Do the task; its result. An NvlinkError fails the task with its message."""
        raise NotImplementedError  # each subclass defines it

    def evaluate(self, template: str, variables: Variables) -> Any:
        """The value of a template that sees these variables alone."""
        return self._templar.copy_with_new_env(available_variables=variables).template(template)

    def validate_argument_spec(self, argument_spec: Any = None, **rules: Any) -> Any:
        """As Ansible's own, with an error of one sentence: no classes of Python, and no other argument of the task.

        And refuse what YAML has read as another value than its text, for which Ansible takes the text of that value.
        """
        module = str(self._task.action).rpartition(".")[2]
        given = [(option, (module, value)) for option, value in self._task.args.items()]
        wrong = site_variables.wrong_sentences(given, argument_spec or {})
        try:
            if not any(site_variables.QUOTES in sentence for sentence in wrong):
                return super().validate_argument_spec(argument_spec, **rules)
        except AnsibleActionFail as error:
            wrong = wrong or [str(error)]
        raise AnsibleActionFail(site_variables.joined(wrong)) from None

    def _low_level_execute_command(self, *args: Any, **kwargs: Any) -> Result:
        """As Ansible's own, without control characters, and of a module's answer what is accepted of it alone.

        Ansible shows what a host prints around an answer, and takes warnings and keys of its own from it, before
        _execute_module() returns.
        """
        done: Result = super()._low_level_execute_command(*args, **kwargs)
        texts = {key: printable(value) if key in ("stdout", "stderr") else value for key, value in done.items()}
        return {**texts, "stdout": trust.printed(texts.get("stdout", ""), *self._asked)} if self._asked else texts

    def run_module(
        self,
        name: str,
        arguments: Arguments,
        task_vars: Variables,
        schema: Mapping[str, Check],
        seconds: float,
    ) -> Result:
        """The answer of the host's module, reduced to its schema (trust.accepted).

        seconds: the time limit, above all that the module itself may wait for; the host then fails alone, and no
        program of this question is left on the controller.
        """
        host = str(self._task.delegate_to or task_vars.get("inventory_hostname"))
        self._asked = host, schema
        with deadline(seconds) as expired:
            try:
                with limited_memory(MAX_MEMORY) if self._connection.transport != "local" else nullcontext():
                    answer = self._execute_module(module_name=name, module_args=dict(arguments), task_vars=task_vars)
            except MemoryError:
                kill_children()
                return _failed(f"{host} printed more than any answer has; check what its Python and its shell print.")
            except Exception:
                if not expired.is_set():
                    raise
                answer = {}
        if expired.is_set():
            # Its connection may serve the next task, or may be what hangs.
            return _failed(
                f"{host} did not answer within {seconds:g} seconds; check whether Python starts there, and its driver."
            )
        kept = trust.accepted(host, answer, schema)
        actions.record(*kept.pop("actions", ()))
        return kept


class ControllerAction(GuardedAction):
    """An action that connects to no host; its module has nothing but documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False


def _failed(message: str) -> Result:
    return {"failed": True, "changed": False, "msg": message, "findings": []}
