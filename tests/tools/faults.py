# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seed faults into copies of the product, one at a time, and report which test catches each.

`faults.py` tries all of FAULTS, `faults.py NAME ...` the named ones, and `faults.py --chosen COMMIT` the six that the
hash of a commit chooses. A fault is a mistake that a maintainer could make, chosen by reading the product alone: one
that nothing catches shows a missing test. Where a change moves the text of a fault, move its row along.

Each fault gets a copy of the checkout, in which steps() run until one is red: a failed test, or a static gate. A step
that does not end in time, or is red without a name of a test, is an error of this run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from run_ansible_test import CHECKOUT, copy_checkout

BIN = Path(sys.executable).parent
COLLECTION = Path("ansible_collections") / "rackscale" / "nvlink"
UNIT, STORIES = "tests/unit/plugins", "tests/integration"
# Tests of the tests' own programs; among them is one that each fault fails, since it compares FAULTS with the product.
NOT_OF_THE_PRODUCT = ("tests/unit/tools", "tests/unit/lab")
STEP_SECONDS = 1800.0
TIMED_OUT = 124
CHOSEN = 6
# Prints where the collection is imported from.
PROOF = "import ansible_collections.rackscale.nvlink.plugins.module_utils.errors as it; print(it.__file__)"


class Fault(NamedTuple):
    """`old` stands once in the file of the product, and `new` is the mistake in its place."""

    name: str
    room: str
    file: str
    old: str
    new: str


# A part of the product: folders below UNIT with its unit tests, and files in STORIES.
Room = tuple[tuple[str, ...], tuple[str, ...]]

# fmt: off
ROOMS: dict[str, Room] = {
    "slurm": (("module_utils/slurm", "plugin_utils/slurm"), ("test_slurm_*.py", "test_rehearsal.py")),
    "imex": (("module_utils/imex", "plugin_utils/imex"), ("test_imex_*.py",)),
    "kubernetes": (("plugin_utils/kubernetes", "plugin_utils/dra"),
                   ("test_k8s_*.py", "test_kubernetes_*.py", "test_dra_*.py")),
    "fabric": (("plugin_utils/fabric",), ("test_discover*.py", "test_day_two*.py", "test_fabric_role.py")),
    "gpu": (("module_utils/gpu", "modules"), ("test_discover.py", "test_verify_trays.py")),
    "guard": (("plugin_utils/guard", "plugin_utils/run"), ("test_mistakes.py", "test_secrets.py", "test_hostile*.py")),
    "capture": (("plugin_utils/capture", "plugin_utils/doctor"), ("test_capture.py", "test_doctor.py")),
    "verify": (("plugin_utils/verify", "plugin_utils/render"),
               ("test_verify*.py", "test_report*.py", "test_monitoring.py")),
    "rest": (("inventory", "plugin_utils/sources", "plugin_utils/clients", "plugin_utils/rollout"),
             ("test_inventory.py", "test_source_*.py", "test_rollout*.py", "test_proof.py")),
}

