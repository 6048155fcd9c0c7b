// Assistants, and older versions of them, that are tried side by side. In an address they are ID or ID@VERSION.
import { post } from "../api/client";
import type { Assistant, JsonObject } from "../api/types";

export interface Tried {
  id: string;
  version: number | null; // null: the latest
}

export const triedPath = (a: string, b?: string) => `/try?${new URLSearchParams({ a, ...(b && { b }) })}`;

/** Reads a reference; null when it is none. */
export function parseTried(text: string | null): Tried | null {
  const found = /^([\w-]+)(?:@(\d+))?$/.exec(text ?? "");
  return found ? { id: found[1]!, version: found[2] ? Number(found[2]) : null } : null;
}

/** The key in the metadata of assistants that were made to try a version: runs take the latest version of theirs. */
export const triedKey = "studio_tries";

/** Returns the ID of an assistant with the settings of a version. The latest version is the assistant itself; of another one, an assistant is made once. */
export async function assistantOf(tried: Tried, latest: Assistant): Promise<string> {
  if (tried.version === null || tried.version === latest.version) return tried.id;
  const mark = { [triedKey]: `${tried.id}@${tried.version}` };
  const [known] = await post<Assistant[]>("/assistants/search", { metadata: mark, limit: 1 });
  if (known) return known.assistant_id;
  const version = (await post<Assistant[]>(`/assistants/${tried.id}/versions`, { limit: 1_000 })).find((v) => v.version === tried.version);
  if (!version) throw new Error(`Version ${tried.version} of ${latest.name} is not there any more.`);
  const made = await post<Assistant>("/assistants", {
    graph_id: version.graph_id,
    name: `${latest.name}, version ${tried.version}`,
    config: version.config ?? {},
    context: version.context ?? {},
    metadata: { ...((version.metadata ?? {}) as JsonObject), ...mark, created_by: "studio" },
  });
  return made.assistant_id;
}
