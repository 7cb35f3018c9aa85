// Tag: one item, large; what is suggested for it and why; the next one.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { attempt, call } from "../api.js";
import { hue, number, percent, tagsOf, textOf, when, wordsOf } from "../format.js";
import { useKeys } from "../keys.js";
import { Bar, Button, Empty, Key, Marked, Select, TagName, TagNames, TagPicker } from "../parts.js";
import { may, useDraft, useStore } from "../store.js";
import * as tagging from "../tagging.js";
import { t } from "../texts.js";

const PICKER = "new-tag";
const REASON_WORDS = 3;
const NEAREST = 4;
const REASONS_MS = 150; // an item that is only passed by is not explained

// Why each tag: asked once an item stays on the screen.
function useReasons(item) {
  const mark = item && JSON.stringify(item);
  const position = useStore((s) => s.live.position);
  const [told, setTold] = useState(null);
  useEffect(() => {
    if (!item) { setTold(null); return undefined; }
    let isOver = false;
    const timer = setTimeout(() => attempt(async () => {
      const found = (await call("POST", "/v1/explain", { items: [item] })).items[0];
      if (!isOver) setTold({ ...found, mark });
    }), REASONS_MS);
    return () => { isOver = true; clearTimeout(timer); };
  }, [mark, position]);
  return told?.mark === mark ? told : null;
}

// The words that spoke most for a tag; small words only look like reasons.
function wordsFor(reasons, tag) {
  const forces = Object.entries(reasons?.words?.[tag] ?? {}).filter(([word]) => word.length > 2).sort((a, b) => b[1] - a[1]);
  const least = Math.max(0.1, 0.2 * (forces[0]?.[1] ?? 0));
  return forces.filter(([, force]) => force >= least).slice(0, REASON_WORDS).map(([word]) => word);
}

