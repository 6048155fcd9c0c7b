import type { ThreadFilter } from "./threads";

export type What = "keep_latest" | "ttl" | "delete";

export interface Change {
  what: What;
  minutes: number; // of a ttl
  conditional: boolean; // whether the server knows `where`
}

/** What became of the threads of a change: skipped ones have active runs, gone ones do not exist, others left the filter meanwhile. */
export interface Outcome {
  changed: number;
  skipped: number;
  gone: number;
  left: number;
}

/** Sends a request; errors have the status of the response. */
export type Send = <T>(method: string, path: string, body: unknown) => Promise<T>;

interface Listed {
  thread_id: string;
  created_at: string;
}

/** How many threads a request prunes, how many are listed with one, by how many two lists overlap, and how many requests are under way. */
const [batch, listed, overlap, atOnce] = [50, 1_000, 100, 6];

const search = (send: Send, body: object) => send<Listed[]>("POST", "/threads/search", { ...body, select: ["thread_id", "created_at"] });

/** Returns how many threads match, and when the newest of them was created. */
export async function countMatching(send: Send, filter: ThreadFilter): Promise<{ count: number; until: string }> {
  const [newest] = await search(send, { ...filter, sort_by: "created_at", sort_order: "desc", limit: 1 });
  return { count: await send<number>("POST", "/threads/count", filter), until: newest?.created_at ?? "" };
}

/**
 * Returns the IDs of the threads that match and are not newer than until. Threads that leave the filter meanwhile move the following ones to lower offsets:
 * each list begins with a thread of the one before, else it is read from further ahead. A list may be short before the end: threads that are deleted are not in it.
 */
export async function listMatching(send: Send, filter: ThreadFilter, until: string): Promise<string[]> {
  const ids = new Set<string>();
  for (let offset = 0; ; ) {
    const page = await search(send, { ...filter, sort_by: "created_at", sort_order: "asc", limit: listed, offset });
    if (offset > 0 && !ids.has(page[0]?.thread_id ?? "")) {
      offset = Math.max(0, offset - listed / 2);
      continue;
    }
    const before = ids.size;
    for (const t of page) if (Date.parse(t.created_at) <= Date.parse(until)) ids.add(t.thread_id);
    if (ids.size === before) return [...ids];
    offset += Math.max(0, page.length - overlap);
  }
}

/**
 * Changes threads in batches and reports after each. With a filter, only what still matches: a server that knows the condition `where` looks at it with the
 * change, others are asked right before it.
 */
export async function changeMany(send: Send, ids: string[], { what, minutes, conditional }: Change, filter: ThreadFilter | null, report: (outcome: Outcome) => void): Promise<void> {
  const done: Outcome = { changed: 0, skipped: 0, gone: 0, left: 0 };
  const where = filter && conditional ? { where: filter } : {};
  const existing = async (some: string[], also: ThreadFilter = {}) => {
    const found = new Set((await search(send, { ...also, ids: some, limit: some.length })).map((t) => t.thread_id));
    return some.filter((id) => found.has(id));
  };
  /** Changes some, or returns false if the server does not know all of them. */
  const known = async (change: () => Promise<void>) => {
    try {
      await change();
      return true;
    } catch (e) {
      if ((e as { status?: number }).status !== 404) throw e;
      return false;
    }
  };
  const each = async (some: string[], change: (id: string) => Promise<void>) => {
    for (let at = 0; at < some.length; at += atOnce) for (const ok of await Promise.all(some.slice(at, at + atOnce).map((id) => known(() => change(id))))) if (!ok) done.gone++;
  };
  const expire = async (id: string) => {
    try {
      await send("PATCH", `/threads/${id}`, { ttl: { ttl: minutes, strategy: "delete" }, ...where });
      done.changed++;
    } catch (e) {
      if (!conditional || (e as { status?: number }).status !== 409) throw e;
      done.left++;
    }
  };
  const prune = async (some: string[]) => {
    const { pruned_count, unmatched_count = 0 } = await send<{ pruned_count: number; unmatched_count?: number }>("POST", "/threads/prune", { thread_ids: some, strategy: what, ...where });
    const rest = some.length - pruned_count - unmatched_count;
    const skipped = rest > 0 && what === "keep_latest" ? Math.min(rest, rest - some.length + (await existing(some)).length) : 0;
    done.changed += pruned_count;
    done.left += unmatched_count;
    done.skipped += skipped;
    done.gone += rest - skipped;
  };
  for (let at = 0; at < ids.length; at += batch) {
    const all = ids.slice(at, at + batch);
    try {
      const some = filter ? await existing(all, filter) : all;
      done.left += all.length - some.length;
      if (what === "ttl") await each(some, expire);
      else if (some.length > 0 && !(await known(() => prune(some)))) await each(some, (id) => prune([id]));
    } finally {
      report({ ...done });
    }
  }
}

/** The filter in words; "" for all threads. */
export function filterInWords({ status, metadata }: ThreadFilter): string {
  const { graph_id, ...rest } = metadata ?? {};
  return [status && `status ${status}`, graph_id !== undefined && `graph ${typeof graph_id === "string" ? graph_id : JSON.stringify(graph_id)}`, Object.keys(rest).length > 0 && `metadata ${JSON.stringify(rest)}`].filter(Boolean).join(", ");
}

/** What became of the threads, in words. */
export function outcomeInWords({ changed, skipped, gone, left }: Outcome, what: What): string {
  const threads = (n: number) => `${n.toLocaleString("en")} ${n === 1 ? "thread" : "threads"}`;
  return [`${threads(changed)} ${what === "delete" ? "deleted" : "changed"}.`, skipped > 0 && `${threads(skipped)} skipped because of active runs.`, gone > 0 && `${threads(gone)} did not exist any more.`, left > 0 && `${threads(left)} did not match any more.`].filter(Boolean).join(" ");
}
