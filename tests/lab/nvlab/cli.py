# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of the lab."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from . import bundle, gpus, imex, inventory, lab, network, packages, scenario, state, tools
from .errors import LabError


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return int(code or 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab", description="Virtual racks of real hosts with simulated GPUs.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="lab", help="which lab; several can run concurrently (default: lab)")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[common], help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    sub = command("up", _up, "start a lab and wait until its hosts answer")
    sub.add_argument("--scenario", metavar="FILE", help="what to start; instead of --racks, --trays and --suite")
    sub.add_argument("--from", dest="bundle", metavar="BUNDLE", help="a support bundle whose trays answer as captured")
    sub.add_argument("--racks", type=int, help="racks without a scenario file (default: 1)")
    sub.add_argument("--trays", type=int, help="trays a rack (default: a full rack of 18 with --racks, else 4)")
    sub.add_argument(
        "--suite",
        choices=scenario.SUITES,
        help=f"Debian suite of the hosts; overrides the scenario's (default: {scenario.DEFAULT_SUITE})",
    )
    sub.add_argument("--timeout", type=float, default=180.0, metavar="SECONDS", help="give up after (default: 180)")
    command("down", _down, "end a lab and remove all that it made")
    sub = command("status", _status, "show which hosts answer")
    sub.add_argument("--json", action="store_true", help="as JSON")
    sub = command("stop", _stop, "cut a host's power")
    sub.add_argument("host")
    sub.add_argument("--keep-disk", action="store_true", help="keep its disk for the next start")
    sub = command("start", _start, "start a stopped host again, from the image or its kept disk")
    sub.add_argument("host")
    sub.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="give up after (default: 60)")
    sub = command("exec", _exec, "run a command inside a host")
    sub.add_argument("host")
    sub.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    sub = command("set", _set, "change what a tray's GPUs report, or a fault of an NVLink switch")
    sub.add_argument("tray")
    sub.add_argument("settings", nargs="+", metavar="KEY=VALUE")
    sub = command("net", _net, "run a command of this machine inside the lab's network")
    sub.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    command("inventory", _inventory, "print an Ansible inventory of the lab")
    sub = command("packages", _packages, "add a folder's .deb files to the repository of all hosts")
    sub.add_argument("folder", nargs="?", help="default: the stand-in of nvidia-imex")
    return parser


def _up(options: argparse.Namespace) -> None:
    captured = bundle.load(options.bundle) if options.bundle else None
    if captured:
        if options.scenario or options.racks or options.trays:
            raise LabError("--from has the trays of the bundle; leave out --scenario, --racks and --trays.")
        wanted = bundle.scenario(captured, options.suite or scenario.DEFAULT_SUITE)
    elif options.scenario:
        wanted = scenario.load(options.scenario)
        if options.suite:
            wanted = dataclasses.replace(wanted, suite=options.suite)
    else:
        trays = options.trays or (18 if options.racks else 4)
        wanted = scenario.simple(options.racks or 1, trays, options.suite or scenario.DEFAULT_SUITE)
    began = time.monotonic()
    lab.up(options.name, wanted, options.timeout, bundle.answers(captured) if captured else None)
    for tray in bundle.silent(captured) if captured else ():
        lab.stop(options.name, tray)
        print(f"lab {options.name}: {tray} did not answer when the bundle was made, so its power is off")
    print(f"lab {options.name}: {len(wanted.hosts)} hosts up in {time.monotonic() - began:.1f} s")


def _down(options: argparse.Namespace) -> None:
    lab.down(options.name)


def _status(options: argparse.Namespace) -> int:
    result = lab.status(options.name)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"lab {result['name']} ({result['suite']}): {result['phase']}")
        for name, entry in result["hosts"].items():
            words = ["running" if entry["running"] else "not running", "ssh" if entry["ssh"] else "no ssh"]
            print(
                f"  {name:<12} {entry['address']:<16} {', '.join(words)}"
                + (f", {entry['slurm']}" if entry["slurm"] else "")
            )
    return 0 if all(entry["ssh"] for entry in result["hosts"].values()) else 3


def _stop(options: argparse.Namespace) -> None:
    lab.stop(options.name, options.host, options.keep_disk)


def _start(options: argparse.Namespace) -> None:
    lab.start(options.name, options.host, options.timeout)


def _exec(options: argparse.Namespace) -> None:
    command = lab.enter(options.name, options.host, _command(options.argv))
    sys.stdout.flush()
    os.execvpe(command[0], command, {**os.environ, "PATH": tools.PATH})


def _net(options: argparse.Namespace) -> None:
    state.existing(options.name)
    command = ["nsenter", f"--net={network.file_of(options.name)}", "--", *_command(options.argv)]
    sys.stdout.flush()
    os.execvp(command[0], command)


def _set(options: argparse.Namespace) -> None:
    settings = []
    for text in options.settings:
        key, sign, value = text.partition("=")
        if not sign:
            raise LabError(f"{text}: write a setting as KEY=VALUE.")
        settings.append((key, value))
    directory = state.existing(options.name)
    known = lab.scenario_of(options.name)
    for rack, switches in known.switches.items():
        if options.tray in switches:
            from . import switch  # with the library that makes certificates

            switch.set_faults(directory / lab.SWITCHES / rack, options.tray, settings)
            return
    known.tray(options.tray)
    gpus.change(directory / "hosts" / options.tray, settings)


def _inventory(options: argparse.Namespace) -> None:
    state.existing(options.name)
    sys.stdout.write(inventory.ansible(options.name, lab.scenario_of(options.name)))


def _packages(options: argparse.Namespace) -> None:
    directory = state.existing(options.name)
    print("\n".join(packages.add(directory, Path(options.folder) if options.folder else imex.packages())))


def _command(argv: list[str]) -> list[str]:
    command = argv[1:] if argv[:1] == ["--"] else argv
    if not command:
        raise LabError("give a command after --.")
    return command
