# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the built artifact as Automation Hub and Galaxy do: galaxy-importer, with its lint.

The importer ends its lint after 180 seconds, and then imports without what that has not reached; here the lint runs to
its end, and how long it took is printed. It has all rules, also those that the importer leaves out. Each line that the
importer logs as a warning or an error is a failure, unless EXPECTED has it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from artifact import BIN, CHECKOUT, build
from make_venv import CACHE, pip

# Wheels that the environment does not have. It has newer libraries than the importer asks for, which run as well.
WHEELS = {
    "galaxy-importer==0.4.44": ("c2261e6480cb71c445228233f2de906ef96fa5dc55b138a85e5e5a7c30902de7",),
    "markdown==3.11.3": ("e1a31a112232504d753e5c01bb8c2de90d3f0ba986b063e10770cf7695b09e73",),
    "nh3==0.3.8": (
        "3e97326a8c7b537b5583aad483f249d7c8d0398fbf7b61a995fc508ffdc0d2ee",  # manylinux_2_17_x86_64
        "92455caf010434168c26d5b2fd523bd588fce796b1a8067fef0a51f9e88f5cf7",  # manylinux_2_17_aarch64
    ),
}
# As Automation Hub sets it.
SETTINGS = {"check_required_tags": True, "require_v1_or_greater": True}
LIMIT = 180
EXPECTED = (
    # Galaxy lists only plugins of extensions/eda.
    re.compile(r"The extension type 'eda/rulebooks' listed in 'meta/extensions\.yml' is custom"),
    # ansible-lint looks for ansible_collections in the path that the importer gives it, which ends with this name.
    re.compile(r"ERROR    Failed to find rackscale\.nvlink\.(?P<playbook>\w+) playbook\."),
)


def importer() -> Path:
    """The folder of the importer's wheels, installed once into the cache."""
    home = CACHE / "-".join(sorted(WHEELS)).replace("==", "-")
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            for wheel, hashes in WHEELS.items():
                pip(sys.executable, "install", scratch, "--target", wheel, hashes)
            if not home.exists():
                shutil.copytree(scratch, home)
    return home


def with_all_rules(command: list[str]) -> list[str]:
    """The importer's lint without the option that leaves out rules, as `make check` lints the checkout."""
    at = command.index("-x")
    return [*command[:at], *command[at + 2 :]]


class Patient(subprocess.Popen):
    """A lint with all rules, which may take longer than the importer lets it."""

    def __init__(self, command: list[str], **more: Any) -> None:
        super().__init__(with_all_rules(command), **more)

    def communicate(self, *_input: Any, **_timeout: Any) -> Any:
        start, before = time.monotonic(), os.times()
        answer = super().communicate()
        after = os.times()
        seconds = time.monotonic() - start
        cpu = sum(after[2:4]) - sum(before[2:4])
        print(f"hub: the lint ended with {self.returncode} after {seconds:.0f} s, {cpu:.0f} of CPU", flush=True)
        if seconds > LIMIT:
            print(
                f"hub: the importer would have ended it after {LIMIT} s, so it needs a machine less busy than this one"
            )
        return answer


class Collected(logging.Handler):
    """What the importer logs: printed, and kept from warnings on."""

    def __init__(self) -> None:
        super().__init__()
        self.serious: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        print(f"{record.levelname}: {line}", flush=True)
        if record.levelno >= logging.WARNING:
            self.serious.append(line)


def unexpected(lines: list[str], playbooks: set[str]) -> list[str]:
    """The lines that are no expected ones; that a playbook is missing is expected of one that is there."""

    def is_expected(line: str) -> bool:
        found = next(filter(None, (pattern.match(line) for pattern in EXPECTED)), None)
        return found is not None and found.groupdict().get("playbook") in {None, *playbooks}

    return [line for line in lines if not is_expected(line)]


def check_import(artifact: Path, playbooks: set[str]) -> list[str]:
    """What the importer does not accept."""
    sys.path.insert(0, str(importer()))
    from galaxy_importer import collection, config, exceptions
    from galaxy_importer.loaders import collection as loader

    loader.Popen = Patient
    log, collected = logging.getLogger("hub"), Collected()
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(collected)
    name = collection.CollectionFilename(*artifact.name.removesuffix(".tar.gz").split("-", 2))
    settings = config.Config(config_data={**SETTINGS, "tmp_root_dir": str(artifact.parent)})
    try:
        with artifact.open("rb") as file:
            collection.import_collection(file, name, logger=log, cfg=settings)
    except exceptions.ImporterError as error:
        return [*unexpected(collected.serious, playbooks), f"the import failed: {error}"]
    return unexpected(collected.serious, playbooks)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rackscale-nvlink-") as scratch_name:
        scratch = Path(scratch_name)
        artifact = build(scratch)
        os.environ |= {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(scratch / "home"),
            "ANSIBLE_HOME": str(scratch / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(scratch / "none"),
            # Else Ansible finds those of this environment.
            "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        }
        (scratch / "home").mkdir()
        found = check_import(artifact, {path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")})
        for line in found:
            print(f"hub: {line}")
        print(f"hub: {len(found)} failures")
        return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
