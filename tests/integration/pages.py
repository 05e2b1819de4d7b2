# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow a documentation page as an operator does: write its files and run its commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path

from .commands import environment, on_terminal

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = "ansible(?:-[a-z]+)?|make|scontrol|sacctmgr|sbatch|srun|kubectl|helm|systemctl|journalctl|git|tests/lab/lab"
# Commands that other tests or tools run unchanged.
RUN_BY = {
    "make demo": "tests/integration/test_demo.py",
    "make build": "tests/integration/test_systems.py",
    "ansible-galaxy collection install build/rackscale-nvlink-*.tar.gz": "tests/tools/artifact.py",
    # By its own command line, whose option is --from.
    "make lab FROM=$PWD/site.tar.gz": "tests/integration/test_capture.py",
    # Its folder /artifacts is that of an AWX job.
    "ansible-playbook rackscale.nvlink.accept -e fabric_file=/srv/cluster/fabric.json "
    "     -e fabric_proposal=SHA_THAT_DISCOVER_PRINTED -e fabric_proposal_file=/artifacts/fabric.proposed.json": (
        "tests/integration/test_discover.py"
    ),
}
# An operator replaces it with the sha256 that the last run printed.
PLACEHOLDER = re.compile(r"SHA_THAT_(?:DISCOVER|PARTITION)_PRINTED")
# A word of a shown result that differs from run to run: a part left out, a date, a folder, seconds, a job's tray.
_VARIES = re.compile(r"\.\.\.|^\d{4}-\d\d-\d\d|^/srv/|^\d+\.\d+,$|^r01t\d\d$")
# accept that names no proposal and no edit.
ASKS = re.compile(r"rackscale\.nvlink\.accept(?!.* -e (?:fabric_proposal|edit_))")
_COMMAND = re.compile(rf"^(?: *)((?:[A-Z_]+=\S+ )*(?:{PROGRAMS}) .*?)(?: {{2,}}#.*)?$")
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4,}.*)?\n)+", re.MULTILINE)
_FILE_NAME = re.compile(r"# ([\w./-]+\.(?:ya?ml|json|conf|cfg|sh))\n")


def pages() -> list[str]:
    """Every page that a user reads, relative to the checkout."""
    found = [CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("roles/*/README.md")]
    return sorted(str(path.relative_to(CHECKOUT)) for path in found)


def _blocks(page: str) -> list[str]:
    """The code blocks of a page in their order, fenced or indented, without their indentation."""
    text = (CHECKOUT / page).read_text()
    fenced = [(found.start(), textwrap.dedent(found[3])) for found in _FENCED.finditer(text)]
    # Fenced blocks may be indented too, as in a list.
    bare = _FENCED.sub(lambda found: "x" * len(found[0]), text)
    indented = [(found.start(), textwrap.dedent(found[0])) for found in _INDENTED.finditer(bare)]
    return [block.strip("\n") + "\n" for _start, block in sorted(fenced + indented) if block.strip()]


def _typed(block: str) -> list[str]:
    """The commands of a block in their order; a line that ends with a backslash continues in the next."""
    lines = block.replace("\\\n", " ").splitlines()
    return [found[1].strip() for line in lines if (found := _COMMAND.match(line))]


def commands(page: str) -> list[str]:
    """The commands of a page in their order."""
    return [command for block in _blocks(page) for command in _typed(block)]


def scripts(page: str) -> list[str]:
    """The shell blocks of a page in their order, each typed as a whole."""
    found = _FENCED.findall((CHECKOUT / page).read_text())
    return [textwrap.dedent(text) for _space, kind, text in found if kind == "sh"]


def files(page: str) -> dict[str, str]:
    """The files of a page as it shows them first: blocks that begin with a comment line with the file name."""
    return {found[1]: block for block in reversed(_blocks(page)) if (found := _FILE_NAME.match(block))}


def results(page: str) -> list[str]:
    """What a page shows as printed: a pattern of each part between "..." of its text blocks, for ``plain``."""
    shown = [text for _space, kind, text in _FENCED.findall((CHECKOUT / page).read_text()) if kind == "text"]
    parts = [part.split() for text in shown for part in re.split(r"^ *\.\.\.\n", text, flags=re.MULTILINE)]
    return [
        "".join(".{1,99}?" if _VARIES.search(word) else re.escape(plain(word)) for word in part)
        for part in parts
        if part
    ]


def plain(text: str) -> str:
    """A text without what Ansible's result format adds to a list of lines: white space, quotes and commas."""
    return re.sub(r'[\s",]+', "", text)


class Shell:
    """An operator's shell in one folder, with the environment's programs on its path, or those of another folder."""

    # The timeout of a command: far longer than any command takes on the few trays of a lab on a busy machine.
    seconds = 400.0

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent, **more: str) -> None:
        self.folder = folder
        self.programs = programs
        self.more = more
        self.reported = ""
        # (what a run named as the next one, the command with which the page went on) where these differ.
        self.astray: list[tuple[str, str]] = []

    def filled(self, command: str) -> str:
        """The command with the sha256 that the last run printed."""
        return PLACEHOLDER.sub(lambda _found: re.findall(r"\b[0-9a-f]{64}\b", self.reported)[-1], command)

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """What a command printed, which must succeed; one that asks gets a terminal and a yes."""
        command = self.filled(command)
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        git = {"GIT_AUTHOR_NAME": "op", "GIT_COMMITTER_NAME": "op", "EMAIL": "op@example.com"}
        settings, words = environment(PATH=path, **git, **self.more), ["bash", "-c", command]
        if ASKS.search(command):
            status, output = on_terminal("yes", "yes or no", words, self.folder, settings, self.seconds)
            done = subprocess.CompletedProcess(words, status, output, "")
        else:
            done = subprocess.run(
                words,
                cwd=self.folder,
                env=settings,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        assert done.returncode == 0, f"`{command}` ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        self.reported += done.stdout
        return done

    def missing(self, page: str) -> list[str]:
        """What the page shows as printed and no command has printed, as results() has it."""
        printed = plain(self.reported)
        return [part for part in results(page) if not re.search(part, printed)]

    def follow(self, page: str, keep: Collection[str] = ("hosts.yml",)) -> None:
        """Write the files of a page, except those that the test has written with the names of the lab.

        A file that the page shows again is replaced there.
        """
        for name, text in files(page).items():
            if name not in keep:
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).write_text(text)
        named, before = "", ""
        for block in _blocks(page):
            shown = _FILE_NAME.match(block)
            if shown and shown[1] not in keep:
                (self.folder / shown[1]).write_text(block)
            for command in _typed(block):
                if command in RUN_BY:
                    continue
                if named and "rackscale.nvlink." in command and not _leads_to(named, before, command):
                    self.astray.append((named, command))
                printed = self.type(command).stdout
                named, before = (re.findall(r"Next: (.*?)\.\W*$", printed, re.MULTILINE) or [""])[-1], command


def _leads_to(named: str, before: str, command: str) -> bool:
    """Whether what a run named is this command: its playbook, with its inventories and perhaps more."""
    printed = before if named.startswith("the same command") else named
    dry = "--check" in printed and not named.startswith("the same command")
    inventories = [set(re.findall(r"-i (\S+)", text)) for text in (printed, command)]
    playbooks = [re.findall(r"rackscale\.nvlink\.\w+", text)[-1:] for text in (printed, command)]
    return playbooks[0] == playbooks[1] and inventories[0] >= inventories[1] and dry == ("--check" in command)
