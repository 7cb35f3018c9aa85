// The page: plain JavaScript, no build step. Texts and tags are only ever set as text.

const $ = (id) => document.getElementById(id);
const MOST_CHIPS = 12;
const SHOWN_FROM = 0.05;
const REFRESH_MS = 5000;

const TAB = Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(16).padStart(2, "0")).join("");

const state = {
  id: null, x: null, source: "paste", before: null, // the item under work; its tags if it was learnt before
  scores: {}, ticked: new Set(), added: [], touched: false, // touched: the person has chosen tags
  tags: [], undo: [], asked: 0, away: false, skip: new Set(), position: -1,
};

// ------------------------------------------------------------------ talking to the service
class Problem extends Error {
  constructor(message, status = 0, now = undefined) { super(message); this.status = status; this.now = now; }
}

async function call(method, path, body) {
  const headers = { "X-Tagstream-Source": "page" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    goneAway();
    throw new Problem("The service does not answer.");
  }
  if (answer.status === 401 && await askForToken()) return call(method, path, body);
  let told = {};
  try { told = await answer.json(); } catch { /* the status says it */ }
  if (!answer.ok) throw new Problem(told.error || `The service answered ${answer.status}.`, answer.status, told.now);
  return told;
}

function show(message) {
  $("alert").textContent = message;
  $("alert").hidden = !message;
}

function say(message) { $("status").textContent = message; }

// Whatever goes wrong is told kindly; nothing that was typed is lost.
async function kindly(work) {
  try {
    const result = await work();
    if (!state.away && !state.stays) show("");
    return result;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (!state.away) show(problem.message);
    return undefined;
  }
}

function goneAway() {
  if (state.away) return;
  state.away = true;
  show("The service does not answer. Your text and tags are kept here; this page tries again by itself.");
  const again = setInterval(async () => {
    let ready = false;
    try { ready = (await fetch("/health/ready")).ok; } catch { /* still away */ }
    if (!ready) return;
    clearInterval(again);
    state.away = false;
    show("");
    say("The service answers again.");
    refresh(true);
    suggest();
  }, 1500);
}

let tokenAsked = null;
function askForToken() {
  tokenAsked ??= ask({
    title: "A token is needed", text: "This service is for those who have a token.",
    label: "Token", yes: "Use it", list: false, secret: true,
  }).then((token) => {
    tokenAsked = null;
    if (token) sessionStorage.setItem("token", token);
    else sessionStorage.removeItem("token");
    return Boolean(token);
  });
  return tokenAsked;
}

// ------------------------------------------------------------------ several people
const RENEW_MS = 120000;

// Others are not offered an item while this window has it.
async function lease(id) {
  try {
    await call("POST", "/v1/lease", { id, tab: TAB });
    return true;
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status !== 409) throw problem;
    return false;
  }
}

function release(id) {
  call("POST", "/v1/lease/release", { id, tab: TAB }).catch(() => { /* it ends by itself */ });
}

// Somebody else has changed the item: show both answers, and let the person decide.
function showConflict(now) {
  if (!now) {
    show("Somebody else has forgotten this item meanwhile. Your tags are kept here; learn again to bring it back.");
    state.version = 0;
    return;
  }
  const theirs = now.y.join(", ") || "no tags", mine = [...state.ticked].join(", ") || "no tags";
  show(`${now.by ?? "Somebody else"} has tagged this item meanwhile: ${theirs}. Your answer, ${mine}, was not saved. Learn again to replace theirs.`);
  state.version = now.version;
  state.before = now.y;
}

const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");

// ------------------------------------------------------------------ making elements
function make(name, options = {}, ...children) {
  const { text, ...attributes } = options;
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== undefined) node.setAttribute(key, value);
  }
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter((child) => child !== undefined));
  return node;
}

const percent = (value) => `${Math.round(100 * value)} %`;
const shown = (item) => item.text ?? JSON.stringify(item.x);

// ------------------------------------------------------------------ the item
function current() {
  const text = $("item").value;
  if (state.x !== null) return { x: state.x };
  return text.trim() ? { text } : null;
}

