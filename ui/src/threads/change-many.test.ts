import { expect, it } from "vitest";
import { changeMany, countMatching, filterInWords, listMatching, outcomeInWords, type Outcome, type Send, type What } from "./change-many";
import type { ThreadFilter } from "./threads";

interface T {
  thread_id: string;
  created_at: string;
  status: string;
}

/** A server that prunes none of a batch if it does not know one, as with authentication. before is called before each request. */
function server(n: number, before: (method: string, path: string, body: any) => void = () => {}) {
  const threads = new Map<string, T>();
  const add = (status = "error") => {
    const i = threads.size;
    threads.set(`t${i}`, { thread_id: `t${i}`, created_at: new Date(i * 1_000).toISOString(), status });
  };
  for (let i = 0; i < n; i++) add();
  const requests: string[] = [];
  const missing = () => Object.assign(new Error("Thread not found"), { status: 404 });
  const send = (async (method: string, path: string, body: any) => {
    before(method, path, body);
    requests.push(`${method} ${path}`);
    const of = () => [...threads.values()].filter((t) => (!body.status || t.status === body.status) && (!body.ids || body.ids.includes(t.thread_id)));
    if (path === "/threads/count") return of().length;
    if (path === "/threads/search") {
      const sorted = body.sort_order === "desc" ? of().reverse() : of();
      return sorted.slice(body.offset ?? 0, (body.offset ?? 0) + body.limit);
    }
    const meets = (t: T) => !body.where?.status || t.status === body.where.status;
    if (method === "PATCH") {
      const t = threads.get(path.split("/").at(-1)!);
      if (!t) throw missing();
      if (!meets(t)) throw Object.assign(new Error("does not match"), { status: 409 });
      return {};
    }
    const ids = body.thread_ids as string[];
    if (!ids.every((id) => threads.has(id))) throw missing();
    const matching = ids.filter((id) => meets(threads.get(id)!));
    const pruned = matching.filter((id) => body.strategy === "delete" || threads.get(id)!.status !== "busy");
    if (body.strategy === "delete") for (const id of pruned) threads.delete(id);
    return { pruned_count: pruned.length, ...(body.where && { unmatched_count: ids.length - matching.length }) };
  }) as Send;
  const change = async (ids: string[], what: What, filter: ThreadFilter | null = null, conditional = false) => {
    let last: Outcome | undefined;
    await changeMany(send, ids, { what, minutes: 60, conditional }, filter, (outcome) => (last = outcome));
    return last;
  };
  return { threads, add, requests, send, change };
}

const ids = (n: number) => Array.from({ length: n }, (_, i) => `t${i}`);

it("lists all that match, also while others leave the filter, and none that begin later", async () => {
  let lists = 0;
  const s = server(4_000, (_, path, body) => {
    if (path !== "/threads/search" || body.sort_order !== "asc") return;
    lists++;
    if (lists === 2) for (const id of ids(1_700)) s.threads.get(id)!.status = "busy"; // the rest moves to lower offsets
    if (lists === 3) s.add();
  });
  const { count, until } = await countMatching(s.send, { status: "error" });
  expect(count).toBe(4_000);
  const found = new Set(await listMatching(s.send, { status: "error" }, until));
  expect(ids(4_000).filter((id) => s.threads.get(id)!.status === "error" && !found.has(id))).toEqual([]);
  expect(found.has("t4000")).toBe(false);
});

it.each([0, 1, 100, 999, 1_000, 1_001])("lists %d threads", async (n) => {
  const s = server(n);
  expect(await listMatching(s.send, {}, (await countMatching(s.send, {})).until)).toEqual(ids(n));
});

it.each(["delete", "keep_latest", "ttl"] as const)("%s: leaves threads alone that left the filter before their batch", async (what) => {
  let changes = 0;
  const s = server(120, (_method, _path, body) => {
    if (body?.ids) changes++;
    if (body?.ids && changes === 2) s.threads.get("t70")!.status = "busy"; // retried
  });
  const outcome = await s.change(ids(120), what, { status: "error" });
  expect(outcome).toEqual({ changed: 119, skipped: 0, gone: 0, left: 1 });
  expect(s.threads.has("t70")).toBe(true);
});

it.each(["delete", "keep_latest", "ttl"] as const)("%s: leaves threads alone that leave the filter while they are changed, where the server looks at it", async (what) => {
  const s = server(120, (method, path) => {
    if (method === "PATCH" || path === "/threads/prune") s.threads.get("t70")!.status = "busy"; // retried after the page asked
  });
  expect(await s.change(ids(120), what, { status: "error" }, true)).toEqual({ changed: 119, skipped: 0, gone: 0, left: 1 });
  expect(s.threads.has("t70")).toBe(true);
});

it.each(["delete", "keep_latest", "ttl"] as const)("%s: continues past threads that do not exist", async (what) => {
  const s = server(120);
  s.threads.delete("t3");
  s.threads.delete("t110");
  expect(await s.change(ids(120), what)).toEqual({ changed: 118, skipped: 0, gone: 2, left: 0 });
});

it("counts what the server pruned, and what it skipped because of runs", async () => {
  const s = server(60);
  for (const id of ["t1", "t55"]) s.threads.get(id)!.status = "busy";
  expect(await s.change(ids(60), "keep_latest")).toEqual({ changed: 58, skipped: 2, gone: 0, left: 0 });
  s.threads.delete("t2");
  expect(await s.change(ids(60), "keep_latest")).toEqual({ changed: 57, skipped: 2, gone: 1, left: 0 });
});

it("stops at other errors, and reports what was changed before", async () => {
  const s = server(120, (method, path) => {
    if (method === "PATCH" && path.endsWith("t80")) throw Object.assign(new Error("no"), { status: 403 });
  });
  let last: Outcome | undefined;
  await expect(changeMany(s.send, ids(120), { what: "ttl", minutes: 60, conditional: true }, null, (o) => (last = o))).rejects.toThrow("no");
  expect(last!.changed).toBeGreaterThanOrEqual(80);
  expect(last!.changed).toBeLessThan(90);
});

it.each<[ThreadFilter, string]>([
  [{}, ""],
  [{ metadata: {} }, ""],
  [{ status: "error", metadata: { graph_id: "agent", owner: "ada" } }, 'status error, graph agent, metadata {"owner":"ada"}'],
])("names the filter %j", (filter, want) => expect(filterInWords(filter)).toBe(want));

it("says what became of the threads", () => {
  expect(outcomeInWords({ changed: 1_234, skipped: 2, gone: 1, left: 3 }, "keep_latest")).toBe("1,234 threads changed. 2 threads skipped because of active runs. 1 thread did not exist any more. 3 threads did not match any more.");
  expect(outcomeInWords({ changed: 1, skipped: 0, gone: 0, left: 0 }, "delete")).toBe("1 thread deleted.");
});