FAULTS = (
    # A rule of Slurm before 25.11 applied to all releases up to 26.05.
    Fault("segment_limit_of_24_11", "slurm", "plugins/module_utils/slurm/rules.py",
          "return base if version < (25, 11, 0)", "return base if version < (26, 11, 0)"),
    Fault("qos_limit_under_another_key", "slurm", "plugins/plugin_utils/slurm/accounting.py",
          '"max_tres_per_user", "MaxTRESPerUser"', '"max_tres_per_user", "MaxTRESPerAccount"'),
    # The old files are restored, and slurmctld does not read them.
    Fault("restore_without_reload", "slurm", "plugins/module_utils/slurm/transaction.py",
          "                    self.slurm.reconfigure()\n", ""),
    Fault("moving_jobs_unchecked", "slurm", "plugins/plugin_utils/slurm/planning.py",
          "if not moving or plan.observed.acting:", "if not moving or not plan.observed.acting:"),
    # A StateSaveLocation without the ID, as that of a share that is not mounted, passes for the shared one.
    Fault("state_id_absent", "slurm", "roles/slurm/tasks/shared.yml",
          "_slurm_state_here.content | default('')", "_slurm_state_here.content | default(_slurm_first_id)"),
    Fault("dbd_password_in_diff", "slurm", "roles/slurm/tasks/database.yml",
          "  diff: false\n", ""),
    Fault("node_list_without_last_newline", "imex", "plugins/module_utils/imex/formats.py",
          r'return "".join(f"{entry}\n" for entry in entries)', r'return "\n".join(entries)'),
    # Others of the clique restart, and this tray's daemon keeps running.
    Fault("member_not_stopped", "imex", "plugins/module_utils/imex/tray.py",
          "stop or bool(restart_clique or restart)", "bool(restart_clique or restart)"),
    Fault("half_is_a_majority", "imex", "plugins/module_utils/imex/boot.py",
          "(len(agreeing) + 1) * 2 > members", "(len(agreeing) + 1) * 2 >= members"),
    Fault("epilog_of_another_job", "imex", "plugins/module_utils/imex/prolog/main.py",
          'started is not None and started.get("job") == job.id', "started is not None"),
    # Under expedite, Slurm takes each failed epilog for broken hardware.
    Fault("epilog_that_fails_for_its_own_bug", "imex", "plugins/module_utils/imex/prolog/main.py",
          'int(entry == "prolog" or isinstance(failure, DaemonLeft))', "1"),
    Fault("waiting_tray_drains_itself", "imex", "plugins/module_utils/imex/prolog/failure.py",
          "if replace and failure.fault == TRAY:", "if replace and failure.fault != JOB:"),
    Fault("label_against_the_gpus", "kubernetes", "plugins/plugin_utils/kubernetes/labels.py",
          "if node in existing and gpus.get(node, clique.text) == clique.text", "if node in existing"),
    Fault("dry_run_that_writes", "kubernetes", "plugins/plugin_utils/kubernetes/topology.py",
          "apply(dry_run=True)", "apply()"),
    # With the fields of the server an object always differs.
    Fault("unchanged_object_written", "kubernetes", "plugins/plugin_utils/kubernetes/topology.py",
          "if after != before:", "if after != existing:"),
    # The status of a node whose kubelet is gone is Unknown.
    Fault("lost_node_is_ready", "kubernetes", "plugins/plugin_utils/dra/domains.py",
          'row.get("status") != "True"', 'row.get("status") == "False"'),
    Fault("reserved_position_reused", "fabric", "plugins/plugin_utils/fabric/placement.py",
          "max((*positions, *at, *(", "max((*positions, *("),
    Fault("blocks_in_order_of_names", "fabric", "plugins/plugin_utils/fabric/model.py",
          "[*own, *reserved], key=lambda view: view.position", "[*own, *reserved], key=lambda view: view.name"),
    # A clique ID alone, without its cluster UUID.
    Fault("clique_id_of_another_domain", "fabric", "plugins/plugin_utils/fabric/identity.py",
          "identity[0] == identities[name][0]\n        and (len(", "(len("),
    Fault("placed_by_hand_is_present", "fabric", "plugins/plugin_utils/fabric/placement.py",
          '{**tray, "state": STALE}', '{**tray, "state": PRESENT}'),
    Fault("gate_that_never_objects", "fabric", "plugins/plugin_utils/fabric/gates.py",
          "known = {serial for domain in step.previous", "known = {serial for domain in step.fabric"),
    Fault("zero_uuid_is_real", "gpu", "plugins/module_utils/gpu/readings.py",
          "None if text is None or text == ZERO_UUID else", "None if text is None else"),
    Fault("tray_with_missing_gpus_attached", "gpu", "plugins/module_utils/gpu/facts.py",
          "whole = complete and len(probed)", "whole = len(probed)"),
    Fault("clique_of_another_operation", "gpu", "plugins/module_utils/gpu/nvml.py",
          "for kind, clique_id in cliques if kind == TYPE_UNICAST_POINTER", "for _kind, clique_id in cliques"),
    Fault("fatal_xid_forgotten", "gpu", "plugins/module_utils/gpu/kernel_log.py",
          '"fatal": _FATAL.search(text) is not None', '"fatal": False'),
    Fault("schema_with_more_keys", "guard", "plugins/plugin_utils/guard/schemas.py",
          '"additionalProperties": False', '"additionalProperties": True'),
    Fault("unknown_variable_accepted", "guard", "plugins/plugin_utils/run/site_variables.py",
          "close or word.startswith(OWN_PREFIXES)", "close or word in OWN_PREFIXES"),
    Fault("secret_value_shown", "guard", "plugins/plugin_utils/run/site_variables.py",
          'spec.get("no_log") or _SECRET.search(place)', 'spec.get("no_log")'),
    Fault("control_characters_pass", "guard", "plugins/plugin_utils/wording.py",
          "one_line(message[:1000])", "message[:1000]"),
    Fault("secret_setting_kept", "capture", "plugins/plugin_utils/capture/answers.py",
          'for row in settings if row[1] in KEPT_SETTINGS)', 'for row in settings)'),
    # A process may have this markup in its name.
    Fault("end_of_process_name", "capture", "plugins/module_utils/gpu/nvidia_smi.py",
          'part.rpartition("</process_name>")', 'part.partition("</process_name>")'),
    Fault("identifier_left_in_bundle", "capture", "plugins/plugin_utils/capture/answers.py",
          "_ELEMENTS.get(tag[2], Substitutes.masked)", "_ELEMENTS.get(tag[2], Substitutes.plain)"),
    Fault("blocked_port_passes", "capture", "plugins/module_utils/inspection.py",
          "    except (OSError, UnicodeError) as error:", "    except UnicodeError as error:"),
    # A failure of several trays is dropped where one of them has a cause.
    Fault("failure_dropped", "verify", "plugins/plugin_utils/verify/correlation.py",
          "if not found or not all(found):", "if not found or not any(found):"),
    Fault("mildest_severity_kept", "verify", "plugins/plugin_utils/verify/correlation.py",
          'min(root["severity"], row["severity"]', 'max(root["severity"], row["severity"]'),
    Fault("first_count_is_growth", "verify", "plugins/plugin_utils/verify/links_check.py",
          "if before is not None and number > old:", "if number > old:"),
    Fault("unchecked_layer_is_ok", "verify", "plugins/plugin_utils/render/verdict.py",
          'return self.checked and not self.failures.get("error")', 'return not self.failures.get("error")'),
    Fault("redirect_keeps_credentials", "rest", "plugins/plugin_utils/clients/http.py",
          '"redirect": False, "retries": False', '"redirect": True, "retries": 3'),
    Fault("deadline_never_ends", "rest", "plugins/plugin_utils/clients/http.py",
          "min(time.monotonic() + config.timeout, self._ends)", "time.monotonic() + config.timeout"),
    Fault("link_followed", "rest", "plugins/module_utils/host.py",
          "uid_and_gid, follow=False)", "uid_and_gid)"),
    # A text that begins harmlessly, and holds a template.
    Fault("template_trusted", "rest", "plugins/inventory/fabric.py",
          "if _PLAIN.fullmatch(text) else text", "if _PLAIN.match(text) else text"),
    Fault("drain_ignores_jobs", "rest", "roles/rollout/tasks/drain.yml",
          "that: rollout_jobs | length == 0", "that: rollout_jobs is defined"),
)
# fmt: on


