// Progress: how well it suggests, measured before it learnt; who did what; which promises are kept.

import { html } from "../vendor/preact.js";
import { read } from "../api.js";
import { f1, number, percent, when } from "../format.js";
import { Bar, Curve, Empty, Head, Spark, TagName, useData } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const Figure = ({ label, value, note }) => html`<div class="figure card"><span class="label">${label}</span><strong>${value}</strong>${note && html`<span class="hint">${note}</span>`}</div>`;

function Promises({ tags }) {
  const kept = tags.filter((entry) => entry.mode && entry.mode !== "suggest");
  if (!kept.length) return html`<p class="hint">${t.progress.noPromises} <a href="#/tags">${t.progress.givePromise}</a></p>`;
  return html`<div class="table" tabindex="0"><table><caption class="quiet">${t.progress.promises}</caption><thead><tr><th scope="col">${t.tags.name}</th><th scope="col">${t.tags.alone}</th><th scope="col" class="number">${t.progress.promised}</th><th scope="col" class="number">${t.progress.keptHead}</th><th scope="col" class="number">${t.progress.cases}</th></tr></thead>
    <tbody>${kept.map((entry) => html`<tr key=${entry.tag}><th scope="row"><${TagName} tag=${entry.tag} /></th><td>${t.tags.modes[entry.mode]}</td><td class="number">${entry.mode === "auto" ? percent(entry.promise) : "–"}</td><td class="number">${entry.kept === null || entry.kept === undefined ? "–" : html`<span class=${entry.kept >= entry.promise ? "good" : "bad"}>${percent(entry.kept)}</span>`}</td><td class="number">${number(entry.n_kept ?? 0)}</td></tr>`)}</tbody></table></div>`;
}

export function Progress() {
  const [told] = useData(() => read("/v1/progress"));
  const [folk] = useData(() => read("/v1/people"));
  const tags = useStore((s) => s.tags);
  const live = useStore((s) => s.live);
  if (!told) return html`<${Head} title=${t.views.progress} /><p class="hint busy">${t.loading}</p>`;
  const drifting = tags.filter((entry) => entry.drifting);
  const people = folk?.people ?? [];
  const most = Math.max(1, ...people.map((one) => one.n_items));
  const measured = told.micro_f1 !== null;
  return html`<${Head} title=${t.views.progress} text=${t.progress.lead} />
    <div class="figures-row"><${Figure} label=${t.progress.f1} value=${f1(told.micro_f1)} note=${t.progress.f1Note} /><${Figure} label=${t.progress.items} value=${number(told.n_items)} /><${Figure} label=${t.progress.waiting} value=${number(live.n_pool)} /><${Figure} label=${t.views.tags} value=${number(tags.length)} /></div>
    <section class="card" aria-labelledby="curve-title"><h2 id="curve-title">${t.progress.curve}</h2>${measured ? html`<${Curve} points=${told.curve} label=${t.progress.curveOf(f1(told.micro_f1))} /><p class="hint">${t.progress.curveText}</p>` : html`<${Empty} title=${t.progress.empty} text=${t.progress.emptyText}><a class="button main" href="#/tag">${t.views.tag}</a><//>`}</section>
    <div class="columns">
      <section class="card"><h2>${t.progress.people}</h2>${people.length ? html`<ul class="bars">${people.map((one) => html`<li key=${one.who}><span>${one.who}</span><${Bar} share=${one.n_items / most} /><span class="number">${number(one.n_items)}</span><span class="hint">${when(one.last)}</span></li>`)}</ul>` : html`<p class="hint">${t.progress.nobody}</p>`}</section>
      <section class="card"><h2>${t.progress.drift}</h2>${drifting.length ? html`<ul class="bars">${drifting.map((entry) => html`<li key=${entry.tag}><${TagName} tag=${entry.tag} /><${Spark} points=${entry.spark ?? []} label=${t.tags.sparkOf(entry.tag)} /><span class="number">${f1(entry.lately.f1)}</span></li>`)}</ul>` : html`<p class="hint">${t.progress.noDrift}</p>`}</section>
    </div>
    <section class="card"><h2>${t.progress.promises}</h2><${Promises} tags=${tags} /></section>`;
}
