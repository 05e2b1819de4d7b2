# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated reference is current, and the index of the site has no internal module."""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(CHECKOUT / "tests" / "tools"))
import docs_site  # noqa: E402
import reference  # noqa: E402


def test_the_page_is_current() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.reference(), "is out of date; run `make reference`"


def test_the_index_of_the_site_leaves_internal_modules_out() -> None:
    index = (
        "* :ansplugin:`a module <rackscale.nvlink.a#module>` -- A\n"
        "* :ansplugin:`ab module <rackscale.nvlink.ab#module>` -- AB\n\n    a_module\n    ab_module\n    a_role\n"
    )
    assert docs_site.without(index, {"a"}) == (
        "* :ansplugin:`ab module <rackscale.nvlink.ab#module>` -- AB\n\n    ab_module\n    a_role\n"
    )
    assert docs_site.without(index, set()) == index
