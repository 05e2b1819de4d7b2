# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify on the lab: the other faults of each layer, its timer, its page, failing links and the benchmark.

Each test repairs what it broke.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import pages
from .commands import ansible, environment
from .conftest import CHECKOUT
from .verify_site import (
    CHANNEL,
    LIST,
    RELOAD,
    RESTART,
    TRAYS,
    Site,
    assert_exactly_these_failures,
    gpus,
    in_slurm,
    on_tray,
    rows,
    running_site,
)

sys.path.insert(0, str(CHECKOUT / "tests" / "lab"))
from nvlab import paths

pytestmark = [pytest.mark.lab, pytest.mark.long]

ZERO = "00000000-0000-0000-0000-000000000000"
TOPOLOGY = "/etc/slurm/topology.conf"
WRITTEN = f"cp {LIST} /root/list && "
BACK = f"cat /root/list > {LIST}; touch -d @1000000000 {LIST}"

FAULTS = [
    [
        gpus("a moved clique", "fabric_file", "tray_moved", "r01t02", "clique=2", "clique=1"),
        on_tray(
            "a foreign list",
            "imex",
            "imex_list_differs",
            "r01t05",
            f"{WRITTEN} printf '198.51.100.15\\n198.51.100.99\\n' > {LIST} && systemctl restart nvidia-imex",
            BACK,
            RESTART,
        ),
        on_tray(
            "a second owner",
            "imex",
            "imex_two_owners",
            "r01t04",
            "mkdir -p /etc/slurm/prolog.d && echo 'systemctl start nvidia-imex' > /etc/slurm/prolog.d/site.sh",
            "rm /etc/slurm/prolog.d/site.sh",
        ),
        in_slurm(
            "a tray in two blocks",
            "slurm_block_overlap",
            ("r01t03",),
            f"sed -i 's/r01t.04-06./r01t[03-06]/' {TOPOLOGY} && {RELOAD}",
        ),
        in_slurm(
            "a partition changed while it runs",
            "slurm_tier_differs",
            (),
            "scontrol update PartitionName=gold MaxTime=5",
            layer="tiers",
        ),
    ],
    [
        gpus("another driver", "driver", "drivers_differ", "r01t03", "driver_version=595.58.03",
             "driver_version=580.173.02"),
        gpus("an unhealthy fabric", "hardware", "fabric_unhealthy", "r01t04", "gpu2.health=unhealthy",
             "gpu2.health=healthy"),
        gpus("no cluster UUID", "hardware", "fabric_uuid_zero", "r01t05", f"uuid={ZERO}", "uuid=home"),
        gpus("a refused GPU", "hardware", "fabric_refused", "r01t01", "gpu0.status=unknown_error",
             "gpu0.status=success"),
        in_slurm("a partition that is gone", "slurm_tier_differs", (),
                 f"sed -i /PartitionName=bronze/d /etc/slurm/nvlink_partitions.conf && {RELOAD}", layer="tiers"),
    ],
    [
        gpus("an unhealthy route", "hardware", "fabric_route_unhealthy", "r01t01", "gpu2.route_unhealthy=true",
             "gpu2.route_unhealthy=false"),
        gpus("less capacity", "hardware", "fabric_limited_capacity", "r01t02", "gpu1.health=limited_capacity",
             "gpu1.health=healthy"),
        gpus("a GPU that never joined", "hardware", "fabric_not_started", "r01t04", "gpu0.state=not_started",
             "gpu0.state=completed"),
        gpus("a driver upgraded under its module", "driver", "version_mismatch", "r01t06", "nvml=version_mismatch",
             "nvml=ok", "smi=version_mismatch"),
        in_slurm("a QoS without its limit", "slurm_tier_differs", (), "sacctmgr -i modify qos gold set GrpTRES=node=-1",
                 "sacctmgr -i modify qos gold set GrpTRES=node=3", "tiers"),
    ],
    [
        gpus("a GPU that waits", "hardware", "fabric_in_progress", "r01t02", "gpu3.state=in_progress",
             "gpu3.state=completed"),
        gpus("less bandwidth", "hardware", "fabric_degraded_bandwidth", "r01t03", "gpu1.degraded_bandwidth=true",
             "gpu1.degraded_bandwidth=false"),
        gpus("another slot", "fabric_file", "tray_slot_differs", "r01t04", "tray_index=9", "tray_index=3"),
        gpus("a new GPU", "fabric_file", "tray_replaced", "r01t05", f"gpu0.gpu_uuid=GPU-{ZERO[:-1]}7",
             "gpu0.gpu_uuid=home"),
        on_tray("a stale channel", "channels", "imex_channel_stale", "r01t06", f"rm {CHANNEL} && mknod {CHANNEL} c 5 0",
                f"rm {CHANNEL} && mknod {CHANNEL} c 4 0"),
        in_slurm("a file that was not loaded", "slurm_topology_differs", (),
                 f"sed -i 's/r01t.01-03./r01t[01-02,06]/; s/r01t.04-06./r01t[03-05]/' {TOPOLOGY}"),
    ],
    [
        on_tray("a hanging daemon", "imex", "imex_timeout", "r01t01",
                "kill -STOP $(systemctl show -P MainPID nvidia-imex)",
                "kill -CONT $(systemctl show -P MainPID nvidia-imex)"),
        gpus("a lost fabric manager", "hardware", "fabric_manager_disconnected", "r01t02",
             "gpu1.fabric_manager_connected=false", "gpu1.fabric_manager_connected=true"),
        gpus("MIG", "hardware", "mig_enabled", "r01t03", "gpu1.mig_enabled=true", "gpu1.mig_enabled=false"),
        gpus("a GPU to be reset", "hardware", "recovery_action", "r01t05", "gpu3.recovery_action=gpu_reset",
             "gpu3.recovery_action=none"),
        in_slurm("a second writer of the topology", "slurm_topology_other_writer", (),
                 f"sed -i '1s/.*/# written by another program/' {TOPOLOGY}"),
    ],
    [
        in_slurm("slurmctld is down", "slurm_unreachable", (), "systemctl stop slurmctld", "systemctl start slurmctld"),
        on_tray("an edited list", "imex", "imex_list_differs", "r01t05", f"{WRITTEN} printf '\\n' >> {LIST}", BACK),
        gpus("no driver", "driver", "driver_missing", "r01t06", "nvml=no_driver", "nvml=ok", "smi=no_driver"),
    ],
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("verify"), "trixie") as made:
        yield made


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_each_fault_of_a_group_is_exactly_one_failure(site: Site, number: int) -> None:
    assert_exactly_these_failures(site, FAULTS[number])


