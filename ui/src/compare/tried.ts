// Assistants, and older versions of them, that are tried side by side. In an address they are ID or ID@VERSION.
import { post, request } from "../api/client";
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

/** The assistants that a page makes to try versions, each until the next ones are tried or the page is left. */
export class MadeToTry {
  #made: Promise<Assistant>[] = [];

  /** Returns the ID of an assistant with the settings of a version. The latest version is the assistant itself; of another one, an assistant is made. */
  async assistantOf(tried: Tried, latest: Assistant): Promise<string> {
    if (tried.version === null || tried.version === latest.version) return tried.id;
    const making = make(tried, latest);
    this.#made.push(making);
    return (await making).assistant_id;
  }

  /** Deletes those that were made, and those that still are being made. */
  async discard() {
    await Promise.all(this.#made.splice(0).map((making) => making.then(remove, () => {})));
  }
}

async function make(tried: Tried, latest: Assistant): Promise<Assistant> {
  const version = (await post<Assistant[]>(`/assistants/${tried.id}/versions`, { limit: 1_000 })).find((v) => v.version === tried.version);
  if (!version) throw new Error(`Version ${tried.version} of ${latest.name} is not there any more.`);
  return post<Assistant>("/assistants", {
    graph_id: version.graph_id,
    name: `${latest.name}, version ${tried.version}`,
    config: version.config ?? {},
    context: version.context ?? {},
    metadata: { ...((version.metadata ?? {}) as JsonObject), [triedKey]: `${tried.id}@${tried.version}`, created_by: "studio" },
  });
}

/** Deletes an assistant if the server lets it: one that stays is tried again a day later. */
const remove = ({ assistant_id }: Assistant) => request("DELETE", `/assistants/${assistant_id}`).catch(() => {});

const day = 24 * 60 * 60 * 1000; // ms

/** Deletes the assistants that were made more than a day ago: the browser was closed before their page was left. */
export async function deleteForgotten(all: readonly Assistant[], now = Date.now()) {
  await Promise.all(all.filter((a) => a.metadata?.[triedKey] !== undefined && now - Date.parse(a.created_at) > day).map(remove));
}
