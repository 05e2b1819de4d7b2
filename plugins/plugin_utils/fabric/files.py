# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric file with its state file, proposal, lock and audit log, as one run reads and writes them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.documents import absolute
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric import (
    audit,
    fabric_file,
    next_command,
    proposal,
    signature,
    storage,
)
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric, State
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import like_group


class Files:
    """The files of a run; writes nothing if dry. read() first."""

    def __init__(
        self,
        path: str,
        state_dir: str | None,
        now: str,
        dry: bool,
        who: Mapping[str, str],
        groups: Collection[str],
        is_found: bool,
    ) -> None:
        """groups: of the inventory, which no tray may be named like. who: for the audit log. is_found: of the file."""
        # All files stay next to each other, and two runs lock the same one, also by a symbolic link.
        self.path, self.now, self.dry = os.path.realpath(path), now, dry
        self.state_dir = absolute(state_dir) if state_dir else None
        self.proposal = fabric_file.companion(path, "proposed.json", self.state_dir)
        self.markdown = f"{self.proposal.removesuffix('.json')}.md"
        self._who, self._groups, self._is_found = who, groups, is_found
        self.base: bytes | None = None
        self.before = Fabric()
        self.state: State | None = None

    @contextlib.contextmanager
    def locked(self, proposes: bool) -> Iterator[None]:
        """The locks against other writers of the files that a run may write; a dry run needs none.

        With state_dir a run that only proposes takes the lock there, as the folder of the fabric file may be read-only.
        """
        own = [] if self.state_dir and proposes else [self.path]
        state = [fabric_file.companion(self.path, "json", self.state_dir)] if self.state_dir else []
        remedy = ", or set fabric_state_dir to a folder that is" if proposes and not self.state_dir else ""
        with contextlib.ExitStack() as stack:
            for path in () if self.dry else dict.fromkeys([*own, *state]):
                stack.enter_context(storage.locked(path, self.now, remedy))
            yield

    def read(self) -> None:
        """Read the files; the bytes of the fabric file are kept, since a proposal is made from exactly these.

        base: they, None where there is no file; before: the fabric, empty then.
        """
        if os.path.exists(self.path):
            self.base = fabric_file.read_signed(self.path)
            self.before = fabric_file.parse(self.base, self.path)
        self.state = fabric_file.load_state(self.path, self.state_dir)

    @property
    def sha256(self) -> str | None:
        """The sha256 of the current fabric file; None where there is none."""
        return None if self.base is None else fabric_file.digest(self.base)

    def check_groups(self, fabric: Fabric) -> None:
        """FabricFileError for a tray with the name of a group of the inventory, which Ansible would mix up."""
        for name in fabric.trays.keys() & self._groups:
            raise fabric_file.FabricFileError(like_group(self.path, name))

    def write_fabric(self, fabric: Fabric, what: str) -> str:
        """Write the fabric file, after a line in the audit log; the old one becomes <path>.previous. Its sha256.

        what: the word for the audit log.
        """
        self.check_groups(fabric)
        data = fabric_file.serialise(fabric)
        sha256 = fabric_file.digest(data)
        if not self.dry:
            overrides = [row for row in fabric.overrides if row not in self.before.overrides]
            audit.record(self.path, self._who, self.now, what, self.sha256, sha256, overrides)
            storage.write_atomic(self.path, data, previous=f"{self.path}.previous")
            # It was that of the old file; ssh-keygen asks before it replaces one.
            if os.path.exists(signature.signature_path(self.path)):
                storage.remove(signature.signature_path(self.path))
        return sha256

    def write_state(self, state: State) -> None:
        """Write the state file."""
        self.write(fabric_file.state_path(self.path, self.state_dir), fabric_file.serialise(state))

    def write(self, path: str, data: bytes) -> None:
        """Write one of the files."""
        if not self.dry:
            storage.write_atomic(path, data)

    def drop_proposal(self) -> bool:
        """Remove the proposal and its Markdown, if there is one; whether there was one."""
        exists = os.path.exists(self.proposal)
        for file in (self.proposal, self.markdown):
            if os.path.exists(file) and not self.dry:
                storage.remove(file)
        return exists

    def pending(self) -> proposal.Proposal | None:
        """The proposal that could be accepted now; None where there is none, and for an invalid one."""
        with contextlib.suppress(fabric_file.FabricFileError):
            return proposal.accept(self.path, None, self.base, self.proposal)
        return None

    def difference(self, sha256: str) -> str:
        """The line of a difference for the file as a whole."""
        return f"{self.path}: sha256 {self.sha256 or 'none'} -> {sha256}"

    def to_sign(self) -> str:
        """What remains to do where the site requires a signature."""
        return f"; sign it before the next run: {signature.command(self.path)}" if signature.required() else ""

    def accept_command(self, sha256: str, proposal_file: str | None = None) -> str:
        """The command that accepts the proposal; proposal_file: where it is not at its usual path."""
        inventory = [word for source in next_command.inventory() for word in ("-i", source)] if self._is_found else []
        given = {
            "fabric_file": None if self._is_found else self.path,
            "fabric_state_dir": self.state_dir,
            "fabric_proposal_file": proposal_file,
            "fabric_proposal": sha256,
        }
        extra = [word for name, value in given.items() if value for word in ("-e", _extra(name, value))]
        return shlex.join(["ansible-playbook", *inventory, "rackscale.nvlink.accept", *extra])


def _extra(name: str, value: str) -> str:
    """A variable as -e takes it; as JSON where Ansible would take the value apart."""
    return f"{name}={value}" if shlex.quote(value) == value else json.dumps({name: value})
