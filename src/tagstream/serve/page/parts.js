// Small components that several views use.

import { html, useCallback, useEffect, useRef, useState } from "./vendor/preact.js";
import { attempt } from "./api.js";
import { cutAt, hue } from "./format.js";
import { useKeys } from "./keys.js";
import { get, useStore } from "./store.js";
import { t } from "./texts.js";

// ------------------------------------------------------------------ data
// What a route tells, asked again when something was learnt, when the service is back, and when
// `deps` change. [data, ask again, is there an answer to these deps yet]
export function useData(load, deps = [], isLive = true) {
  const [data, setData] = useState(undefined);
  const [done, setDone] = useState(null);
  const position = useStore((s) => (isLive ? `${s.live.position}/${s.live.n_pool}/${s.away}` : s.away));
  const turn = useRef(0);
  const mark = JSON.stringify(deps);
  const ask = useCallback(async () => {
    const own = ++turn.current;
    const told = await attempt(load);
    if (own !== turn.current || told === undefined) return;
    setData(told);
    setDone(mark);
  }, [mark]);
  useEffect(() => { if (!get().away) ask(); }, [ask, position]);
  useEffect(() => () => { turn.current += 1; }, []);
  return [data, ask, done === mark];
}

// The row that the keys act on.
export function useCursor(n, more = {}) {
  const [at, setAt] = useState(0);
  const cursor = Math.max(0, Math.min(at, n - 1));
  const go = (next) => {
    const to = Math.max(0, Math.min(next, n - 1));
    setAt(to);
    document.querySelector(`[data-row="${to}"]`)?.scrollIntoView({ block: "nearest" });
  };
  const down = () => go(cursor + 1), up = () => go(cursor - 1);
  useKeys({ j: down, ArrowDown: down, k: up, ArrowUp: up, ...Object.fromEntries(Object.entries(more).map(([key, act]) => [key, () => { if (n) act(cursor); }])) });
  return [cursor, setAt];
}

// ------------------------------------------------------------------ words and tags
export const TagName = ({ tag, note }) => html`<span class="tag" style=${{ "--hue": hue(tag) }}>${tag}${note && html`<small>${note}</small>`}</span>`;

export const TagNames = ({ tags, none = t.noTags }) => html`<span class="tags">${tags?.length ? tags.map((tag) => html`<${TagName} key=${tag} tag=${tag} />`) : html`<span class="soft">${none}</span>`}</span>`;

export const Marked = ({ text, words }) => cutAt(text, words).map(([part, is]) => (is ? html`<mark>${part}</mark>` : part));

export const Key = ({ children }) => html`<kbd>${children}</kbd>`;

const ICONS = {
  tag: "M3 11V4a1 1 0 0 1 1-1h7l10 10-8 8z M7.5 7.5h.01",
  review: "M4 12l5 5L20 6",
  items: "M4 6h16 M4 12h16 M4 18h10",
  tags: "M4 9h16 M4 15h16 M10 4L8 20 M16 4l-2 16",
  progress: "M4 19V5 M4 19h16 M7 15l4-5 3 3 5-7",
  data: "M12 4v11 M7 10l5 5 5-5 M4 20h16",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z M2.5 20a6.5 6.5 0 0 1 13 0 M16 4.5a3.5 3.5 0 0 1 0 6.5 M18 14.5a6.5 6.5 0 0 1 3.5 5.5",
  close: "M6 6l12 12 M18 6L6 18",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14z M16 16l5 5",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8z M12 2v2 M12 20v2 M2 12h2 M20 12h2 M5 5l1.5 1.5 M17.5 17.5L19 19 M5 19l1.5-1.5 M17.5 6.5L19 5",
  dark: "M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z",
  auto: "M12 3a9 9 0 1 0 0 18z M12 3a9 9 0 0 1 0 18",
  keys: "M3 6h18v12H3z M7 10h.01 M11 10h.01 M15 10h.01 M8 14h8",
  up: "M12 19V6 M6 11l6-6 6 6",
};
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${ICONS[name]} /></svg>`;

// ------------------------------------------------------------------ buttons and fields
export function Button({ kind = "", shortcut, icon, children, label, ...rest }) {
  return html`<button type="button" class="button ${kind}" aria-label=${label} ...${rest}>${icon && html`<${Icon} name=${icon} />`}${children}${shortcut && html`<${Key}>${shortcut}<//>`}</button>`;
}

let fields = 0;
export function Field({ label, hint, children, quiet = false }) {
  const id = useRef(`field-${++fields}`).current;
  return html`<div class="field"><label for=${id} class=${quiet ? "quiet" : ""}>${label}</label>${children(id)}${hint && html`<p class="hint">${hint}</p>`}</div>`;
}

export const Select = ({ label, value, options, onChange, quiet, ...rest }) => html`<${Field} label=${label} quiet=${quiet}>${(id) => html`
  <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>${options.map(([name, text]) => html`<option key=${name} value=${name} selected=${name === value}>${text}</option>`)}</select>`}<//>`;

