// Items: browse, search, filter; look at one and its history; change many at once.

import { html, useEffect, useState } from "../vendor/preact.js";
import { attempt, change, itemPath, read, undoOf } from "../api.js";
import { number, tagsOf, textOf, when } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Dialog, Empty, Field, Head, Icon, Select, TagNames, TagPicker, useCursor, useData } from "../parts.js";
import { ask, may, say, useDraft, useStore } from "../store.js";
import { open } from "../tagging.js";
import { t } from "../texts.js";

const PAGE = 50;
const NONE = { q: "", tag: "", who: "", source: "", since: "", until: "", state: "" };
const STATES = ["", "tagged", "untagged", "applied", "waiting", "began", "all"];
const SOURCES = ["", "page", "http", "import", "example", "label studio", "auto", "command"];

function History({ item, onClose }) {
  const [told] = useData(() => read(`${itemPath(item.id)}/history`).catch((problem) => { if (problem.status === 404) return { items: [] }; throw problem; }), [item.id]);
  return html`<${Dialog} title=${t.items.history} onClose=${onClose} wide>
    <p class="quote">${textOf(item)}</p><p class="hint">${t.items.id(item.id)}</p>
    ${told && (told.items.length ? html`<ol class="history">${told.items.map((one) => html`<li key=${one.position}><span class="hint">${when(one.when)}</span><span><strong>${one.who ?? t.somebody}</strong> ${t.kinds[one.kind] ?? one.kind}${one.source ? html` <span class="hint">${t.items.through(one.source)}</span>` : ""}</span>${one.tags && html`<${TagNames} tags=${one.tags} />`}</li>`)}</ol>` : html`<p class="hint">${t.items.noHistory}</p>`)}
    ${may("write") && html`<div class="row"><${Button} kind="main" onClick=${() => { onClose(); open(item); location.hash = "#/tag"; }}>${t.items.correct}<//></div>`}
  <//>`;
}

