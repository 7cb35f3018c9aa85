// Talking to the service. Nothing that is sent is lost: a change stays in the outbox until it is acknowledged.

import { ask, fail, get, say, set } from "./store.js";
import { t } from "./texts.js";

const HEADERS = { "X-Tagstream-Source": "page" };
const AGAIN_MS = 700; // between two looks whether the service is back
const POLL_MS = 4000; // where there is no stream
const POLLS = 5; // before the stream is tried again

export class Problem extends Error {
  constructor(message, told = {}) {
    super(message);
    Object.assign(this, { status: 0, away: false, field: "", now: undefined, retryAfter: null }, told);
  }
}

export const newKey = () => `page-${Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("")}`;
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// This window, so that the leases of two windows are kept apart.
export const TAB = (() => {
  const known = sessionStorage.getItem("tagstream.tab") ?? newKey();
  sessionStorage.setItem("tagstream.tab", known);
  return known;
})();

function headers(more) {
  const token = sessionStorage.getItem("token");
  return { ...HEADERS, ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

// ------------------------------------------------------------------ the token
let asked = null;
function askForToken() {
  asked ??= ask({ title: t.token.title, text: t.token.text, yes: t.token.yes, fields: [{ name: "token", label: t.token.label, secret: true }] })
    .then((values) => {
      asked = null;
      if (values) sessionStorage.setItem("token", values.token.trim());
      else sessionStorage.removeItem("token");
      return Boolean(values);
    });
  return asked;
}

export function signOut() {
  sessionStorage.clear();
  location.reload();
}

// ------------------------------------------------------------------ one call
async function send(method, path, { body, raw, more, signal } = {}) {
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, { method, headers: headers({ ...type, ...more }), body: raw ?? (body === undefined ? undefined : JSON.stringify(body)), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    goneAway();
    throw new Problem(t.away.short, { away: true });
  }
  if (answer.status === 401 && await askForToken()) {
    loadMe();
    return send(method, path, { body, raw, more, signal });
  }
  return answer;
}

async function told(answer) {
  let said = {};
  try { said = await answer.json(); } catch { /* the status says it */ }
  if (answer.ok) return said;
  const after = answer.headers.get("Retry-After");
  throw new Problem(said.error || t.answered(answer.status), { status: answer.status, ...said, retryAfter: after === null ? null : Number(after) });
}

export async function call(method, path, body, more) {
  return told(await send(method, path, { body, more }));
}

export const read = (path, query = {}) => {
  const given = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).filter((one) => one !== undefined && one !== null && one !== "").map((one) => [name, String(one)]));
  const words = new URLSearchParams(given).toString();
  return call("GET", words ? `${path}?${words}` : path);
};

export const itemPath = (id) => `/v1/items/${encodeURIComponent(id)}`;

// ------------------------------------------------------------------ changes
const isTemporary = (problem) =>
  problem.away || problem.status === 504 || ([429, 503].includes(problem.status) && problem.retryAfter !== null);

// Make a change, once: over a restart of the service and over a reload of the page. `note` says what
// it is, for a page that finds it in the outbox.
export async function change(path, body, note = "", key = newKey()) {
  set((s) => ({ outbox: [...s.outbox.filter((one) => one.key !== key), { key, path, body, note }] }));
  for (;;) {
    try {
      const done = await call("POST", path, body, { "Idempotency-Key": key });
      leaveOutbox(key);
      return done;
    } catch (problem) {
      if (!(problem instanceof Problem) || !isTemporary(problem)) {
        leaveOutbox(key);
        throw problem;
      }
      if (!problem.away && problem.status === 503) goneAway();
      if (get().away) await isBack();
      else await pause(1000 * (problem.retryAfter || 1));
    }
  }
}

function leaveOutbox(key) {
  set((s) => ({ outbox: s.outbox.filter((one) => one.key !== key) }));
}

// What a reload or a closed browser left in the outbox goes out now.
export function sendOutbox(onProblem) {
  for (const { path, body, note, key } of get().outbox) {
    change(path, body, note, key).then(
      (done) => say(note || t.sent, done.n && done.position ? undoOf(done) : null),
      (problem) => { if (!onProblem(problem, body)) fail(problem.message); },
    );
  }
}

