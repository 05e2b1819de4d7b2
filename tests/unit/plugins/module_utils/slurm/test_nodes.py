# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query, drain and test the nodes of a large site; which trays of a block are active and which are spares."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import clique_test, nodes, spares
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.nodes import Node
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.programs import Job, Slurm
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError, parse_records
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm import slurm_fake
from hypothesis import given
from hypothesis import strategies as st

WHY = "nvlink: resume"
NAMES = [f"r01t{number:02d}" for number in range(1, 19)]


class Programs:
    """scontrol, srun and squeue of one rack whose trays are all drained until they are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called = folder / "called"
        self.nodes()
        scontrol = f'echo "$*" >> {self.called}\ncase "$*" in *show*) cat {folder}/nodes;; esac'
        slurm_fake.programs(folder, squeue="exit 0", scontrol=scontrol)

    def nodes(self, more: str = "", reason: str = WHY, state: str = "IDLE+DRAIN") -> None:
        of = f"State={state} Reason={reason} [root@2026-11-21T15:10:00] {more}"
        (self.folder / "nodes").write_text("".join(f"NodeName={name} {of}\n" for name in NAMES))

    def slurm(self) -> Slurm:
        return Slurm(str(self.folder), 10)

    @property
    def updates(self) -> list[str]:
        return [line for line in self.called.read_text().splitlines() if not line.startswith("-a")]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_the_output_of_a_large_site_is_read_completely(programs: Programs) -> None:
    """With features, TRES and a system's name a node of GPUs takes over a kilobyte, and there are ten thousand."""
    programs.nodes("OS=" + "x" * 1024 * 1024)
    assert (programs.folder / "nodes").stat().st_size > 18 * 1024 * 1024
    assert nodes.survey(programs.slurm()).keys() == set(NAMES)


def test_trays_are_tested_concurrently_and_only_failed_ones_stay_drained(programs: Programs) -> None:
    running, counts = programs.folder / "running", programs.folder / "counts"
    running.mkdir()
    fails = 'case "$*" in *r01t03*) echo "no GPU" >&2; exit 9;; esac'
    counted = f"touch {running}/$$; sleep 0.5; ls {running} | wc -l >> {counts}; rm {running}/$$"
    slurm_fake.programs(programs.folder, srun=f"{counted}; {fails}")
    actions.begin()
    outcome = nodes.resume(programs.slurm(), NAMES, WHY, nodes.Test(("nvidia-smi", "-q"), timeout=60), check=False)
    assert outcome.failed_tests == {"r01t03": "its test nvidia-smi failed (no GPU)"}
    assert outcome.changes == [f"{name}: resumed" for name in NAMES if name not in outcome.failed_tests]
    assert max(map(int, counts.read_text().split())) > 1
    reserved, undrained, drained, gone = programs.updates
    assert "Nodes=r01t[01-18] " in reserved
    assert undrained == "update nodename=r01t[01-18] state=undrain"
    assert drained == f"update nodename=r01t03 state=drain reason={nodes.UNPROVEN}"
    assert gone.startswith("delete ReservationName=nvlink_test_")
    done = [row.partition(f"{programs.folder}/")[2] for row in actions.done()]
    assert [row.partition(" ")[0] for row in done] == ["scontrol"] * 2 + ["srun"] * len(NAMES) + ["scontrol"] * 2
    assert done[1] == f"scontrol {undrained}".replace("nodename=r01t[01-18]", "'nodename=r01t[01-18]'")
    (failed,) = (row for row in done if row.endswith("(failed, rc 9)"))
    assert "r01t03" in failed
    assert failed.endswith(" -- nvidia-smi (failed, rc 9)"), "arguments of the site's program are not listed"


@pytest.mark.parametrize(
    ("job", "where"),
    [
        (["r01t01"], ["--partition=gold"]),
        (["r01t03"], ["--partition=interactive"]),
        (["r01t03", "r01t04"], ["--partition=all"]),
        (["r01t01", "r01t03"], ["--partition=all"]),
        (["r01t04"], ["--partition=interactive"]),
        (["r02t01"], []),
    ],
    ids=["default", "tier", "too-many", "several-tiers", "down", "none"],
)
def test_a_test_runs_in_a_partition_that_has_the_trays(job: list[str], where: list[str]) -> None:
    rows = (
        "closed State=DOWN Nodes=r01t04",
        "interactive State=UP Nodes=r01t[03-04] MinNodes=1 MaxNodes=1",
        "all State=UP Nodes=r01t[01-04] MinNodes=0 MaxNodes=UNLIMITED",
        "gold State=UP Nodes=r01t[01-02] Default=YES",
    )
    records = parse_records("".join(f"PartitionName={row}\n" for row in rows))
    assert nodes.partition_words(list(records), [job]) == [where]