function take(item, source, tags = null) {
  state.stays = false;
  if (state.source === "pool" && state.id !== null && state.id !== item?.id) release(state.id);
  Object.assign(state, {
    id: item?.id ?? null, x: item?.x ?? null, source, before: tags,
    version: item?.version ?? (source === "item" ? item.position : 0), // what this person has seen
    scores: {}, ticked: new Set(tags ?? []), added: [...(tags ?? [])], touched: tags !== null,
  });
  $("item").value = item ? shown(item) : "";
  $("item").readOnly = Boolean(item && (source !== "paste" || item.x));
  $("origin").textContent = {
    paste: "Paste a text, or pick one from the lists.",
    pool: "From “tag next”.",
    item: "Learnt before: change its tags and learn to correct it.",
  }[source];
  closeReasons();
  drawChips();
  if (item && source === "pool") {
    kindly(async () => {
      if (await lease(item.id) || state.id !== item.id) return;
      await refresh(true);
      await take(state.next?.find((other) => other.id !== item.id) ?? null, state.next?.length ? "pool" : "paste");
      say("Somebody else is tagging that item; here is another one.");
    });
  }
  return suggest();
}

async function suggest() {
  const item = current();
  const turn = ++state.asked;
  if (!item) {
    state.scores = {};
    if (!state.touched) state.ticked.clear();
    drawChips();
    return;
  }
  await kindly(async () => {
    const told = (await call("POST", "/v1/suggest", { items: [item], top: 50 })).items[0];
    if (turn !== state.asked) return; // a newer text is asked about
    state.scores = told.scores;
    if (!state.touched) state.ticked = new Set(told.tags);
    drawChips();
    say(told.tags.length ? `Suggested: ${told.tags.join(", ")}` : "No tag is suggested.");
    if (!$("reasons").hidden) await explain();
  });
}

function chipNames() {
  const likely = Object.entries(state.scores).filter(([, score]) => score >= SHOWN_FROM).map(([tag]) => tag);
  const names = [...new Set([...likely.slice(0, MOST_CHIPS), ...state.ticked, ...state.added])];
  return names.sort((a, b) => (state.scores[b] ?? -1) - (state.scores[a] ?? -1));
}

function drawChips() {
  const focused = document.activeElement?.dataset?.tag;
  const names = chipNames();
  $("chips").replaceChildren(...names.map((tag, i) => {
    const score = state.scores[tag];
    const on = state.ticked.has(tag);
    const key = i < 9 ? String(i + 1) : undefined;
    const chip = make("button", {
      type: "button", class: "chip", role: "checkbox", "aria-checked": String(on), "data-tag": tag,
      "aria-label": `${tag}${score === undefined ? "" : `, score ${percent(score)}`}`,
      "aria-keyshortcuts": key, onclick: () => toggle(tag),
    }, make("span", { class: "tick", "aria-hidden": "true" }), make("span", { class: "name", text: tag }),
    make("span", { class: "score", text: score === undefined ? "new here" : percent(score) }),
    key && make("kbd", { text: key }));
    if (score !== undefined) {
      const bar = make("span", { class: "bar" });
      bar.style.width = percent(score).replace(" ", "");
      chip.append(bar);
    }
    return chip;
  }));
  $("none").hidden = names.length > 0;
  $("none").textContent = current() ? "No tag is suggested yet: add one." : "Suggestions come as you type.";
  $("learn").disabled = $("why").disabled = !current();
  if (focused !== undefined) [...$("chips").children].find((chip) => chip.dataset.tag === focused)?.focus();
}

function toggle(tag) {
  state.touched = true;
  if (!state.added.includes(tag)) state.added.push(tag);
  if (state.ticked.has(tag)) state.ticked.delete(tag); else state.ticked.add(tag);
  drawChips();
}

function addTag(name) {
  const tag = name.trim();
  if (!tag) return;
  if (!state.ticked.has(tag)) toggle(tag);
  $("new-tag").value = "";
  say(`${tag} added.`);
}

// ------------------------------------------------------------------ learning and undoing
let learning = false;
async function learn() {
  const item = current();
  if (!item || learning) return;
  learning = true;
  state.stays = false;
  const y = [...state.ticked];
  const { source, before } = state;
  const id = state.id ?? `page-${random()}`;
  state.id = id;
  // The key stays with the item: should the answer get lost, learning again is no second time.
  const key = state.key?.y === y.join("\n") && state.key.id === id ? state.key : { id, y: y.join("\n"), key: `page-${random()}` };
  state.key = key;
  await kindly(async () => {
    let done;
    try {
      done = await call("POST", "/v1/learn", { items: [{ id, ...item, y, key: key.key, version: state.version }] });
    } catch (problem) {
      if (problem.status !== 409 || problem.now === undefined) throw problem;
      state.key = null;
      showConflict(problem.now);
      state.stays = true; // the message, until the person acts
      return;
    }
    state.key = null;
    if (done.n) state.undo.push({ item: { id, ...item }, source, before, y, version: done.position });
    $("undo").disabled = state.undo.length === 0;
    state.asked += 1; // a suggestion that is still under way must not speak over this
    say(y.length ? `Learnt: ${y.join(", ")}` : "Learnt: no tags.");
    await refresh(true);
    const next = source === "pool" ? state.next?.find((other) => other.id !== id) : undefined;
    await take(next ?? null, next ? "pool" : "paste");
    if (!next && source === "paste") $("item").focus();
    else if (next) $("learn").focus();
  });
  learning = false;
}

