// The work of one window on the view "Tag": which item is shown, what is ticked, what comes next.
//
// An answer is sent in the background while the next item is shown already. The item that is shown
// and the one after it are leased, so that nobody else gets them.

import { Problem, TAB, attempt, call, change, itemPath, newKey, read, undo, undoOf } from "./api.js";
import { fail, get, may, say, set } from "./store.js";
import { t } from "./texts.js";

const RENEW_MS = 120_000;
const LOOK_MS = 10_000; // between two looks while nothing is waiting
const AHEAD = 4; // with fewer items at hand, the next ones are asked for
const ASKED = 10;
const RECENT = 8;
const GUESSES = 3;
const SHOWN = 9; // as many as there are number keys
const SHOWN_FROM = 0.05;

const EMPTY = {
  mode: "queue", // "own": a text of one's own; "item": an item that is there already
  order: "mixed",
  item: null, // {id, text or x, version, y}
  scores: {}, suggested: [], chips: [], // chips: the tags that are shown, in their order
  ticked: [], touched: false,
  own: "", // the text of one's own
  done: 0, recent: [], // what this window has done
  conflicts: [], // answers that somebody else's stands against: {item, mine, now}
  asked: false, // whether the service said what comes next
};

export const work = () => get().work ?? EMPTY;
const put = (patch) => set((s) => ({ work: { ...(s.work ?? EMPTY), ...patch } }));

let queue = []; // items that come next, with suggestions
const leased = new Set();
const gone = new Set(); // answered or skipped here; the service may not know it yet
const skipped = new Set(); // of these, the skipped ones: they come again at the end

// ------------------------------------------------------------------ leases
// Take an item for this window. False if somebody else has it, or has answered it since it was listed.
async function lease(id) {
  if (!may("write")) return true; // who only reads keeps nobody from an item
  try {
    await call("POST", "/v1/lease", { id, tab: TAB });
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status !== 409) throw problem;
    return false;
  }
  leased.add(id);
  if (get().me?.agree > 0) return true; // it waits for several answers
  const now = await read(itemPath(id)).catch((problem) => { if (problem.status !== 404) throw problem; return null; });
  if (now?.state === "waiting") return true;
  release(id);
  return false;
}

function release(id) {
  if (!leased.delete(id)) return;
  call("POST", "/v1/lease/release", { id, tab: TAB }).catch(() => { /* it ends by itself */ });
}

setInterval(() => {
  const { item } = work();
  for (const id of leased) {
    if (id !== item?.id && id !== queue[0]?.id) release(id);
    else if (!get().away) lease(id).catch(() => { /* told elsewhere */ });
  }
}, RENEW_MS);

// An item may become free without an event: somebody skipped it, or left.
setInterval(() => {
  const { item, mode } = work();
  if (started && mode === "queue" && !item && !get().away && !document.hidden) next();
}, LOOK_MS);

addEventListener("pagehide", () => {
  const token = sessionStorage.getItem("token");
  for (const id of leased) {
    fetch("/v1/lease/release", {
      method: "POST", keepalive: true, body: JSON.stringify({ id, tab: TAB }),
      headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
    }).catch(() => { /* it ends by itself */ });
  }
});

// ------------------------------------------------------------------ what is suggested
const best = (scores) => Object.entries(scores).sort((a, b) => b[1] - a[1]).map(([tag]) => tag);

// A model that suggests nothing shows its best guesses.
export const isGuessing = ({ suggested, scores }) => !suggested.length && Object.keys(scores).length > 0;

function chipsOf({ scores, suggested }, ticked, before = []) {
  const likely = best(scores).filter((tag, i) => scores[tag] >= SHOWN_FROM || (!suggested.length && i < GUESSES));
  const shown = [...new Set([...before, ...suggested, ...likely.slice(0, suggested.length ? SHOWN : GUESSES), ...ticked])];
  return before.length ? shown : shown.sort((a, b) => (scores[b] ?? -1) - (scores[a] ?? -1));
}

function showSuggestion(told, isFresh) {
  const { ticked, touched, chips } = work();
  const now = { scores: told.scores, suggested: told.tags };
  const on = touched ? ticked : [...told.tags];
  put({ ...now, ticked: on, chips: chipsOf(now, on, isFresh ? [] : chips.filter((tag) => tag in told.scores || on.includes(tag))) });
}

export const current = () => {
  const { mode, item, own } = work();
  if (mode !== "own") return item && (item.x ? { x: item.x } : { text: item.text });
  return own.trim() ? { text: own } : null;
};

