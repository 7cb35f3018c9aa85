// Tags: how good each is, what it means, what may be done with it by itself.

import { html, useState } from "../vendor/preact.js";
import { attempt, call, change, read, undoOf } from "../api.js";
import { number, percent, textOf } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Dialog, Empty, Field, Head, Icon, Interval, Select, Spark, TagName, TagNames, TagPicker, useCursor, useData } from "../parts.js";
import { ask, may, say, set, useDraft, useStore } from "../store.js";
import { t } from "../texts.js";

const SORTS = {
  count: (a, b) => b.count - a.count,
  name: (a, b) => a.tag.localeCompare(b.tag),
  f1: (a, b) => (a.lately.f1 ?? 2) - (b.lately.f1 ?? 2),
  drifting: (a, b) => Number(b.drifting ?? false) - Number(a.drifting ?? false) || b.count - a.count,
};
const MODES = ["suggest", "auto", "never"];
const PROMISES = [0.8, 0.9, 0.95, 0.98, 0.99];

async function make(path, body, note, back = null) {
  const done = await attempt(() => change(path, body, note));
  if (!done) return false;
  say(note, back);
  set({ tags: (await read("/v1/tags")).tags });
  return true;
}

const promiseBody = (entry) => ({ tag: entry.tag, mode: entry.mode ?? "suggest", promise: entry.promise ?? 0.95 });

function Mode({ entry }) {
  const give = (patch) => {
    const body = { ...promiseBody(entry), ...patch };
    make("/v1/tags/promise", body, t.tags.promised(entry.tag, t.tags.modes[body.mode]), { path: "/v1/tags/promise", body: promiseBody(entry) });
  };
  return html`<div class="promise"><${Select} label=${t.tags.mode(entry.tag)} quiet value=${entry.mode ?? "suggest"} disabled=${!may("admin")} options=${MODES.map((mode) => [mode, t.tags.modes[mode]])} onChange=${(mode) => give({ mode })} />
    ${entry.mode === "auto" && html`<${Select} label=${t.tags.promise(entry.tag)} quiet value=${String(entry.promise)} disabled=${!may("admin")} options=${[...new Set([...PROMISES, entry.promise])].sort().map((p) => [String(p), percent(p)])} onChange=${(p) => give({ promise: Number(p) })} />
      <span class="hint">${entry.kept === null || entry.kept === undefined ? t.tags.notYet : t.tags.kept(percent(entry.kept), number(entry.n_kept))}</span>`}</div>`;
}

function Merge({ tag, onDone }) {
  const [into, setInto] = useState("");
  const [told] = useData(async () => (into ? previewOf(tag, into) : null), [into], false);
  const merge = async () => { if (await make("/v1/tags/merge", { tags: [tag], into }, t.tags.merged(tag, into))) onDone(); };
  return html`<section><h3>${t.tags.merge}</h3><${TagPicker} label=${t.tags.into} value=${into} without=${[tag]} onPick=${setInto} />
    ${told && told.into === into && html`<div class="preview"><p>${t.tags.preview(tag, into, number(told.n_after), number(told.n_both))}</p>${told.examples?.length > 0 && html`<ul class="examples">${told.examples.slice(0, 3).map((item) => html`<li key=${item.id}>${textOf(item)} <${TagNames} tags=${item.y} /></li>`)}</ul>`}<p class="hint">${t.tags.noUndo}</p><${Button} kind="danger" onClick=${merge}>${t.tags.mergeInto(tag, into)}<//></div>`}</section>`;
}

const previewOf = (tag, into) => call("POST", "/v1/tags/merge/preview", { tags: [tag], into });

