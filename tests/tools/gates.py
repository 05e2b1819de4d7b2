# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the collection's gates concurrently and count what passed.

`gates.py check` runs the quick gates, `gates.py test` all that CI runs, `gates.py all` the long ones too, and
`gates.py NAME...` the named ones. Every gate writes its own log under build/gates; the end of a failed one is printed.
A gate that this machine cannot run is named on the last lines; with CI=true it counts as failed.

What several gates need is built before the first of them starts, in this environment: another one may lack its sources.
Two workers run the gates on the lab. Those wait for daemons much of their time, so a third worker runs the other gates
at a lower priority; what is left of them when the lab gates are done is shared by all workers.

Lab tests that fail are run once more when all gates are done, if the whole run has at most MAX_SECOND_TRIES of them:
real daemons on a busy machine do miss a deadline. A test that passes then is printed as flaky with its first failure,
and its cause has to be found. A step of a story is repeated with the steps before it (second_try.py).
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

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
MAX_NAMED, MAX_NAME_LENGTH = 10, 200
MAX_SECOND_TRIES = 3


def _not_root() -> str | None:
    return "it needs root for the lab's containers" if os.geteuid() else None


def _no_compiler() -> str | None:
    return None if shutil.which("gcc") else "it needs a C compiler for the NVML stand-in (Debian: gcc, libc6-dev)"


@dataclass(frozen=True)
class Gate:
    """One command that must exit 0; `level` is the smallest target that runs it."""

    name: str
    level: str
    command: list[str]
    is_pytest: bool = False
    on_lab: bool = False
    blocked: Callable[[], str | None] = field(default=lambda: None)


def _tool(line: str) -> list[str]:
    """A command of the environment, written as one would type it."""
    name, *arguments = line.split()
    return [str(BIN / name), *arguments]


def _pytest(folder: str, marks: str = "") -> list[str]:
    return [*_tool(f"python -m pytest -q {folder}"), *(["-m", marks] if marks else [])]


def _lab(name: str, level: str, marks: str, only: tuple[str, ...] = ("test_*.py",), but: tuple[str, ...] = ()) -> Gate:
    """The tests on real daemons that have these marks, of the files with these names."""
    files = sorted(
        str(file.relative_to(CHECKOUT))
        for folder in ("integration", "soak")
        for file in (CHECKOUT / "tests" / folder).iterdir()
        if any(map(file.match, only)) and not any(map(file.match, but))
    )
    return Gate(name, level, _pytest(" ".join(files), marks), is_pytest=True, on_lab=True, blocked=_not_root)


LINT_DOCS = "antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=self ."
PYTHON_FLOOR = "vermin --quiet --no-tips --violations -t=3.9- --eval-annotations plugins/modules plugins/module_utils"

ON_HOSTS = "tests/unit/plugins/module_utils/ tests/unit/plugins/modules/"
ON_LAB = "lab and not kubernetes and not two_racks and not minutes"
SLURM = ("test_slurm_*.py", "test_rehearsal.py")
IMEX = ("test_imex_*.py",)

# The long ones first, so that the short ones fill the gaps on the other core.
GATES = [
    _lab("lab-slurm", "test", ON_LAB, only=SLURM),
    _lab("lab-imex", "test", ON_LAB, only=IMEX),
    _lab("lab", "test", ON_LAB, but=SLURM + IMEX),
    # Builds the control plane's programs when they are not cached: six minutes on one core, at low priority.
    _lab("kubernetes", "test", "kubernetes and not two_racks and not minutes"),
    Gate("molecule", "test", _tool("python tests/tools/molecule_scenarios.py"), on_lab=True, blocked=_not_root),
    Gate("cores", "test", _tool("python tests/tools/cores.py"), blocked=_not_root),
    Gate(
        "integration", "test", _pytest("tests/integration", "not lab and not two_racks and not minutes"), is_pytest=True
    ),
    Gate("fuzz", "test", _pytest("tests/fuzz"), is_pytest=True),
    Gate("artifact", "test", _tool("python tests/tools/artifact.py")),
    # What runs on hosts, each test in a process of its own; the gate unit runs all tests in one.
    Gate(
        "ansible-test-units",
        "test",
        _tool(f"python tests/tools/run_ansible_test.py units {ON_HOSTS}"),
        blocked=_no_compiler,
    ),
    Gate("ansible-test-sanity", "check", _tool("python tests/tools/run_ansible_test.py sanity")),
    Gate(
        "unit",
        "check",
        _pytest("-n 3 --dist worksteal tests/unit tests/soak", "not lab"),
        is_pytest=True,
        blocked=_no_compiler,
    ),
    Gate("ansible-lint", "check", _tool("ansible-lint --offline -q")),
    Gate("docs", "check", _tool(LINT_DOCS)),
    Gate("docs-site", "check", _tool("python tests/tools/docs_site.py")),
    Gate("changelog", "check", _tool("antsibull-changelog lint")),
    Gate("layers", "check", _tool("lint-imports --no-cache --no-logo")),
    Gate("mypy", "check", _tool("python tests/tools/check_types.py")),
    Gate("yamllint", "check", _tool("yamllint --strict .")),
    Gate("licences", "check", _tool("reuse lint --quiet")),
    Gate("python-floor", "check", _tool(PYTHON_FLOOR)),
    Gate("ruff", "check", _tool("ruff check --quiet .")),
    Gate("ruff-format", "check", _tool("ruff format --check --quiet .")),
    Gate(
        "molecule-sequences",
        "all",
        _tool("python tests/tools/molecule_scenarios.py --all"),
        on_lab=True,
        blocked=_not_root,
    ),
    Gate("cores-all", "all", _tool("python tests/tools/cores.py --all"), blocked=_not_root),
    _lab("two-racks", "all", "two_racks"),
    _lab("minutes", "all", "minutes and not two_racks"),
]
# The reason of a test that compares ours with others' published files, which a user of the collection does not have.
NOT_OURS = "next to the checkout"
LEVELS = {"check": {"check"}, "test": {"check", "test"}, "all": {"check", "test", "all"}}


