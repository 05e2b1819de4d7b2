# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one transaction of slurmctld with a fake Slurm and systemd; tests/integration has the tests with real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.rackscale.nvlink.plugins.module_utils import actions, atomic, host
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm import conf_folder, live, programs, transaction
from ansible_collections.rackscale.nvlink.plugins.module_utils.slurm.scontrol import SlurmError
from ansible_collections.rackscale.nvlink.tests.unit.plugins.module_utils.slurm.slurm_fake import FakeSlurm


def test_files_are_replaced_and_restored(tmp_path: Path) -> None:
    model, old, new = tmp_path / "slurm.conf", tmp_path / "topology.conf", tmp_path / "nvlink_topology.conf"
    model.write_text("m")
    model.chmod(0o604)
    old.write_text("old")
    old.chmod(0o640)
    changes = conf_folder.Files(str(model))
    changes.put(str(old), b"changed")
    changes.put(str(new), b"new")
    assert (old.read_text(), new.read_text()) == ("changed", "new")
    assert (old.stat().st_mode & 0o777, new.stat().st_mode & 0o777) == (0o640, 0o604)
    assert Path(f"{old}.previous").read_text() == "old"
    changes.undo()
    assert old.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["slurm.conf", "topology.conf"]


def test_the_fatal_message_is_read_from_slurmctlds_log(tmp_path: Path) -> None:
    log = tmp_path / "slurmctld.log"
    log.write_text("[x] fatal: of yesterday\n")
    cursor = host.LogCursor(str(log))
    assert transaction.last_fatal(cursor.text()) == ""
    with log.open("a") as file:
        file.write("[y] error: nothing\n[z] fatal: Invalid BlockSizes value: 30\n")
    assert transaction.last_fatal(cursor.text()) == "Invalid BlockSizes value: 30"
    log.write_text("[x] fatal: rotated\n")
    assert transaction.last_fatal(cursor.text()) == "rotated"
    # A refused setting is the reason, and not the crash that follows it.
    crash = "[x] fatal: assoc_mgr_lock: pthread_rwlock_rdlock(): Resource deadlock avoided\n"
    assert transaction.last_fatal(f"[x] fatal: bad\n{crash}") == "bad"
    assert transaction.last_fatal(crash).startswith("assoc_mgr_lock")
    for path in ("", str(tmp_path / "none")):
        assert host.LogCursor(path).text() == ""


# ---------------------------------------------------------------------------------------------------- the transaction


OLD, NEW = b"old\n", b"new\n"
# Seconds for an answer of a slurmctld that never gives one.
NEVER = 1.0


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """slurmctld, its unit and its folder with one file, ``topology.conf``."""
    monkeypatch.setattr(transaction, "CALM", 0.01)
    monkeypatch.setattr(transaction, "RUNNING_SECONDS", 0.3)
    fake = FakeSlurm(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin_dir}:/usr/bin:/bin")
    (fake.conf_dir / "slurm.conf").write_text("ClusterName=lab\n")
    (fake.conf_dir / "topology.conf").write_bytes(OLD)
    fake.load()
    return fake


def change(
    slurm: FakeSlurm, data: bytes | None = NEW, patience: float = 60.0, **more: object
) -> transaction.Transaction:
    wanted = (data or b"").decode()
    options: dict[str, object] = {
        "what": "the new topology",
        "problem": lambda: "" if slurm.runs() == wanted else "slurmctld runs another topology",
        "restored": lambda: slurm.runs() == OLD.decode(),
        "load": transaction.Transaction.reconfigure,
        "known": conf_folder.checksums(str(slurm.conf_dir)),
        "log": str(slurm.log),
        "seconds": patience,
        **more,
    }
    client = programs.Slurm(str(slurm.bin_dir), patience, str(slurm.conf_dir))
    # The options of a test replace some of these by others of the same types, which mypy cannot see in a dict.
    return transaction.Transaction(client, str(slurm.conf_dir), {str(slurm.file): data}, **options)  # type: ignore[arg-type]


def reconfigure(slurm: FakeSlurm) -> str:
    return f"run {slurm.bin_dir}/scontrol reconfigure"


def failure(transaction: transaction.Transaction) -> str:
    with pytest.raises(SlurmError) as caught:
        transaction.apply()
    return str(caught.value)


def test_a_change_is_written_loaded_and_read_back(slurm: FakeSlurm) -> None:
    actions.begin()
    change(slurm).apply()
    assert (slurm.file.read_bytes(), slurm.runs()) == (NEW, NEW.decode())
    assert [row.partition(" (")[0] for row in actions.done()] == [f"write {slurm.file}", reconfigure(slurm)]
    assert Path(f"{slurm.file}.previous").read_bytes() == OLD


def test_a_removal_leaves_no_copy(slurm: FakeSlurm) -> None:
    change(slurm, None, keep=conf_folder.REMOVED).apply()
    assert (os.listdir(slurm.conf_dir), slurm.runs()) == (["slurm.conf"], "")


