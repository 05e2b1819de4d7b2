/* Copyright (c) 2026, rackscale.nvlink contributors
   GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
   SPDX-License-Identifier: GPL-3.0-or-later */
(() => {
  'use strict';
  const one = (selector, root = document) => root.querySelector(selector);
  const domains = [...document.querySelectorAll('.domain')];
  const traysOf = (domain) => [...domain.querySelectorAll('.t')];
  const words = one('#words');
  const rows = [...document.querySelectorAll('.found tbody tr')];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  let selected = null;
  let stop = one('.t');
  if (stop) stop.setAttribute('tabindex', '0');

  function filter() {
    const terms = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const severities = new Set([...document.querySelectorAll('[name=severity]:checked')].map((box) => box.value));
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = severities.has(row.dataset.severity) && terms.every((word) => texts[i].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    one('#shown').textContent = rows.length ? `${shown} of ${rows.length} shown` : '';
  }

  // One tab stop for all domains: with one per tray, the keyboard could not leave the domains.
  function moveTabStop(tray, focus = true) {
    if (stop) stop.setAttribute('tabindex', '-1');
    stop = tray;
    tray.setAttribute('tabindex', '0');
    if (focus) tray.focus();
  }

  function select(tray) {
    if (selected) selected.removeAttribute('aria-pressed');
    selected = tray;
    one('#tray').hidden = !tray;
    one('#none').hidden = Boolean(tray);
    if (!tray) return;
    tray.setAttribute('aria-pressed', 'true');
    const [name, ...facts] = one('title', tray).textContent.split('\n');
    one('#tray h3').textContent = name;
    one('#tray dl').replaceChildren(...facts.filter(Boolean).flatMap((fact) => {
      const [term, ...rest] = fact.split(': ');
      const dt = document.createElement('dt');
      const dd = document.createElement('dd');
      dt.textContent = term;
      dd.textContent = rest.join(': ');
      return [dt, dd];
    }));
    const found = rows.filter((row) => row.children[1].textContent.split(' GPU ')[0] === name).length;
    one('#its').textContent = found === 1 ? 'Its finding' : `Its ${found} findings`;
    one('#its').hidden = !found;
  }

  function step(tray, key) {
    const domain = tray.closest('.domain');
    const column = traysOf(domain);
    const at = column.indexOf(tray);
    if (key === 'ArrowDown') return column[at + 1];
    if (key === 'ArrowUp') return column[at - 1];
    if (key === 'Home') return column[0];
    if (key === 'End') return column[column.length - 1];
    const shown = domains.filter((each) => each.offsetParent && one('.t', each));
    const next = shown[shown.indexOf(domain) + (key === 'ArrowRight' ? 1 : -1)];
    const others = next ? traysOf(next) : [];
    return others[Math.min(at, others.length - 1)];
  }

  one('#domains').addEventListener('click', (event) => {
    const tray = event.target.closest('.t');
    if (tray) { moveTabStop(tray, false); select(tray === selected ? null : tray); }
  });
  one('#domains').addEventListener('keydown', (event) => {
    const tray = event.target.closest('.t');
    if (!tray) return;
    if (event.key === 'Enter' || event.key === ' ') select(tray);
    else if (event.key === 'Escape') select(null);
    else if (/^(Arrow(Up|Down|Left|Right)|Home|End)$/.test(event.key)) {
      const next = step(tray, event.key);
      if (next) moveTabStop(next);
    } else return;
    event.preventDefault();
  });
  one('#problems').addEventListener('change', (event) => one('#domains').classList.toggle('problems', event.target.checked));
  one('#filter').addEventListener('input', filter);
  one('#filter').addEventListener('submit', (event) => event.preventDefault());
  one('#deselect').addEventListener('click', () => { stop.focus(); select(null); });
  one('#its').addEventListener('click', () => { words.value = one('#tray h3').textContent; filter(); words.focus(); });
  function follow() {
    let tray = null;
    try { tray = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { return; }
    if (tray && tray.matches('.t')) { one('#domains').classList.remove('problems'); one('#problems').checked = false; select(tray); moveTabStop(tray); }
  }
  addEventListener('hashchange', follow);
  filter();
  follow();
})();
