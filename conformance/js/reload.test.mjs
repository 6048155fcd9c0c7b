// A page that is loaded at any moment of a run, with the controller that useStream of @langchain/react, vue, svelte and angular is made of: it reads the state once,
// and opens a stream only if that has something to do next.
import { test, describe } from "node:test";
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";
import { StreamController } from "@langchain/langgraph-sdk/stream";
import { BASE_URL, say, callSearch, words, text } from "./helpers.mjs";

const client = new Client({ apiUrl: BASE_URL });
const json = { "content-type": "application/json" };
const stateOf = (thread) => fetch(`${BASE_URL}/threads/${thread}/state`).then((answer) => answer.text());
const kinds = { human: "human", HumanMessage: "human", ai: "ai", AIMessage: "ai", tool: "tool" };
const shown = (messages) => messages.filter((m) => kinds[m.getType?.() ?? m.type]).map((m) => [kinds[m.getType?.() ?? m.type], text(m)]);

async function start(thread, assistant_id, input) {
  const answer = await fetch(`${BASE_URL}/threads/${thread}/commands`, {
    method: "POST", headers: json, body: JSON.stringify({ id: 1, method: "run.start", params: { assistant_id, input } }),
  });
  return (await answer.json()).result.run_id;
}

/** Opens a page whose first state is the given one, read earlier. */
function page(thread, assistantId, state, transport) {
  const from = new Client({
    apiUrl: BASE_URL,
    callerOptions: { fetch: (url, init) => (state && new URL(url).pathname === `/threads/${thread}/state` ? Promise.resolve(new Response(state, { headers: json })) : fetch(url, init)) },
  });
  const options = transport === "websocket" ? { transport, webSocketFactory: (url) => new WebSocket(url) } : { transport };
  const controller = new StreamController({ assistantId, client: from, threadId: thread, ...options });
  controller.activate();
  return controller;
}

/** Calls each for every event of a thread, whose runs are so many, until stop is called. It waits for the end of the last run, or not. */
async function watch(thread, runs, each) {
  const abort = new AbortController();
  const channels = ["values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"];
  const answer = await fetch(`${BASE_URL}/threads/${thread}/stream/events`, { method: "POST", headers: json, body: JSON.stringify({ channels }), signal: abort.signal });
  let atEnd;
  const ended = new Promise((resolve) => { atEnd = resolve; });
  const read = (async () => {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const piece of answer.body) {
      const frames = (rest + decoder.decode(piece, { stream: true })).split("\r\n\r\n");
      rest = frames.pop();
      for (const frame of frames) if (frame.startsWith("event:")) {
        each();
        const { method, params } = JSON.parse(frame.match(/^data: ?(.*)$/m)[1]);
        if (method === "lifecycle" && params.namespace.length === 0 && params.data.event === "completed" && --runs === 0) atEnd();
      }
    }
  })().catch(() => {}).finally(atEnd);
  return async (atOnce) => {
    if (!atOnce) await ended;
    abort.abort();
    await read;
  };
}

for (const transport of ["sse", "websocket"]) describe(`a page that is loaded during a run, over ${transport}`, { concurrency: false, skip: transport === "websocket" && typeof WebSocket === "undefined" && "no global WebSocket" }, () => {
  for (const { graph, turns, last, whole } of [
    { graph: "summarizing", turns: [say(1), say(2), say(3)], last: say(30), whole: [1, 2, 3, 30].flatMap((n) => [["human", `say ${n}`], ["ai", words(n)]]) },
    { graph: "parent", turns: [], last: say(30), whole: [["human", "say 30"], ["ai", words(30)]] },
    { graph: "agent", turns: [say(2)], last: callSearch("cats"), whole: [["human", "say 2"], ["ai", words(2)], ["human", 'call search {"q":"cats"}'], ["ai", ""], ["tool", "Found 10 results for cats"], ["ai", "tool said: Found 10 results for cats"]] },
  ]) test(`shows the whole conversation of ${graph}, whatever it read first`, { timeout: 120_000 }, async () => {
    const { thread_id: thread } = await client.threads.create();
    for (const turn of turns) await client.runs.join(thread, await start(thread, graph, turn));
    const pages = [], states = new Set();
    const open = (state) => pages.push([JSON.parse(state), page(thread, graph, state, transport)]);
    let events = 0, latest, run, over = false;
    const each = transport === "sse" ? 3 : 1; // two connections for each page
    const stop = await watch(thread, turns.length + 1, () => {
      if (events++ % each === 0 && latest) open(latest);
    });
    try {
      run = await start(thread, graph, last);
      const ended = client.runs.join(thread, run).then(() => { over = true; });
      while (!over) {
        latest = await stateOf(thread);
        if (!states.has(latest)) open(latest);
        states.add(latest);
      }
      await ended;
      // Each state that the run has had, by a page that opens its stream only now.
      for (const state of await client.threads.getHistory(thread)) if (state.metadata.run_id === run) states.add(JSON.stringify(state));
      for (const state of states) open(state);
      await stop();
      assert.ok(events > 20 && states.size > 2, `${events} events, ${states.size} states`);
      const deadline = Date.now() + 60_000;
      const seen = ([, controller]) => { const { messages, isLoading } = controller.rootStore.getSnapshot(); return { messages: shown(messages), isLoading }; };
      for (const one of pages) {
        while (Date.now() < deadline && JSON.stringify(seen(one)) !== JSON.stringify({ messages: whole, isLoading: false })) await new Promise((resolve) => setTimeout(resolve, 20));
        const { next, metadata } = one[0];
        assert.deepEqual(seen(one), { messages: whole, isLoading: false }, `next was ${JSON.stringify(next)} after step ${metadata?.step}, ${metadata?.run_id === run ? "of this run" : "of the run before"}`);
      }
    } finally {
      await stop(true);
      await Promise.all(pages.map(([, controller]) => controller.dispose()));
    }
  });
});
