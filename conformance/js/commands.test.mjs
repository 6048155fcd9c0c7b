// Commands of event streaming that LangGraph Server does not know, with an unchanged SDK client.
import { test, describe } from "node:test";
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";
import { BASE_URL, say, words, collect, text, withTimeout } from "./helpers.mjs";

const client = new Client({ apiUrl: BASE_URL });
const refused = (code) => (error) => error.name === "ProtocolError" && error.code === code;

for (const transport of ["sse", "websocket"]) describe(`commands over ${transport}`, { concurrency: false, skip: transport === "websocket" && typeof WebSocket === "undefined" && "no global WebSocket" }, () => {
  const options = { transport, ...(transport === "websocket" ? { webSocketFactory: (url) => new WebSocket(url) } : {}) };
  const open = (assistantId) => client.threads.stream({ assistantId, ...options });

  test("state of the root and of a subgraph, checkpoints, and a fork from one", async () => {
    const thread = open("parent");
    try {
      await assert.rejects(thread.state.fork({ checkpoint_id: "00000000-0000-4000-8000-000000000001" }), refused("no_such_run"));
      await thread.run.start({ input: say(2) });
      await withTimeout(thread.output, 15000, "output");
      await Promise.all((await client.runs.list(thread.threadId)).map((run) => client.runs.join(thread.threadId, run.run_id)));

      const whole = await client.threads.getState(thread.threadId);
      const state = await thread.state.get({ namespace: [] });
      assert.deepEqual(state, { values: whole.values, checkpoint: { id: whole.checkpoint.checkpoint_id } });
      assert.deepEqual((await thread.state.get({ namespace: [], keys: ["nothing"] })).values, {});
      assert.deepEqual((await thread.state.get({ namespace: [], keys: ["messages"] })).values, { messages: whole.values.messages });
      await assert.rejects(thread.state.get({ namespace: ["nobody:1"] }), refused("no_such_namespace"));

      const history = await client.threads.getHistory(thread.threadId);
      const { checkpoints } = await thread.state.listCheckpoints({});
      assert.deepEqual(checkpoints.map((c) => [c.id, c.step, c.timestamp]), history.map((h) => [h.checkpoint.checkpoint_id, h.metadata.step, h.created_at]));
      assert.equal(checkpoints[0].node_name, "child");
      const page = await thread.state.listCheckpoints({ limit: 1, before: checkpoints[0].id });
      assert.deepEqual(page.checkpoints, [checkpoints[1]]);

      await assert.rejects(thread.state.fork({ checkpoint_id: "00000000-0000-4000-8000-000000000001" }), refused("no_such_checkpoint"));
      const fork = await thread.state.fork({ checkpoint_id: checkpoints.at(-1).id, input: say(3) });
      assert.equal(fork.thread_id, thread.threadId);
      await client.runs.join(thread.threadId, fork.run_id);
      const { values } = await thread.state.get({ namespace: [] });
      assert.deepEqual(values.messages.map(text), ["say 3", words(3)]);
    } finally {
      await thread.close();
    }
  });

  test("a message for a busy thread comes behind its run", async () => {
    const thread = open("tokens");
    try {
      await assert.rejects(thread.input.inject({ namespace: [], message: { role: "user", content: "say 1" } }), refused("no_such_run"));
      await thread.run.start({ input: say(400) });
      const seen = thread.subscribe({ channels: ["messages"] });
      await thread.input.inject({ namespace: [], message: { role: "user", content: "say 2" } });
      await assert.rejects(thread.input.inject({ namespace: ["child:1"], message: { role: "user", content: "say 1" } }), refused("not_supported"));
      await seen;
      const runs = await client.runs.list(thread.threadId);
      await Promise.all(runs.map((run) => client.runs.join(thread.threadId, run.run_id)));
      const { values } = await client.threads.getState(thread.threadId);
      assert.deepEqual(values.messages.map(text), ["say 400", words(400), "say 2", words(2)]);
    } finally {
      await thread.close();
    }
  });

  test("a message for a graph without messages, or for one that asks, is refused", async () => {
    const thread = open("pipeline");
    try {
      await thread.run.start({ input: { topic: "t" } });
      await withTimeout(thread.output, 15000, "output");
      await assert.rejects(thread.input.inject({ namespace: [], message: { role: "user", content: "x" } }), /waits at an interrupt/);
      await thread.input.respond({ namespace: [], interrupt_id: thread.interrupts[0].interruptId, response: "yes" });
      const runs = await client.runs.list(thread.threadId);
      await Promise.all(runs.map((run) => client.runs.join(thread.threadId, run.run_id)));
      await assert.rejects(thread.input.inject({ namespace: [], message: { role: "user", content: "x" } }), refused("not_supported"));
    } finally {
      await thread.close();
    }
  });
});
