// An application on useStream of @langchain/react and @langchain/svelte in Chromium: event streaming, where browser.test.mjs has the older hook. Run by itself:
//   BASE_URL=http://127.0.0.1:2024 node --test react.test.mjs
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { bundleReact, bundleSvelte, servePages } from "./bundle.mjs";
import { BASE_URL, Visit, assertOnlyGrew, conversation, eventually, launch, words } from "./browser.mjs";

const nobody = "00000000-0000-4000-8000-000000000000";
const transcripts = (await fetch(`${BASE_URL}/threads/${nobody}/state?markers=nonsense`)).status === 422;
const real = (await (await fetch(`${BASE_URL}/info`)).json()).flags.langsmith_tracing_replicas;

const browser = await launch();
const pages = await servePages({ react: await bundleReact(), svelte: await bundleSvelte() });
after(async () => {
  await browser.close();
  await pages.close();
});

for (const [framework, transport] of [["react", "sse"], ["react", "websocket"], ["svelte", "sse"]]) describe(`useStream of @langchain/${framework} over ${transport}`, { concurrency: 3 }, () => {
  const visit = (name, query, body, { complaints = [] } = {}) =>
    test(name, { timeout: 180_000 }, async () => {
      const chat = await Visit.open(browser, pages, framework, { ...query, transport });
      try {
        await body(chat);
        assert.deepEqual(chat.errors.filter((error) => !complaints.some((known) => known.test(error))), []);
      } finally {
        await chat.close(`${framework} ${transport} ${name}`);
      }
    });

  visit("a conversation: tokens as they come, a tool call, the same after a reload", { assistant: "agent" }, async (chat) => {
    const answer = [["human", "say 400"], ["ai", words(400)]];
    await chat.say("say 400", answer);
    assertOnlyGrew(await chat.frames(), answer);
    const whole = [...answer, ["human", 'call search {"q": "cats"}'], ["ai", ""], ["tool", "Found 10 results for cats"], ["ai", "tool said: Found 10 results for cats"]];
    await chat.say('call search {"q": "cats"}', whole);
    assertOnlyGrew(await chat.frames(), whole);
    assert.equal(await chat.page.textContent("[data-call]"), 'search({"q":"cats"})');
    await eventually(async () => assert.deepEqual(await chat.events("completed"), ["success", "success"]));
    assert.deepEqual(new Set(await chat.events("created")), new Set((await chat.rest(`/threads/${chat.threadId}/runs`)).map((run) => run.run_id)));
    await chat.reload();
    await chat.expect(whole);
    assertOnlyGrew(await chat.frames(), whole);
  });

  visit("a reload in the middle of an answer", { assistant: "tokens" }, async (chat) => {
    await chat.say("say 2", conversation(2));
    const whole = [...conversation(2), ["human", "say 2000"], ["ai", words(2000)]];
    await chat.type("say 2000");
    await eventually(async () => {
      const pieces = new Set((await chat.frames()).map((frame) => frame[3]?.[1]).filter(Boolean));
      assert.ok(pieces.size > 3, `the answer came in ${pieces.size} pieces`);
    });
    assertOnlyGrew(await chat.frames(), whole);
    await chat.reload();
    if (framework === "react") { // the release of the SDK that @langchain/svelte brings shows the answer growing, and no run
      await eventually(async () => assert.equal(await chat.page.getAttribute("#status", "data-status"), "running"));
    }
    await chat.expect(whole);
    assertOnlyGrew(await chat.frames(), whole, { replayed: true });
    assert.equal((await chat.rest(`/threads/${chat.threadId}/runs`)).length, 2, "no run was started again");
  });

  visit("stop", { assistant: "tokens" }, async (chat) => {
    await chat.type("say 8000");
    await eventually(async () => assert.match((await chat.people())[1][1], / w10\b/));
    await chat.page.getByRole("button", { name: "Stop" }).dispatchEvent("click");
    await chat.idle();
    await eventually(async () => assert.deepEqual((await chat.rest(`/threads/${chat.threadId}/runs`)).map((run) => run.status), ["interrupted"]));
    await eventually(async () => assert.notEqual((await chat.rest(`/threads/${chat.threadId}`)).status, "busy"));
    await chat.reload();
    await chat.type("say 3");
    await eventually(async () => assert.deepEqual((await chat.people()).at(-1), ["ai", words(3)]));
    if (real) return;
    const [question, answer] = await chat.people();
    assert.deepEqual(question, ["human", "say 8000"]);
    assert.match(answer[1], / w10\b/, "what was said before is kept");
  });

  visit("an interrupt, answered on the same stream", { assistant: "pipeline" }, async (chat) => {
    await chat.type('{"topic": "t"}');
    await chat.page.waitForSelector("#question");
    await chat.idle();
    assert.match(await chat.page.textContent("#question pre"), /"question": "ok\?"/);
    await chat.page.click("#question button");
    await eventually(async () => assert.equal((await chat.values()).answer, "yes"));
    await chat.idle();
    assert.equal(await chat.page.$("#question"), null);
    assert.deepEqual((await chat.values()).items, ["t", "t-0", "t-1", "t-2"]);
    assert.equal((await chat.rest(`/threads/${chat.threadId}`)).status, "idle");
  });

  visit("a tool call that asks for approval, answered after a reload", { assistant: "hitl" }, async (chat) => {
    const question = [["human", 'call search {"q": "dogs"}'], ["ai", ""]];
    await chat.say('call search {"q": "dogs"}', question);
    await chat.reload();
    await chat.page.getByRole("button", { name: "Answer" }).click();
    const whole = [...question, ["tool", "Found 10 results for dogs"], ["ai", "tool said: Found 10 results for dogs"]];
    await chat.expect(whole);
    assertOnlyGrew(await chat.frames(), whole);
    assert.equal(await chat.page.$("#question"), null);
  });

  if (framework === "react") { // the page of the other has no such buttons
    visit("edit and regenerate make branches", { assistant: "agent", history: "100" }, async (chat) => {
      await chat.say("say 1", conversation(1));
      await chat.say("say 2", conversation(1, 2));
      await chat.edit(2, "say 5");
      await chat.expect(conversation(1, 5));
      const answers = () => chat.page.$$eval('li[data-kind="ai"]', (list) => list.map((li) => li.dataset.id));
      const before = await answers();
      await chat.press(3, "Again");
      await eventually(async () => assert.notEqual((await answers())[1], before[1]));
      await chat.expect(conversation(1, 5));
      assert.equal((await answers())[0], before[0]);
      await chat.reload();
      await chat.expect(conversation(1, 5));
      // What the branches left is still in the history.
      const states = await (await fetch(`${BASE_URL}/threads/${chat.threadId}/history`, { method: "POST", headers: { "content-type": "application/json" }, body: '{"limit": 100}' })).json();
      const said = new Set(states.map(({ values }) => values.messages?.map(({ content }) => (typeof content === "string" ? content : content.map((block) => block.text).join(""))).join("|")));
      assert.ok(said.has(["say 1", words(1), "say 2", words(2)].join("|")));
    });
  }

  visit("an error of a graph", { assistant: "failing" }, async (chat) => {
    await chat.type('{"kind": "value"}');
    await eventually(async () => assert.match(await chat.page.textContent("[role=alert]"), /boom: node failed/));
    await chat.idle();
    assert.equal((await chat.rest(`/threads/${chat.threadId}`)).status, "error");
  }, { complaints: [/boom: node failed/] });

  if (!transcripts) return;

  visit("summarization: nothing said is lost, live and after a reload", { assistant: "summarizing" }, async (chat) => {
    const turns = [1, 2, 3, 4, 5, 6], markers = [0, 0, 0, 1, 1, 2];
    for (const n of turns) {
      await chat.say(`say ${n}`, conversation(...turns.slice(0, n)));
      assert.equal(await chat.markers(), markers[n - 1], `markers after ${n} turns`);
    }
    const whole = conversation(...turns);
    assertOnlyGrew(await chat.frames(), whole);
    const live = await chat.shown();
    await chat.reload();
    await chat.expect(whole);
    assert.deepEqual(await chat.shown(), live);
  });

  if (framework === "react") {
    visit("summarization: a branch after it has the whole conversation", { assistant: "summarizing", history: "100" }, async (chat) => {
      const turns = [1, 2, 3, 4];
      for (const n of turns) await chat.say(`say ${n}`, conversation(...turns.slice(0, n)));
      assert.equal(await chat.markers(), 1);
      await chat.edit(6, "say 9");
      await chat.expect(conversation(1, 2, 3, 9));
      assert.equal(await chat.markers(), 1);
      await chat.reload();
      await chat.expect(conversation(1, 2, 3, 9));
      assert.equal(await chat.markers(), 1);
    });
  }

  visit("summarization: a reload while it goes on", { assistant: "summarizing" }, async (chat) => {
    for (const n of [1, 2, 3]) await chat.say(`say ${n}`, conversation(...[1, 2, 3].slice(0, n)));
    const whole = conversation(1, 2, 3, 700);
    await chat.type("say 700");
    await eventually(async () => assert.equal((await chat.events("created")).length, 4));
    await chat.reload();
    await chat.expect(whole);
    assert.equal(await chat.markers(), 1);
  });
});
