// Copyright (c) 2026, rackscale.nvlink contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Sphinx's own scores of a search; then the table of symptoms comes first, and what contributors read comes last.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) =>
    score + (page === "troubleshooting" ? 15 : page.startsWith("contributing/") ? -15 : 0),
};