let turn = 0;
export async function suggest(isFresh = false) {
  const question = current();
  const own = ++turn;
  if (!question) {
    put({ scores: {}, suggested: [], chips: chipsOf({ scores: {}, suggested: [] }, work().ticked) });
    return;
  }
  await attempt(async () => {
    const told = (await call("POST", "/v1/suggest", { items: [question], top: 50 })).items[0];
    if (own === turn) showSuggestion(told, isFresh);
  });
}

// ------------------------------------------------------------------ what comes next
let filling = null;
function fill() {
  filling ??= attempt(async () => {
    const n = Math.min(100, ASKED + gone.size);
    let order, told;
    do { // the order may be changed while the service answers
      ({ order } = work());
      told = await read("/v1/next", { n, order, tab: TAB });
    } while (order !== work().order);
    const here = new Set([work().item?.id, ...queue.map((item) => item.id)]);
    queue.push(...told.items.filter((item) => !gone.has(item.id) && !here.has(item.id)));
    set((s) => ({ live: { ...s.live, n_pool: told.n_pool } }));
    put({ asked: true });
    if (queue.length || !skipped.size) return queue.length > 0;
    const again = [...skipped]; // all that is left was skipped: what was skipped first comes first
    for (const id of again) gone.delete(id);
    skipped.clear();
    const left = told.items.filter((item) => again.includes(item.id));
    queue.push(...left.sort((a, b) => again.indexOf(a.id) - again.indexOf(b.id)));
    return queue.length > 0;
  }).finally(() => { filling = null; });
  return filling;
}

export const comingUp = () => queue;

function show(item, mode, patch = {}) {
  turn += 1;
  if (item === null) {
    put({ item: null, mode, scores: {}, suggested: [], chips: [], ticked: [], touched: false, ...patch });
    return;
  }
  const { certainty, suggestion, ...kept } = item;
  const told = { scores: suggestion?.scores ?? {}, suggested: suggestion?.tags ?? [] };
  const ticked = patch.ticked ?? told.suggested;
  put({ mode, item: kept, ...told, touched: false, ...patch, ticked, chips: chipsOf(told, ticked) });
}

let goal = 0; // what the person wanted last: an answer that comes late must not take its place
export async function next() {
  const own = ++goal;
  const { order } = work();
  for (;;) {
    if (!queue.length) {
      const offered = await fill();
      if (own !== goal) return;
      if (!offered) {
        show(null, "queue");
        return;
      }
    }
    const item = queue.shift();
    if (!item) continue; // another call took it
    if (gone.has(item.id)) continue;
    const isMine = leased.has(item.id) || (await attempt(() => lease(item.id)));
    if (!isMine && !get().away) continue; // somebody else has it
    if (own !== goal) {
      if (order === work().order) queue.unshift(item);
      else release(item.id);
      return;
    }
    show(item, "queue");
    break;
  }
  ahead();
}

// Have the item after this one at hand, leased.
async function ahead() {
  if (queue.length < AHEAD) await fill();
  if (queue.length && !leased.has(queue[0].id)) {
    const { id } = queue[0];
    if (!(await attempt(() => lease(id))) && queue[0]?.id === id && !get().away) queue.shift();
  }
}

export async function setOrder(order) {
  for (const item of queue) release(item.id);
  queue = [];
  leave();
  put({ order, asked: false });
  await next();
}

function leave() {
  goal += 1;
  const { item, mode } = work();
  if (item && mode === "queue") release(item.id);
}

export function skip() {
  const { item, mode } = work();
  if (mode !== "queue") { cancel(); return; }
  if (!item || gone.has(item.id)) return;
  gone.add(item.id);
  skipped.add(item.id);
  leased.delete(item.id);
  attempt(() => call("POST", "/v1/skip", { id: item.id, tab: TAB }));
  say(t.tag.skipped);
  next();
}

// A text of one's own, or an item that is there already.
export function writeOwn() {
  leave();
  show(null, "own", { own: work().own });
  suggest(true);
}

export async function open(item) {
  leave();
  show(item, "item", { ticked: [...(item.y ?? [])], touched: true });
  await suggest(true);
}

export function cancel() {
  show(null, "queue", { own: "" });
  next();
}

// ------------------------------------------------------------------ ticking and answering
export function toggle(tag) {
  const { ticked, chips } = work();
  const on = ticked.includes(tag) ? ticked.filter((other) => other !== tag) : [...ticked, tag];
  put({ ticked: on, touched: true, chips: chips.includes(tag) ? chips : [...chips, tag] });
}