@pytest.mark.parametrize("data", [NEW, None])
@pytest.mark.parametrize("keep", [conf_folder.PREVIOUS, conf_folder.REMOVED])
def test_a_refused_change_is_restored_with_the_reason_of_the_log(
    slurm: FakeSlurm, data: bytes | None, keep: str
) -> None:
    slurm.on_reconfigure(f"echo '[x] fatal: bad block' >> {slurm.log}; exit 1", times=1)
    actions.begin()
    assert failure(change(slurm, data, keep=keep)) == (
        "slurmctld refused the new topology (bad block); the old files were restored, and slurmctld runs as before."
    )
    assert (slurm.file.read_bytes(), slurm.runs()) == (OLD, OLD.decode())
    assert sorted(os.listdir(slurm.conf_dir)) == ["slurm.conf", "topology.conf"]
    first, *others = actions.done()
    assert first.startswith(f"{'write' if data else 'remove'} {slurm.file}")
    refused = f"{reconfigure(slurm)} (failed, rc 1)"
    assert others == [refused, f"restore {slurm.file}", reconfigure(slurm)]


def test_another_running_state_than_the_written_one_is_restored(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure("exit 0", times=1)
    assert failure(change(slurm, seconds=0.1)).startswith(
        "slurmctld runs another topology; the old files were restored"
    )
    assert slurm.file.read_bytes() == OLD


def test_an_interrupt_restores_and_loads_the_old_files(slurm: FakeSlurm) -> None:
    def load(transaction: transaction.Transaction) -> str:
        transaction.reconfigure()
        raise SystemExit("ended by signal 15")

    with pytest.raises(SystemExit):
        change(slurm, load=load).apply()
    assert (slurm.file.read_bytes(), slurm.runs()) == (OLD, OLD.decode())


def test_a_file_that_has_changed_since_the_plan_is_not_overwritten(slurm: FakeSlurm) -> None:
    transaction = change(slurm)
    slurm.file.write_bytes(b"of an editor\n")
    with pytest.raises(SlurmError, match=r"topology\.conf since it was read: run again"):
        transaction.apply()
    assert slurm.file.read_bytes() == b"of an editor\n"


@pytest.mark.parametrize("data", [NEW, None])
@pytest.mark.parametrize("renames", [False, True])
def test_an_edit_during_the_write_is_not_overwritten(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, renames: bool, data: bytes | None
) -> None:
    """A second administrator saves, in place or by a rename, once the old file has its second name."""
    transaction, real = change(slurm, data), atomic.keep

    def keep(path: str, previous: str) -> None:
        real(path, previous)
        edited = slurm.file.with_name("edited") if renames else slurm.file
        edited.write_bytes(b"of an editor\n")
        edited.replace(slurm.file)

    monkeypatch.setattr(atomic, "keep", keep)
    with pytest.raises(SlurmError, match=r"topology\.conf since it was read: .*; nothing was changed\.$"):
        transaction.apply()
    assert slurm.file.read_bytes() == b"of an editor\n"
    assert not list(slurm.conf_dir.glob(".*"))


def test_an_edit_after_the_write_outlives_a_rollback(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure(f"echo 'of an editor' > {slurm.file}; exit 1", times=1)
    changed = "topology.conf, which another program has changed meanwhile, stays"
    assert changed in failure(change(slurm, NEW, NEVER, restored=lambda: True))
    assert slurm.file.read_bytes() == b"of an editor\n"


# ------------------------------------------------------------------------------------------------------ live changes


OVERRIDE = "override (variable slurm_x_override)"
DRAINED = "PartitionName=gpu State=DRAIN\n"
UNDONE = (
    "A reconfigure would undo live changes (State of partition gpu is DRAIN, configured UP): write the live values into"
    " slurm.conf, or set override (variable slurm_x_override) to live_changes_lost if this is intended; "
)


@pytest.fixture
def drained(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    up = live.Shown({"gpu": {"PartitionName": "gpu", "State": "UP"}}, {})
    monkeypatch.setattr(live, "loaded", lambda *_arguments: up)
    (slurm.conf_dir / "slurm.conf").write_text("PartitionName=gpu\n")
    slurm.shown.write_text(DRAINED)
    return slurm


def test_a_change_needs_a_sandbox_that_shows_what_it_would_undo(slurm: FakeSlurm) -> None:
    slurm.shown.write_text("")
    unknown = "(any of partitions and nodes, since no sandbox can compare them: There is no slurmctld in "
    assert unknown in failure(change(slurm, override=OVERRIDE))
    assert "reconfigure" not in slurm.calls("scontrol")
    change(slurm, override="").apply()
    assert slurm.file.read_bytes() == NEW


def test_live_changes_stop_a_change_before_it_is_written(drained: FakeSlurm) -> None:
    assert failure(change(drained, override=OVERRIDE)) == f"{UNDONE}nothing was changed."
    assert sorted(os.listdir(drained.conf_dir)) == ["slurm.conf", "topology.conf"]
    assert "reconfigure" not in drained.calls("scontrol")


@pytest.mark.parametrize(
    "more",
    [
        {"override": ""},  # permitted
        {"override": OVERRIDE, "ran": False},
        {"override": OVERRIDE, "load": None},
        {"override": OVERRIDE, "reloads": False},
    ],
)
def test_live_changes_stop_nothing_where_they_may_go_or_stay(drained: FakeSlurm, more: dict[str, object]) -> None:
    change(drained, **more).apply()
    assert drained.file.read_bytes() == NEW


def test_the_partitions_that_a_change_writes_keep_their_state_alone(drained: FakeSlurm) -> None:
    more = {"override": OVERRIDE, "own": {"gpu"}}
    assert failure(change(drained, **more)).startswith(UNDONE)
    drained.shown.write_text("PartitionName=gpu State=UP MaxTime=02:00:00\n")
    change(drained, **more).apply()
    assert drained.file.read_bytes() == NEW


def test_a_rollback_before_a_late_reconfigure_undoes_no_live_change(drained: FakeSlurm) -> None:
    """A live move failed, and the reconfigure that would do the same would undo live changes."""

    def load(transaction: transaction.Transaction) -> str:
        transaction.require_no_loss()
        return transaction.reconfigure()

    late = change(drained, override=OVERRIDE, reloads=False, load=load)
    assert failure(late) == f"{UNDONE}the old files were restored."
    assert drained.file.read_bytes() == OLD
    assert "reconfigure" not in drained.calls("scontrol")


def test_a_slurmctld_that_does_not_answer_has_no_live_changes_to_lose(drained: FakeSlurm) -> None:
    os.system(drained.exits)
    change(drained, override=OVERRIDE, patience=NEVER).apply()
    assert drained.runs() == NEW.decode()


# ---------------------------------------------------------------------------------------------------- a dead slurmctld


def test_a_slurmctld_that_exits_after_a_refused_reconfigure_is_started(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure(f"echo '[x] fatal: bad block' >> {slurm.log}; {slurm.exits}; exit 1", times=1)
    assert failure(change(slurm)).endswith(
        "; the old files were restored, and slurmctld, which had exited and was started again, runs as before."
    )
    assert "start slurmctld.service" in slurm.calls("systemctl")


def test_a_slurmctld_that_hangs_and_does_not_start_with_the_new_files_gets_the_old_ones(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure(f"{slurm.hangs}; sleep 60", times=1)
    slurm.does_not_start_with(NEW)
    assert failure(change(slurm, patience=NEVER)) == (
        "slurmctld does not answer since scontrol reconfigure (no answer in time); the old files were restored, and"
        " slurmctld, which had exited and was started again, runs as before."
    )
    assert (slurm.file.read_bytes(), slurm.runs()) == (OLD, OLD.decode())
    assert slurm.calls("scontrol").count("reconfigure") <= 2, "a daemon that hangs is not asked to reconfigure"


def test_a_slurmctld_that_hangs_and_does_not_stop_is_killed(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "RESTART_SECONDS", 0.5)
    slurm.on_reconfigure(f"{slurm.hangs}; sleep 60", times=1)
    slurm.does_not_stop()
    change(slurm, patience=NEVER).apply()
    assert slurm.runs() == NEW.decode()
    assert "kill --signal=SIGKILL slurmctld.service" in slurm.calls("systemctl")


def test_without_a_unit_the_error_says_what_to_do(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure(f"{slurm.hangs}; sleep 60", times=1)
    (slurm.bin_dir / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    assert failure(change(slurm, patience=NEVER)).endswith(
        "; the old files were restored, but slurmctld does not answer and slurmctld.service does not restart it: read"
        " its log, end the process if it hangs, and start it."
    )
    assert slurm.file.read_bytes() == OLD


def test_a_reconfigure_that_takes_longer_than_scontrol_waits_succeeds(slurm: FakeSlurm) -> None:
    slurm.on_reconfigure(f"{slurm.loads}; echo 'Socket timed out on send/recv operation' >&2; exit 1", times=1)
    change(slurm).apply()
    assert (slurm.file.read_bytes(), slurm.runs()) == (NEW, NEW.decode())


def test_only_the_slurmctld_of_this_host_counts(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup that answers does not hide a primary that hangs."""
    script = 'echo "Slurmctld(primary) at ctl1 is DOWN"; echo "Slurmctld(backup) at ctl2 is UP"'
    (slurm.bin_dir / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    client = programs.Slurm(str(slurm.bin_dir), 5)
    for name, answers in (("ctl1.example.org", False), ("ctl2", True), ("login", True)):
        monkeypatch.setattr(programs.socket, "gethostname", lambda name=name: name)
        assert client.answers() is answers
