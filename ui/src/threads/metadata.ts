import type { Json, JsonObject } from "../api/types";

/** Reads the metadata that threads shall have: an object as JSON, or pairs such as `owner=ada level=3 team="blue green"`. It throws what is wrong with it. */
export function parseMetadata(text: string): JsonObject {
  const given = text.trim();
  if (given.startsWith("{")) {
    try {
      return JSON.parse(given) as JsonObject;
    } catch {
      throw new Error("This is not JSON.");
    }
  }
  const found: JsonObject = {};
  for (const pair of given.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []) {
    const at = pair.indexOf("=");
    if (at < 1) throw new Error(`${pair}: write name=value, or JSON.`);
    found[pair.slice(0, at)] = valueOf(pair.slice(at + 1));
  }
  return found;
}

/** JSON where it is, such as true, 3 and "3"; else the text itself. */
function valueOf(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text.replaceAll('"', "");
  }
}
