// The API reference, made from openapi.json in the browser.

function make(name, options = {}, ...children) {
  const { text, ...attributes } = options;
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter(Boolean));
  return node;
}

const place = document.getElementById("api");

// With tokens, the description needs one too: that of the page in this tab, or one that is typed in.
async function load() {
  const token = sessionStorage.getItem("token");
  const answer = await fetch("/openapi.json", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  if (answer.ok) return answer.json();
  if (answer.status !== 401) throw new Error(`The service answered ${answer.status}.`);
  return new Promise((resolve) => {
    const input = make("input", { type: "password", id: "token", autocomplete: "off" });
    const button = make("button", { type: "button", text: "Use it" });
    button.addEventListener("click", () => {
      sessionStorage.setItem("token", input.value.trim());
      resolve(load());
    });
    place.replaceChildren(make("p", {}, make("label", { for: "token", text: "A token is needed: " }), input, button));
  });
}

const api = await load();
const resolve = (schema) => schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema;

// One line of what a value may be, as a reader would say it.
function shape(schema, depth = 0) {
  const s = resolve(schema) ?? {};
  if (s.anyOf) return [...new Set(s.anyOf.filter((o) => o.type !== "null").map((o) => shape(o, depth)))].join(" or ");
  if (s.type === "array") return `[${depth > 3 ? "…" : shape(s.items, depth + 1)}, …]`;
  if (s.properties && Object.keys(s.properties).length) {
    const fields = Object.entries(s.properties).map(([name, value]) =>
      `${"  ".repeat(depth + 1)}"${name}"${(s.required ?? []).includes(name) ? "" : "?"}: ${shape(value, depth + 1)}`);
    return `{\n${fields.join(",\n")}\n${"  ".repeat(depth)}}`;
  }
  if (s.type === "object") return "{…}";
  return s.type ?? "any";
}

function operation(path, method, told) {
  const body = told.requestBody?.content?.["application/json"]?.schema;
  const query = (told.parameters ?? []).map((p) => `${p.name}: ${shape(p.schema)}`).join(", ");
  return make("article", {},
    make("div", { class: "path", text: `${method.toUpperCase()} ${path}` }),
    make("p", { text: told.description ?? told.summary }),
    make("p", { class: "hint", text: told["x-role"] === "open" ? "Needs no token." : `Needs the role ${told["x-role"]}.` }),
    query && make("p", { class: "hint", text: `Query: ${query}` }),
    body && make("pre", {}, make("code", { text: shape(body) })));
}

const sections = api.tags.map(({ name, description }) => {
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).filter(([, told]) => told.tags?.includes(name)).map(([method, told]) => operation(path, method, told)));
  return make("section", {}, make("h2", { text: name }), make("p", { class: "hint", text: description }), ...operations);
});
place.replaceChildren(
  make("p", { text: `${api.info.title} ${api.info.version}. ${api.info.description}` }),
  make("p", { class: "hint", text: "Errors are {\"error\": …, \"field\"?: …}. With tokens, send Authorization: Bearer <token>." }),
  ...sections);