def test_swapped_trays_are_one_failure(site: Site) -> None:
    trays = json.loads((site.folder / "fabric.json").read_text())["trays"]

    def give_gpus_of(tray: str, other: str) -> None:
        site.lab.set(tray, *(f"gpu{at}.gpu_uuid={gpu}" for at, gpu in enumerate(trays[other]["gpu_uuids"])))

    pair = ("r01t03", "r01t04")
    give_gpus_of(*pair)
    give_gpus_of(*reversed(pair))
    try:
        verdict = site.verify()
        assert rows(verdict) == [("fabric_file", "trays_swapped", pair)], verdict["failures"]
    finally:
        for tray in pair:
            give_gpus_of(tray, tray)


# What the driver of marin issue 9086 logged, with the date of today in front of it.
JOURNAL = """\
cat > /usr/local/bin/journalctl <<'END'
#!/bin/sh
now=$(date +%s)
echo "$now.1 $(hostname) kernel: NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 14 (0x026001c6 0x0)"
echo "$now.2 $(hostname) kernel: NVRM: Xid (PCI:0009:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 3 (0x0409a0c2 0x8)"
END
chmod +x /usr/local/bin/journalctl
"""


def test_a_failing_link_is_named_days_before_it_goes_down(site: Site) -> None:
    """Marin issue 9086: GPU 0 link 14 had 505 recoveries and grew, five days before Xid 149 of it and 145 of others."""
    limit = ("--limit", "r01t02,localhost")
    growing, quiet = "nvlink_link_recovering", "nvlink_link_recovered"
    days = [
        ("gpu0.link14.recoveries=505", (), []),
        ("gpu0.link14.recoveries=508", (), [growing]),
        ("gpu0.link14.recoveries=508", ("--check",), [quiet]),
    ]
    try:
        for day, (setting, arguments, expected) in enumerate(days):
            site.lab.set("r01t02", setting)
            verdict = site.verify(*limit, *arguments, first=day == 0)
            assert [row["code"] for row in verdict["failures"]] == expected, verdict["failures"]
            assert verdict["ok"]
            if expected == [growing]:
                message = "r01t02: NVLink 14 of GPU 0 went into recovery 3 times since the last run, 508 in all."
                assert verdict["failures"][0]["message"] == message
        site.on({"r01t02": JOURNAL})
        down = ("state=inactive", "speed=0", "recoveries=509")
        site.lab.set("r01t02", *(f"gpu0.link14.{setting}" for setting in down))
        verdict = site.verify(*limit, first=False)
        messages = {row["code"]: row["message"] for row in verdict["failures"]}
        assert set(messages) == {"nvlink_links_degraded", growing, "nvlink_xid"}
        assert "GPU 0: 17 of 18 NVLinks are active at 53125 MB/s, link 14 is not" in messages["nvlink_links_degraded"]
        assert "Xid 149 of GPU 0 link 14 (fatal), Xid 145 of GPU 1 link 3." in messages["nvlink_xid"]
    finally:
        site.on({"r01t02": "rm -f /usr/local/bin/journalctl"})
        healthy = ("state=active", "speed=53125", "recoveries=0")
        site.lab.set("r01t02", *(f"gpu0.link14.{setting}" for setting in healthy))


