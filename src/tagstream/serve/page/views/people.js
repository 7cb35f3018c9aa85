// People: who may do what, and how far they agree.

import { html, useState } from "../vendor/preact.js";
import { attempt, call, read, signOut } from "../api.js";
import { number, percent, when } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Dialog, Empty, Head, TagName, useData } from "../parts.js";
import { ask, may, say, useStore } from "../store.js";
import { t } from "../texts.js";

const ROLES = ["read", "write", "admin"];

function Secret({ made, onClose }) {
  const copy = async () => {
    await navigator.clipboard.writeText(made.token);
    say(t.people.copied);
  };
  return html`<${Dialog} title=${t.people.made(made.name)} onClose=${onClose}><p>${t.people.once}</p><p class="secret"><code>${made.token}</code></p><div class="row"><${Button} kind="main" onClick=${copy}>${t.people.copy}<//><${Button} onClick=${onClose}>${t.close}<//></div><//>`;
}

function Agreement() {
  const [told] = useData(() => read("/v1/agreement"));
  if (!told) return null;
  return html`<section class="card"><h2>${t.people.agreement}</h2><p>${t.people.alpha(told.alpha === null ? "–" : told.alpha.toFixed(2), number(told.n_items))}</p>
    ${told.tags.length > 0 && html`<div class="table" tabindex="0"><table><caption class="quiet">${t.people.agreement}</caption><thead><tr><th scope="col">${t.tags.name}</th><th scope="col" class="number">${t.people.cases}</th><th scope="col" class="number">α</th></tr></thead><tbody>${told.tags.map((one) => html`<tr key=${one.tag}><th scope="row"><${TagName} tag=${one.tag} /></th><td class="number">${number(one.n)}</td><td class="number">${one.alpha === null ? "–" : one.alpha.toFixed(2)}</td></tr>`)}</tbody></table></div>`}</section>`;
}

export function People() {
  const me = useStore((s) => s.me);
  const isAdmin = may("admin");
  const [folk, againFolk] = useData(() => read("/v1/people"));
  const [tokens, againTokens] = useData(() => (isAdmin ? read("/v1/tokens") : { tokens: [] }), [isAdmin]);
  const [made, setMade] = useState(null);
  const again = () => { againFolk(); againTokens(); };
  const isFirst = me?.open;
  const add = async () => {
    const given = await ask({ title: t.people.add, text: isFirst ? t.people.firstText : t.people.addText, yes: t.people.addDo,
      fields: [{ name: "name", label: t.people.name }, { name: "role", label: t.people.role, value: isFirst ? "admin" : "write", options: (isFirst ? ["admin"] : ROLES).map((role) => [role, t.people.roles[role]]) }] });
    if (!given) return;
    const told = await attempt(() => call("POST", "/v1/tokens", { name: given.name.trim(), role: given.role }));
    if (!told) return;
    if (isFirst) sessionStorage.setItem("token", told.token); // from now on everybody needs one
    setMade(told);
    again();
  };
  const revoke = async (name) => {
    if (!(await ask({ title: t.people.revokeTitle(name), text: t.people.revokeText, yes: t.people.revoke, danger: true, fields: [] }))) return;
    const done = await attempt(() => call("POST", "/v1/tokens/revoke", { name }));
    if (!done) return;
    say(t.people.revoked(name));
    again();
  };
  useKeys(isAdmin ? { n: add } : {});
  const people = folk?.people ?? [];
  const named = new Set((tokens?.tokens ?? []).map((one) => one.name));
  return html`<${Head} title=${t.views.people} text=${me?.open ? t.people.open : t.people.lead}>${isAdmin && html`<${Button} kind="main" shortcut="n" onClick=${add}>${t.people.add}<//>`}<//>
    ${me && html`<section class="card me"><span class="avatar" aria-hidden="true">${me.who[0].toUpperCase()}</span><p><strong>${me.who}</strong><br /><span class="hint">${t.people.roles[me.role]}</span></p><span class="grow" />${!me.open && html`<${Button} onClick=${signOut}>${t.people.signOut}<//>`}</section>`}
    ${people.length ? html`<div class="table" tabindex="0"><table><caption class="quiet">${t.views.people}</caption><thead><tr><th scope="col">${t.people.name}</th><th scope="col">${t.people.role}</th><th scope="col" class="number">${t.people.tagged}</th><th scope="col" class="wide-only">${t.people.last}</th><th scope="col"><span class="quiet">${t.people.change}</span></th></tr></thead>
      <tbody>${people.map((one) => html`<tr key=${one.who}><th scope="row">${one.who}</th><td>${t.people.roles[one.role] ?? t.people.noToken}</td><td class="number">${number(one.n_items)}</td><td class="wide-only">${when(one.last) || t.people.never}</td><td class="end">${isAdmin && named.has(one.who) && html`<${Button} kind="ghost" label=${t.people.revokeOf(one.who)} onClick=${() => revoke(one.who)}>${t.people.revoke}<//>`}</td></tr>`)}</tbody></table></div>` : folk && html`<${Empty} title=${t.people.empty} text=${t.people.emptyText} />`}
    ${me?.agree > 0 && html`<${Agreement} />`}
    ${made && html`<${Secret} made=${made} onClose=${() => { setMade(null); if (isFirst) location.reload(); }} />`}`;
}