function Exclusive({ entry }) {
  const group = [...new Set((entry.exclusive ?? []).flat())];
  const add = (other) => make("/v1/tags/exclusive", { tags: [entry.tag, other] }, t.tags.excluded(entry.tag, other), { path: "/v1/tags/exclusive", body: { tags: [entry.tag, other], undo: true } });
  const release = (tags) => make("/v1/tags/exclusive", { tags, undo: true }, t.tags.free(entry.tag), { path: "/v1/tags/exclusive", body: { tags } });
  return html`<section><h3>${t.tags.exclusive}</h3><p class="hint">${t.tags.exclusiveText}</p>
    ${(entry.exclusive ?? []).map((others) => html`<p class="row" key=${others.join()}><${TagNames} tags=${others} /><${Button} kind="ghost" onClick=${() => release([entry.tag, ...others])}>${t.tags.unbind}<//></p>`)}
    <${TagPicker} label=${t.tags.exclude} without=${[entry.tag, ...group]} onPick=${add} /></section>`;
}

function Panel({ entry, onClose }) {
  const [about, setAbout] = useDraft(`tags.about.${entry.tag}`, entry.about);
  const describe = (event) => {
    event.preventDefault();
    make("/v1/tags/describe", { tag: entry.tag, about }, t.tags.described(entry.tag), { path: "/v1/tags/describe", body: { tag: entry.tag, about: entry.about } });
  };
  const rename = async (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name").trim();
    if (!name || name === entry.tag) return;
    const note = t.tags.renamed(entry.tag, name);
    const done = await attempt(() => change("/v1/tags/rename", { old: entry.tag, new: name }, note));
    if (!done) return;
    onClose();
    say(note, undoOf(done));
  };
  const remove = async () => {
    if (!(await ask({ title: t.tags.removeTitle(entry.tag), text: t.tags.removeText(number(entry.count)), yes: t.tags.remove, danger: true, fields: [] }))) return;
    if (await make("/v1/tags/remove", { tag: entry.tag }, t.tags.removed(entry.tag))) onClose();
  };
  const isAdmin = may("admin");
  return html`<${Dialog} title=${entry.tag} onClose=${onClose} wide>
    <p class="row"><${TagName} tag=${entry.tag} /><span class="hint">${t.tags.items(number(entry.count))}</span>${entry.drifting && html`<span class="badge warn">${t.tags.drifts}</span>`}<span class="grow" /><a href="#/items" onClick=${() => set((s) => ({ drafts: { ...s.drafts, "items.filter": { q: "", tag: entry.tag, who: "", source: "", since: "", until: "", state: "" } } }))}>${t.tags.showItems}</a></p>
    <dl class="figures"><div><dt>${t.tags.precision}</dt><dd><${Interval} triple=${entry.precision} label=${t.tags.precision} /></dd></div><div><dt>${t.tags.recall}</dt><dd><${Interval} triple=${entry.recall} label=${t.tags.recall} /></dd></div><div><dt>${t.tags.trend}</dt><dd><${Spark} points=${entry.spark ?? []} label=${t.tags.sparkOf(entry.tag)} /></dd></div></dl>
    <form onSubmit=${describe}><${Field} label=${t.tags.about} hint=${t.tags.aboutText}>${(id) => html`<textarea id=${id} rows="2" maxlength="10000" readonly=${!isAdmin} value=${about} onInput=${(event) => setAbout(event.target.value)} />`}<//>${isAdmin && html`<${Button} type="submit" disabled=${about === entry.about}>${t.tags.describe}<//>`}</form>
    ${isAdmin && html`<section><h3>${t.tags.alone}</h3><p class="hint">${t.tags.aloneText}</p><${Mode} entry=${entry} /></section>
    <form onSubmit=${rename} class="inline"><${Field} label=${t.tags.rename}>${(id) => html`<input id=${id} name="name" value=${entry.tag} maxlength="200" autocomplete="off" />`}<//><${Button} type="submit">${t.tags.renameDo}<//></form>
    <${Merge} tag=${entry.tag} onDone=${onClose} /><${Exclusive} entry=${entry} />
    <section class="row"><${Button} kind="danger" onClick=${remove}>${t.tags.remove}<//></section>`}
  <//>`;
}

