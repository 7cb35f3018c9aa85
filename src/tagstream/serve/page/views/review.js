// Review: what the model knows about stored items and tags, as lists to decide on.

import { html, useEffect, useState } from "../vendor/preact.js";
import { attempt, change, itemPath, read, undoOf } from "../api.js";
import { number, percent, tagsOf, textOf, when } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Empty, Head, Key, TagName, TagNames, TagPicker, useCursor, useData } from "../parts.js";
import { may, say, useDraft, useStore } from "../store.js";
import { t } from "../texts.js";

const MOST = 50;
const LISTS = ["doubtful", "candidates", "twins", "copies", "conflicts", "quarantine"];
const PATHS = { doubtful: "/v1/review", candidates: "/v1/candidates", twins: "/v1/tags/similar", copies: "/v1/duplicates", conflicts: "/v1/conflicts", quarantine: "/v1/quarantine" };

// Entries that the person does not want to see again in this window.
function useDismissed(name) {
  const [gone, setGone] = useDraft(`review.gone.${name}`, []);
  return [gone, (mark) => setGone((all) => [...all, mark].slice(-500))];
}

async function makeChange(path, body, note) {
  const done = await attempt(() => change(path, body, note));
  if (done) say(note, undoOf(done));
  return done;
}

const learn = (entries, note) => makeChange("/v1/learn", { items: entries }, note);

// The items as they are stored now, with other tags.
async function retagged(pairs) {
  const now = await Promise.all(pairs.map(([id]) => read(itemPath(id))));
  return now.map((item, i) => ({ id: item.id, ...(item.x ? { x: item.x } : { text: item.text }), y: pairs[i][1](item.y ?? []), version: item.version, ...(item.no ? { no: item.no.filter((tag) => !pairs[i][1](item.y ?? []).includes(tag)) } : {}) }));
}

function Row({ i, cursor, setCursor, children, label }) {
  return html`<li data-row=${i} class="row-card ${i === cursor ? "at" : ""}" aria-current=${i === cursor ? "true" : undefined} aria-label=${label} onClick=${() => setCursor(i)}>${children}</li>`;
}

const Above = ({ i, onClick }) => html`<button type="button" class="above" onClick=${onClick}><span>${t.review.above(i + 1)}</span></button>`;

// ------------------------------------------------------------------ the lists
function Doubtful({ entries, dismiss, hide }) {
  const changed = (entry) => [entry.id, (y) => [...y.filter((tag) => !entry.remove.includes(tag)), ...entry.add.filter((tag) => !y.includes(tag))]];
  const accept = (some) => attempt(async () => {
    const done = await learn(await retagged(some.map(changed)), t.review.corrected(some.length));
    if (done) hide(some.map((entry) => entry.id));
  });
  const keep = (entry) => { dismiss(entry.id); say(t.review.kept); };
  const [cursor, setCursor] = useCursor(entries.length, { y: (i) => accept([entries[i]]), x: (i) => keep(entries[i]), A: (i) => accept(entries.slice(0, i + 1)) });
  return html`<ol class="rows">${entries.map((entry, i) => html`
    <${Row} key=${entry.id} i=${i} cursor=${cursor} setCursor=${setCursor} label=${entry.text}>
      <p class="quote">${textOf(entry)}</p>
      <p class="diff">${entry.tags.map((tag) => html`<span class=${entry.remove.includes(tag) ? "goes" : ""} key=${tag}><${TagName} tag=${tag} note=${entry.remove.includes(tag) ? t.review.goes : ""} /></span>`)}${!entry.tags.length && html`<span class="soft">${t.noTags}</span>`}${entry.add.map((tag) => html`<span class="comes" key=${tag}><${TagName} tag=${tag} note=${t.review.comes} /></span>`)}</p>
      ${entry.neighbours[0]?.text && html`<p class="hint">${t.review.like} “${entry.neighbours[0].text}” <${TagNames} tags=${entry.neighbours[0].tags} /></p>`}
      <div class="row"><${Button} kind=${i === cursor ? "main" : ""} disabled=${!may("write")} shortcut=${i === cursor && "y"} onClick=${() => accept([entry])}>${t.review.correct}<//><${Button} shortcut=${i === cursor && "x"} onClick=${() => keep(entry)}>${t.review.keep}<//><span class="grow" /><span class="hint">${t.review.doubt(percent(entry.doubt))}</span></div>
    <//>${i > 0 && i === cursor && may("write") && html`<li class="line"><${Above} i=${i} onClick=${() => accept(entries.slice(0, i + 1))} /></li>`}`)}</ol>`;
}

