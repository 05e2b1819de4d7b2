// Copyright (c) 2026, rackscale.nvlink contributors
// GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Print the results of the built site's own search as JSON, the links in the order of search.html:
//     node docs_search.js FOLDER QUERY...
"use strict";
const fs = require("fs");
const vm = require("vm");

class Element {
  constructor() {
    this.children = [];
    this.dataset = {};
    this.classList = { add() {} };
  }
  appendChild(child) {
    this.children.push(child);
    return child;
  }
  setAttribute() {}
}

const [folder, ...queries] = process.argv.slice(2);
const results = new Element();
const page = vm.createContext({
  document: {
    documentElement: { dataset: { content_root: "" } },
    createElement: () => new Element(),
    getElementById: (id) => (id === "search-results" ? results : null),
    addEventListener() {},
    readyState: "loading",
  },
  // The next result at once, and no dots while it searches.
  setTimeout: (next, milliseconds) => milliseconds < 100 && next(),
});
page.window = page;
// The scripts of search.html; those of the theme and of highlighting have no part in the results.
vm.runInContext("const SPHINX_HIGHLIGHT_ENABLED = false", page);
for (const name of ["_static/documentation_options", "_static/doctools", "_static/searchtools", "_static/language_data", "searchindex"])
  vm.runInContext(fs.readFileSync(`${folder}/${name}.js`, "utf8"), page);
vm.runInContext("DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false", page);

const links = (query) => {
  results.children = [];
  vm.runInContext(`Search.performSearch(${JSON.stringify(query)})`, page);
  const list = results.children.at(-1);
  return list.children.map((item) => item.children[0].href);
};
console.log(JSON.stringify(queries.map(links)));