export function Items() {
  const [filter, setFilter] = useDraft("items.filter", NONE);
  const [typed, setTyped] = useState(filter.q);
  const [selected, setSelected] = useDraft("items.selected", []);
  const [shown, setShown] = useState(null);
  const [more, setMore] = useState({ mark: "", items: [], next: undefined });
  const mark = JSON.stringify(filter);
  const [told, , isDone] = useData(() => read("/v1/items", { ...filter, n: PAGE }), [mark]);
  const [folk] = useData(() => read("/v1/people"), [], false);
  useEffect(() => {
    const timer = setTimeout(() => { if (typed !== filter.q) setFilter((f) => ({ ...f, q: typed })); }, 200);
    return () => clearTimeout(timer);
  }, [typed]);
  const first = told?.items ?? [];
  const seen = new Set(first.map((item) => item.id));
  const items = [...first, ...(more.mark === mark ? more.items.filter((item) => !seen.has(item.id)) : [])];
  const nextCursor = more.mark === mark ? more.next : told?.next;
  const load = () => attempt(async () => {
    const found = await read("/v1/items", { ...filter, n: PAGE, cursor: nextCursor });
    setMore((before) => ({ mark, items: [...(before.mark === mark ? before.items : []), ...found.items], next: found.next }));
  });
  const patch = (part) => setFilter((f) => ({ ...f, ...part }));
  const isFiltered = Object.values(filter).some(Boolean);
  const clear = () => { setFilter(NONE); setTyped(""); };

  const here = items.filter((item) => selected.includes(item.id));
  const toggle = (id) => setSelected((all) => (all.includes(id) ? all.filter((other) => other !== id) : [...all, id]));
  const all = () => setSelected(here.length === items.length ? [] : items.map((item) => item.id));
  const bulk = async (path, body, note) => {
    const done = await attempt(() => change(path, body, note));
    if (!done) return;
    setSelected([]);
    say(note, done.n ? undoOf(done) : null);
  };
  const add = (tag) => bulk("/v1/items/tags", { ids: selected, add: [tag] }, t.items.added(tag, selected.length));
  const remove = (tag) => bulk("/v1/items/tags", { ids: selected, remove: [tag] }, t.items.removed(tag, selected.length));
  const forget = async () => {
    const sure = await ask({ title: t.items.forgetTitle(selected.length), text: t.items.forgetText, yes: t.items.forget, danger: true, fields: [] });
    if (sure) await bulk("/v1/forget", { ids: selected }, t.items.forgotten(selected.length));
  };
  const focus = (id) => document.getElementById(id)?.focus();
  const [cursor, setCursor] = useCursor(items.length, { x: (i) => toggle(items[i].id), o: (i) => setShown(items[i]) });
  useKeys({ "/": () => focus("items-search"), A: all, ...(selected.length && may("write") ? { a: () => focus("items-add"), r: () => focus("items-remove"), f: forget } : {}), Escape: () => setSelected([]) });

  return html`<${Head} title=${t.views.items} text=${isDone && told.n_found !== undefined ? t.items.found(number(told.n_found), told.capped) : t.items.lead} />
    <div class="filters many">
      <div class="search"><${Icon} name="search" /><label for="items-search" class="quiet">${t.items.search}</label><input id="items-search" type="search" placeholder=${t.items.searchHint} value=${typed} onInput=${(event) => setTyped(event.target.value)} /></div>
      <${TagPicker} label=${t.items.tag} value=${filter.tag} placeholder=${t.items.any} onPick=${(tag) => patch({ tag })} />
      <${Select} label=${t.items.person} value=${filter.who} options=${[["", t.items.any], ...(folk?.people ?? []).map(({ who }) => [who, who])]} onChange=${(who) => patch({ who })} />
      <${Select} label=${t.items.source} value=${filter.source} options=${SOURCES.map((name) => [name, name || t.items.any])} onChange=${(source) => patch({ source })} />
      <${Select} label=${t.items.state} value=${filter.state} options=${STATES.map((name) => [name, t.items.states[name]])} onChange=${(state) => patch({ state })} />
      <${Field} label=${t.items.since}>${(id) => html`<input id=${id} type="date" value=${filter.since} onChange=${(event) => patch({ since: event.target.value })} />`}<//>
      <${Field} label=${t.items.until}>${(id) => html`<input id=${id} type="date" value=${filter.until} onChange=${(event) => patch({ until: event.target.value })} />`}<//>
      ${isFiltered && html`<${Button} kind="ghost" onClick=${clear}>${t.items.clear}<//>`}
    </div>
    ${selected.length > 0 && may("write") && html`<div class="bulk card" role="region" aria-label=${t.items.bulk}><strong>${t.items.selected(selected.length)}</strong>
      <${TagPicker} id="items-add" label=${t.items.add} allowNew onPick=${add} /><${TagPicker} id="items-remove" label=${t.items.remove} onPick=${remove} />
      <${Button} kind="danger" shortcut="f" onClick=${forget}>${t.items.forget}<//><${Button} kind="ghost" shortcut="Esc" onClick=${() => setSelected([])}>${t.items.none}<//></div>`}
    ${items.length ? html`<div class="list-head"><label class="check"><input type="checkbox" checked=${here.length === items.length} onChange=${all} /> ${t.items.all}</label></div>
    <ol class="rows tight">${items.map((item, i) => html`<li key=${item.id} data-row=${i} class="row-card item-row ${i === cursor ? "at" : ""} ${selected.includes(item.id) ? "chosen" : ""}" onClick=${() => setCursor(i)}>
      <input type="checkbox" aria-label=${t.items.select(textOf(item))} checked=${selected.includes(item.id)} onChange=${() => toggle(item.id)} />
      <button type="button" class="plain" onClick=${() => setShown(item)} title=${t.items.show}>${textOf(item)}</button>
      <${TagNames} tags=${item.y} none=${item.state === "waiting" ? t.items.states.waiting : t.noTags} />
      <span class="hint meta">${[item.who, when(item.when), item.source].filter(Boolean).join(" · ") || t.items.states[item.state] || ""}</span></li>`)}</ol>
    ${nextCursor && html`<div class="row center"><${Button} onClick=${load}>${t.items.more}<//></div>`}` : isDone ? html`<${Empty} title=${isFiltered ? t.items.nothing : t.items.empty} text=${isFiltered ? t.items.nothingText : t.items.emptyText}>${isFiltered ? html`<${Button} onClick=${clear}>${t.items.clear}<//>` : html`<a class="button main" href="#/data">${t.tag.emptyData}</a>`}<//>` : html`<p class="hint busy">${t.loading}</p>`}
    ${shown && html`<${History} item=${shown} onClose=${() => setShown(null)} />`}`;
}