export function Tags() {
  const tags = useStore((s) => s.tags);
  const [filter, setFilter] = useDraft("tags.filter", "");
  const [sort, setSort] = useDraft("tags.sort", "count");
  const [shown, setShown] = useDraft("tags.shown", null);
  const [limit, setLimit] = useState(100);
  const found = tags.filter((entry) => `${entry.tag} ${entry.about}`.toLowerCase().includes(filter.trim().toLowerCase())).sort(SORTS[sort]);
  const rows = found.slice(0, limit);
  const declare = async () => {
    const given = await ask({ title: t.tags.declareTitle, text: t.tags.declareText, yes: t.tags.declareDo, fields: [{ name: "tag", label: t.tags.name }, { name: "about", label: t.tags.about, optional: true }] });
    if (given) await make("/v1/tags/declare", { tags: { [given.tag.trim()]: given.about.trim() } }, t.tags.declared(given.tag.trim()));
  };
  const [cursor, setCursor] = useCursor(rows.length, { Enter: (i) => setShown(rows[i].tag), o: (i) => setShown(rows[i].tag) });
  useKeys({ "/": () => document.getElementById("tags-search")?.focus(), ...(may("admin") ? { n: declare } : {}) });
  const entry = tags.find((one) => one.tag === shown);
  const head = (name, text, more = "") => html`<th scope="col" class=${more} aria-sort=${sort === name ? (name === "name" || name === "f1" ? "ascending" : "descending") : undefined}><button type="button" class="plain" onClick=${() => setSort(name)}>${text}</button></th>`;
  return html`<${Head} title=${t.views.tags} text=${t.tags.lead(number(tags.length))}>${may("admin") && html`<${Button} kind="main" shortcut="n" onClick=${declare}>${t.tags.declare}<//>`}<//>
    <div class="filters"><div class="search"><${Icon} name="search" /><label for="tags-search" class="quiet">${t.tags.search}</label><input id="tags-search" type="search" placeholder=${t.tags.search} value=${filter} onInput=${(event) => setFilter(event.target.value)} /></div>
      <${Select} label=${t.tags.sort} value=${sort} options=${Object.entries(t.tags.sorts)} onChange=${setSort} /></div>
    ${rows.length ? html`<div class="table" tabindex="0"><table><caption class="quiet">${t.tags.caption}</caption><thead><tr>${head("name", t.tags.name)}${head("count", t.tags.count, "number")}${head("f1", "F1", "number")}<th scope="col" class="wide-only">${t.tags.precision}</th><th scope="col" class="wide-only">${t.tags.trend}</th><th scope="col" class="wide-only">${t.tags.alone}</th></tr></thead>
      <tbody>${rows.map((one, i) => html`<tr key=${one.tag} data-row=${i} class=${i === cursor ? "at" : ""} onClick=${() => setCursor(i)}>
        <th scope="row"><button type="button" class="plain" aria-label=${t.tags.open(one.tag)} onClick=${() => setShown(one.tag)}><${TagName} tag=${one.tag} /></button>${one.drifting && html`<span class="badge warn">${t.tags.drifts}</span>`}<span class="about">${one.about}</span></th>
        <td class="number">${number(one.count)}</td><td class="number">${one.lately.f1 === null ? html`<span class="soft">–</span>` : one.lately.f1.toFixed(2)}</td>
        <td class="wide-only"><${Interval} triple=${one.precision} label=${t.tags.precision} /></td><td class="wide-only"><${Spark} points=${one.spark ?? []} label=${t.tags.sparkOf(one.tag)} /></td>
        <td class="wide-only"><${Mode} entry=${one} /></td></tr>`)}</tbody></table></div>
      ${found.length > limit && html`<div class="row center"><${Button} onClick=${() => setLimit(limit + 200)}>${t.items.more}<//></div>`}` : html`<${Empty} title=${tags.length ? t.tags.nothing : t.tags.empty} text=${tags.length ? t.items.nothingText : t.tags.emptyText}>${!tags.length && may("admin") && html`<${Button} kind="main" onClick=${declare}>${t.tags.declare}<//>`}<//>`}
    ${entry && html`<${Panel} key=${entry.tag} entry=${entry} onClose=${() => setShown(null)} />`}`;
}
