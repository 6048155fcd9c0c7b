import { describe, expect, it } from "vitest";
import { snippet, talking, word, type Call } from "./snippets";

const url = "http://127.0.0.1:2024/agents";
const last = (text: string) => text.trim().split("\n").filter((line) => !line.startsWith("asyncio") && line !== "").at(-1)!.trim();
const search: Call = { method: "POST", path: "/threads/search", body: { status: "interrupted", sort_by: "updated_at", metadata: { it: "isn't", n: [1, null, true] } } };

describe("snippets", () => {
  it("quote for a shell", () => {
    expect(snippet("curl", url, { method: "GET", path: "/understudy/logs?text=it's" })).toBe(`curl '${url}/understudy/logs?text=it'\\''s'`);
    expect(snippet("curl", url, search)).toBe(
      `curl -X POST '${url}/threads/search' -H 'content-type: application/json' -d '{"status":"interrupted","sort_by":"updated_at","metadata":{"it":"isn'\\''t","n":[1,null,true]}}'`,
    );
  });

  it("quote words only where a shell needs it", () => {
    expect(["agent", "http://127.0.0.1:2024/a", "my agent", "it's", "$HOME;x", ""].map(word)).toEqual(["agent", "http://127.0.0.1:2024/a", "'my agent'", "'it'\\''s'", "'$HOME;x'", "''"]);
  });

  it("call the SDK's method where there is one", () => {
    expect(last(snippet("Python", url, search))).toBe('print(await client.threads.search(status="interrupted", sort_by="updated_at", metadata={"it": "isn\'t", "n": [1, None, True]}))');
    expect(last(snippet("JavaScript", url, search))).toBe('console.log(JSON.stringify(await client.threads.search({"status":"interrupted","sortBy":"updated_at","metadata":{"it":"isn\'t","n":[1,null,true]}}), null, 2));');
    const runs: Call = { method: "GET", path: "/threads/t1/runs?limit=100&status=error" };
    expect(last(snippet("Python", url, runs))).toBe('print(await client.runs.list("t1", limit=100, status="error"))');
    expect(last(snippet("JavaScript", url, runs))).toBe('console.log(JSON.stringify(await client.runs.list("t1", {"limit":100,"status":"error"}), null, 2));');
    const items: Call = { method: "POST", path: "/store/items/search", body: { namespace_prefix: ["a"], limit: 50 } };
    expect(last(snippet("Python", url, items))).toBe('print(await client.store.search_items(["a"], limit=50))');
    expect(last(snippet("JavaScript", url, items))).toBe('console.log(JSON.stringify(await client.store.searchItems(["a"], {"limit":50}), null, 2));');
    const graph: Call = { method: "GET", path: "/assistants/a1/graph?xray=true" };
    expect(last(snippet("Python", url, graph))).toBe('print(await client.assistants.get_graph("a1", xray=True))');
    expect(last(snippet("JavaScript", url, graph))).toBe('console.log(JSON.stringify(await client.assistants.getGraph("a1", {"xray":true}), null, 2));');
  });

  it("ask for the path where there is none", () => {
    const usage: Call = { method: "GET", path: "/understudy/usage?days=30" };
    expect(last(snippet("Python", url, usage))).toBe('print(await client.http.get("/understudy/usage?days=30"))');
    expect(snippet("JavaScript", url, usage)).toContain(`await fetch("${url}/understudy/usage?days=30");`);
    const names: Call = { method: "POST", path: "/store/namespaces", body: { prefix: [] } };
    expect(last(snippet("Python", url, names))).toBe('print(await client.http.post("/store/namespaces", json={"prefix": []}))');
    expect(snippet("JavaScript", url, names)).toContain('body: JSON.stringify({"prefix":[]})');
  });

  it("talk to an assistant", () => {
    const input = { messages: [{ role: "user", content: 'say "hello"' }] };
    expect(talking("Python", url, "chat", input)).toContain('client.runs.stream(thread["thread_id"], "chat", input={"messages": [{"role": "user", "content": "say \\"hello\\""}]}, stream_mode="updates")');
    expect(talking("JavaScript", url, "chat", input)).toContain('client.runs.stream(thread.thread_id, "chat", { input, streamMode: "updates" })');
    expect(talking("curl", url, "chat", input)).toContain(`curl -N -X POST '${url}/runs/stream'`);
  });
});