async function undo() {
  const last = state.undo.at(-1);
  if (!last) return;
  state.stays = false;
  await kindly(async () => {
    const { item, source, before, version } = last;
    let undone;
    try {
      undone = before
        ? await call("POST", "/v1/learn", { items: [{ ...item, y: before, key: `page-${random()}`, version }] })
        : await call("POST", "/v1/forget", { ids: [item.id], version });
    } catch (problem) {
      if (problem.status !== 409) throw problem;
      state.undo.pop();
      $("undo").disabled = state.undo.length === 0;
      state.stays = true;
      show(`${problem.now?.by ?? "Somebody else"} has changed this item since, so your change was not undone.`);
      return;
    }
    if (!before && source === "pool") await call("POST", "/v1/pool", { items: [item] });
    state.undo.pop();
    $("undo").disabled = state.undo.length === 0;
    await refresh(true);
    await take({ ...item, version: before ? undone.position : 0 }, source, before);
    if (!before) {
      state.touched = true;
      state.added = [...last.y];
      state.ticked = new Set(last.y);
      drawChips();
    }
    say("Undone.");
  });
}

// ------------------------------------------------------------------ why
const NEAREST = 5;  // shown at first
const WORD = /[\p{L}\p{N}]+/gu;
const words = (text) => new Set((text.toLowerCase().match(WORD) ?? []));

function marked(text, shared) {
  const node = make("div");
  let end = 0;
  for (const found of text.matchAll(WORD)) {
    if (!shared.has(found[0].toLowerCase())) continue;
    node.append(text.slice(end, found.index), make("mark", { text: found[0] }));
    end = found.index + found[0].length;
  }
  node.append(text.slice(end));
  return node;
}

function drawNeighbour(neighbour, own) {
  const text = neighbour.text ?? neighbour.id;
  const shared = new Set([...words(text)].filter((word) => words(own).has(word)));
  const left = marked(own, shared), right = marked(text, shared);
  left.prepend(make("b", { text: "this item" }));
  right.prepend(make("b", { text: `item ${neighbour.id}` }));
  return make("li", {}, make("div", { class: "pair" }, left, right),
    make("span", { class: "meta", text: `tags: ${neighbour.tags.join(", ") || "none"} · distance ${neighbour.distance.toPrecision(3)} · ${shared.size} shared word${shared.size === 1 ? "" : "s"}` }));
}

// What the parts of an explanation are called here.
const PARTS = {
  votes: "similar items", regression: "features", "fast map": "features, lately",
  prior: "how frequent", "recent labels": "last items", copy: "a known copy",
};

function drawParts(parts) {
  const tables = Object.entries(parts).map(([tag, forces]) => {
    const largest = Math.max(1e-9, ...Object.values(forces).map(Math.abs));
    return make("table", { class: "parts" }, make("caption", { text: `What speaks for ${tag}, and what against` }),
      make("tbody", {}, ...Object.entries(forces).map(([name, force]) => {
        const bar = make("span", { class: force < 0 ? "force against" : "force", "aria-hidden": "true" });
        bar.style.width = `${100 * Math.abs(force) / largest}%`;
        return make("tr", {}, make("th", { scope: "row", text: PARTS[name] ?? name }), make("td", { text: `${force < 0 ? "−" : "+"}${Math.abs(force).toFixed(2)}` }), make("td", {}, bar));
      })));
  });
  $("parts").replaceChildren(...(tables.length ? tables : [make("p", { class: "hint", text: "No tag is suggested." })]));
}

async function explain() {
  const item = current();
  if (!item) return;
  const told = (await call("POST", "/v1/explain", { items: [item] })).items[0];
  drawParts(told.parts);
  const own = shown(item);
  const near = told.neighbours.map((neighbour) => drawNeighbour(neighbour, own));
  const more = near.splice(NEAREST);
  $("neighbours").replaceChildren(...near);
  if (more.length) {
    const button = make("button", { type: "button", class: "link", text: `${more.length} more`, onclick: () => {
      button.parentElement.replaceWith(...more);
    } });
    $("neighbours").append(make("li", { class: "more" }, button));
  }
  if (!told.neighbours.length) $("neighbours").append(make("li", { text: "Nothing was learnt yet." }));
}