function Candidates({ entries, hide, tag }) {
  const answer = async (accept, refuse) => {
    const note = accept.length ? t.review.given(tag, accept.length) : t.review.refused(tag, refuse.length);
    const done = await makeChange("/v1/candidates", { tag, accept: accept.map((e) => e.id), refuse: refuse.map((e) => e.id) }, note);
    if (done) hide([...accept, ...refuse].map((entry) => `${tag}/${entry.id}`));
  };
  const [cursor, setCursor] = useCursor(entries.length, { y: (i) => answer([entries[i]], []), x: (i) => answer([], [entries[i]]), A: (i) => answer(entries.slice(0, i + 1), []) });
  return html`<ol class="rows">${entries.map((entry, i) => html`
    <${Row} key=${entry.id} i=${i} cursor=${cursor} setCursor=${setCursor} label=${entry.text}>
      <p class="quote">${textOf(entry)}</p>
      <div class="row"><${TagNames} tags=${entry.tags} /><span class="hint">${percent(entry.score)} ${tag}</span><span class="grow" />
        <${Button} kind=${i === cursor ? "main" : ""} disabled=${!may("write")} shortcut=${i === cursor && "y"} onClick=${() => answer([entry], [])}>${t.review.accept}<//><${Button} disabled=${!may("write")} shortcut=${i === cursor && "x"} onClick=${() => answer([], [entry])}>${t.review.refuse}<//></div>
    <//>${i > 0 && i === cursor && may("write") && html`<li class="line"><${Above} i=${i} onClick=${() => answer(entries.slice(0, i + 1), [])} /></li>`}`)}</ol>`;
}

function Twins({ entries, dismiss }) {
  const merge = async (entry, into) => {
    const tags = entry.pair.filter((tag) => tag !== into);
    const note = t.tags.merged(tags[0], into);
    const done = await attempt(() => change("/v1/tags/merge", { tags, into }, note));
    if (done) say(note);
  };
  const apart = (entry) => { dismiss(entry.pair.join("/")); say(t.review.apart(...entry.pair)); };
  const [cursor, setCursor] = useCursor(entries.length, { y: (i) => may("admin") && merge(entries[i], entries[i].pair[entries[i].counts[0] >= entries[i].counts[1] ? 0 : 1]), x: (i) => apart(entries[i]) });
  return html`<ol class="rows">${entries.map((entry, i) => html`
    <${Row} key=${entry.pair.join("/")} i=${i} cursor=${cursor} setCursor=${setCursor} label=${entry.pair.join(", ")}>
      <p class="row"><${TagName} tag=${entry.pair[0]} note=${number(entry.counts[0])} /> <span aria-hidden="true">≈</span> <${TagName} tag=${entry.pair[1]} note=${number(entry.counts[1])} /><span class="hint">${t.review.twins(number(entry.n_both), number(entry.n_merged))}</span></p>
      <div class="two">${entry.pair.map((tag) => html`<ul key=${tag} class="examples" aria-label=${tag}>${(entry.examples?.[tag] ?? []).slice(0, 2).map(([id, text]) => html`<li key=${id}>${text}</li>`)}</ul>`)}</div>
      <div class="row">${entry.pair.map((tag) => html`<${Button} key=${tag} disabled=${!may("admin")} onClick=${() => merge(entry, tag)}>${t.review.mergeInto(tag)}<//>`)}<${Button} shortcut=${i === cursor && "x"} onClick=${() => apart(entry)}>${t.review.notSame}<//></div>
    <//>`)}</ol>`;
}