@dataclass
class Outcome:
    gate: Gate
    seconds: float
    passed: int
    failed: int
    skipped: list[str]


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


def _count_tests(report: Path) -> tuple[int, int, list[str]]:
    """(passed, failed, skips as "test: reason") of a JUnit report."""
    passed, failed, skipped = 0, 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if skip is not None:
            skipped.append(f"{case.get('name')}: {skip.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return passed, failed, skipped


def run(gate: Gate, environment: dict[str, str], *more: str) -> Outcome:
    """Run one gate to its end, with more arguments than its own."""
    reason = gate.blocked()
    if reason:
        return Outcome(gate, 0.0, 0, 0, [f"{gate.name}: {reason}"])
    log, report = LOGS / f"{gate.name}.log", LOGS / f"{gate.name}.xml"
    report.unlink(missing_ok=True)
    command = [*(() if gate.on_lab else ("nice", "-n", "5")), *gate.command, *more]
    if gate.is_pytest:
        command += [f"--junitxml={report}", "-o", f"cache_dir={LOGS / gate.name}.cache"]
    start = time.monotonic()
    with log.open("a" if more else "w") as output:
        status = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode
    seconds = time.monotonic() - start
    if gate.is_pytest and report.exists():
        passed, failed, skipped = _count_tests(report)
        return Outcome(gate, seconds, passed, failed or int(status != 0), skipped)
    return Outcome(gate, seconds, int(status == 0), int(status != 0), [])


def show(outcome: Outcome) -> None:
    verdict = "FAILED" if outcome.failed else "skipped" if not outcome.passed else "ok"
    print(f"{verdict:8}{outcome.gate.name:22}{outcome.passed:5} passed{outcome.seconds:8.1f} s", flush=True)
    if outcome.failed:
        lines, named = _log(outcome.gate)
        # Ansible's own errors are far above the end of a long play's output.
        errors = [line[:MAX_ERROR_LENGTH] for line in lines if re.match(ERROR, line)]
        named += list(dict.fromkeys(errors))[-MAX_ERRORS:]
        print("\n".join(f"    | {line}" for line in [*named, *lines[-LOG_TAIL_LINES:]]), flush=True)


def _log(gate: Gate) -> tuple[list[str], list[str]]:
    """The lines of a gate's log, and those of them that name a failed test."""
    lines = (LOGS / f"{gate.name}.log").read_text(errors="replace").splitlines()
    return lines, [line for line in lines if line.startswith(("FAILED ", "ERROR "))]


def names(outcome: Outcome) -> list[str]:
    """What failed in a gate, for the last lines: who reads a cut report sees at least these."""
    if not outcome.failed:
        return []
    lines, named = _log(outcome.gate)
    shown = [line[:MAX_NAME_LENGTH] for line in dict.fromkeys(named or lines[-1:])]
    more = [f"and {len(shown) - MAX_NAMED} more"] if len(shown) > MAX_NAMED else []
    return [f"{outcome.gate.name}: {line}" for line in [*shown[:MAX_NAMED], *more]]


def second_tries(outcomes: Sequence[Outcome], environment: dict[str, str]) -> tuple[list[Outcome], list[str]]:
    """The outcomes after a second try of the lab tests that failed, and one line for each that was flaky."""
    failed = {outcome.gate.name: _failed(outcome.gate) for outcome in outcomes if _may_repeat(outcome)}
    if not 0 < sum(map(len, failed.values())) <= MAX_SECOND_TRIES:
        return list(outcomes), []
    paths = [str(Path(__file__).parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    after, flaky = [], []
    for outcome in outcomes:
        first = failed.get(outcome.gate.name)
        if not first:
            after.append(outcome)
            continue
        second = run(outcome.gate, environment, "-p", "second_try")
        passed = sorted(first.keys() - _failed(outcome.gate).keys())
        flaky += [f"flaky, {outcome.gate.name}: {name}: {first[name]}" for name in passed]
        counts = {"passed": outcome.passed + len(passed), "failed": outcome.failed - len(passed)}
        after.append(replace(outcome, seconds=outcome.seconds + second.seconds, **counts))
        show(after[-1])
    return after, flaky


def _may_repeat(outcome: Outcome) -> bool:
    return outcome.gate.on_lab and outcome.gate.is_pytest and outcome.failed > 0


def _failed(gate: Gate) -> dict[str, str]:
    """Each failed test of a gate's report with the first line of its failure."""
    report = LOGS / f"{gate.name}.xml"
    if not report.exists():
        return {}
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        if problem is not None:
            found[f"{case.get('classname')}.{case.get('name')}"] = _cause(problem.get("message") or "")
    return found


def _cause(message: str) -> str:
    """Ansible's first error in the message of a failed test, else its first line."""
    error = re.search(ERROR, message, re.MULTILINE)
    return (error.group(1) if error else message.partition("\n")[0])[:MAX_ERROR_LENGTH]


def _processors() -> tuple[float, float]:
    """(busy, total) time of all processors since the machine's start, in clock ticks."""
    spent = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(spent) - spent[3] - spent[4], sum(spent)


def select(words: list[str]) -> list[Gate]:
    if len(words) == 1 and words[0] in LEVELS:
        return [gate for gate in GATES if gate.level in LEVELS[words[0]]]
    known = {gate.name: gate for gate in GATES}
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        sys.exit(
            f"gates: {' '.join(unknown) or 'no gate'} is not a gate; "
            f"use {', '.join(LEVELS)} or some of: {' '.join(known)}."
        )
    return [known[word] for word in words]


def run_all(gates: list[Gate], environment: dict[str, str]) -> list[Outcome]:
    """Run the gates by three workers and show each when it ends; the outcomes in that order."""
    on_lab = deque(gate for gate in gates if gate.on_lab)
    others = deque(gate for gate in gates if not gate.on_lab)
    outcomes: list[Outcome] = []
    shown = threading.Lock()

    def work(*queues: deque[Gate]) -> None:
        for queue in queues:
            while True:
                try:
                    gate = queue.popleft()
                except IndexError:
                    break
                outcome = run(gate, environment)
                with shown:
                    outcomes.append(outcome)
                    show(outcome)

    workers = [(on_lab, others), (on_lab, others), *([(others,)] if on_lab else [])]
    with ThreadPoolExecutor(max_workers=len(workers)) as pool:
        for done in [pool.submit(work, *queues) for queues in workers]:
            done.result()
    return outcomes


def prepare() -> None:
    """Install the lab's programs where this is root, and build the stand-ins of NVML and IMEX into the cache."""
    if not os.geteuid():
        ensure_tools()
        imex.packages()
    if not _no_compiler():
        nvml.library()


def main() -> int:
    gates = select(sys.argv[1:])
    LOGS.mkdir(parents=True, exist_ok=True)
    started, (busy, total) = time.monotonic(), _processors()
    prepare()
    with tempfile.TemporaryDirectory(prefix="nvlink-cp-") as sockets:
        environment = _environment(sockets)
        outcomes, flaky = second_tries(run_all(gates, environment), environment)
    busy, total = (now - before for now, before in zip(_processors(), (busy, total)))
    print(f"{(time.monotonic() - started) / 60:.1f} minutes, processors busy {busy / max(total, 1):.0%} of the time")
    skipped = [line for outcome in outcomes for line in outcome.skipped]
    failed = sum(outcome.failed for outcome in outcomes)
    if skipped and os.environ.get("CI") == "true":
        print("With CI=true nothing may be skipped, so each of these counts as failed:")
        failed += sum(NOT_OURS not in line for line in skipped)
    failures = [line for outcome in outcomes for line in names(outcome)]
    for line in [*(f"skipped: {line}" for line in skipped), *flaky, *failures]:
        print(line)
    print(f"{sum(outcome.passed for outcome in outcomes)} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