@pytest.mark.parametrize("reason", ["nvlink: dead", "nvlink: dead : drained by op@2026-11-20T09:00:00, test failed"])
def test_a_failed_test_keeps_who_drained_a_tray_when_and_why(programs: Programs, reason: str) -> None:
    programs.nodes(reason=reason)
    slurm_fake.programs(programs.folder, srun="exit 9")
    resume = functools.partial(nodes.resume, programs.slurm(), NAMES[:1], WHY)
    assert resume(nodes.Test(), check=True).drained_by_others == {"r01t01": reason}
    assert resume(nodes.Test(("true",)), check=False, any_reason=NAMES[:1]).failed_tests.keys() == {"r01t01"}
    when = "op@2026-11-20T09:00:00" if "by" in reason else "root@2026-11-21T15:10:00"
    kept = f"nvlink: dead : drained by {when}, test failed"
    assert programs.updates[-2] == f"update nodename=r01t01 state=drain reason={kept}"
    programs.nodes(reason=kept)
    assert resume(nodes.Test(), check=True, any_reason=NAMES[:1]).changes == ["r01t01: resumed"]
    assert resume(nodes.Test(), check=True, any_reason=NAMES[1:]).drained_by_others == {"r01t01": kept}
    programs.nodes(reason="broken fan")
    assert resume(nodes.Test(), check=True, any_reason=NAMES[:1]).drained_by_others == {"r01t01": "broken fan"}


def test_a_tray_whose_test_hangs_stays_drained(programs: Programs) -> None:
    slurm_fake.programs(programs.folder, srun="exec sleep 60")
    outcome = nodes.resume(programs.slurm(), NAMES[:2], WHY, nodes.Test(("true",), timeout=1), check=False)
    assert outcome.failed_tests == dict.fromkeys(NAMES[:2], "its test true failed (no answer in time)")
    assert outcome.changes == []


@pytest.mark.parametrize("of_test", [True, False], ids=["test", "spares"])
def test_a_reservation_for_which_slurmctld_does_not_answer_is_deleted(programs: Programs, of_test: bool) -> None:
    """slurmctld may have created it."""
    programs.nodes(state="IDLE+DRAIN" if of_test else "IDLE")
    answers = f'*"show nodes"*) cat {programs.folder}/nodes;; create*) exec sleep 60;;'
    hangs = f'echo "$*" >> {programs.called}\ncase "$*" in {answers} esac'
    slurm = slurm_fake.programs(programs.folder, 1, scontrol=hangs)
    tested = functools.partial(nodes.resume, slurm, NAMES[:2], WHY, nodes.Test(("true",)), check=False)
    kept = functools.partial(spares.keep, slurm, {"r01": NAMES}, 16, "root")
    with pytest.raises(SlurmError, match=r"^The reservation .*\(no answer in time\)"):
        (tested if of_test else kept)()
    created, gone = programs.updates[-2:]
    name = created.split()[2]
    assert (created.split()[:2], gone) == (["create", "reservation"], f"delete {name}")


class Together(Programs):
    """Two trays of the rack return; t01 and t02 are drained, t03 and t04 are idle, t05 is busy, t06 is a spare."""

    CLIQUES: ClassVar = {"r01": NAMES[:6], "r02": ["r02t01"]}

    def __init__(self, folder: Path, srun: str, others: str = "IDLE", refuses: str = "nothing") -> None:
        super().__init__(folder)
        # A reservation that is refused is tried again until then.
        self.patience = 30.0 if refuses == "nothing" else 2.0
        drained = f"IDLE+DRAIN Reason={WHY} [root@2026-11-21T15:10:00]"
        states = [drained, drained, others, others, "ALLOCATED", "IDLE+RESERVED", *["IDLE+DRAIN Reason=x"] * 12]
        rows = [f"NodeName={name} State={state}\n" for name, state in zip(NAMES, states)]
        (folder / "nodes").write_text("".join(rows))
        spare = "ReservationName=nvlink_spare_r01 Nodes=r01t06 Users=root" if others == "IDLE" else ""
        scontrol = f"""echo "$*" >> {self.called}
            case "$*" in *"show nodes"*) cat {folder}/nodes;; *"show reservation"*) echo "{spare}";;
            *{refuses}*) echo "Requested nodes are busy" >&2; exit 1;; esac"""
        called = f'echo "srun $*" >> {self.called}; {srun}'
        slurm_fake.programs(folder, scontrol=scontrol, srun=called, scancel=f'echo "scancel $*" >> {self.called}')

    def resume(self, timeout: float = 10, trays: int = 2) -> tuple[nodes.Outcome, list[str]]:
        together = functools.partial(clique_test.run, nodes.Test(("bandwidth",), "op", timeout), self.CLIQUES)
        test = nodes.Test((), timeout=timeout, together=together)
        outcome = nodes.resume(Slurm(str(self.folder), self.patience), NAMES[:trays], WHY, test, check=False)
        return outcome, [line for line in self.updates if "show" not in line]