def test_the_commands_of_the_page(site: Site) -> None:
    folder = site.folder
    (folder / "hosts.yml").write_text(site.lab.inventory.read_text())
    fabric = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
    (folder / "cluster.nvlink.yml").write_text(json.dumps(fabric))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = pages.commands("docs/verify.md")
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=folder,
            env=environment(PATH=path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command.text}:\n{done.stdout}\n{done.stderr}"
    assert json.loads((folder / "verdict.json").read_text())["queried"] == 6


WATCH = """\
- hosts: slurm_controller
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: rackscale.nvlink.verify
        tasks_from: watch
"""


def test_the_timer_is_installed_and_removed(site: Site) -> None:
    """On a host of the lab, with a stand-in for ansible-playbook that records its arguments."""
    site.on(
        {
            "ctl": 'printf \'#!/bin/sh\\nprintf "%%s\\\\n" "$@" > /var/lib/nvlink-verify/"$5"\\nexit 1\\n\''
            " > /usr/local/bin/play && chmod +x /usr/local/bin/play"
        }
    )
    play = site.folder / "watch.yml"
    play.write_text(WATCH)

    def run(*arguments: str, **more: Any) -> int:
        given = {
            "verify_fabric_file": "/srv/it's 100%/$fabric.json",
            "verify_watch_inventory": ["/srv/cluster.nvlink.yml", "/srv/ho sts.yml"],
            "verify_watch_ansible_playbook": "/usr/local/bin/play",
            "verify_watch_variables": {"verify_kubeconfig": "/srv/kube"},
            "ansible_become": False,
            **more,
        }
        done = ansible("ansible-playbook", "-i", site.lab.inventory, play, "-e", json.dumps(given), *arguments)
        return int(done.stdout.rpartition("changed=")[2].split()[0])

    assert run("--check", "--diff") > 0
    assert site.lab.exec("ctl", "ls", "/etc/systemd/system/nvlink-verify.timer", check=False).returncode != 0
    assert run() > 0
    assert run() == 0
    assert site.lab.exec("ctl", "systemctl", "is-active", "nvlink-verify.timer").stdout.strip() == "active"
    site.lab.exec("ctl", "systemd-analyze", "verify", "/etc/systemd/system/nvlink-verify.timer")
    # The verdict is not ok, and the metrics are written all the same.
    assert site.lab.exec("ctl", "systemctl", "start", "nvlink-verify.service", check=False).returncode != 0
    recorded = site.lab.exec("ctl", "cat", "/var/lib/nvlink-verify/rackscale.nvlink.verify").stdout.splitlines()
    assert recorded[:7] == [
        "-i",
        "/srv/cluster.nvlink.yml",
        "-i",
        "/srv/ho sts.yml",
        "rackscale.nvlink.verify",
        "--tags",
        "quick",
    ]
    assert json.loads(recorded[-1]) == {
        "fabric_file": "/srv/it's 100%/$fabric.json",
        "verdict_file": "/var/lib/nvlink-verify/verdict.json",
        "verify_kubeconfig": "/srv/kube",
    }
    recorded = site.lab.exec("ctl", "cat", "/var/lib/nvlink-verify/rackscale.nvlink.render").stdout.splitlines()
    assert json.loads(recorded[-1]) == {
        "fabric_file": "/srv/it's 100%/$fabric.json",
        "verdict_file": "/var/lib/nvlink-verify/verdict.json",
        "render_dir": "/var/lib/nvlink-verify",
        "fabric_renderers": ["metrics"],
    }
    show = ("systemctl", "show", "--value", "-p", "User", "-p", "ProtectHome", "nvlink-verify.service")
    assert sorted(site.lab.exec("ctl", *show).stdout.split()) == ["nvlink-verify", "yes"]
    assert run(verify_watch_inventory=["/home/ops/hosts.yml"]) > 0
    assert sorted(site.lab.exec("ctl", *show).stdout.split()) == ["nvlink-verify", "read-only"]
    assert run(verify_watch_state="absent") > 0
    assert run(verify_watch_state="absent") == 0
    assert site.lab.exec("ctl", "systemctl", "cat", "nvlink-verify.service", check=False).returncode != 0


