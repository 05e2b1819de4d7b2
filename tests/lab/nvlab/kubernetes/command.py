# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab kubernetes ...`: the control plane on the command line."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from .. import lab, state
from ..errors import LabError
from . import driver, plane, programs


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """The subcommands of `lab kubernetes`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], object], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[common], help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    sub = command("up", _up, "start a control plane, in the lab of that name where there is one")
    sub.add_argument("--version", choices=programs.VERSIONS, default=programs.DEFAULT_VERSION)
    sub.add_argument(
        "--racks", type=int, default=0, help="simulated racks of 18 Nodes; a lab's trays have theirs anyway"
    )
    command("down", lambda options: plane.down(options.name), "end a control plane; the lab that it joined goes on")
    command("status", _status, "show its processes and what they hold of memory")
    for word, run, text in (("stop", _stop, "end one process at once"), ("start", _start, "start it again")):
        sub = command(word, run, text)
        sub.add_argument("component", nargs="?", default="kube-apiserver", choices=plane.COMPONENTS)
    sub = command("run", _run, "run a command in the lab's network with kubectl, Helm and the administrator's access")
    sub.add_argument("--helm", choices=sorted(programs.HELM_WHEELS), default="4", help="the major version of Helm")
    sub.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    sub = command("fault", _fault, "change what the stand-in of the DRA driver does, for a node or for the cluster")
    sub.add_argument("settings", nargs="+", metavar="[NODE] KEY=VALUE")


def _up(options: argparse.Namespace) -> None:
    began = time.monotonic()
    joins = (lab.paths.state_of(options.name) / "state.json").exists()
    started = plane.up(options.name, options.version)
    count = plane.add_trays(started, lab.scenario_of(options.name)) if joins else 0
    count += plane.add_racks(started, options.racks) if options.racks else 0
    print(f"Kubernetes {started.version} in {options.name}: {count} nodes, up in {time.monotonic() - began:.1f} s")
    print(f"kubeconfig {started.kubeconfig}, for commands in the lab's network (lab kubernetes run)")


def _status(options: argparse.Namespace) -> int:
    found = _existing(options.name)
    parts = found.components()
    print(f"Kubernetes {found.version} in {found.name}")
    for name, entry in parts.items():
        print(f"  {name:<26}" + (f"running, {entry['memory_mb']} MB" if entry["running"] else "not running"))
    return 0 if all(entry["running"] for entry in parts.values()) else 3


def _stop(options: argparse.Namespace) -> None:
    _existing(options.name).stop(options.component)


def _start(options: argparse.Namespace) -> None:
    _existing(options.name).start(options.component)


def _run(options: argparse.Namespace) -> None:
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise LabError("give a command after --.")
    found = _existing(options.name)
    sys.stdout.flush()
    command = found.inside(argv)
    os.execvpe(command[0], command, found.environment(options.helm))


def _fault(options: argparse.Namespace) -> None:
    found = _existing(options.name)
    node = None if "=" in options.settings[0] else options.settings.pop(0)
    pairs = [text.partition("=") for text in options.settings]
    if not pairs or not all(sign for _key, sign, _value in pairs):
        raise LabError("write a fault as KEY=VALUE.")
    driver.set_faults(found.directory, node, {key: value for key, _sign, value in pairs})


def _existing(name: str) -> plane.ControlPlane:
    state.existing(name)
    found = plane.ControlPlane(name)
    found.components()
    return found
