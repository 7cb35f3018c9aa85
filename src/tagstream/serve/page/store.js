// One store for the whole page. What a reload must not lose is kept in the session storage.

import { useEffect, useReducer, useRef } from "./vendor/preact.js";

const KEPT = ["work", "drafts", "outbox", "undo"];

const load = (name, fallback) => {
  try { return JSON.parse(sessionStorage.getItem(`tagstream.${name}`)) ?? fallback; } catch { return fallback; }
};

let state = {
  me: null, // {who, role, open, agree}
  live: { position: -1, n_items: 0, n_tags: 0, n_pool: 0, micro_f1: null, n_quarantined: 0 },
  away: false, // the service does not answer
  errors: [], // {id, text}: they stand until they are closed
  toast: null, // {id, text, undo}
  asking: null, // the open question: {title, text, fields, yes, resolve}
  warnings: [],
  tags: [], // {tag, count, about, …}, the most frequent first
  changed: null, // the items that changed last, as the stream told
  work: load("work", null),
  drafts: load("drafts", {}), // name → what was typed or chosen there
  outbox: load("outbox", []), // changes that are not acknowledged yet
  undo: load("undo", []), // what can be taken back, the last one at the end
};
const listeners = new Set();

export const get = () => state;

export function set(patch) {
  const before = state;
  state = { ...state, ...(typeof patch === "function" ? patch(state) : patch) };
  for (const name of KEPT) if (state[name] !== before[name]) keep(name);
  for (const listener of [...listeners]) listener();
}

function keep(name) {
  try { sessionStorage.setItem(`tagstream.${name}`, JSON.stringify(state[name])); } catch { /* full: the page goes on without */ }
}

// Draw again when what `pick` returns is another value.
export function useStore(pick) {
  const [, draw] = useReducer((n) => n + 1, 0);
  const last = useRef();
  last.current = pick(state);
  useEffect(() => {
    const listener = () => { if (!Object.is(pick(state), last.current)) draw(); };
    listeners.add(listener);
    listener();
    return () => listeners.delete(listener);
  }, []);
  return last.current;
}

// Like useState, but kept over a reload and over a visit to another view.
export function useDraft(name, initial) {
  const value = useStore((s) => s.drafts[name]);
  const now = value === undefined ? initial : value;
  const change = (next) => set((s) => {
    const old = s.drafts[name] === undefined ? initial : s.drafts[name];
    return { drafts: { ...s.drafts, [name]: typeof next === "function" ? next(old) : next } };
  });
  return [now, change];
}

// ------------------------------------------------------------------ messages
let count = 0;

export function fail(text) {
  if (get().errors.some((error) => error.text === text)) return;
  set((s) => ({ errors: [...s.errors, { id: ++count, text }].slice(-4) }));
}

export function closeError(id) {
  set((s) => ({ errors: s.errors.filter((error) => error.id !== id) }));
}

// Say that something is done. `undo` is {path, body}: the call that takes it back.
export function say(text, undo = null) {
  const toast = { id: ++count, text, undo };
  set((s) => ({ toast, undo: undo ? [...s.undo, { text, ...undo }].slice(-50) : s.undo }));
}

export function closeToast() { set({ toast: null }); }

// Ask the person something: resolves with the values of the fields, or with null.
export function ask(question) {
  return new Promise((resolve) => {
    set({ asking: { ...question, resolve: (values) => { set({ asking: null }); resolve(values); } } });
  });
}

export const may = (role) => {
  const order = ["read", "write", "admin"];
  const me = get().me;
  return me !== null && order.indexOf(me.role) >= order.indexOf(role);
};