def test_trays_that_return_are_tested_with_the_idle_trays_of_their_clique_by_one_job(tmp_path: Path) -> None:
    outcome, called = Together(tmp_path, "exit 0").resume()
    assert (outcome.failed_tests, outcome.untested) == ({}, [])
    assert outcome.changes == ["r01t01: resumed", "r01t02: resumed"]
    name = f"nvlink_test_{os.getpid()}"
    assert [line.partition(" Duration")[0] for line in called] == [
        f"create reservation ReservationName={name} Nodes=r01t[01-02] StartTime=now",
        "update nodename=r01t[01-02] state=undrain",
        f"create reservation ReservationName={name}_r01 Nodes=r01t[01-04,06] StartTime=now",
        f"srun --uid=op --nodelist=r01t[01-04,06] --reservation={name}_r01 --nodes=5 --ntasks=5"
        " --ntasks-per-node=1 --time=1 --chdir=/ -- bandwidth",
        f"scancel --reservation={name}_r01",
        f"delete ReservationName={name}_r01",
        f"delete ReservationName={name}",
    ]
    assert called[2].endswith("Users=op Flags=MAINT"), "Slurm refuses it where a job runs"


@pytest.mark.parametrize(
    ("srun", "why"), [("echo 'no multicast' >&2; exit 9", "no multicast"), ("exec sleep 60", "no answer in time")]
)
def test_a_failed_test_with_the_clique_drains_the_trays_that_return(tmp_path: Path, srun: str, why: str) -> None:
    """A hung one ends at its time limit, and its job is cancelled."""
    outcome, called = Together(tmp_path, srun).resume(timeout=1)
    reason = f"its test bandwidth with clique r01 failed ({why})"
    assert outcome.failed_tests == dict.fromkeys(NAMES[:2], reason)
    assert outcome.changes == []
    assert called[-4].startswith("scancel --reservation=nvlink_test_")
    assert called[-2] == f"update nodename=r01t[01-02] state=drain reason={nodes.UNPROVEN}"


@pytest.mark.parametrize(
    ("others", "refuses", "untested"),
    [
        # Drained, and reserved by a person, whose reservation MAINT would overlap.
        ("IDLE+DRAIN", "nothing", "no idle tray in clique r01: not tested together"),
        ("IDLE+RESERVED", "nothing", "no idle tray in clique r01: not tested together"),
        ("IDLE", "_r01", "clique r01: not tested together (Requested nodes are busy)"),
    ],
)
def test_a_clique_without_an_idle_tray_is_named_and_not_tested(
    tmp_path: Path, others: str, refuses: str, untested: str
) -> None:
    outcome, called = Together(tmp_path, "exit 9", others, refuses).resume(trays=1)
    assert (outcome.untested, outcome.failed_tests) == ([untested], {})
    assert outcome.changes == ["r01t01: resumed"]
    assert not [line for line in called if line.startswith(("srun", "scancel"))]


def test_trays_that_return_are_tested_together_where_no_other_is_idle(tmp_path: Path) -> None:
    outcome, called = Together(tmp_path, "exit 9", "ALLOCATED").resume()
    assert (outcome.untested, list(outcome.failed_tests)) == ([], NAMES[:2])
    assert "--nodelist=r01t[01-02] " in next(line for line in called if line.startswith("srun"))


def test_a_test_with_the_clique_that_cannot_run_drains_the_trays_again(tmp_path: Path) -> None:
    programs = Together(tmp_path, "exit 0")
    (tmp_path / "srun").unlink()
    with pytest.raises(SlurmError, match="There is no srun"):
        programs.resume()
    assert f"update nodename=r01t[01-02] state=drain reason={nodes.UNPROVEN}" in programs.updates


