// Data: a file is dropped, looked at, and read in; and everything can be taken out again.

import { html, useRef, useState } from "../vendor/preact.js";
import { attempt, change, download, newKey, read, upload } from "../api.js";
import { number, when } from "../format.js";
import { useKeys } from "../keys.js";
import { Button, Empty, Field, Head, Icon, Select, TagPicker, useData } from "../parts.js";
import { may, say, useDraft, useStore } from "../store.js";
import { t } from "../texts.js";

const HEAD = 8 << 20; // of a large file only so much is sent for the preview
const WHOLE = ["xlsx", "json"]; // these can only be read as a whole
const SEPARATORS = [";", "|", ",", " "];
const ROLES = ["", "text", "tags", "id", "no"];
const GROUP = 500; // pasted lines that are sent together
const FORMATS = ["csv", "jsonl", "xlsx"];

const endingOf = (name) => name.split(".").pop().toLowerCase();

function roleOf(column, guess) {
  if (guess.text?.includes(column)) return "text";
  return ["tags", "id", "no"].find((role) => guess[role] === column) ?? "";
}

// What stands between two tags, by the look of a column.
function separatorOf(told, column) {
  const samples = told.columns.find(({ name }) => name === column)?.samples ?? [];
  return SEPARATORS.slice(0, 3).find((one) => samples.some((text) => text.includes(one))) ?? told.guess.separator ?? SEPARATORS[0];
}

function Preview({ file, told, onDone, onClose }) {
  const [roles, setRoles] = useState(() => Object.fromEntries(told.columns.map(({ name }) => [name, roleOf(name, told.guess)])));
  const [as, setAs] = useState(told.guess.tags ? "learnt" : "waiting");
  const [separator, setSeparator] = useState(separatorOf(told, told.guess.tags));
  const [skip, setSkip] = useState(false);
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState(null);
  const withRole = (role) => told.columns.map(({ name }) => name).filter((name) => roles[name] === role);
  const hasText = withRole("text").length > 0;
  const problem = !hasText ? t.data.needText : as === "learnt" && !withRole("tags").length ? t.data.needTags : "";
  const choose = (column, role) => {
    setRoles((all) => ({ ...Object.fromEntries(Object.entries(all).map(([name, old]) => [name, role !== "text" && old === role ? "" : old])), [column]: role }));
    if (role === "tags") setSeparator(separatorOf(told, column));
  };
  const start = async () => {
    setBusy(true);
    const query = [["name", file.name], ["as", as], ["format", told.format], ["separator", separator],
      ...["id", "text", "tags", "no"].flatMap((role) => withRole(role).map((name) => [role, name])), ...(skip ? [["skip_bad", "true"]] : [])];
    const done = await attempt(() => upload("/v1/import", query, file, "application/octet-stream"));
    setBusy(false);
    if (!done) return;
    say(as === "learnt" ? t.data.learnt(number(done.n), file.name) : t.data.waiting(number(done.n), file.name));
    setResult(done);
    onDone();
  };
  if (result) {
    return html`<section class="card" aria-label=${t.data.result}><h2>${t.data.result}</h2><p>${t.data.resultText(number(result.lines), number(result.n), number(result.duplicates), number(result.n_bad))}</p>
      ${result.bad?.length > 0 && html`<ul class="examples">${result.bad.map((one) => html`<li key=${one.line}>${t.data.badLine(one.line)} ${one.error}</li>`)}</ul>`}
      <div class="row"><a class="button main" href=${as === "waiting" ? "#/tag" : "#/items"}>${as === "waiting" ? t.data.goTag : t.data.goItems}</a><${Button} onClick=${onClose}>${t.data.another}<//></div></section>`;
  }
  return html`<section class="card" aria-label=${t.data.preview}>
    <h2>${file.name}</h2><p class="hint">${told.n_rows === null || told.n_rows === undefined ? t.data.rowsSome : t.data.rows(number(told.n_rows))}</p>
    <div class="table" tabindex="0"><table class="preview-table"><caption class="quiet">${t.data.preview}</caption><thead><tr>${told.columns.map(({ name }) => html`<th scope="col" key=${name}><span>${name}</span><${Select} label=${t.data.role(name)} quiet value=${roles[name]} options=${ROLES.map((role) => [role, t.data.roles[role]])} onChange=${(role) => choose(name, role)} /></th>`)}</tr></thead>
      <tbody>${told.rows.slice(0, 6).map((row, i) => html`<tr key=${i}>${told.columns.map(({ name }) => html`<td key=${name} class=${roles[name] ? "" : "unused"}>${row[name] ?? ""}</td>`)}</tr>`)}</tbody></table></div>
    <fieldset class="choices"><legend>${t.data.as}</legend>${["waiting", "learnt"].map((name) => html`<label key=${name} class="choice"><input type="radio" name="as" value=${name} checked=${as === name} onChange=${() => setAs(name)} /><span><strong>${t.data.asNames[name]}</strong><br />${t.data.asTexts[name]}</span></label>`)}</fieldset>
    <div class="filters">${withRole("tags").length > 0 && html`<${Select} label=${t.data.separator} value=${separator} options=${[...new Set([...SEPARATORS, separator])].map((one) => [one, t.data.separators[one] ?? one])} onChange=${setSeparator} />`}
      <label class="check"><input type="checkbox" checked=${skip} onChange=${(event) => setSkip(event.target.checked)} /> ${t.data.skipBad}</label></div>
    ${problem && html`<p class="problem" role="status">${problem}</p>`}
    <div class="row"><${Button} kind="main" disabled=${busy || Boolean(problem)} onClick=${start}>${busy ? t.data.busy : t.data.start}<//><${Button} kind="ghost" disabled=${busy} onClick=${onClose}>${t.cancel}<//></div>
    ${busy && html`<div class="running" role="status"><span class="quiet">${t.data.busy}</span></div>`}
  </section>`;
}

