# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify on the lab: the other faults of each layer, its timer, its page, failing links and the benchmark.

Each test repairs what it broke.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackscale.nvlink.tests.unit.plugins.plugin_utils.verify.test_benchmarks import (
    DCGM_4,
    NVBANDWIDTH,
)

from . import pages
from .commands import ansible
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
        on_tray("a stale channel", "channels", "imex_channel_stale", "r01t06", f"rm {CHANNEL} && mknod {CHANNEL} c 5 0",
                f"rm {CHANNEL} && mknod {CHANNEL} c 4 0"),
        in_slurm("a partition that is gone", "slurm_tier_differs", (),
                 f"sed -i /PartitionName=bronze/d /etc/slurm/nvlink_partitions.conf && {RELOAD}", layer="tiers"),
    ],
    [
        gpus("a new GPU", "fabric_file", "tray_replaced", "r01t05", f"gpu0.gpu_uuid=GPU-{ZERO[:-1]}7",
             "gpu0.gpu_uuid=home"),
        in_slurm("a file that was not loaded", "slurm_topology_differs", (),
                 f"sed -i 's/r01t.01-03./r01t[01-02,06]/; s/r01t.04-06./r01t[03-05]/' {TOPOLOGY}"),
    ],
    [
        on_tray("a hanging daemon", "imex", "imex_timeout", "r01t01",
                "kill -STOP $(systemctl show -P MainPID nvidia-imex)",
                "kill -CONT $(systemctl show -P MainPID nvidia-imex)"),
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


def test_a_link_whose_counter_grows_is_named_by_the_next_run(site: Site) -> None:
    """The counters of a run are in its verdict file."""
    days = [("505", []), ("508", ["nvlink_link_recovering"])]
    try:
        for day, (number, expected) in enumerate(days):
            site.lab.set("r01t02", f"gpu0.link14.recoveries={number}")
            verdict = site.verify("--limit", "r01t02,localhost", first=day == 0)
            assert [row["code"] for row in verdict["failures"]] == expected, verdict["failures"]
            assert verdict["ok"]
    finally:
        site.lab.set("r01t02", "gpu0.link14.recoveries=0")


def test_the_commands_of_the_page(site: Site) -> None:
    folder = site.folder
    (folder / "hosts.yml").write_text(site.lab.inventory.read_text())
    fabric = {"plugin": "rackscale.nvlink.fabric", "sources": ["fabric_file"], "fabric_file": "fabric.json"}
    (folder / "cluster.nvlink.yml").write_text(json.dumps(fabric))
    shell = pages.Shell(folder)
    for command in pages.commands("docs/verify.md"):
        shell.type(command)
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
    *("fastjsonschema", "ClusterShell", "_cffi_backend*.so"),
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


def test_a_block_is_reserved_benchmarked_and_released(site: Site) -> None:
    for name, text in (("nvbandwidth", NVBANDWIDTH), ("dcgmi", DCGM_4)):
        path = f"/usr/local/bin/{name}"
        write = f"cat > {path} <<'WRITTEN'\n#!/bin/sh\ncat <<'OUTPUT'\n{text}OUTPUT\nWRITTEN\nchmod +x {path}"
        site.on(dict.fromkeys(TRAYS[:3], write))
    healthy = "sed -i 's/Fail/Pass/g' /usr/local/bin/dcgmi"
    site.on({"r01t01": healthy, "r01t03": healthy})
    programs = [
        {"name": "nvbandwidth", "kind": "nvbandwidth", "command": "nvbandwidth", "seconds": 60, "min_bandwidth": 700},
        {"name": "dcgmi", "kind": "dcgmi_diag", "command": "dcgmi diag -r 2 -j", "seconds": 60},
    ]
    benchmark = ("verify", "--tags", "benchmark")
    done = site.play(*benchmark, check=False, benchmark_programs=programs, benchmark_cliques=["r01a"])
    assert done.returncode != 0
    output = " ".join(done.stdout.split())
    assert "benchmark_failed: nvbandwidth on clique r01a reached 612.1 GB/s; min_bandwidth is 700 GB/s." in output
    assert "benchmark_failed: dcgmi on r01t02 of clique r01a: memory (row remap)." in output
    assert output.count("likely cause") == 2, output
    assert site.lab.exec("ctl", "scontrol", "-o", "show", "reservation").stdout.startswith("No reservations")

    whole = site.play(*benchmark, benchmark_cliques=["r01b"])
    assert "1 block was benchmarked: r01b." in whole.stdout

    running = "timeout 60 sh -c 'until squeue -h -t R | grep -q .; do sleep 0.2; done'"
    site.lab.exec("ctl", "sh", "-ec", f"sbatch -w r01t05 --wrap 'sleep 600'; {running}")
    refused = site.play(*benchmark, benchmark_cliques=["r01b"])
    assert "slurm_jobs_unanswered" in refused.stdout
    site.lab.exec("ctl", "scancel", "-u", "root")


def test_an_unreachable_tray_is_one_failure_and_the_run_continues(site: Site) -> None:
    """The last test, since its peers must reconnect."""
    site.on({"r01t06": "ip link set host0 down"})
    verdict = site.verify()
    assert rows(verdict) == [("hardware", "tray_unreachable", ("r01t06",))], verdict["failures"]
    assert verdict["queried"] == 6