def test_a_long_wait_for_jobs_polls_soon_at_first_and_then_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll makes slurmctld list all jobs of the site, and a drain may wait for hours."""
    now, polled = 100.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Busy(Slurm):
        def scontrol(self, *_arguments: str) -> str:
            return "NodeName=r01t04 State=MIXED+DRAIN\n"

        def jobs(self) -> list[Job]:
            polled.append(now - 100)
            return [Job("17", "op", "all", ("r01t04",))]

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.sleep", sleep)
    assert nodes.drain(Busy(), ["r01t04"], WHY, 3600, check=False).running_jobs == {"r01t04": ["17"]}
    assert sum(at <= 2 for at in polled) >= 4
    assert len(polled) < 800
    assert polled[-1] == pytest.approx(3600)
    pauses = [after - before for before, after in zip(polled, polled[1:])]
    assert max(pauses) <= 5.001, "what waits for it loses little time"


@pytest.mark.parametrize("reason", ["nvlink: driver", "nvlink: driver : Not responding", "nvlink: test failed : gone"])
def test_a_reason_that_slurmctld_has_extended_is_still_ours(programs: Programs, reason: str) -> None:
    """As 24.11.5 extends it."""
    programs.nodes(reason=reason)
    own = reason.partition(" : ")[0]
    assert nodes.drain(programs.slurm(), NAMES, own, 0, check=False).changes == []
    assert nodes.adopt(programs.slurm(), NAMES, own, check=False).changes == []
    outcome = nodes.resume(programs.slurm(), NAMES[:1], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.drained_by_others) == (["r01t01: resumed"], {})
    assert programs.updates == ["update nodename=r01t01 state=undrain"]
    programs.nodes(reason="broken fan : Not responding")
    outcome = nodes.resume(programs.slurm(), NAMES[:1], "nvlink: driver", nodes.Test(), check=False)
    assert (outcome.changes, outcome.drained_by_others) == ([], {"r01t01": "broken fan : Not responding"})


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "IDLE+NOT_RESPONDING", "UNKNOWN", "DOWN"])
def test_unless_up_skips_a_node_that_answers(programs: Programs, state: str) -> None:
    programs.nodes(reason="", state=state)
    up = state in ("IDLE", "MIXED")
    drained = nodes.drain(programs.slurm(), NAMES[:1], "nvlink: resume", 0, check=True, unless_up=True)
    assert drained.changes == ([] if up else ["r01t01: drained (nvlink: resume)"])
    assert nodes.drain(programs.slurm(), NAMES[:1], "nvlink: resume", 0, check=True).changes != []


# ------------------------------------------------------------------------------------------------------------ spares


WORDS = st.sampled_from(["IDLE", "ALLOCATED", "IDLE+DRAIN", "DOWN+NOT_RESPONDING", "MIXED+RESERVED"])


def known(**states: str) -> dict[str, Node]:
    return {name: Node(frozenset(states.get(name, "IDLE").split("+"))) for name in NAMES}


@pytest.mark.parametrize(
    ("states", "reserved", "busy", "chosen"),
    [
        ({}, (), (), ("r01t17", "r01t18")),
        # A spare replaces a broken tray, which becomes the spare when it is back.
        ({"r01t03": "IDLE+DRAIN"}, ("r01t17", "r01t18"), (), ("r01t18",)),
        ({}, ("r01t18",), [name for name in NAMES if name != "r01t03"], ("r01t03", "r01t18")),
        # A broken tray is no spare.
        ({"r01t18": "DOWN"}, ("r01t17", "r01t18"), (), ("r01t17",)),
        # A free spare becomes active before one with a job.
        ({"r01t03": "DOWN"}, ("r01t17", "r01t18"), ("r01t17",), ("r01t17",)),
    ],
)
def test_eighteen_trays_keep_sixteen_for_jobs(
    states: dict[str, str], reserved: tuple[str, ...], busy: Sequence[str], chosen: tuple[str, ...]
) -> None:
    assert spares.choose(NAMES, known(**states), reserved, busy, 16) == chosen


@given(
    states=st.lists(WORDS, min_size=18, max_size=18),
    reserved=st.sets(st.sampled_from(NAMES)),
    busy=st.sets(st.sampled_from(NAMES)),
    active=st.integers(1, 20),
    unfit=st.sets(st.sampled_from(NAMES)),
)
def test_the_number_of_active_trays_is_kept_and_a_second_run_changes_nothing(
    states: list[str], reserved: set[str], busy: set[str], active: int, unfit: set[str]
) -> None:
    now = known(**dict(zip(NAMES, states)))
    chosen = spares.choose(NAMES, now, reserved, busy, active, unfit)
    available = {name for name in NAMES if not {"DRAIN", "DOWN"} & now[name].words}
    usable, fit = available - unfit, set(chosen) - unfit
    assert set(chosen) <= available
    assert set(chosen) & unfit == available & unfit & reserved, "an unfit spare stays, an unfit tray becomes none"
    assert len(usable) - len(fit) == min(active, len(usable))
    kept = reserved & usable
    assert kept <= fit or fit <= kept, "no spare is exchanged without need"
    assert spares.choose(NAMES, now, chosen, busy, active, unfit) == chosen


def test_a_repaired_tray_is_the_spare_before_others() -> None:
    now = {name: nodes.Node(frozenset({"IDLE"})) for name in NAMES}
    assert spares.choose(NAMES, now, (), (), len(NAMES) - 1, (), [NAMES[0]]) == (NAMES[0],)
    assert spares.choose(NAMES, now, [NAMES[1]], (), len(NAMES) - 1, (), [NAMES[0]]) == (NAMES[1],)


def test_a_reason_is_read_with_its_spaces_and_equal_signs() -> None:
    text = (
        "NodeName=r01t01 State=IDLE+DRAIN ThreadsPerCore=1 Reason=nvlink: resume x=1 [root@2026-11-21T11:16:27]\n"
        "NodeName=r01t03 State=DOWN Reason=bad State=IDLE NodeName=r01t02 [root@2026-11-21T11:16:27]\n"
        "NodeName=r01t02 State=IDLE ThreadsPerCore=1\n"
    )
    found = nodes.parse(text)
    assert (found["r01t01"].drained, found["r01t01"].reason) == (True, "nvlink: resume x=1")
    assert (found["r01t02"].drained, found["r01t02"].reason) == (False, "")
    # What a user wrote there is neither the state of the node nor the name of another.
    assert found["r01t03"] == Node(frozenset({"DOWN"}), "bad State=IDLE NodeName=r01t02", "root@2026-11-21T11:16:27")


def with_spares(folder: Path, refused: str = "nothing") -> Slurm:
    """Two racks with two spares each; it logs what changes their reservations, and refuses what has this text."""
    shown = (f"ReservationName=nvlink_spare_r0{rack} Nodes=r0{rack}t[02-03] Users=op\n" for rack in (1, 2))
    (folder / "reservation").write_text("".join(shown))
    (folder / "nodes").write_text("".join(f"NodeName=r01t0{tray} State=IDLE\n" for tray in (1, 2, 3)))
    refuses = f'case "$*" in *{refused}*) echo Requested nodes are busy >&2; exit 1;; esac'
    scontrol = f"""case "$*" in
        *show*) for what; do :; done; cat {folder}/$what ;;
        *) echo "$*" >> {folder}/calls; {refuses} ;;
        esac"""
    return slurm_fake.programs(folder, scontrol=scontrol, squeue="exit 0")


def test_a_drained_spare_does_not_become_active(tmp_path: Path) -> None:
    slurm = with_spares(tmp_path)
    (tmp_path / "nodes").write_text(
        "NodeName=r01t01 State=IDLE\nNodeName=r01t02 State=IDLE+DRAIN\nNodeName=r01t03 State=IDLE\n"
    )
    outcome = spares.keep(slurm, {"r01": ["r01t01", "r01t02", "r01t03"]}, 1, "root")
    assert outcome.changes[0] == "nvlink_spare_r01: r01t02 is out of service and no spare now"


def test_a_spare_that_becomes_active_leaves_its_reservation(tmp_path: Path) -> None:
    """And the reservation of a block that the fabric file no longer has is deleted."""
    outcome = spares.keep(with_spares(tmp_path), {"r01": ["r01t01", "r01t02", "r01t03"]}, 2, "root")
    assert outcome.changes[0] == "nvlink_spare_r01: r01t02 becomes active"
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update ReservationName=nvlink_spare_r01 Nodes=r01t03",
        "delete ReservationName=nvlink_spare_r02",
    ]


def test_reservations_are_restored_where_one_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=r"nvlink_spare_r02 cannot be changed \(Requested nodes are busy"):
        spares.keep(with_spares(tmp_path, refused="r02"), {}, 0, "root")
    assert (tmp_path / "calls").read_text().splitlines() == [
        "delete ReservationName=nvlink_spare_r01",
        "delete ReservationName=nvlink_spare_r02",
        "create reservation ReservationName=nvlink_spare_r01 Nodes=r01t[02-03] StartTime=now Duration=UNLIMITED"
        " Users=op Flags=IGNORE_JOBS",
    ]