export function add(name) {
  const tag = name.trim();
  if (tag && !work().ticked.includes(tag)) toggle(tag);
}

let typing;
export function write(text) {
  put({ own: text });
  clearTimeout(typing);
  typing = setTimeout(() => suggest(true), 150);
}

// Save the ticked tags, or none; the next item is there before the answer is on the disk.
export async function answer(tags = work().ticked) {
  const question = current();
  const { mode, item } = work();
  if (!question || (mode === "queue" && gone.has(item.id))) return; // it is on its way already
  const id = item?.id ?? newKey();
  const body = { id, ...question, y: [...tags], version: item?.version ?? 0 };
  gone.add(id);
  leased.delete(id); // it ends with the answer
  const saved = save(body, mode);
  sending.add(saved);
  saved.finally(() => sending.delete(saved));
  put({ done: work().done + 1 });
  if (mode === "queue") await next();
  else if (mode === "own") show(null, "own", { own: "" });
  else cancel();
  await saved;
}

const sending = new Set(); // answers that are on their way

const note = (body) => t.tag.learnt(body.y);

async function save(body, mode) {
  try {
    const done = await change("/v1/learn", { items: [body] }, note(body));
    saved(body, done, mode);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (!refused(problem, { items: [body] })) {
      fail(t.tag.notSaved(body.y, problem.message));
      gone.delete(body.id);
      if (mode !== "own") queue.unshift({ id: body.id, text: body.text, x: body.x, version: body.version });
      else put({ own: body.text });
    }
  }
}

function saved(body, done, mode) {
  const entry = { id: body.id, text: body.text, x: body.x, y: body.y, position: done.position, version: done.position };
  put({ recent: [entry, ...work().recent.filter((one) => one.id !== body.id)].slice(0, RECENT) });
  say(note(body), done.n ? { ...undoOf(done), item: { id: body.id, text: body.text, x: body.x, mode, y: body.y } } : null);
}

// Somebody else's answer stands against mine: keep both until the person decides.
export function refused(problem, sent) {
  const [mine] = sent.items ?? [];
  if (problem.status !== 409 || problem.now === undefined || !mine) return false;
  put({ conflicts: [...work().conflicts.filter((one) => one.mine.id !== mine.id), { mine, now: problem.now }] });
  return true;
}

export async function resolve(conflict, tags) {
  put({ conflicts: work().conflicts.filter((one) => one.mine.id !== conflict.mine.id) });
  if (tags === null) return;
  const body = { ...conflict.mine, y: tags, version: conflict.now?.version ?? 0 };
  await save(body, "item");
}

// Take back the last change; an answer that was given here is shown again.
export async function takeBack() {
  await Promise.allSettled([...sending]);
  const undone = await undo();
  const item = undone?.entry.item;
  if (!item) return;
  goal += 1;
  gone.delete(item.id);
  put({ done: Math.max(0, work().done - 1), recent: work().recent.filter((one) => one.id !== item.id) });
  if (work().mode === "queue" && work().item) { // it comes again after this one
    queue.unshift({ ...work().item, suggestion: { scores: work().scores, tags: work().suggested } });
  }
  const now = await read(itemPath(item.id)).catch(() => null);
  goal += 1;
  const isThere = now !== null && now.state !== "waiting" && now.y;
  const back = { id: item.id, text: item.text, x: item.x, version: now?.version ?? 0 };
  if (item.mode === "own" && !isThere) show(null, "own", { own: item.text, ticked: item.y, touched: true });
  else show(back, isThere ? "item" : "queue", { ticked: item.y, touched: true });
  if (!isThere && item.mode === "queue") lease(item.id).catch(() => { /* told elsewhere */ });
  await suggest(true);
}

// ------------------------------------------------------------------ start
let started = false;
export async function start() {
  if (started) return;
  started = true;
  const { item, mode } = work();
  if (!get().work) put({});
  if (mode === "queue" && item) {
    if (!(await attempt(() => lease(item.id))) && !get().away) show(null, mode);
  }
  if (work().mode === "queue" && !work().item) await next();
  else { suggest(); ahead(); }
}

// Others have learnt: what is suggested follows, in the order in which it is shown.
export async function follow() {
  const { item, mode, touched } = work();
  if (!item && mode === "queue") { next(); return; }
  if (mode === "queue" && !leased.has(item.id) && !gone.has(item.id)) { // it was shown while the service was away
    const isMine = await attempt(() => lease(item.id));
    if (work().item?.id !== item.id) return;
    if (!isMine && !get().away) { next(); return; }
  }
  if (!touched) suggest();
}