function Export() {
  const [format, setFormat] = useDraft("data.format", "jsonl");
  const [tag, setTag] = useDraft("data.tag", "");
  const [busy, setBusy] = useState(false);
  const take = async () => {
    setBusy(true);
    await attempt(async () => {
      await download("/v1/export", { format, tag }, `tagstream.${format}`);
      say(t.data.exported(`tagstream.${format}`));
    });
    setBusy(false);
  };
  return html`<section class="card" aria-labelledby="export-title"><h2 id="export-title">${t.data.export}</h2><p class="hint">${t.data.exportText}</p>
    <div class="filters"><${Select} label=${t.data.format} value=${format} options=${FORMATS.map((name) => [name, t.data.formats[name]])} onChange=${setFormat} /><${TagPicker} label=${t.data.onlyTag} value=${tag} placeholder=${t.items.any} onPick=${setTag} />${tag && html`<${Button} kind="ghost" onClick=${() => setTag("")}>${t.items.clear}<//>`}</div>
    <div class="row"><${Button} id="export" disabled=${busy} onClick=${take}>${t.data.download}<//></div></section>`;
}

export function Data() {
  const [file, setFile] = useState(null);
  const [told, setTold] = useState(null);
  const [over, setOver] = useState(false);
  const [text, setText] = useDraft("data.text", "");
  const [before, again] = useData(() => read("/v1/imports"));
  const chooser = useRef();
  const canWrite = may("write");
  const look = async (chosen) => {
    if (!chosen) return;
    setTold(null);
    setFile(chosen);
    const part = WHOLE.includes(endingOf(chosen.name)) || chosen.size <= HEAD ? chosen : chosen.slice(0, HEAD);
    const found = await attempt(() => upload("/v1/import/preview", { name: chosen.name }, part, "application/octet-stream"));
    if (found) setTold(found); else setFile(null);
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    look(event.dataTransfer.files[0]);
  };
  const paste = async (event) => {
    event.preventDefault();
    const items = text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => ({ id: newKey(), text: line }));
    const done = await attempt(async () => {
      for (let i = 0; i < items.length; i += GROUP) await change("/v1/pool", { items: items.slice(i, i + GROUP) }, t.data.pasted(number(items.length)));
      return true;
    });
    if (!done) return;
    setText("");
    say(t.data.pasted(number(items.length)), items.length <= GROUP ? { path: "/v1/pool/remove", body: { ids: items.map((item) => item.id) } } : null);
  };
  const close = () => { setFile(null); setTold(null); };
  useKeys({ o: () => chooser.current?.click(), e: () => document.getElementById("export")?.click() });
  return html`<${Head} title=${t.views.data} text=${t.data.lead} />
    ${canWrite && (told ? html`<${Preview} key=${file.name} file=${file} told=${told} onDone=${again} onClose=${close} />` : html`
    <section class="card drop ${over ? "over" : ""}" aria-labelledby="drop-title" onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      <${Icon} name="up" /><h2 id="drop-title">${file ? t.data.reading(file.name) : t.data.drop}</h2><p class="hint">${t.data.dropText}</p>
      <label for="file" class="quiet">${t.data.choose}</label><input id="file" ref=${chooser} type="file" class="quiet" tabindex="-1" accept=".csv,.tsv,.xlsx,.json,.jsonl,.ndjson,.txt" onChange=${(event) => { look(event.target.files[0]); event.target.value = ""; }} />
      <${Button} kind="main" shortcut="o" onClick=${() => chooser.current.click()}>${t.data.choose}<//>
    </section>
    <section class="card"><h2>${t.data.paste}</h2><form onSubmit=${paste}><${Field} label=${t.data.pasteLabel}>${(id) => html`<textarea id=${id} rows="3" value=${text} onInput=${(event) => setText(event.target.value)} spellcheck=${false} />`}<//><${Button} type="submit" disabled=${!text.trim()}>${t.data.pasteDo}<//></form></section>`)}
    <${Export} />
    <section class="card"><h2>${t.data.before}</h2>${before?.imports.length ? html`<div class="table" tabindex="0"><table><caption class="quiet">${t.data.before}</caption><thead><tr><th scope="col">${t.data.file}</th><th scope="col" class="number">${t.data.lines}</th><th scope="col">${t.data.as}</th><th scope="col">${t.data.by}</th></tr></thead><tbody>${before.imports.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td class="number">${number(one.lines)}</td><td>${t.data.asNames[one.as] ?? one.as}</td><td>${one.who ?? ""} <span class="hint">${when(one.when)}</span></td></tr>`)}</tbody></table></div>` : html`<p class="hint">${t.data.noImports}</p>`}</section>`;
}