def problem(fault: Fault, root: Path) -> str:
    """Why a row does not fit to the product, as a sentence; empty if it does."""
    file = root / fault.file
    number = file.read_text().count(fault.old) if file.is_file() else 0
    if number != 1:
        return f"{fault.file}: has the text of fault {fault.name} {number} times, not once; move its row along."
    return ""


def chosen(commit: str) -> list[Fault]:
    """The faults of a commit: others for another one, the same in every run."""
    command = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return random.Random(found).sample(FAULTS, CHOSEN)


def steps(fault: Fault) -> Iterator[tuple[str, list[str]]]:
    """Name and command of what a fault has to pass to stay unseen, the most likely test first."""
    folders, globs = ROOMS[fault.room]
    own = [f"{UNIT}/{folder}" for folder in folders]
    others = [f"--ignore={folder}" for folder in (*NOT_OF_THE_PRODUCT, *own)]
    yield "unit tests of the room", _pytest("not lab and not long", *own)
    yield "other unit tests", _pytest("not lab and not long", "tests/unit", *others)
    if fault.file.endswith(".py"):
        yield "ruff", [str(BIN / "ruff"), "check", "--no-cache", "--quiet", fault.file]
        yield "mypy", [sys.executable, "tests/tools/check_types.py"]
    else:
        yield "ansible-lint", [str(BIN / "ansible-lint"), "--offline", "-q", fault.file]
    of_role = f"{STORIES}/test_{Path(fault.file).parts[1]}_role.py"
    if fault.file.startswith("roles/") and (CHECKOUT / of_role).exists():
        # A story of a whole role may be a long one.
        yield "story of the role", _pytest("lab", of_role)
        return
    files = sorted({f"{STORIES}/{file.name}" for glob in globs for file in (CHECKOUT / STORIES).glob(glob)})
    yield "stories of the room", _pytest("not long", *files)