// ------------------------------------------------------------------ choosing a tag
const MOST_OPTIONS = 8;

export function matching(names, typed) {
  const low = typed.trim().toLowerCase();
  if (!low) return names.slice(0, MOST_OPTIONS);
  const found = names.filter((name) => name.toLowerCase().includes(low));
  const rank = (name) => (name.toLowerCase() === low ? 0 : name.toLowerCase().startsWith(low) ? 1 : 2);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, MOST_OPTIONS);
}

// A field that filters the tags as one types. Enter takes the marked one.
export function TagPicker({ label, onPick, allowNew = false, without = [], placeholder = "", value, keepOpen = false, quiet = false, id: given }) {
  const own = useRef(given ?? `picker-${++fields}`).current;
  const names = useStore((s) => s.tags).map((entry) => entry.tag).filter((tag) => !without.includes(tag));
  const [typed, setTyped] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const options = matching(names, typed);
  const fresh = typed.trim();
  const isNew = allowNew && fresh && !get().tags.some((entry) => entry.tag === fresh) && !without.includes(fresh);
  const all = isNew ? [...options, null] : options;
  const marked = Math.min(at, all.length - 1);
  const pick = (tag) => {
    const chosen = tag === null ? fresh : tag;
    setTyped("");
    setAt(0);
    if (!keepOpen) setOpen(false);
    onPick(chosen);
  };
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowDown") { setOpen(true); setAt(open ? Math.min(marked + 1, all.length - 1) : 0); }
    else if (event.key === "ArrowUp") setAt(Math.max(marked - 1, 0));
    else if (event.key === "Enter" && open && all.length && (fresh || at)) pick(all[Math.max(marked, 0)]);
    else if (event.key === "Enter" && fresh && without.includes(fresh)) setTyped(""); // it is there already
    else if (event.key === "Escape" && open && typed) { setTyped(""); setOpen(false); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="picker">
    <label for=${own} class=${quiet ? "quiet" : ""}>${label}</label>
    <input id=${own} type="text" role="combobox" autocomplete="off" maxlength="200" spellcheck=${false} placeholder=${value || placeholder} class=${value ? "has-value" : ""}
      aria-expanded=${String(open && all.length > 0)} aria-controls=${`${own}-list`} aria-autocomplete="list"
      aria-activedescendant=${open && all.length ? `${own}-${marked}` : undefined} value=${typed}
      onInput=${(event) => { setTyped(event.target.value); setAt(0); setOpen(true); }}
      onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} onKeyDown=${onKeyDown} />
    <ul id=${`${own}-list`} role="listbox" aria-label=${label} hidden=${!open || !all.length}>
      ${all.map((tag, i) => html`<li key=${tag ?? ""} id=${`${own}-${i}`} role="option" aria-selected=${String(i === marked)}
        onMouseDown=${(event) => { event.preventDefault(); pick(tag); }}>${tag === null ? html`<span>${t.create(fresh)}</span>` : html`<${TagName} tag=${tag} />`}</li>`)}
    </ul>
  </div>`;
}

// ------------------------------------------------------------------ pictures
export function Spark({ points, label }) {
  const [w, h] = [84, 24];
  const known = points.map((value, i) => [i, value]).filter(([, value]) => value !== null);
  if (known.length < 2) return html`<span class="soft" title=${label}>–</span>`;
  const x = (i) => 2 + (w - 4) * i / (points.length - 1), y = (value) => 2 + (1 - value) * (h - 4);
  const [last, value] = known.at(-1);
  return html`<svg class="spark" viewBox=${`0 0 ${w} ${h}`} role="img" aria-label=${label}><polyline points=${known.map(([i, v]) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ")} /><circle cx=${x(last)} cy=${y(value)} r="2" /></svg>`;
}

// A value with its interval, between 0 and 1.
export function Interval({ triple, label }) {
  if (!triple) return html`<span class="soft">–</span>`;
  const [value, low, high] = triple;
  return html`<span class="interval" title=${`${label} ${value.toFixed(2)} (${low.toFixed(2)} – ${high.toFixed(2)})`}><span class="number">${value.toFixed(2)}</span><span class="range" aria-hidden="true"><i style=${{ left: `${100 * low}%`, width: `${100 * (high - low)}%` }} /><b style=${{ left: `${100 * value}%` }} /></span></span>`;
}

export function Curve({ points, label }) {
  const place = useRef();
  const [w, setWidth] = useState(960);
  useEffect(() => {
    const watch = new ResizeObserver(() => setWidth(Math.max(240, place.current.clientWidth)));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  const [h, left, bottom, top] = [Math.min(270, w / 2), 36, 24, 10];
  const y = (value) => top + (1 - value) * (h - bottom - top);
  const first = points[0]?.position ?? 0, last = points.at(-1)?.position ?? 1;
  const x = (position) => left + (w - left - 10) * (last === first ? 1 : (position - first) / (last - first));
  const line = points.map((p) => `${x(p.position).toFixed(1)},${y(p.micro_f1).toFixed(1)}`).join(" ");
  return html`<div ref=${place}><svg class="curve" viewBox=${`0 0 ${w} ${h}`} role="img" aria-label=${label}>
    ${[0, 0.25, 0.5, 0.75, 1].map((v) => html`<line key=${v} class="axis" x1=${left} x2=${w} y1=${y(v)} y2=${y(v)} /><text x=${left - 8} y=${y(v) + 4} text-anchor="end">${v.toFixed(2).replace(/0$/, "")}</text>`)}
    ${points.length > 1 && html`<polygon class="area" points=${`${x(first)},${y(0)} ${line} ${x(last)},${y(0)}`} /><polyline class="line" points=${line} />`}
    ${points.length > 0 && html`<circle cx=${x(last)} cy=${y(points.at(-1).micro_f1)} r="4.5" /><text x=${left} y=${h - 4}>${t.progress.event(first)}</text><text x=${w - 8} y=${h - 4} text-anchor="end">${t.progress.event(last)}</text>`}
  </svg></div>`;
}

export const Bar = ({ share, kind = "" }) => html`<span class="bar ${kind}" aria-hidden="true"><i style=${{ width: `${Math.max(0, Math.min(100, 100 * share))}%` }} /></span>`;

// ------------------------------------------------------------------ frames
export const Empty = ({ title, text, children }) => html`<div class="empty"><svg viewBox="0 0 64 48" aria-hidden="true"><path d="M8 8h28l20 16-20 16H8z" /><circle cx="18" cy="24" r="4" /></svg><h2>${title}</h2><p>${text}</p>${children && html`<div class="row">${children}</div>`}</div>`;

export const Head = ({ title, text, children }) => html`<header class="head"><div><h1>${title}</h1>${text && html`<p class="hint">${text}</p>`}</div>${children && html`<div class="row">${children}</div>`}</header>`;

export function Dialog({ title, onClose, wide = false, children }) {
  const place = useRef();
  useEffect(() => {
    const before = document.activeElement;
    place.current.showModal();
    place.current.querySelector("input, select, textarea, [data-first]")?.focus();
    return () => { before?.focus?.(); };
  }, []);
  return html`<dialog ref=${place} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onClick=${(event) => { if (event.target === place.current) place.current.close(); }}>
    <div class="dialog"><header><h2>${title}</h2><${Button} kind="ghost icon-only" icon="close" label=${t.close} onClick=${() => place.current.close()} /></header>${children}</div></dialog>`;
}