# The libraries that ansible-playbook needs for a verification, and the collection without its tests.
LIBRARIES = (
    *(
        "ansible",
        "*.dist-info",
        "jinja2",
        "yaml",
        "_yaml",
        "markupsafe",
        "cryptography",
        "cffi",
        "packaging",
        "resolvelib",
    ),
    *("fastjsonschema", "netaddr", "ClusterShell", "_cffi_backend*.so"),
)
COLLECTION = ("galaxy.yml", "meta", "playbooks", "plugins", "roles")


CONTROLLER = """\
- hosts: "{{ controller }}"
  gather_facts: false
  tasks:
    - ansible.builtin.file: {path: /opt/site, state: directory, mode: "0755"}
    - ansible.builtin.unarchive: {src: "{{ packed }}", dest: /opt/site}
    - ansible.builtin.copy: {dest: /opt/site/hosts.yml, content: "{{ inventory }}", mode: "0644"}
    - ansible.builtin.copy:
        dest: /opt/site/ansible-playbook
        content: "#!/bin/sh\\nexec python3 -m ansible playbook \\"$@\\"\\n"
        mode: "0755"
    - ansible.builtin.import_role:
        name: rackscale.nvlink.verify
        tasks_from: watch
    - ansible.builtin.file: {path: /var/lib/nvlink-verify/.ssh, state: directory, owner: nvlink-verify, mode: "0700"}
    - ansible.builtin.copy:
        src: "{{ lab_key }}"
        dest: /var/lib/nvlink-verify/.ssh/id_ed25519
        owner: nvlink-verify
        mode: "0600"
"""