def _pytest(marks: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", marks, *words]


def run(root: Path, command: Sequence[str]) -> tuple[int, str]:
    """The exit status and the output of a command in the copy, which it imports as `ansible_collections`."""
    site = next((BIN.parent / "lib").glob("python3*")) / "site-packages"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "ANSIBLE_COLLECTIONS_PATH": f"{root}{os.pathsep}{site}",
        "ANSIBLE_HOME": str(root / "ansible-home"),
        "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_LOCALHOST_WARNING": "false",
    }
    done = subprocess.run(
        ["timeout", "--kill-after=10", f"{STEP_SECONDS:g}", *command],
        cwd=root / COLLECTION,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


def attempt(fault: Fault) -> bool:
    """Whether something catches a fault; prints what."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nvlink-faults-") as folder:
        root = Path(folder)
        copy_checkout(root / COLLECTION)
        _status, output = run(root, [sys.executable, "-c", PROOF])
        if not output.startswith(str(root)):
            raise RuntimeError(f"faults: the collection is imported from {output.strip()}, not from {root}.")
        file = root / COLLECTION / fault.file
        text = file.read_text()
        for step in steps(fault):
            name, command = step
            file.write_text(text.replace(fault.old, fault.new))
            status, output = run(root, command)
            if status:
                break
    found = first_failure(output) if "pytest" in command else name
    caught = found if status and status != TIMED_OUT else ""
    what = caught or (f"ERROR: {name} ended with {status}: {output[-200:].strip()}" if status else "NOT CAUGHT")
    print(f"{fault.name:32}{fault.room:12}{time.monotonic() - began:6.0f} s  {what}\n", end="", flush=True)
    return bool(caught)


def first_failure(output: str) -> str:
    """The first test that pytest's summary names, empty where it names none."""
    found = re.search(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output)
    return found.group(1) if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Seed faults into the product; each has to be caught by a test.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the faults to try; all without one")
    parser.add_argument("--chosen", metavar="COMMIT", help="only the six that the hash of a commit chooses")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults to try at a time")
    options = parser.parse_args()
    known = {fault.name: fault for fault in FAULTS}
    faults = chosen(options.chosen) if options.chosen else [known[name] for name in options.names] or list(FAULTS)
    wrong = list(filter(None, (problem(fault, CHECKOUT) for fault in faults)))
    if wrong:
        sys.exit("\n".join(wrong))
    with ThreadPoolExecutor(options.jobs) as pool:
        caught = [*pool.map(attempt, faults)]
    print(f"{caught.count(True)} passed, {caught.count(False)} failed")
    return int(not all(caught))


if __name__ == "__main__":
    sys.exit(main())
