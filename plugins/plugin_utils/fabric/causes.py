# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Equal causes as one text: of hosts, `18 trays (r01t[01-18]): Permission denied (publickey)`, and of a tray's GPUs.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ansible_collections.rackscale.nvlink.plugins.module_utils import hostlist
from ansible_collections.rackscale.nvlink.plugins.module_utils.text import count, summarize
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.fabric.model import natural_sorted
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.shapes import Object
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import sentence

# Hosts with further causes are counted: each host that answers something else would add a line.
MAX_CAUSES = 6
MAX_LENGTH = 160

# What Ansible and ssh write around a cause, and what of it differs from host to host.
_FRAME = (
    (re.compile(r"Warning: Permanently added \S+ \(\S+\) to the list of known hosts\.? *"), ""),
    (re.compile(r"^(Task failed|Action failed|Failed to connect to the host via ssh|ssh): *"), ""),
    # With pipelining, where ssh has ended before Ansible wrote to it.
    (
        re.compile(r'^Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh: *'),
        "",
    ),
    (re.compile(r"^connect to (host )?\S+ port ([0-9]+): "), r"port \2: "),
    (re.compile(r"^Could not resolve hostname \S+: "), "its address cannot be resolved: "),
    (re.compile(r"^[^\s:@]+@[^\s:]+: "), ""),
    (re.compile(r"^([A-Z][a-z ]+) (by|from|to|with) \S+ port [0-9]+"), r"\1"),
    (
        re.compile(r"^((No )?(\S+ )?[Hh]ost key( is known)?) for \S+( has changed| was revoked)? and you have .*"),
        r"\1\5",
    ),
    (re.compile(r"\.? *>>> Standard Error *"), ": "),
)


def cause(problem: str) -> str:
    """The cause alone in the message of a task or of ssh."""
    text, before = problem, None
    # One message may stand in several frames: `Task failed: Failed to connect ...: ssh: ...`.
    while text != before:
        before = text
        for form, with_what in _FRAME:
            text = form.sub(with_what, text)
    text = text.strip().rstrip(".") or problem
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


def grouped(problems: Iterable[tuple[str, str]], noun: str = "tray") -> list[str]:
    """A text for each cause, that of most hosts first; problems: host, message."""
    hosts_of: dict[str, list[str]] = {}
    for host, problem in problems:
        hosts_of.setdefault(cause(problem), []).append(host)
    rows = sorted(hosts_of.items(), key=lambda row: -len(row[1]))
    texts = [f"{folded(hosts, noun)}: {text}" for text, hosts in rows[:MAX_CAUSES]]
    more = sum(len(hosts) for _text, hosts in rows[MAX_CAUSES:])
    return [*texts, *([f"{count(more, noun)} with other causes"] if more else [])]


def folded(hosts: Iterable[str], noun: str = "tray") -> str:
    """Hosts with their number and names: `18 trays (r01t[01-18])`."""
    hosts = list(hosts)
    return f"{count(len(hosts), noun)} ({names(hosts)})"


def names(hosts: Iterable[str]) -> str:
    """Hosts as a hostlist; the first ones where that is long."""
    ordered = natural_sorted(hosts)
    text = hostlist.fold(ordered)
    return text if len(text) <= MAX_LENGTH else summarize(ordered)


def of_gpus(findings: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """(code, text) of one tray's findings, worst first: those of its GPUs with one code are one, with the first remedy.

    `each of GPUs [0-2] needs ... and GPU 3 needs ...; drain the tray`. A finding has code and message, and gpu where it
    is about one.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in findings:
        gpu = str(row.get("gpu"))
        what, mark, remedy = sentence(row.get("message"), 500).partition("; ")
        key = (str(row.get("code")), what if row.get("gpu") is None else "")
        about = re.sub(rf"\bGPU {re.escape(gpu)}\b", "\0", what)
        found.setdefault(key, {"": [mark + remedy]}).setdefault(about, []).append(gpu)
    for (code, _what), gpus_of in found.items():
        [remedy] = gpus_of.pop("")
        texts = []
        for about, gpus in gpus_of.items():
            name = f"GPU {gpus[0]}" if len(gpus) == 1 else f"each of GPUs {hostlist.fold(gpus)}"
            texts.append(about.replace("\0", name))
        yield code, " and ".join(texts) + remedy
