import { beforeEach, expect, it, vi } from "vitest";
import type { RecentRuns } from "./runs";

/** A LangGraph Server: it lists the runs of one thread only. Each path answers with a status and a body. */
function upstream(answers: Record<string, [number, unknown]>) {
  vi.stubGlobal("document", { baseURI: "http://test/studio/", cookie: "" });
  vi.stubGlobal("fetch", async (url: string) => {
    const path = new URL(url).pathname;
    const [status, body] = answers[path] ?? [500, { detail: `unexpected ${path}` }];
    return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
  });
}

async function recent(): Promise<RecentRuns> {
  const { recentRuns } = await import("./runs");
  return recentRuns({}, new AbortController().signal);
}

const run = (id: string) => ({ run_id: id, thread_id: id, status: "success", created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:01Z" });
const threads = [200, [{ thread_id: "a", metadata: {} }, { thread_id: "b", metadata: {} }]] as [number, unknown];

beforeEach(() => vi.resetModules());

it("leaves out a thread that is deleted while its runs are read", async () => {
  upstream({ "/info": [200, {}], "/threads/search": threads, "/threads/a/runs": [404, { detail: "Thread not found" }], "/threads/b/runs": [200, [run("b")]] });
  expect((await recent()).runs.map((r) => r.run_id)).toEqual(["b"]);
});

it("reports any other failure of one thread", async () => {
  upstream({ "/info": [200, {}], "/threads/search": threads, "/threads/a/runs": [503, { detail: "busy" }], "/threads/b/runs": [200, [run("b")]] });
  await expect(recent()).rejects.toThrow("busy");
});

it("asks again what kind of server it is, when it did not answer", async () => {
  const answers: Record<string, [number, unknown]> = { "/info": [503, {}], "/understudy/runs": [200, { runs: [], next: null }], "/threads/search": [200, []] };
  upstream(answers);
  const { isOwn } = await import("./server");
  expect(await isOwn()).toBe(true);
  answers["/info"] = [200, {}];
  expect(await isOwn()).toBe(false);
});
