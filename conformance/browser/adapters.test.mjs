// Adapters that make their own list of messages from what streams carry: assistant-ui from `updates`, AG-UI from `events`.
//   BASE_URL=http://127.0.0.1:2024 node --test adapters.test.mjs
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { LangGraphAgent } from "@ag-ui/langgraph";
import { Client } from "@langchain/langgraph-sdk";
import { bundleAssistant, servePages } from "./bundle.mjs";
import { BASE_URL, Visit, assertOnlyGrew, conversation, eventually, launch, words } from "./browser.mjs";

// LangGraph Server itself has no transcripts.
const nobody = "00000000-0000-4000-8000-000000000000";
const transcripts = (await fetch(`${BASE_URL}/threads/${nobody}/state?markers=nonsense`)).status === 422;
const skip = transcripts ? false : "the server has no transcripts";

const browser = await launch();
const pages = await servePages({ assistant: await bundleAssistant() });
after(async () => {
  await browser.close();
  await pages.close();
});

const turns = [1, 2, 3, 4, 5];

/** Five turns, the fourth of which condenses; every run that the page starts is noted. */
async function talk(body) {
  const chat = await Visit.open(browser, pages, "assistant", { assistant: "summarizing" });
  const runs = [];
  chat.page.on("request", (request) => request.url().includes("/runs/stream") && request.method() === "POST" && runs.push(request.postDataJSON()));
  try {
    for (const n of turns) await chat.say(`say ${n}`, conversation(...turns.slice(0, n)));
    assertOnlyGrew(await chat.frames(), conversation(...turns));
    await body(chat, runs);
    assert.deepEqual(runs.filter((run) => run.input === null && !run.checkpoint), [], "a run without input begins at a checkpoint");
    // The adapter knows no `messages/metadata` and says so.
    assert.deepEqual(chat.errors.filter((error) => !error.includes("Unhandled event received: messages/metadata")), []);
  } finally {
    await chat.close("assistant-ui");
  }
}

test("assistant-ui: nothing said is lost, live and after a reload", { timeout: 180_000, skip }, () =>
  talk(async (chat) => {
    await chat.reload();
    await chat.expect(conversation(...turns));
  }));

test("assistant-ui: an answer is made again after summarization", { timeout: 180_000, skip }, () =>
  talk(async (chat, runs) => {
    for (const n of [9, 7]) {
      const before = runs.length;
      await chat.press(n, "Again");
      await eventually(async () => assert.equal(runs.length, before + 1));
      assert.ok(runs.at(-1).checkpoint.checkpoint_id);
      const left = conversation(...turns.slice(0, (n + 1) / 2));
      await chat.expect(left);
      await chat.reload();
      await chat.expect(left);
    }
  }));

test("assistant-ui: a question is edited after summarization", { timeout: 180_000, skip }, () =>
  talk(async (chat) => {
    for (const [n, list] of [[8, [1, 2, 3, 4, 7]], [2, [1, 6]]]) {
      await chat.edit(n, `say ${list.at(-1)}`);
      await chat.expect(conversation(...list));
      await chat.reload();
      await chat.expect(conversation(...list));
    }
  }));

test("AG-UI: only answers are shown", { timeout: 180_000, skip }, async () => {
  const client = new Client({
    apiUrl: BASE_URL,
    onRequest: (url, init) => {
      url.searchParams.set("markers", "attached");
      return init;
    },
  });
  const { thread_id: threadId } = await client.threads.create();
  const agent = new LangGraphAgent({ client, deploymentUrl: BASE_URL, graphId: "summarizing", threadId });
  for (const n of turns) {
    const said = new Map();
    agent.addMessage({ id: crypto.randomUUID(), role: "user", content: `say ${n}` });
    await agent.runAgent({}, {
      onEvent: ({ event }) => {
        if (event.type === "TEXT_MESSAGE_CONTENT") said.set(event.messageId, (said.get(event.messageId) ?? "") + event.delta);
      },
    });
    assert.deepEqual([...said.values()], [words(n)], `turn ${n}`);
    const list = agent.messages.map(({ role, content }) => [{ user: "human", assistant: "ai" }[role] ?? role, content]);
    assert.deepEqual(list, conversation(...turns.slice(0, n)));
  }
});
