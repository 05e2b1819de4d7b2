# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A finding as code on a host states it: a code and values. findings.worded makes its severity and message of them.

So the table of findings.py is not copied to each host with the modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Union, cast

Value = Union[str, float, None, Sequence[object], "HostFinding"]
"""Of a placeholder: a text or number; a list, of which the message names the first five; a finding, of which it has the
message."""


class _Stated(TypedDict):
    code: str
    case: str
    values: dict[str, Value]


class HostFinding(_Stated, total=False):
    """code, and case: which message of the code's row. values: placeholder in that message -> its value.

    tray and block: what it is about, and placeholders as well. gpu: the index of the GPU that it is about, null for the
    tray; in the findings of module_utils/gpu.
    """

    gpu: int | None
    tray: str
    block: str


def host_finding(code: str, case: str = "", **values: Value) -> HostFinding:
    """One about a host, or by the values tray or block about one of these."""
    subjects = {name: values.pop(name, None) for name in ("tray", "block")}
    about = {name: value for name, value in subjects.items() if value is not None}
    return cast("HostFinding", {"code": code, "case": case, "values": values, **about})


def gpu_finding(code: str, case: str = "", gpu: int | None = None, **values: Value) -> HostFinding:
    """One about a GPU, or with gpu None about the tray."""
    return {"code": code, "case": case, "values": values, "gpu": gpu}