function Chip({ tag, i, work, reasons, abouts, showAbout }) {
  const score = work.scores[tag];
  const on = work.ticked.includes(tag);
  const words = wordsFor(reasons, tag);
  const near = reasons?.neighbours.filter((one) => one.tags.includes(tag)).length ?? 0;
  const why = words.length ? words.join(", ") : near ? t.tag.near(near) : "";
  return html`<button type="button" class="chip ${tagging.isGuessing(work) && !on ? "guess" : ""}" role="checkbox" aria-checked=${String(on)} data-tag=${tag} style=${{ "--hue": hue(tag) }}
    aria-label=${score === undefined ? tag : t.tag.chip(tag, percent(score))} aria-keyshortcuts=${i < 9 ? String(i + 1) : undefined} onClick=${() => tagging.toggle(tag)}>
    <span class="tick" aria-hidden="true" /><span class="name">${tag}</span>${i < 9 && html`<${Key}>${i + 1}<//>`}
    <span class="score">${score === undefined ? t.tag.added : percent(score)}</span>
    <${Bar} share=${score ?? 0} />
    <span class="why">${showAbout ? abouts[tag] || t.tags.noAbout : why}</span>
  </button>`;
}

function Reasons({ reasons, own }) {
  if (!reasons) return html`<p class="hint">${t.loading}</p>`;
  const shared = wordsOf(own);
  return html`<div class="reasons">
    ${Object.entries(reasons.parts).map(([tag, parts]) => {
    const rows = Object.entries(parts).filter(([, force]) => Math.abs(force) >= 0.005);
    const largest = Math.max(1e-9, ...rows.map(([, force]) => Math.abs(force)));
    return html`<table class="parts" key=${tag}><caption><${TagName} tag=${tag} /></caption><tbody>${rows.map(([name, force]) => html`<tr key=${name}><th scope="row">${t.parts[name] ?? name}</th><td class="number">${force < 0 ? "−" : "+"}${Math.abs(force).toFixed(2)}</td><td class="force"><${Bar} share=${Math.abs(force) / largest} kind=${force < 0 ? "against" : ""} /></td></tr>`)}</tbody></table>`;
  })}
    <h3>${t.tag.similar}</h3><p class="hint">${t.tag.marked}</p>
    ${reasons.neighbours.length ? html`<ol class="near">${reasons.neighbours.slice(0, NEAREST).map((one) => html`<li key=${one.id}><p><${Marked} text=${textOf(one)} words=${shared} /></p><p class="meta"><${TagNames} tags=${one.tags} /><span>${t.tag.distance(one.distance)}</span></p></li>`)}</ol>` : html`<p class="hint">${t.tag.nothingNear}</p>`}
  </div>`;
}

function Conflict({ conflict }) {
  const { mine, now } = conflict;
  const both = [...new Set([...(now?.y ?? []), ...mine.y])];
  return html`<section class="card conflict" role="alert" aria-label=${t.conflict.title}>
    <h2>${t.conflict.title}</h2><p class="quote">${textOf(mine)}</p>
    <div class="two">
      <div><h3>${now ? t.conflict.theirs(now.by ?? now.who ?? t.somebody, when(now.at ?? now.when)) : t.conflict.forgotten}</h3>${now && html`<${TagNames} tags=${now.y} />`}<${Button} onClick=${() => tagging.resolve(conflict, null)}>${t.conflict.keep}<//></div>
      <div><h3>${t.conflict.mine}</h3><${TagNames} tags=${mine.y} /><${Button} kind="main" onClick=${() => tagging.resolve(conflict, mine.y)}>${t.conflict.replace}<//></div>
    </div>
    ${now && html`<${Button} onClick=${() => tagging.resolve(conflict, both)}>${t.conflict.both(tagsOf(both))}<//>`}
  </section>`;
}

function Text({ work }) {
  const field = useRef();
  useEffect(() => { if (work.mode === "own") field.current?.focus(); }, [work.mode]);
  if (work.mode === "own") {
    return html`<label for="own" class="quiet">${t.tag.ownLabel}</label><textarea id="own" ref=${field} class="text" rows="6" placeholder=${t.tag.ownPlaceholder} spellcheck=${false} value=${work.own} onInput=${(event) => tagging.write(event.target.value)} />`;
  }
  return html`<p class="text" id="item">${textOf(work.item)}</p>`;
}

function Side({ work }) {
  const [up] = [tagging.comingUp().slice(0, 4)];
  return html`<aside class="side" aria-label=${t.tag.side}>
    <section><h2>${t.tag.comesNext}</h2>${up.length ? html`<ol class="lines">${up.map((item) => html`<li key=${item.id}>${textOf(item)}</li>`)}</ol>` : html`<p class="hint">${t.tag.nothingNext}</p>`}</section>
    <section><h2>${t.tag.recent}</h2>${work.recent.length ? html`<ol class="lines">${work.recent.map((item) => html`<li key=${item.id}><button type="button" onClick=${() => tagging.open(item)} aria-label=${t.tag.correct(textOf(item))}><span>${textOf(item)}</span><${TagNames} tags=${item.y} /></button></li>`)}</ol>` : html`<p class="hint">${t.tag.nothingRecent}</p>`}</section>
  </aside>`;
}

export function Tag() {
  const work = useStore(tagging.work);
  const tags = useStore((s) => s.tags);
  const live = useStore((s) => s.live);
  const away = useStore((s) => s.away);
  const canUndo = useStore((s) => s.undo.length > 0);
  const [why, setWhy] = useDraft("tag.why", false);
  const [about, setAbout] = useDraft("tag.about", false);
  const question = tagging.current();
  const reasons = useReasons(question);
  useEffect(() => { tagging.start(); }, []);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) { first.current = false; return; }
    if (!away) tagging.follow();
  }, [live.position, away]);
  const canWrite = may("write");
  const isEmpty = !question;
  const answer = () => { if (!isEmpty && work.ticked.length) tagging.answer(); };
  const focusPicker = () => document.getElementById(PICKER)?.focus();
  const ticks = Object.fromEntries(work.chips.slice(0, 9).map((tag, i) => [String(i + 1), () => tagging.toggle(tag)]));
  useKeys({
    ...(canWrite ? { ...ticks, Enter: answer, "Ctrl+Enter": answer, 0: () => { if (!isEmpty) tagging.answer([]); }, s: tagging.skip, u: tagging.takeBack, a: focusPicker, "/": focusPicker } : {}),
    w: () => setWhy((on) => !on), d: () => setAbout((on) => !on), n: tagging.writeOwn, Escape: () => { if (work.mode !== "queue") tagging.cancel(); },
  });
  const total = work.done + live.n_pool;
  const orders = [...Object.entries(t.orders), ...tags.map(({ tag }) => [`tag:${tag}`, t.orderTag(tag)])];
  const abouts = Object.fromEntries(tags.map((entry) => [entry.tag, entry.about]));
  return html`<div class="tagging">
    <div class="work">
      <h1 class="quiet">${t.views.tag}</h1>
      <div class="bar-row"><div class="count"><span><strong>${number(work.done)}</strong> ${t.tag.of(number(total))}</span><${Bar} share=${total ? work.done / total : 0} /></div>
        <${Select} label=${t.tag.order} quiet value=${work.order} options=${orders} onChange=${tagging.setOrder} />
        <${Button} kind="ghost" shortcut="n" onClick=${tagging.writeOwn}>${t.tag.own}<//></div>
      ${work.conflicts.map((conflict) => html`<${Conflict} key=${conflict.mine.id} conflict=${conflict} />`)}
      ${work.mode === "queue" && !work.item ? (work.asked || live.position >= 0) && html`<${Empty} title=${t.tag.empty} text=${t.tag.emptyText}><a class="button main" href="#/data">${t.tag.emptyData}</a><${Button} onClick=${tagging.writeOwn}>${t.tag.own}<//><//>` : html`
      <section class="card item" aria-label=${t.tag.item}>
        ${work.mode !== "queue" && html`<p class="origin"><span>${t.tag.modes[work.mode]}</span><${Button} kind="ghost" shortcut="Esc" onClick=${tagging.cancel}>${t.tag.back}<//></p>`}
        <${Text} work=${work} />
        <div class="chips-head"><h2 id="chips-title">${tagging.isGuessing(work) ? t.tag.guesses : t.tag.tags}</h2>
          <${Button} kind="ghost" shortcut="d" aria-pressed=${String(about)} onClick=${() => setAbout(!about)}>${t.tag.about}<//></div>
        ${tagging.isGuessing(work) && html`<p class="hint">${t.tag.guessesText(number(live.n_items))}</p>`}
        <div class="chips" role="group" aria-labelledby="chips-title">${work.chips.map((tag, i) => html`<${Chip} key=${tag} tag=${tag} i=${i} work=${work} reasons=${reasons} abouts=${abouts} showAbout=${about} />`)}</div>
        ${!work.chips.length && html`<p class="hint">${isEmpty ? t.tag.typeFirst : t.tag.none}</p>`}
        <${TagPicker} key=${work.item?.id ?? work.mode} id=${PICKER} label=${html`${t.tag.add} <${Key}>a<//>`} allowNew without=${work.ticked} placeholder=${t.tag.addPlaceholder} onPick=${tagging.add} />
        <div class="actions">
          <${Button} kind="main" shortcut="Enter" disabled=${isEmpty || !work.ticked.length || !canWrite} onClick=${answer}>${t.tag.save}<//>
          <${Button} shortcut="0" disabled=${isEmpty || !canWrite} onClick=${() => tagging.answer([])}>${t.tag.noTags}<//>
          ${work.mode === "queue" && html`<${Button} shortcut="s" disabled=${!canWrite} onClick=${tagging.skip}>${t.tag.skip}<//>`}
          <span class="grow" />
          <${Button} kind="ghost" shortcut="w" aria-expanded=${String(why)} disabled=${isEmpty} onClick=${() => setWhy(!why)}>${t.tag.why}<//>
          <${Button} kind="ghost" shortcut="u" disabled=${!canUndo || !canWrite} onClick=${tagging.takeBack}>${t.undo}<//>
        </div>
        ${!canWrite && html`<p class="hint">${t.readOnly}</p>`}
      </section>
      ${why && question && html`<section class="card" aria-label=${t.tag.whyTitle}><h2>${t.tag.whyTitle}</h2><${Reasons} reasons=${reasons} own=${textOf(question)} /></section>`}`}
    </div>
    <${Side} work=${work} />
  </div>`;
}
