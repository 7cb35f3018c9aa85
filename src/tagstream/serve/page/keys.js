// Keys. Each view says what its keys do; the view that was drawn last comes first.

import { useLayoutEffect, useRef } from "./vendor/preact.js";

const maps = [];

export function useKeys(keys) {
  const own = useRef(keys);
  own.current = keys;
  useLayoutEffect(() => { // at once: a key may come before the next picture
    maps.unshift(own);
    return () => { maps.splice(maps.indexOf(own), 1); };
  }, []);
}

const nameOf = (event) => {
  const command = event.ctrlKey || event.metaKey;
  if (command && event.key !== "Enter") return null;
  return `${command ? "Ctrl+" : ""}${event.shiftKey && event.key.length > 1 ? "Shift+" : ""}${event.key}`;
};

let before = ""; // "g", and then the letter of a view

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
  const name = nameOf(event);
  if (name === null) return;
  const field = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select");
  if (field && name !== "Ctrl+Enter") {
    if (name === "Escape") field.blur();
    return;
  }
  if ((name === "Enter" || name === " ") && event.target.closest("button, a, summary, input")) return;
  const whole = before === "g" ? `g ${name}` : name;
  before = whole === "g" ? "g" : "";
  for (const map of maps) {
    const act = map.current[whole];
    if (act) {
      event.preventDefault();
      act(event);
      return;
    }
  }
});
