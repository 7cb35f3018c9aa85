// The API reference, made from openapi.json in the browser.

function make(name, options = {}, ...children) {
  const { text, ...attributes } = options;
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  node.append(...children.filter(Boolean));
  return node;
}

const api = await (await fetch("/openapi.json")).json();
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
    query && make("p", { class: "hint", text: `Query: ${query}` }),
    body && make("pre", {}, make("code", { text: shape(body) })));
}

const sections = api.tags.map(({ name, description }) => {
  const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).filter(([, told]) => told.tags?.includes(name)).map(([method, told]) => operation(path, method, told)));
  return make("section", {}, make("h2", { text: name }), make("p", { class: "hint", text: description }), ...operations);
});
document.getElementById("api").replaceChildren(
  make("p", { text: `${api.info.title} ${api.info.version}. ${api.info.description}` }),
  make("p", { class: "hint", text: "Errors are {\"error\": …, \"field\"?: …}. With tokens, send Authorization: Bearer <token>." }),
  ...sections);
