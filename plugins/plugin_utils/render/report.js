/* Copyright (c) 2026, rackscale.nvlink contributors
   GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
   SPDX-License-Identifier: GPL-3.0-or-later */
(() => {
  'use strict';
  const search = document.querySelector('#search');
  const status = document.querySelector('#status');
  const more = document.querySelector('#more');
  const racks = [...document.querySelectorAll('.rack')];
  const problems = [...document.querySelectorAll('.problem')];
  const texts = new Map();
  const trays = new Map();

  // Ten thousand trays in the document would take a browser seconds: where scripts run, those of a closed domain are
  // the text of its noscript.
  function traysOf(rack) {
    const closed = rack.querySelector('noscript');
    if (closed && !trays.has(rack)) {
      const parsed = document.createElement('template');
      parsed.innerHTML = closed.textContent;
      trays.set(rack, parsed.content);
    }
    return closed && trays.get(rack);
  }

  function textOf(item) {
    const closed = traysOf(item);
    const text = closed ? item.querySelector('summary').textContent + closed.textContent : item.textContent;
    if (!texts.has(item)) texts.set(item, text.toLowerCase());
    return texts.get(item);
  }

  function filter() {
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (item) => terms.every((term) => textOf(item).includes(term));
    const show = (items) => items.filter((item) => !(item.hidden = !fits(item)));
    const found = [show(racks), show(problems)];
    if (more && terms.length) more.open = true;
    status.textContent = terms.length
      ? `${found[0].length} of ${racks.length} domains, ${found[1].length} of ${problems.length} findings` : '';
  }

  function fill(rack) {
    const closed = traysOf(rack);
    if (closed) rack.querySelector('noscript').replaceWith(closed);
  }

  // A link to a tray opens it and its domain.
  function follow() {
    let id;
    try { id = CSS.escape(decodeURIComponent(location.hash.slice(1))); } catch { return; }
    const holds = (rack) => id && (traysOf(rack) ?? rack).querySelector(`.tray#${id}`);
    const rack = racks.find(holds);
    if (!rack) return;
    fill(rack);
    rack.hidden = false;
    rack.open = true;
    const target = rack.querySelector(`#${id}`);
    target.open = true;
    target.scrollIntoView({ block: 'center' });
    target.querySelector('summary').focus({ preventScroll: true });
  }

  search.addEventListener('input', filter);
  search.form.addEventListener('submit', (event) => event.preventDefault());
  for (const rack of racks) rack.addEventListener('toggle', () => fill(rack));
  addEventListener('hashchange', follow);
  filter();
  follow();
})();
