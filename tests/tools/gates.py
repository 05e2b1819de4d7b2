# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the gates of one level, show how far they are and count what passed.

`gates.py LEVEL` runs those of a level (unit, check, test, all), `gates.py NAME...` the named ones. `check` includes
unit, and `test` includes check but ansible-lint; `all` is what `test` leaves out, and lints the artifact. Every gate
writes its own log under build/gates; the end of a failed one is printed. A gate that this machine cannot run is named
on the last lines; with CI=true it counts as failed, and so does a test that was skipped.

The stories run in three workers, since they wait for daemons much of their time; beside them the other gates run one
after another at a lower priority. A test that fails is red: nothing is tried twice.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex, nvml  # noqa: E402  (the lab is found through the path above)
from nvlab.tools import ensure_tools  # noqa: E402

LOGS = CHECKOUT / "build" / "gates"
BIN = CHECKOUT / ".venv" / "bin"
LOG_TAIL_LINES, MAX_NAMED = 120, 10
PROGRESS_SECONDS = 20
# Of pytest -v: how far it is, and the line that it ends with.
PERCENT = re.compile(r"\[ *(\d+%)\]")
SUMMARY = re.compile(r"(?m)^=+ (.* in \d[\d.]*s.*) =+$")
# Examples of each property in test-all; tests/conftest.py has the number for `make test`.
MORE_EXAMPLES = "50"
LINT_DOCS = "antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=self ."
PYTHON_FLOOR = "vermin --quiet --no-tips --violations -t=3.9- --eval-annotations plugins/modules plugins/module_utils"
STORIES = "-n 3 --dist loadfile --no-loadscope-reorder tests/integration tests/soak"
LEVELS = {
    "unit": ("unit",),
    "check": ("unit", "check", "lint"),
    "test": ("unit", "check", "test"),
    "all": ("all",),
}
# The reason of a test that compares ours with others' published files, which a user of the collection does not have.
NOT_OURS = "next to the checkout"
STARTED = time.monotonic()
ON_LAB = threading.Lock()


def _not_root() -> str | None:
    return "it needs root for the lab's containers" if os.geteuid() else None


def _no_compiler() -> str | None:
    return None if shutil.which("gcc") else "it needs a C compiler for the NVML stand-in (Debian: gcc, libc6-dev)"


def _no_node() -> str | None:
    return None if shutil.which("node") else "it needs node for the search of the site (Debian: nodejs)"


@dataclass(frozen=True)
class Gate:
    """One command of the environment that must exit 0, as one would type it; `level` is the target that runs it."""

    name: str
    level: str
    line: str
    marks: str = ""
    examples: str = ""
    on_lab: bool = False
    blocked: Callable[[], str | None] = field(default=lambda: None)

    @property
    def is_pytest(self) -> bool:
        return self.line.startswith("python -m pytest")

    def command(self) -> list[str]:
        name, *arguments = self.line.split()
        command = [str(BIN / name), *arguments]
        if self.is_pytest:
            command += ["-v", "--color=no", "-o", f"cache_dir={LOGS / f'{self.name}.cache'}"]
            command += ["-m", self.marks] if self.marks else []
        return command if self.on_lab else ["nice", "-n", "5", *command]


# The static ones that end soonest first.
GATES = [
    Gate("ruff", "check", "ruff check --quiet ."),
    Gate("ruff-format", "check", "ruff format --check --quiet ."),
    Gate("yamllint", "check", "yamllint --strict ."),
    Gate("licences", "check", "reuse lint --quiet"),
    Gate("layers", "check", "lint-imports --no-cache --no-logo"),
    Gate("changelog", "check", "antsibull-changelog lint"),
    Gate("docs-files", "check", "python tests/tools/docs_files.py"),
    Gate("python-floor", "check", PYTHON_FLOOR),
    Gate("mypy", "check", "python tests/tools/check_types.py"),
    Gate(
        "unit",
        "unit",
        "python -m pytest -n 3 --dist worksteal tests/unit tests/fuzz tests/soak",
        marks="not long and not lab",
        blocked=_no_compiler,
    ),
    # artifact-hub lints the same files with the same rules.
    Gate("ansible-lint", "lint", "ansible-lint --offline -q"),
    Gate("docs", "check", LINT_DOCS),
    Gate("docs-site", "check", "python tests/tools/docs_site.py", blocked=_no_node),
    Gate("stories", "test", f"python -m pytest {STORIES}", marks="not long", on_lab=True, blocked=_not_root),
    Gate("artifact", "test", "python tests/tools/artifact.py"),
    Gate("long-stories", "all", f"python -m pytest {STORIES}", marks="long", on_lab=True, blocked=_not_root),
    Gate(
        "properties",
        "all",
        "python -m pytest tests/unit tests/fuzz tests/soak",
        marks="(hypothesis or long) and not lab",
        examples=MORE_EXAMPLES,
        blocked=_no_compiler,
    ),
    Gate("faults", "all", "python tests/tools/faults.py --chosen HEAD --jobs 2", blocked=_not_root),
    Gate("cores", "all", "python tests/tools/cores.py"),
    Gate("artifact-hub", "all", "python tests/tools/hub.py"),
    Gate("ansible-test-sanity", "all", "python tests/tools/run_ansible_test.py sanity"),
    Gate("ansible-test-units", "all", "python tests/tools/run_ansible_test.py units tests/unit/plugins/modules/"),
]


@dataclass
class Outcome:
    gate: Gate
    seconds: float
    passed: int
    failed: int
    skipped: list[str]


def _log(name: str) -> str:
    log = LOGS / f"{name}.log"
    return log.read_text(errors="replace") if log.exists() else ""