function Copies({ entries, dismiss, hide }) {
  const settle = (entry, tags) => attempt(async () => {
    const done = await learn(await retagged(entry.ids.map((id) => [id, () => tags])), t.review.same(entry.ids.length, tags));
    if (done) hide([entry.ids.join("/")]);
  });
  const union = (entry) => [...new Set(entry.tags.flat())];
  const leave = (entry) => { dismiss(entry.ids.join("/")); say(t.review.kept); };
  const [cursor, setCursor] = useCursor(entries.length, { y: (i) => settle(entries[i], union(entries[i])), x: (i) => leave(entries[i]) });
  return html`<ol class="rows">${entries.map((entry, i) => html`
    <${Row} key=${entry.ids.join("/")} i=${i} cursor=${cursor} setCursor=${setCursor} label=${entry.ids.join(", ")}>
      <ul class="copies">${entry.ids.map((id, k) => html`<li key=${id}><span>${entry.texts?.[k] ?? id}</span><${TagNames} tags=${entry.tags[k]} />${may("write") && html`<${Button} kind="ghost" onClick=${() => settle(entry, entry.tags[k])}>${t.review.takeThese}<//>`}</li>`)}</ul>
      <div class="row"><${Button} kind=${i === cursor ? "main" : ""} disabled=${!may("write")} shortcut=${i === cursor && "y"} onClick=${() => settle(entry, union(entry))}>${t.review.takeAll(tagsOf(union(entry)))}<//><${Button} shortcut=${i === cursor && "x"} onClick=${() => leave(entry)}>${t.review.keep}<//></div>
    <//>`)}</ol>`;
}

function Conflicts({ entries }) {
  const decide = (entry, tags) => learn([{ id: entry.id, ...(entry.x ? { x: entry.x } : { text: entry.text }), y: tags }], t.review.decided(tags));
  const [cursor, setCursor] = useCursor(entries.length);
  return html`<ol class="rows">${entries.map((entry, i) => html`
    <${Row} key=${entry.id} i=${i} cursor=${cursor} setCursor=${setCursor} label=${entry.text}>
      <p class="quote">${textOf(entry)}</p>
      <ul class="copies">${(entry.answers ?? []).map((one) => html`<li key=${one.who}><strong>${one.who}</strong><${TagNames} tags=${one.y} /><span class="hint">${when(one.when)}</span>${may("write") && html`<${Button} kind="ghost" onClick=${() => decide(entry, one.y)}>${t.review.takeThese}<//>`}</li>`)}</ul>
    <//>`)}</ol>`;
}

const Quarantine = ({ entries }) => html`<ol class="rows">${entries.map((entry, i) => html`
  <li class="row-card" key=${entry.position} data-row=${i}><p><strong>${t.review.event(entry.position)}</strong> ${entry.kind} ${entry.id ?? ""}</p>${entry.text && html`<p class="quote">${entry.text}</p>`}<p class="hint">${t.review.failed(entry.why)} ${entry.who ?? ""} ${when(entry.when)}</p></li>`)}</ol>`;

const SHOWN = { doubtful: Doubtful, candidates: Candidates, twins: Twins, copies: Copies, conflicts: Conflicts, quarantine: Quarantine };
const markOf = { doubtful: (e) => e.id, candidates: (e, tag) => `${tag}/${e.id}`, twins: (e) => e.pair.join("/"), copies: (e) => e.ids.join("/"), conflicts: () => "", quarantine: () => "" };

// The texts of near copies; the list has their ids only.
async function withTexts(told) {
  const items = await Promise.all(told.items.map(async (entry) => {
    const found = await Promise.all(entry.ids.map((id) => read(itemPath(id)).catch(() => null)));
    return { ...entry, texts: found.map((item, i) => (item ? textOf(item) : entry.ids[i])), tags: found.map((item, i) => item?.y ?? entry.tags[i] ?? []) };
  }));
  return { ...told, items };
}

export function Review() {
  const [list, setList] = useDraft("review.list", "doubtful");
  const tags = useStore((s) => s.tags);
  const live = useStore((s) => s.live);
  const [chosen, setChosen] = useDraft("review.tag", "");
  const tag = tags.some((entry) => entry.tag === chosen) ? chosen : tags[0]?.tag ?? "";
  const [gone, dismiss] = useDismissed(list);
  const [hidden, setHidden] = useState([]); // answered just now; the next list is without them
  const agree = useStore((s) => s.me?.agree ?? 0);
  const [told, again, isDone] = useData(async () => {
    if (list === "candidates" && !tag) return { items: [], complete: true };
    const found = await read(PATHS[list], { n: list === "quarantine" ? undefined : MOST, tag: list === "candidates" ? tag : undefined });
    return list === "copies" ? withTexts({ ...found, items: found.items.slice(0, 15) }) : found;
  }, [list, tag]);
  useEffect(() => setHidden([]), [told]);
  // A list is made in the background: ask again until it is there.
  const isReady = isDone && told?.complete !== false;
  const isOld = isDone && told?.position !== undefined && told.position < live.position;
  useEffect(() => {
    if (!isDone || (isReady && !isOld)) return undefined;
    const timer = setTimeout(again, isReady ? 2000 : 400);
    return () => clearTimeout(timer);
  }, [told, isReady, isOld]);
  useKeys({ ...Object.fromEntries(LISTS.map((name, i) => [String(i + 1), () => setList(name)])) });
  const entries = (isDone ? told?.items ?? told?.events ?? [] : []).filter((entry) => ![...gone, ...hidden].includes(markOf[list](entry, tag)));
  const List = SHOWN[list];
  const names = LISTS.filter((name) => name !== "conflicts" || agree > 0 || list === name);
  return html`<${Head} title=${t.views.review} text=${t.review.lead} />
    <div class="tabs" role="group" aria-label=${t.review.lists}>${names.map((name) => html`<button type="button" key=${name} aria-pressed=${String(name === list)} onClick=${() => setList(name)}>${t.review.names[name]}${name === "quarantine" && live.n_quarantined > 0 && html`<span class="badge">${live.n_quarantined}</span>`}</button>`)}</div>
    <p class="hint">${t.review.texts[list]} ${["doubtful", "candidates", "twins", "copies"].includes(list) && html`<span class="keys-hint"><${Key}>j<//> <${Key}>k<//> <${Key}>y<//> <${Key}>x<//>${["doubtful", "candidates"].includes(list) && html` <${Key}>A<//>`}</span>`}</p>
    ${list === "candidates" && html`<div class="narrow"><${TagPicker} label=${t.review.tag} value=${tag} onPick=${setChosen} /></div>`}
    ${!isReady ? html`<p class="hint busy" role="status">${t.review.making}</p>` : entries.length ? html`<${List} entries=${entries} dismiss=${dismiss} hide=${setHidden} tag=${tag} />` : html`<${Empty} title=${t.review.empty[list] ?? t.review.emptyTitle} text=${t.review.emptyText} />`}`;
}
