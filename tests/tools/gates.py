# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the gates of one level, show how far they are and count what passed.

`gates.py LEVEL` runs those of a level (unit, check, test, all), `gates.py NAME...` the named ones. `check` includes
unit and `test` includes check; `all` is what `test` leaves out. Every gate writes its own log under build/gates; the
end of a failed one is printed. A gate that this machine cannot run is named on the last lines; with CI=true it counts
as failed, and so does a test that was skipped.

The stories run in three workers, since they wait for daemons much of their time; beside them the other gates run one
after another at a lower priority. A test that fails is red: nothing is tried twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import imex, nvml  # noqa: E402  (the lab is found through the path above)
from nvlab.tools import ensure_tools  # noqa: E402

LOGS = CHECKOUT / "build" / "gates"
BIN = CHECKOUT / ".venv" / "bin"
LOG_TAIL_LINES = 120
MAX_ERRORS, MAX_ERROR_LENGTH = 20, 500
# As Ansible prints it, and as pytest quotes that.
ERROR = r"^(?:E?\s+)?((?:\[ERROR\]: |fatal: \[).*)"
MAX_NAMED, MAX_NAME_LENGTH = 10, 600
PROGRESS_SECONDS = 20
# Of pytest -v: how far it is, and the line that it ends with.
PERCENT = re.compile(r"\[ *(\d+%)\]")
SUMMARY = re.compile(r"(?m)^=+ (.* in \d[\d.]*s.*) =+$")
# Examples of each property in test-all; tests/conftest.py has the number for `make test`.
MORE_EXAMPLES = "50"
LINT_DOCS = "antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=self ."
PYTHON_FLOOR = "vermin --quiet --no-tips --violations -t=3.9- --eval-annotations plugins/modules plugins/module_utils"
STORIES = "-n 3 --dist loadfile --no-loadscope-reorder tests/integration tests/soak"
# As an importer of the artifact runs it, which has neither of the two folders.
NOT_IN_ARTIFACT = "--exclude tests/ --exclude molecule/"
LEVELS = {"unit": ("unit",), "check": ("unit", "check"), "test": ("unit", "check", "test"), "all": ("all",)}
# The reason of a test that compares ours with others' published files, which a user of the collection does not have.
NOT_OURS = "next to the checkout"


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
    Gate("ansible-lint", "check", "ansible-lint --offline -q"),
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
    Gate("faults", "all", "python tests/tools/faults.py --ten HEAD --jobs 2", blocked=_not_root),
    Gate("cores", "all", "python tests/tools/cores.py"),
    Gate("ansible-test-sanity", "all", f"python tests/tools/run_ansible_test.py sanity {NOT_IN_ARTIFACT}"),
    Gate("ansible-test-units", "all", "python tests/tools/run_ansible_test.py units tests/unit/plugins/modules/"),
]


@dataclass
class Outcome:
    gate: Gate
    seconds: float
    passed: int
    failed: int
    skipped: list[str]


class Console:
    """Lines about the gates: when one begins or ends, and every 20 s how far the running ones are."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._started = time.monotonic()

    def begin(self, gate: Gate) -> None:
        with self._lock:
            self._running[gate.name] = time.monotonic()
            self._print("begin", gate.name)

    def end(self, outcome: Outcome) -> None:
        with self._lock:
            self._running.pop(outcome.gate.name, None)
            verdict = "FAILED" if outcome.failed else "skipped" if not outcome.passed else "ok"
            self._print(verdict, f"{outcome.gate.name:22}{outcome.passed:5} passed{outcome.seconds:8.1f} s")
            if outcome.failed:
                lines = _log(outcome.gate.name).splitlines()
                # Ansible's own errors are far above the end of a long play's output.
                errors = [line[:MAX_ERROR_LENGTH] for line in lines if re.match(ERROR, line)]
                errors = [*_failures(lines), *list(dict.fromkeys(errors))[-MAX_ERRORS:]]
                print("\n".join(f"    | {line}" for line in [*errors, *lines[-LOG_TAIL_LINES:]]), flush=True)

    def __enter__(self) -> Console:
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._over.wait(PROGRESS_SECONDS):
            with self._lock:
                now = time.monotonic()
                rows = [f"{name} {progress(name) or f'{now - begun:.0f} s'}" for name, begun in self._running.items()]
                self._print("running", ", ".join(rows))

    def _print(self, word: str, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        print(f"{minutes:3}:{seconds:02} {word:8}{text}", flush=True)


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
    more = {"EXAMPLES": gate.examples} if gate.examples else {}
    start = time.monotonic()
    with (LOGS / f"{gate.name}.log").open("w") as output:
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


def _failures(lines: Sequence[str]) -> list[str]:
    """The lines of pytest's summary that name a failed test."""
    return [line for line in lines if line.startswith(("FAILED ", "ERROR "))]


def names(outcome: Outcome) -> list[str]:
    """What failed in a gate, for the last lines: who reads a cut report sees at least these."""
    if not outcome.failed:
        return []
    lines = _log(outcome.gate.name).splitlines()
    shown = [line[:MAX_NAME_LENGTH] for line in dict.fromkeys(_failures(lines) or lines[-1:])]
    more = [f"and {len(shown) - MAX_NAMED} more"] if len(shown) > MAX_NAMED else []
    return [f"{outcome.gate.name}: {line}" for line in [*shown[:MAX_NAMED], *more]]


def select(words: list[str]) -> list[Gate]:
    if len(words) == 1 and words[0] in LEVELS and words[0] != "unit":
        return [gate for gate in GATES if gate.level in LEVELS[words[0]]]
    known = {gate.name: gate for gate in GATES}
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        sys.exit(
            f"gates: {' '.join(unknown) or 'no gate'} is not a gate; "
            f"use {', '.join(LEVELS)} or some of: {' '.join(known)}."
        )
    return [known[word] for word in words]


def run_all(gates: list[Gate], environment: dict[str, str], console: Console) -> list[Outcome]:
    """Run the gates on the lab one after another and, beside them, the others; the outcomes as they end.

    When the lab's gates are done, both workers take the others.
    """
    on_lab = deque(gate for gate in gates if gate.on_lab)
    others = deque(gate for gate in gates if not gate.on_lab)
    outcomes: list[Outcome] = []

    def work(queues: Sequence[deque[Gate]]) -> None:
        for queue in queues:
            while True:
                try:
                    gate = queue.popleft()
                except IndexError:
                    break
                console.begin(gate)
                outcome = run(gate, environment)
                outcomes.append(outcome)
                console.end(outcome)

    workers = [threading.Thread(target=work, args=(queues,)) for queues in ((on_lab, others), (others,))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return outcomes


def prepare(gates: list[Gate]) -> None:
    """Build the stand-ins of NVML and IMEX into the cache, and install node and the lab's programs for gates on it."""
    if not os.geteuid() and any(gate.blocked is _not_root for gate in gates):
        print("prepare: the lab's programs", flush=True)
        ensure_tools({"node": "nodejs"})
        imex.packages()
    if not _no_compiler():
        nvml.library()


def main() -> int:
    gates = select(sys.argv[1:])
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    prepare(gates)
    with tempfile.TemporaryDirectory(prefix="nvlink-cp-") as sockets, Console() as console:
        outcomes = run_all(gates, _environment(sockets), console)
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
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
