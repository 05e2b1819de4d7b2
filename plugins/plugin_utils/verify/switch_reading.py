# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the NVLink switches of the inventory over HTTPS, with the variables that the site sets for each."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import EncryptedString
from ansible.template import trust_as_template
from ansible_collections.rackscale.nvlink.plugins.module_utils.ansible_types import Variables
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.clients import nvue
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import Fabric
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.findings.lines import equal
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.forms import is_address
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.options import SourceError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.run.targets import SWITCHES
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.sources import hosts
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import nearest, shown

DOMAIN = "nvlink_switch_domain"
AT_ONCE = 64
_VARIABLES = {
    "nvue_user": "username",
    "nvue_password": "password",
    "nvue_password_file": "password_file",
    "nvue_ca_file": "ca_file",
    "nvue_client_cert": "client_cert",
    "nvue_client_key": "client_key",
    "nvue_server_name": "server_name",
    "nvue_timeout": "timeout",
}
"""Variable of a switch -> the option of its client."""
_KEY = "nvlink_switch_value"
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def read(
    names: Sequence[str], known: hosts.Hosts, fabric: Fabric, domains: Collection[str]
) -> dict[str, list[nvue.Report]]:
    """Domain -> the reports of its switches, of these domains; SourceError for what a person wrote and is wrong."""
    wanted = [(domain, client) for domain, client in clients(names, known, fabric) if domain in domains]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return equal(pool.map(lambda row: (row[0], row[1].read()), wanted))


def clients(names: Sequence[str], known: hosts.Hosts, fabric: Fabric) -> list[tuple[str, nvue.Switch]]:
    """The domain of each switch, and its client; SourceError as in read()."""
    return [_client(str(name), known, fabric) for name in names]


def primary(domain: str, known: Sequence[tuple[str, nvue.Switch]]) -> tuple[nvue.Switch, nvue.Report]:
    """The switch of a domain that runs the controller, of clients(), and its report.

    SourceError where none or more than one does, and where it reports a fault, such as of its database.
    """
    own = [(switch, switch.read()) for other, switch in known if other == domain]
    found = [(switch, report) for switch, report in own if report.controller.is_primary]
    if len(found) == 1 and found[0][1].controller.is_ok:
        return found[0]
    problems = [report.problem or f"{report.switch}: {report.controller.words}" for _switch, report in own]
    raise SourceError(
        f"NVLink domain {domain}: {'; '.join(problems) or f'group {SWITCHES} has no switch of it'}; one switch must"
        " answer as its controller, without a fault, or set partition_by: hand"
    )


def _client(name: str, known: hosts.Hosts, fabric: Fabric) -> tuple[str, nvue.Switch]:
    """The domain of a switch, and its client."""
    variables = known.variables(name)
    if variables is None or name in fabric.trays:
        what = "no host of the inventory" if variables is None else "a tray of the fabric file"
        raise SourceError(f"group {SWITCHES}: {shown(name)} is {what}; correct the group")
    domain = _value(known, name, variables, DOMAIN)
    if not isinstance(domain, str) or domain not in fabric.domains:
        what = f"{shown(domain)}, which is no NVLink domain of the fabric file" if domain else "not set"
        raise SourceError(f"{name}: {DOMAIN} is {what}{nearest(domain, fabric.domains)}")
    options = {option: _value(known, name, variables, variable) for variable, option in _VARIABLES.items()}
    options["username"] = options["username"] or os.environ.get("NVUE_USER")
    if options["username"] and not options["password"] and not options["password_file"]:
        options["password"] = os.environ.get("NVUE_PASSWORD")
    if not options["client_cert"] and not (options["password"] or options["password_file"]):
        raise SourceError(
            f"{name}: has no login; set nvue_user and nvue_password (of a vault, or NVUE_PASSWORD in the environment),"
            " nvue_password_file, or nvue_client_cert and nvue_client_key"
        )
    if isinstance(options["timeout"], str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", options["timeout"]):
        options["timeout"] = float(options["timeout"])
    host = str(_value(known, name, variables, "ansible_host") or name)
    if not (is_address(host) or _HOST.fullmatch(host)):
        raise SourceError(
            f"{name}: ansible_host is {shown(host)}; write a name or an address, and the port as nvue_port"
        )
    port = _value(known, name, variables, "nvue_port") or 443
    if not (str(port).isdecimal() and 0 < int(port) < 65536):
        raise SourceError(f"{name}: nvue_port is {shown(port)}; write a number from 1 to 65535")
    given = {option: value for option, value in options.items() if value not in (None, "")}
    try:
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return domain, nvue.switch(name, {**given, "url": url})
    except SourceError as error:
        # By the variable that a person wrote, not by the option of the client.
        text = str(error).removeprefix(f"{name}: ")
        option = re.split(r"\W", text)[0]
        variable = next((key for key, value in _VARIABLES.items() if value == option), option)
        raise SourceError(f"{name}: {variable}{text.removeprefix(option)}") from None


def _value(known: hosts.Hosts, name: str, variables: Variables, variable: str) -> Any:
    """A variable of a switch, also one of a vault; None where it is not set. Its template sees no facts."""
    try:
        if isinstance(variables.get(variable), EncryptedString):
            return known.value({**variables, _KEY: trust_as_template(f"{{{{ {variable} }}}}")}, _KEY)
        return known.value(variables, variable)
    except (AnsibleError, hosts.OverriddenError):
        # Not the error, which may quote a secret.
        raise SourceError(f"{name}: {variable} cannot be evaluated; use variables of the inventory, no facts") from None
