// The page: the frame around the views, and what belongs to all of them. No build step.

import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { follow, loadMe, read, sendOutbox, undo } from "./api.js";
import { number } from "./format.js";
import { useKeys } from "./keys.js";
import { Button, Dialog, Field, Icon, Key } from "./parts.js";
import { closeError, closeToast, get, set, useStore } from "./store.js";
import { refused, takeBack } from "./tagging.js";
import { t } from "./texts.js";
import { Data } from "./views/data.js";
import { Items } from "./views/items.js";
import { People } from "./views/people.js";
import { Progress } from "./views/progress.js";
import { Review } from "./views/review.js";
import { Tag } from "./views/tag.js";
import { Tags } from "./views/tags.js";

const VIEWS = { tag: Tag, review: Review, items: Items, tags: Tags, progress: Progress, data: Data, people: People };
const LETTERS = { tag: "t", review: "r", items: "i", tags: "g", progress: "p", data: "d", people: "e" };
const TOAST_MS = 20_000;
const TAGS_MS = 1000; // between two looks at all tags

// ------------------------------------------------------------------ where we are
const viewOf = () => {
  const name = /^#\/(\w+)/.exec(location.hash)?.[1];
  return name in VIEWS ? name : "tag";
};

function useView() {
  const [view, setView] = useState(viewOf);
  useEffect(() => {
    const changed = () => setView(viewOf());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return view;
}

// ------------------------------------------------------------------ light and dark
const SCHEMES = ["auto", "light", "dark"];
const scheme = () => localStorage.getItem("tagstream.scheme") ?? "auto";
function useScheme() {
  const [now, setNow] = useState(scheme);
  useEffect(() => {
    document.documentElement.dataset.scheme = now;
    localStorage.setItem("tagstream.scheme", now);
  }, [now]);
  return [now, () => setNow(SCHEMES[(SCHEMES.indexOf(now) + 1) % SCHEMES.length])];
}

// ------------------------------------------------------------------ messages
const Errors = () => {
  const errors = useStore((s) => s.errors);
  return html`<div class="errors" role="alert">${errors.map((error) => html`<p class="message bad" key=${error.id}><span>${error.text}</span><${Button} kind="ghost icon-only" icon="close" label=${t.close} onClick=${() => closeError(error.id)} /></p>`)}</div>`;
};

function Away() {
  const away = useStore((s) => s.away);
  const waiting = useStore((s) => s.outbox.length);
  return html`<div role="status">${away && html`<p class="message away" id="away"><span><strong>${t.away.title}</strong> ${t.away.text} ${waiting > 0 && t.away.waiting(waiting)}</span></p>`}</div>`;
}

function Warnings() {
  const warnings = useStore((s) => s.warnings);
  const n = useStore((s) => s.live.n_quarantined);
  if (!warnings.length) return null;
  return html`<div class="message warn" id="warnings" role="status"><span>${warnings.join(" ")} ${n > 0 && html`<a href="#/review" onClick=${() => set((s) => ({ drafts: { ...s.drafts, "review.list": "quarantine" } }))}>${t.showQuarantine}</a>`}</span></div>`;
}

function Toast({ view }) {
  const toast = useStore((s) => s.toast);
  useEffect(() => {
    if (!toast) return undefined;
    const timer = setTimeout(closeToast, TOAST_MS);
    return () => clearTimeout(timer);
  }, [toast]);
  const back = () => (view === "tag" ? takeBack() : undo());
  return html`<div class="toasts" role="status" aria-live="polite">${toast && html`<p class="toast" id="toast" key=${toast.id}><span>${toast.text}</span>${toast.undo && html`<${Button} kind="on-dark" onClick=${back}>${t.undo}<//>`}<${Button} kind="ghost icon-only on-dark" icon="close" label=${t.close} onClick=${closeToast} /></p>`}</div>`;
}

// ------------------------------------------------------------------ questions
function Question() {
  const asking = useStore((s) => s.asking);
  const answer = useRef(null);
  if (!asking) return null;
  const submit = (event) => {
    event.preventDefault();
    answer.current = Object.fromEntries(new FormData(event.target));
    event.target.closest("dialog").close();
  };
  const closed = () => {
    const given = answer.current;
    answer.current = null;
    asking.resolve(given);
  };
  return html`<${Dialog} key=${asking.title} title=${asking.title} onClose=${closed}><form onSubmit=${submit} id="ask">
    ${asking.text && html`<p>${asking.text}</p>`}
    ${asking.fields.map((field) => html`<${Field} key=${field.name} label=${field.label}>${(id) => (field.options ? html`<select id=${id} name=${field.name}>${field.options.map(([value, text]) => html`<option key=${value} value=${value} selected=${value === field.value}>${text}</option>`)}</select>` : html`<input id=${id} name=${field.name} type=${field.secret ? "password" : "text"} required=${!field.optional} maxlength="200" autocomplete="off" value=${field.value ?? ""} />`)}<//>`)}
    <div class="row"><${Button} type="submit" kind=${asking.danger ? "danger" : "main"} data-first>${asking.yes}<//><${Button} onClick=${(event) => event.target.closest("dialog").close()}>${t.cancel}<//></div>
  </form><//>`;
}

const Help = ({ view, onClose }) => html`<${Dialog} title=${t.help.title} onClose=${onClose} wide>
  <div class="columns">${[[t.views[view], t.help.views[view]], [t.help.everywhere, t.help.all]].map(([title, keys]) => html`<section key=${title}><h3>${title}</h3><table class="keys"><tbody>${keys.map(([key, text]) => html`<tr key=${key}><th scope="row">${key.split(" ").map((one) => html`<${Key}>${one}<//> `)}</th><td>${text}</td></tr>`)}</tbody></table></section>`)}</div>
  <p class="hint">${t.help.text}</p><//>`;

// ------------------------------------------------------------------ the frame
function Nav({ view }) {
  const live = useStore((s) => s.live);
  const counts = { tag: live.n_pool, review: live.n_quarantined };
  return html`<nav class="nav" aria-label=${t.navigation}>${Object.keys(VIEWS).map((name) => html`<a key=${name} href=${`#/${name}`} aria-current=${name === view ? "page" : undefined}><${Icon} name=${name} /><span>${t.views[name]}</span>${counts[name] > 0 && html`<span class="badge">${number(counts[name])}</span>`}</a>`)}</nav>`;
}

function useTags() {
  const position = useStore((s) => s.live.position);
  const away = useStore((s) => s.away);
  const me = useStore((s) => s.me);
  const last = useRef(0);
  useEffect(() => {
    if (away || !me) return undefined;
    const timer = setTimeout(async () => {
      last.current = Date.now();
      try { set({ tags: (await read("/v1/tags")).tags }); } catch { /* the next change asks again */ }
    }, Math.max(0, TAGS_MS - (Date.now() - last.current)));
    return () => clearTimeout(timer);
  }, [position, away, me]);
}

function App() {
  const view = useView();
  const me = useStore((s) => s.me);
  const away = useStore((s) => s.away);
  const [help, setHelp] = useState(false);
  const [now, turn] = useScheme();
  const View = VIEWS[view];
  useTags();
  const first = useRef(true);
  useEffect(() => {
    document.title = `${t.views[view]} · tagstream`;
    scrollTo(0, 0);
    if (!first.current) document.getElementById("main").focus({ preventScroll: true });
    first.current = false;
  }, [view]);
  useKeys({ "?": () => setHelp(true), u: () => undo(), Escape: () => { const last = get().errors.at(-1); if (last) closeError(last.id); else closeToast(); },
    ...Object.fromEntries(Object.entries(LETTERS).map(([name, letter]) => [`g ${letter}`, () => { location.hash = `#/${name}`; }])) });
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>${t.skipToMain}</a>
    <header class="side-bar"><a class="brand" href="#/tag"><svg viewBox="0 0 32 32" aria-hidden="true"><path d="M4 6h13l11 10-11 10H4z" /><circle cx="10" cy="16" r="3" /></svg><span>tagstream</span></a>
      <${Nav} view=${view} />
      <div class="foot"><span class="dot ${away ? "off" : ""}" title=${away ? t.away.title : t.live}><span class="quiet">${away ? t.away.title : t.live}</span></span><span class="who">${me ? me.who : ""}</span>
        <${Button} kind="ghost icon-only" icon=${now} label=${t.schemes[now]} title=${t.schemes[now]} onClick=${turn} /><${Button} kind="ghost icon-only" icon="keys" label=${t.help.open} title=${t.help.open} onClick=${() => setHelp(true)} /><a class="api-link" href="/docs">API</a></div></header>
    <main id="main" tabindex="-1"><div class="messages"><${Away} /><${Errors} /><${Warnings} /></div><div class="view view-${view}">${me && html`<${View} key=${view} />`}</div></main>
    <${Toast} view=${view} /><${Question} />${help && html`<${Help} view=${view} onClose=${() => setHelp(false)} />`}`;
}

document.documentElement.lang = t.language;
document.documentElement.dataset.scheme = scheme();
render(html`<${App} />`, document.body);
await loadMe();
sendOutbox(refused);
follow();