function closeReasons() {
  $("reasons").hidden = true;
  $("why").setAttribute("aria-expanded", "false");
}

async function why() {
  if (!$("reasons").hidden) { closeReasons(); return; }
  await kindly(async () => {
    await explain();
    $("reasons").hidden = false;
    $("why").setAttribute("aria-expanded", "true");
  });
}

// ------------------------------------------------------------------ the lists
function entry(item, note, pick) {
  return make("li", {}, make("button", { type: "button", onclick: pick },
    make("span", { class: "text", text: shown(item) }), make("span", { class: "note", text: note })));
}

function drawNext(told) {
  state.next = told.items;
  $("next").replaceChildren(...told.items.slice(0, 6).map((item) => entry(item,
    `${percent(item.certainty)} sure${item.suggestion.tags.length ? ` · ${item.suggestion.tags.join(", ")}` : ""}`,
    () => { take(item, "pool"); $("learn").focus(); })));
  $("next-hint").textContent = told.n_pool
    ? `${told.n_pool} wait${told.n_pool === 1 ? "s" : ""}; those first that it is least sure of.`
    : "Nothing waits: put items in, one on each line.";
}

function drawRecent(items) {
  $("recent").replaceChildren(...items.map((item) => entry(item, item.y.join(", ") || "no tags",
    () => { take(item, "item", item.y); $("learn").focus(); })));
  if (!items.length) $("recent").append(make("li", { class: "hint", text: "Nothing yet." }));
}

function drawTags(tags) {
  state.tags = tags.map((entry) => entry.tag);
  $("known-tags").replaceChildren(...state.tags.map((tag) => make("option", { value: tag })));
  const row = ({ tag, count, lately }) => make("tr", {},
    make("td", { text: tag }), make("td", { text: count }), make("td", { text: lately.f1 === null ? "–" : lately.f1.toFixed(2) }),
    make("td", {}, ...[["rename", rename], ["merge", merge], ["remove", removeTag]].map(([name, act]) =>
      make("button", { type: "button", class: "link", text: name, "aria-label": `${name} ${tag}`, onclick: () => act(tag) }))));
  $("tags").tBodies[0].replaceChildren(...tags.map(row));
}

const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function drawProgress(told) {
  const f1 = told.micro_f1;
  $("facts").textContent = `${told.n_items.toLocaleString("en")} items · ${state.tags.length} tags${f1 === null ? "" : ` · F1 ${f1.toFixed(2)}`}`;
  const [width, height, left, bottom] = [420, 170, 34, 20];
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img" });
  picture.append(svg("title", {}, f1 === null ? "No measure yet" : `Rolling micro-F1, now ${f1.toFixed(2)}`));
  const y = (value) => 8 + (1 - value) * (height - bottom - 8);
  for (const value of [0, 0.5, 1]) {
    picture.append(svg("line", { x1: left, x2: width, y1: y(value), y2: y(value), class: "axis" }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(1)));
  }
  const { curve } = told;
  if (curve.length) {
    const [first, last] = [curve[0].position, curve.at(-1).position];
    const x = (position) => left + (width - left - 8) * (last === first ? 1 : (position - first) / (last - first));
    const points = curve.map((point) => `${x(point.position).toFixed(1)},${y(point.micro_f1).toFixed(1)}`);
    picture.append(svg("polygon", { class: "area", points: `${x(first)},${y(0)} ${points.join(" ")} ${x(last)},${y(0)}` }),
      svg("polyline", { class: "line", points: points.join(" ") }),
      svg("circle", { cx: x(last), cy: y(curve.at(-1).micro_f1), r: 4 }),
      svg("text", { x: left, y: height - 4 }, `event ${first}`),
      svg("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, `${last}`));
  }
  $("picture").replaceChildren(picture);
  $("progress-text").textContent = f1 === null
    ? "Learn some items: each is suggested for first, and compared."
    : `Micro-F1 ${f1.toFixed(2)} over the last 200 items, measured before each was learnt.`;
}

// Everything that shows the state of the service; only what changed is asked for.
async function showWarnings() {
  let told = {};
  try { told = await (await fetch("/health/ready")).json(); } catch { /* the next call says it */ }
  $("warnings").textContent = (told.warnings ?? []).join(" ");
  $("warnings").hidden = !told.warnings;
}

async function refresh(always = false) {
  showWarnings();
  await kindly(async () => {
    const info = await call("GET", "/v1/info");
    const mark = `${info.position}/${info.n_pool}`;
    if (!always && mark === state.position) return;
    state.position = mark;
    const [tags, progress, recent, next] = await Promise.all([
      call("GET", "/v1/tags"), call("GET", "/v1/progress"), call("GET", "/v1/items?n=6"), call("GET", `/v1/next?n=8&tab=${TAB}`),
    ]);
    drawTags(tags.tags);
    drawProgress(progress);
    drawRecent(recent.items);
    drawNext(next);
  });
}

// ------------------------------------------------------------------ tags
function ask({ title, text, label, yes, list = true, secret = false, value = "" }) {
  const dialog = $("ask"), input = $("ask-value");
  $("ask-title").textContent = title;
  $("ask-text").textContent = text;
  $("ask-label").textContent = label ?? "";
  $("ask-label").hidden = input.hidden = label === undefined;
  $("ask-yes").textContent = yes;
  input.type = secret ? "password" : "text";
  if (list) input.setAttribute("list", "known-tags"); else input.removeAttribute("list");
  input.required = label !== undefined;
  input.value = value;
  dialog.returnValue = "no";
  dialog.showModal();
  if (label !== undefined) input.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = label === undefined ? true : input.value.trim();
      input.value = "";
      resolve(dialog.returnValue === "yes" && given ? given : null);
    }, { once: true });
  });
}