def test_the_timer_verifies_as_a_user_of_its_own_without_privileges(site: Site) -> None:
    """A tray of the lab is the Ansible controller here: real ansible-playbook, real ssh to slurmctld's host."""
    controller, home = "r01t06", "/var/lib/nvlink-verify"
    site.repair()
    packed = site.folder / "controller.tar"
    libraries = Path(sysconfig.get_path("purelib"))
    with tarfile.open(packed, "w") as tar:
        for path in [path for name in LIBRARIES for path in libraries.glob(name)]:
            tar.add(path, path.name)
        for name in COLLECTION:
            tar.add(CHECKOUT / name, f"ansible_collections/rackscale/nvlink/{name}")
        for file in ("fabric.json", "fabric.state.json", "slurm.yml"):
            tar.add(site.folder / file, file)
    groups = yaml.safe_load(site.lab.inventory.read_text())["all"]["children"]
    controllers = {"hosts": groups["slurm_controller"]["hosts"], "vars": {"ansible_user": "root"}}
    play = site.folder / "controller.yml"
    play.write_text(CONTROLLER)
    given = {
        "controller": controller,
        "packed": str(packed),
        "inventory": json.dumps({"slurm_controller": controllers}),
        "lab_key": str(paths.state_of(site.lab.name) / "key"),
        "verify_fabric_file": "/opt/site/fabric.json",
        "verify_watch_inventory": ["/opt/site/hosts.yml", "/opt/site/slurm.yml"],
        "verify_watch_ansible_playbook": "/opt/site/ansible-playbook",
        "verify_watch_environment": {
            "PYTHONPATH": "/opt/site",
            "ANSIBLE_COLLECTIONS_PATH": "/opt/site",
            "ANSIBLE_HOST_KEY_CHECKING": "false",
        },
    }
    done = ansible("ansible-playbook", "-i", site.lab.inventory, play, "-e", json.dumps(given))
    started = site.lab.exec(controller, "systemctl", "start", "nvlink-verify.service", check=False)
    journal = site.lab.exec(controller, "journalctl", "--no-pager", "-o", "cat", "-u", "nvlink-verify").stdout
    assert started.returncode == 0, done.stdout + journal
    verdict = json.loads(site.lab.exec(controller, "cat", f"{home}/verdict.json").stdout)
    assert (verdict["ok"], verdict["layers"]["slurm"], verdict["layers"]["tiers"]) == (True, "checked", "checked")
    written = (f"{home}/verdict.json", f"{home}/metrics/nvlink_fabric.prom")
    assert site.lab.exec(controller, "stat", "-c", "%U %a", *written).stdout == "nvlink-verify 644\n" * 2
    # docs/security.md has the figure.
    security = ("systemd-analyze", "security", "--no-pager", "nvlink-verify.service")
    site.lab.exec(controller, *security, "--threshold=18")


# What nvbandwidth, nccl-tests and dcgmi diag -j print, after published runs.
NVBANDWIDTH = """\
nvbandwidth Version: v0.8
Running multinode_device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0       N/A    798.02    798.25
 1    612.10       N/A    797.80
 2    797.95    797.95       N/A

SUM multinode_device_to_device_memcpy_read_ce 4602.07
"""
NCCL = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  8589934592    2147483648     float     sum      -1    17001  505.26  842.10      0    17010  504.99  841.65      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 841.9
"""
DIAG = """\
{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software", "results": [
  {"entity_id": 0, "status": "Pass"}, {"entity_id": 1, "status": "%s", "warnings": [{"warning": "row remap failure"}]}]}
]}]}}
"""


# What dcgmi mndiag --json prints, after its source, with the hosts of its arguments.
MNDIAG = """\
{"DCGM Diagnostic": "DCGM Multi-Node Diagnostic", "metadata": {"num_entities": 2, "num_hosts": 3}, "hosts": [
  {"host_id": 0, "hostname": "$1", "dcgm_version": "4.3.1", "driver_version": "580.82.07", "num_entities": 4},
  {"host_id": 2, "hostname": "$3", "dcgm_version": "4.3.1", "driver_version": "580.82.07", "num_entities": 4}],
 "test_categories": [{"category": "Multi-Node Tests", "tests": [{"name": "MNUBERGEMM", "status": "Fail",
  "test_summary": {"status": "Fail"}, "results": [
   {"host_id": 0, "entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
   {"host_id": 2, "entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "status": "Fail", "warnings": [
    {"warning": "NVLINK error", "error_id": 85, "error_category": 2, "error_severity": 2}]}]}]}]}