export const undoOf = (done) => ({ path: "/v1/undo", body: { position: done.position } });

// Do something; whatever goes wrong is told, and stays until it is closed.
export async function attempt(work) {
  try {
    return await work();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (!problem.away) fail(problem.message);
    return undefined;
  }
}

// Take back the last change, or the one that is given.
export async function undo(entry = get().undo.at(-1)) {
  if (!entry) return null;
  set((s) => ({ undo: s.undo.filter((one) => one !== entry && JSON.stringify(one.body) !== JSON.stringify(entry.body)), toast: null }));
  try {
    const done = await change(entry.path, entry.body, t.undone);
    say(t.undone);
    return { ...done, entry };
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    fail(problem.status === 409 && problem.now ? t.undoConflict(problem.now.who ?? problem.now.by) : problem.message);
    return null;
  }
}

// ------------------------------------------------------------------ files
export async function upload(path, query, blob, type, onStep) {
  const words = new URLSearchParams(query).toString();
  onStep?.(0);
  for (;;) {
    try {
      return await told(await send("POST", `${path}?${words}`, { raw: blob, more: { "Content-Type": type } }));
    } catch (problem) {
      // The service knows which lines it has; the same file under the same name goes on there.
      if (!(problem instanceof Problem) || !problem.away) throw problem;
      await isBack();
    }
  }
}

export async function download(path, query, name) {
  const given = Object.entries(query).filter(([, value]) => value);
  const answer = await send("GET", `${path}?${new URLSearchParams(given)}`);
  if (!answer.ok) await told(answer);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// ------------------------------------------------------------------ away and back
let back = null;

export function goneAway() {
  back ??= (async () => {
    set({ away: true });
    for (;;) {
      await pause(AGAIN_MS);
      try { if ((await fetch("/health/ready")).ok) break; } catch { /* still away */ }
    }
    back = null;
    set({ away: false });
    say(t.away.back);
    loadMe();
  })();
  return back;
}

// A stream broke off: look whether the service is there, and wait for it if not.
async function isThere() {
  try { if ((await fetch("/health/live")).ok) return; } catch { /* it is not */ }
  await goneAway();
}

const isBack = () => back ?? Promise.resolve();

// ------------------------------------------------------------------ what others do
export async function loadMe() {
  await attempt(async () => { set({ me: await read("/v1/me") }); });
  loadWarnings();
}

async function loadWarnings() {
  try {
    const told = await (await fetch("/health/ready")).json();
    set({ warnings: told.warnings ?? [] });
  } catch { /* the next call says it */ }
}

// Keep the numbers as they are now: one stream for this window, or a question now and then.
export async function follow() {
  for (;;) {
    const worked = await stream().catch(() => false);
    if (!worked) {
      for (let i = 0; i < POLLS; i += 1) {
        await poll();
        await pause(POLL_MS);
      }
    } else {
      await pause(AGAIN_MS); // it ends by itself now and then
    }
  }
}

async function poll() {
  if (get().away || document.hidden) return;
  try { setLive(await read("/v1/info")); } catch { /* told elsewhere */ }
}

function setLive(live) {
  const before = get().live;
  set({ live: { ...before, ...live } });
  if (live.n_quarantined !== undefined && live.n_quarantined !== before.n_quarantined) loadWarnings();
}

async function stream() {
  let answer;
  try {
    answer = await fetch("/v1/events", { headers: headers({ Accept: "text/event-stream" }) });
  } catch {
    await goneAway();
    return true;
  }
  if (answer.status === 401) {
    await askForToken();
    loadMe();
    return true;
  }
  if (!answer.ok || !(answer.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) return false;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try { part = await reader.read(); } catch { await isThere(); return true; }
    const { done, value } = part;
    if (done) return true;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(take);
  }
}

function take(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const found = /^(event|data|id): ?(.*)$/.exec(line);
    if (found) fields[found[1]] = (fields[found[1]] ?? "") + found[2];
  }
  if (!fields.data) return;
  const data = JSON.parse(fields.data);
  if (fields.event === "state") setLive(data);
  else if (fields.event === "items") set({ changed: data });
}
