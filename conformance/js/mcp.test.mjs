// /mcp by the unchanged TypeScript SDK: what LangGraph Server's has not.
import { test } from "node:test";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { Client as LangGraph } from "@langchain/langgraph-sdk";
import { BASE_URL } from "./helpers.mjs";

const langgraph = new LangGraph({ apiUrl: BASE_URL });

// connected calls fn with a client. Answer is what its user says to questions; undefined: it shows none.
async function connected(fn, answer) {
  const client = new Client({ name: "conformance", version: "1" }, { capabilities: answer ? { elicitation: {} } : {} });
  if (answer) client.setRequestHandler(ElicitRequestSchema, async (request) => answer(request.params));
  const transport = new StreamableHTTPClientTransport(new URL(`${BASE_URL}/mcp`));
  await client.connect(transport);
  try {
    return await fn(client, transport);
  } finally {
    await transport.terminateSession();
    await client.close();
  }
}

const tickers = async () => new Set((await langgraph.threads.search({ metadata: { graph_id: "ticker" }, limit: 1000 })).map((t) => t.thread_id));

async function until(condition) {
  for (let i = 0; i < 400; i++) {
    const found = await condition();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail("did not happen in time");
}

test("mcp: tools, structured results and errors", () => connected(async (client) => {
  const { tools } = await client.listTools();
  assert.equal(tools.find((t) => t.name === "echo").outputSchema.type, "object");
  const result = await client.callTool({ name: "echo", arguments: { n: 1 } });
  assert.equal(result.structuredContent.n, 2);
  const failed = await client.callTool({ name: "failing", arguments: { kind: "value" } });
  assert.ok(failed.isError);
  await assert.rejects(client.callTool({ name: "nope" }), /Unknown tool: nope/);
}));

test("mcp: progress keeps a call alive", () => connected(async (client) => {
  const seen = [];
  const result = await client.callTool({ name: "ticker", arguments: { steps: 5, delay: 0.3 } }, undefined,
    { timeout: 1000, resetTimeoutOnProgress: true, onprogress: (p) => seen.push(p.message) });
  assert.equal(result.structuredContent.items.length, 5);
  assert.deepEqual(seen, ["tick", "tick", "tick", "tick", "tick", "finish"]);
}));

test("mcp: an aborted call ends its run", () => connected(async (client) => {
  const before = await tickers();
  const abort = new AbortController();
  const call = client.callTool({ name: "ticker", arguments: { steps: 1000, delay: 0.05 } }, undefined, { signal: abort.signal });
  const [begun] = await until(async () => { const own = [...await tickers()].filter((t) => !before.has(t)); return own.length && own; });
  abort.abort("enough");
  await assert.rejects(call);
  await until(async () => !(await tickers()).has(begun));
}));

test("mcp: an interrupt is an elicitation", async () => {
  const asked = [];
  const result = await connected((client) => client.callTool({ name: "pipeline", arguments: { topic: "a" } }),
    (params) => { asked.push(params.message); return { action: "accept", content: { answer: "fine" } }; });
  assert.deepEqual(asked, ["ok?"]);
  assert.equal(result.structuredContent.answer, "fine");
});

test("mcp: a declined question is an error", async () => {
  const result = await connected((client) => client.callTool({ name: "pipeline", arguments: { topic: "a" } }), () => ({ action: "decline" }));
  assert.ok(result.isError);
});

test("mcp: changed assistants are announced", () => connected(async (client) => {
  let heard = 0;
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => { heard++; });
  await new Promise((resolve) => setTimeout(resolve, 300)); // the client opens its stream by itself
  const made = await langgraph.assistants.create({ graphId: "echo", name: `announced ${randomUUID()}` });
  await until(() => heard > 0);
  await langgraph.assistants.delete(made.assistant_id);
}));