"""
MNDIAG_COMMAND = (
    "[ $SLURM_PROCID -gt 0 ] || "
    "mndiag --hostList \"$(scontrol show hostnames | paste -sd ';' -)\" --run mnubergemm --json"
)


def test_a_block_is_reserved_benchmarked_and_released(site: Site) -> None:
    split = """#!/bin/sh\nIFS=';'\nset -- $2\ncat <<OUTPUT\n%sOUTPUT\n"""
    write = f"cat > /usr/local/bin/mndiag <<'WRITTEN'\n{split % MNDIAG}WRITTEN\nchmod +x /usr/local/bin/mndiag"
    site.on(dict.fromkeys(TRAYS[:3], write))
    for name, text in (("nvbandwidth", NVBANDWIDTH), ("nccl", NCCL), ("dcgmi", DIAG % "Pass")):
        path = f"/usr/local/bin/{name}"
        write = f"cat > {path} <<'WRITTEN'\n#!/bin/sh\ncat <<'OUTPUT'\n{text}OUTPUT\nWRITTEN\nchmod +x {path}"
        site.on(dict.fromkeys(TRAYS[:3], write))
    site.on({"r01t02": """sed -i 's/1, "status": "Pass"/1, "status": "Fail"/' /usr/local/bin/dcgmi"""})
    programs = [
        {"name": "nvbandwidth", "kind": "nvbandwidth", "command": "nvbandwidth", "seconds": 60, "min_bandwidth": 700},
        {"name": "all_reduce", "kind": "nccl_tests", "command": "nccl", "seconds": 60, "min_bandwidth": 800},
        {"name": "dcgmi", "kind": "dcgmi_diag", "command": "dcgmi diag -r 2 -j", "seconds": 60},
        {"name": "mndiag", "kind": "dcgmi_mndiag", "command": MNDIAG_COMMAND, "seconds": 60},
    ]
    done = site.play("benchmark", check=False, benchmark_programs=programs, benchmark_cliques=["r01a"])
    assert done.returncode != 0
    output = " ".join(done.stdout.split())
    assert "benchmark_slow: nvbandwidth on clique r01a reached 612.1 GB/s; min_bandwidth is 700 GB/s." in output
    assert "benchmark_failed: dcgmi on r01t02 of clique r01a: software (row remap failure)." in output
    assert "benchmark_failed: mndiag on clique r01a: MNUBERGEMM, GPU 3 of r01t03 (NVLINK error)." in output
    assert output.count("likely cause") == 3, output
    assert site.lab.exec("ctl", "scontrol", "-o", "show", "reservation").stdout.startswith("No reservations")

    whole = site.play("benchmark", benchmark_cliques=["r01b"])
    assert "1 block was benchmarked: r01b." in whole.stdout

    running = "timeout 60 sh -c 'until squeue -h -t R | grep -q .; do sleep 0.2; done'"
    site.lab.exec("ctl", "sh", "-ec", f"sbatch -w r01t05 --wrap 'sleep 600'; {running}")
    refused = site.play("benchmark", benchmark_cliques=["r01b"])
    assert "benchmark_blocked" in refused.stdout
    site.lab.exec("ctl", "scancel", "-u", "root")
