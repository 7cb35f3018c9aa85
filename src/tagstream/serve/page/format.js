// How numbers, dates and texts are shown.

import { t } from "./texts.js";

export const percent = (value) => `${Math.round(100 * value)} %`;
export const number = (value) => value.toLocaleString(t.locale);
export const f1 = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
export const textOf = (item) => item.text ?? JSON.stringify(item.x);
export const tagsOf = (tags) => (tags?.length ? tags.join(", ") : t.noTags);

export function when(iso) {
  if (!iso) return "";
  const date = new Date(iso), now = new Date();
  const time = date.toLocaleTimeString(t.locale, { hour: "2-digit", minute: "2-digit" });
  if (date.toDateString() === now.toDateString()) return time;
  return `${date.toLocaleDateString(t.locale, { day: "numeric", month: "short", year: date.getFullYear() === now.getFullYear() ? undefined : "numeric" })}, ${time}`;
}

// A tag has the same colour everywhere and always: a hue by its name.
export function hue(tag) {
  let hash = 2166136261;
  for (const letter of tag) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
  hash ^= hash >>> 15;
  return ((hash ^ (hash >>> 16)) >>> 0) % 360;
}

const WORD = /[\p{L}\p{N}]+/gu;
export const wordsOf = (text) => new Set(text.toLowerCase().match(WORD) ?? []);

// Cut a text at the words that are in a set: [[text, whether it is one of them], …].
export function cutAt(text, words) {
  const cuts = [];
  let end = 0;
  for (const found of text.matchAll(WORD)) {
    if (!words.has(found[0].toLowerCase())) continue;
    cuts.push([text.slice(end, found.index), false], [found[0], true]);
    end = found.index + found[0].length;
  }
  cuts.push([text.slice(end), false]);
  return cuts;
}
