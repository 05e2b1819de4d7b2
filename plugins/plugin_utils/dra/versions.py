# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the DRA driver's chart versions, which is not SemVer.

Until 25.12 versions were calendar versions; then the chart moved and began at 0.4.0. So 0.4.0 is newer than 25.12.0.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.rackscale.nvlink.plugins.plugin_utils.dra import DraError
from ansible_collections.rackscale.nvlink.plugins.plugin_utils.wording import shown

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_FIRST_CALENDAR_YEAR = 25


class Version(NamedTuple):
    """A version that compares by age. era is 0 for calendar versions; released is False with a suffix (0.5.0-dev)."""

    era: int
    major: int
    minor: int
    patch: int
    released: bool = True

    @property
    def is_old_chart(self) -> bool:
        """Whether it is a version of the chart nvidia-dra-driver-gpu."""
        return self.era == 0


MOVED = Version(1, 0, 4, 0, False)
"""The first versions under the new name."""
HOST_MANAGED = Version(1, 0, 5, 0, False)


def parse(text: str) -> Version | None:
    """A chart's version, such as 0.5.0 or v25.12.0-rc.1; None for other texts."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (int(match.group(number)) for number in (1, 2, 3))
    return Version(0 if major >= _FIRST_CALENDAR_YEAR else 1, major, minor, patch, match.group(4) is None)


def pinned(text: object) -> Version:
    """The exact version to install, from 0.4.0 on; DraError for others."""
    version = parse(text) if isinstance(text, str) else None
    if version is None:
        raise DraError(f"dra_driver_chart_version: {shown(text)} is no exact version; write one, such as 0.5.0")
    if version < MOVED:
        remedy = "write 0.4.0 or later, which are newer although their numbers are lower"
        raise DraError(f"dra_driver_chart_version: {text} is a version of the old chart, ended by 25.12; {remedy}")
    return version
