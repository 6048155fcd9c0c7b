import type { Json } from "../api/types";
import { JsonView } from "../parts/json";

/** The arguments of a call; text while they are no JSON yet. */
export function Arguments({ args }: { args: string }) {
  const value = parsed(args);
  return value === undefined ? <pre className="result">{args}</pre> : <JsonView value={value} open={2} />;
}

/** What a tool returned: JSON as a tree, other text as it is. */
export function Result({ text }: { text: string }) {
  const value = /^\s*[[{]/.test(text) ? parsed(text) : undefined;
  return value === undefined ? <pre className="result">{text}</pre> : <JsonView value={value} open={2} />;
}

function parsed(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}