def progress(name: str) -> str:
    """How far the tests of a gate are, by its log: "26%"."""
    return "".join(PERCENT.findall(_log(name))[-1:])


def _environment(sockets: str) -> dict[str, str]:
    """The environment of every gate: this checkout's tools and collection, whatever else the user has installed.

    sockets: a folder for ssh's control sockets, whose paths may have about 100 characters at most.
    """
    collections = next((CHECKOUT / ".venv" / "lib").glob("python3*")) / "site-packages"
    # A machine that keeps no byte code compiles ansible-core anew in each of thousands of processes.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return dict(
        kept,
        PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
        ANSIBLE_COLLECTIONS_PATH=str(collections),
        ANSIBLE_DEPRECATION_WARNINGS="true",
        ANSIBLE_NOCOLOR="true",
        ANSIBLE_LOCALHOST_WARNING="false",
        ANSIBLE_HOME=str(CHECKOUT / "build" / "ansible-home"),
        ANSIBLE_SSH_CONTROL_PATH_DIR=sockets,
    )


def _count_tests(log: str) -> tuple[int, int, list[str]]:
    """(passed, failed, the lines of skipped ones) of a log of pytest."""
    summary = "".join(SUMMARY.findall(log)[-1:])
    count = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", summary)}
    skipped = [line for line in log.splitlines() if line.startswith("SKIPPED [")]
    return count.get("passed", 0), count.get("failed", 0) + count.get("error", 0), skipped


def run(gate: Gate, environment: dict[str, str]) -> Outcome:
    """Run one gate to its end."""
    reason = gate.blocked()
    if reason:
        return Outcome(gate, 0.0, 0, 0, [f"{gate.name}: {reason}"])
    _print("begin", gate.name)
    more = {"EXAMPLES": gate.examples} if gate.examples else {}
    start = time.monotonic()
    with ON_LAB if gate.on_lab else nullcontext(), (LOGS / f"{gate.name}.log").open("w") as output:
        status = subprocess.run(
            gate.command(),
            cwd=CHECKOUT,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode
    seconds = time.monotonic() - start
    if gate.is_pytest:
        passed, failed, skipped = _count_tests(_log(gate.name))
        return Outcome(gate, seconds, passed, failed or int(status != 0), skipped)
    return Outcome(gate, seconds, int(status == 0), int(status != 0), [])


def names(outcome: Outcome) -> list[str]:
    """What failed in a gate, for the last lines: who reads a cut report sees at least these."""
    lines = _log(outcome.gate.name).splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))] or lines[-1:]
    return [f"{outcome.gate.name}: {line}" for line in failures[:MAX_NAMED]] if outcome.failed else []


def select(words: list[str]) -> list[Gate]:
    """The gates of levels and the named ones."""
    levels = {level for word in words for level in LEVELS.get(word, ())}
    return [gate for gate in GATES if gate.name in words or gate.level in levels]


def run_all(gates: list[Gate], environment: dict[str, str]) -> list[Outcome]:
    """Run the gates on the lab one after another and, beside them, the others; what failed is printed as it ends."""
    outcomes = []
    with ThreadPoolExecutor(2) as pool:
        in_order = sorted(gates, key=lambda gate: not gate.on_lab)
        running = {pool.submit(run, gate, environment): gate for gate in in_order}
        while running:
            ended, _others = wait(running, PROGRESS_SECONDS, FIRST_COMPLETED)
            for one in ended:
                outcome = one.result()
                outcomes.append(outcome)
                verdict = "FAILED" if outcome.failed else "skipped" if not outcome.passed else "ok"
                _print(verdict, f"{running.pop(one).name:22}{outcome.passed:5} passed{outcome.seconds:8.1f} s")
                tail = _log(outcome.gate.name).splitlines()[-LOG_TAIL_LINES:]
                for line in [*names(outcome), *tail] if outcome.failed else ():
                    print(f"    | {line}")
            if not ended:
                shown = [f"{gate.name} {progress(gate.name)}" for one, gate in running.items() if one.running()]
                _print("running", ", ".join(shown))
    return outcomes


def _print(word: str, text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - STARTED), 60)
    # One text, since two workers print.
    print(f"{minutes:3}:{seconds:02} {word:8}{text}\n", end="", flush=True)


def prepare(gates: list[Gate]) -> None:
    """Build the stand-ins of NVML and IMEX into the cache, and install node and the lab's programs for gates on it."""
    if not os.geteuid() and any(gate.blocked is _not_root for gate in gates):
        print("prepare: the lab's programs", flush=True)
        ensure_tools({"node": "nodejs"})
        imex.packages()
    if not _no_compiler():
        nvml.library()


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the gates of a level, or the named ones.")
    parser.add_argument("words", nargs="+", choices=[*LEVELS, *(gate.name for gate in GATES)], metavar="LEVEL|NAME")
    gates = select(parser.parse_args().words)
    LOGS.mkdir(parents=True, exist_ok=True)
    prepare(gates)
    with tempfile.TemporaryDirectory(prefix="nvlink-cp-") as sockets:
        outcomes = run_all(gates, _environment(sockets))
    print(f"{(time.monotonic() - STARTED) / 60:.1f} minutes")
    skipped = [line for outcome in outcomes for line in outcome.skipped]
    failed = sum(outcome.failed for outcome in outcomes)
    if skipped and os.environ.get("CI") == "true":
        print("With CI=true nothing may be skipped, so each of these counts as failed:")
        failed += sum(NOT_OURS not in line for line in skipped)
    failures = [line for outcome in outcomes for line in names(outcome)]
    for line in [*(f"skipped: {line}" for line in skipped), *failures]:
        print(line)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