async function changeTags(path, body, message) {
  await kindly(async () => {
    await call("POST", path, { ...body, key: `page-${random()}` });
    state.undo = []; // earlier items may name tags that are gone
    $("undo").disabled = true;
    await refresh(true);
    await suggest();
    say(message);
  });
}

async function rename(tag) {
  const name = await ask({ title: `Rename ${tag}`, text: "All items that have it keep it under the new name.", label: "New name", yes: "Rename", list: false, value: tag });
  if (name && name !== tag) await changeTags("/v1/tags/rename", { old: tag, new: name }, `${tag} is now ${name}.`);
}

async function merge(tag) {
  const into = await ask({ title: `Merge ${tag}`, text: `Items that have ${tag} will have the other tag instead.`, label: "Into which tag", yes: "Merge" });
  if (into && into !== tag) await changeTags("/v1/tags/merge", { tags: [tag], into }, `${tag} is part of ${into} now.`);
}

async function removeTag(tag) {
  const sure = await ask({ title: `Remove ${tag}?`, text: "It is taken off all items. This cannot be undone here.", yes: "Remove" });
  if (sure) await changeTags("/v1/tags/remove", { tag }, `${tag} is removed.`);
}

// ------------------------------------------------------------------ events
let typing;
$("item").addEventListener("input", () => {
  clearTimeout(typing);
  $("learn").disabled = $("why").disabled = !current();
  typing = setTimeout(suggest, 200);
});
$("add").addEventListener("submit", (event) => { event.preventDefault(); addTag($("new-tag").value); });
$("learn").addEventListener("click", learn);
$("undo").addEventListener("click", undo);
$("why").addEventListener("click", why);
$("clear").addEventListener("click", () => { take(null, "paste"); $("item").focus(); });
$("show-help").addEventListener("click", () => $("help").showModal());
$("pool").addEventListener("submit", (event) => {
  event.preventDefault();
  const lines = $("lines").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!lines.length) return;
  kindly(async () => {
    for (let i = 0; i < lines.length; i += 500) {
      await call("POST", "/v1/pool", { items: lines.slice(i, i + 500).map((text) => ({ id: `page-${random()}`, text })) });
    }
    $("lines").value = "";
    $("feed").open = false;
    await refresh(true);
    say(`${lines.length} items put in.`);
  });
});

const KEYS = {
  a: () => $("new-tag").focus(), w: why, u: undo, n: () => $("clear").click(),
  j: () => $("next").querySelector("button")?.click(), "?": () => $("help").showModal(),
};
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); learn(); return; }
  const field = event.target.closest("input, textarea");
  if (field) { if (event.key === "Escape") field.blur(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && !event.target.closest("button, a, summary")) { event.preventDefault(); learn(); return; }
  if (/^[1-9]$/.test(event.key)) { $("chips").children[Number(event.key) - 1]?.click(); return; }
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

setInterval(() => { if (!document.hidden && !state.away && !learning) refresh(); }, REFRESH_MS);
setInterval(() => { if (!state.away && state.source === "pool" && state.id !== null) lease(state.id).catch(() => { /* told elsewhere */ }); }, RENEW_MS);
take(null, "paste");
refresh(true);
