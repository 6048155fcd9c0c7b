// An application on useStream in Chromium, with several unchanged releases of the SDK. Run by itself:
//   BASE_URL=http://127.0.0.1:2024 node --test browser.test.mjs
// BROWSER_SCREENSHOTS=folder keeps a picture of how each test ended.
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { bundlePage, servePages } from "./bundle.mjs";
import { BASE_URL, Visit, assertOnlyGrew, conversation, eventually, launch, words } from "./browser.mjs";

const all = {
  "0.1": "langgraph-sdk-0",
  "1.6": "langgraph-sdk-1-6",
  "1.11": "@langchain/langgraph-sdk",
  "2.0": "langgraph-sdk-2",
};
// BROWSER_RELEASE=2.0 leaves the others out. Before a landing the oldest and the newest are enough, which differ most; make test-all has all of them.
const { BROWSER_RELEASE: only, UNDERSTUDY_TEST_ALL: full } = process.env;
const releases = only ? { [only]: all[only] } : full ? all : { "0.1": all["0.1"], "2.0": all["2.0"] };

// LangGraph Server itself has no transcripts, and so no markers to choose. Behind the proxy it has; it is known by what it says of itself.
const nobody = "00000000-0000-4000-8000-000000000000";
const transcripts = (await fetch(`${BASE_URL}/threads/${nobody}/state?markers=nonsense`)).status === 422;
const real = (await (await fetch(`${BASE_URL}/info`)).json()).flags.langsmith_tracing_replicas;

const browser = await launch();
const pages = await servePages(Object.fromEntries(await Promise.all(Object.entries(releases).map(async ([label, sdk]) => [label, await bundlePage(sdk)]))));
after(async () => {
  await browser.close();
  await pages.close();
});

for (const label of Object.keys(releases)) {
  describe(`useStream ${label}`, { concurrency: 3 }, () => {
    /** A visit that ends with the test; its page must have nothing to complain about. */
    const visit = (name, query, body, { complaints = [] } = {}) =>
      test(name, { timeout: 180_000 }, async () => {
        const chat = await Visit.open(browser, pages, label, query);
        try {
          await body(chat);
          const unexpected = chat.errors.filter((error) => !complaints.some((known) => known.test(error)));
          assert.deepEqual(unexpected, []);
        } finally {
          await chat.close(`${label} ${name}`);
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
      const created = await eventually(async () => {
        const created = await chat.events("created");
        assert.equal(created.length, 2);
        assert.equal((await chat.events("finish")).length, 2);
        return created;
      });
      assert.deepEqual(new Set(created), new Set((await chat.rest(`/threads/${chat.threadId}/runs`)).map((run) => run.run_id)));
      assert.deepEqual(await chat.events("update"), ["model", "model", "tools", "model"]);

      await chat.reload();
      await chat.expect(whole);
      assertOnlyGrew(await chat.frames(), whole);
    });

    visit("a reload in the middle of an answer", { assistant: "tokens" }, async (chat) => {
      await chat.say("say 2", conversation(2));
      const whole = [...conversation(2), ["human", "say 2000"], ["ai", words(2000)]];
      await chat.type("say 2000");
      // How often the page paints is up to the machine: a slow one shows many words at once.
      await eventually(async () => {
        const pieces = new Set((await chat.frames()).map((frame) => frame[3]?.[1]).filter(Boolean));
        assert.ok(pieces.size > 3, `the answer came in ${pieces.size} pieces`);
      });
      const run = await chat.rejoins(chat.threadId);
      assert.equal((await chat.rest(`/threads/${chat.threadId}/runs/${run}`)).status, "running");
      assertOnlyGrew(await chat.frames(), whole);
      await chat.reload();
      await eventually(async () => assert.equal(await chat.page.getAttribute("#status", "data-status"), "running"));
      await chat.expect(whole);
      // LangGraph Server sends some tokens twice to those who rejoin; only the end mends it.
      if (!real) assertOnlyGrew(await chat.frames(), whole);
      assert.equal(await chat.rejoins(chat.threadId), null);
      assert.equal((await chat.rest(`/threads/${chat.threadId}/runs`)).length, 2, "no run was started again");
    });

    visit("a return after the answer has ended", { assistant: "tokens" }, async (chat) => {
      const whole = [["human", "say 300"], ["ai", words(300)]];
      await chat.type("say 300");
      await eventually(async () => assert.match((await chat.people())[1][1], /w5\b/));
      const [address, thread] = [chat.page.url(), chat.threadId];
      await chat.leave((page) => page.goto("about:blank"));
      await eventually(async () => assert.deepEqual((await chat.rest(`/threads/${thread}/runs`)).map((run) => run.status), ["success"]));
      await chat.page.goto(address);
      await chat.expect(whole);
      assertOnlyGrew(await chat.frames(), whole, { replayed: true });
      assert.equal(await chat.rejoins(thread), null);
    });

    visit("a reload between the steps of a graph without messages", { assistant: "ticker", history: "false" }, async (chat) => {
      await chat.type('{"steps": 10, "delay": 0.15}');
      await eventually(async () => assert.ok((await chat.values()).items.length >= 2));
      await chat.reload();
      await eventually(async () => assert.equal((await chat.values()).items.length, 10));
      await chat.idle();
      assert.deepEqual((await chat.values()).items, Array.from({ length: 10 }, (_, i) => `t${i}`));
    });

    visit("stop", { assistant: "tokens" }, async (chat) => {
      // So long that a slow machine has pressed the button well before its end.
      await chat.type("say 8000");
      await eventually(async () => assert.match((await chat.people())[1][1], / w10\b/));
      await chat.page.getByRole("button", { name: "Stop" }).dispatchEvent("click");
      await chat.idle();
      await eventually(async () => assert.deepEqual((await chat.rest(`/threads/${chat.threadId}/runs`)).map((run) => run.status), ["interrupted"]));
      await eventually(async () => assert.notEqual((await chat.rest(`/threads/${chat.threadId}`)).status, "busy"));
      await chat.reload();
      // LangGraph Server, also behind the proxy, keeps the question only.
      const stopped = async () => {
        const [question, answer] = await chat.people();
        assert.deepEqual(question, ["human", "say 8000"]);
        assert.equal(answer[0], "ai");
        assert.match(answer[1], / w10\b/);
        assert.ok(words(8000).startsWith(answer[1]));
      };
      if (!real) await eventually(stopped);
      await chat.type("say 3");
      await eventually(async () => assert.deepEqual((await chat.people()).at(-1), ["ai", words(3)]));
      if (real) return;
      await chat.reload();
      await eventually(stopped);
      // Older releases follow the last run once more after a reload, and show its answer when that has ended.
      await eventually(async () => assert.deepEqual((await chat.people()).slice(2), [["human", "say 3"], ["ai", words(3)]]));
    });

    visit("an interrupt, resumed after a reload", { assistant: "pipeline" }, async (chat) => {
      await chat.type('{"topic": "t"}');
      await chat.page.waitForSelector("#question");
      await chat.idle();
      assert.deepEqual(await chat.events("custom"), ['{"progress":"planning"}']);
      await chat.reload();
      assert.match(await chat.page.textContent("#question pre"), /"question": "ok\?"/);
      await chat.page.fill('#question input[name="answer"]', "yes");
      await chat.page.click("#question button");
      await eventually(async () => assert.equal((await chat.values()).answer, "yes"));
      await chat.idle();
      assert.equal(await chat.page.$("#question"), null);
      assert.deepEqual((await chat.values()).items, ["t", "t-0", "t-1", "t-2"]);
      assert.equal((await chat.rest(`/threads/${chat.threadId}`)).status, "idle");
    });

    visit("a tool call that asks for approval", { assistant: "hitl" }, async (chat) => {
      const question = [["human", 'call search {"q": "dogs"}'], ["ai", ""]];
      await chat.say('call search {"q": "dogs"}', question);
      await chat.page.getByRole("button", { name: "Approve" }).click();
      const whole = [...question, ["tool", "Found 10 results for dogs"], ["ai", "tool said: Found 10 results for dogs"]];
      await chat.expect(whole);
      assertOnlyGrew(await chat.frames(), whole);
      assert.equal(await chat.page.$("#question"), null);
    });

    visit("edit and regenerate make branches", { assistant: "agent", history: "100" }, async (chat) => {
      await chat.say("say 1", conversation(1));
      await chat.say("say 2", conversation(1, 2));
      await chat.edit(2, "say 5");
      await chat.expect(conversation(1, 5));
      assert.equal(await chat.page.textContent(".branch"), "2 / 2");
      await chat.page.getByRole("button", { name: "Previous branch" }).click();
      await chat.expect(conversation(1, 2));
      await chat.page.getByRole("button", { name: "Next branch" }).click();
      await chat.expect(conversation(1, 5));

      const answers = () => chat.page.$$eval('li[data-kind="ai"]', (list) => list.map((li) => li.dataset.id));
      const before = await answers();
      await chat.press(3, "Again");
      await eventually(async () => assert.notEqual((await answers())[1], before[1]));
      await chat.expect(conversation(1, 5));
      assert.equal((await answers())[0], before[0]);
      await chat.reload();
      await chat.expect(conversation(1, 5));
    });

    visit("an error of a graph", { assistant: "failing" }, async (chat) => {
      await chat.type('{"kind": "value"}');
      await eventually(async () => assert.match(await chat.page.textContent("[role=alert]"), /boom: node failed/));
      await chat.idle();
      assert.deepEqual(await chat.events("error"), ["boom: node failed"]);
      assert.equal((await chat.rest(`/threads/${chat.threadId}`)).status, "error");
      await chat.reload();
      await eventually(async () => assert.match(await chat.page.textContent("[role=alert]"), /boom: node failed/));
      // The SDK itself writes what it hands to onError to the console.
    }, { complaints: [/boom: node failed|StreamError|JSHandle@error/] });

    if (!transcripts) return;

    visit("summarization: nothing said is lost, live and after a reload", { assistant: "summarizing" }, async (chat) => {
      const turns = [1, 2, 3, 4, 5, 6];
      // The fourth turn finds seven messages and condenses five; the sixth condenses again.
      const markers = [0, 0, 0, 1, 1, 2];
      for (const n of turns) {
        await chat.say(`say ${n}`, conversation(...turns.slice(0, n)));
        assert.equal(await chat.markers(), markers[n - 1], `markers after ${n} turns`);
      }
      const whole = conversation(...turns);
      assertOnlyGrew(await chat.frames(), whole);
      const live = await chat.shown();
      const counts = (await chat.frames()).map((frame) => frame.filter(([kind]) => kind === "marker").length);
      assert.deepEqual(counts, counts.toSorted(), "a marker stays where it appeared");

      await chat.reload();
      await chat.expect(whole);
      assert.deepEqual(await chat.shown(), live);
      assertOnlyGrew(await chat.frames(), whole);
      await chat.page.locator('li[data-kind="marker"] summary').first().click();
      assert.match(await chat.page.textContent('li[data-kind="marker"]'), /^5 earlier messages.*Here is a summary of the conversation to date:/s);
    });

    visit("summarization: a reload while it goes on", { assistant: "summarizing" }, async (chat) => {
      for (const n of [1, 2, 3]) await chat.say(`say ${n}`, conversation(...[1, 2, 3].slice(0, n)));
      const whole = conversation(1, 2, 3, 700);
      await chat.type("say 700");
      await eventually(async () => assert.equal((await chat.events("created")).length, 4));
      await chat.reload();
      await chat.expect(whole);
      // As above: LangGraph Server may send some tokens twice.
      if (!real) assertOnlyGrew(await chat.frames(), whole, { replayed: true });
      assert.equal(await chat.markers(), 1);
    });

    visit("summarization: an edit of an early question", { assistant: "summarizing", history: "100" }, async (chat) => {
      const turns = [1, 2, 3, 4, 5];
      for (const n of turns) await chat.say(`say ${n}`, conversation(...turns.slice(0, n)));
      await chat.edit(2, "say 9");
      await chat.expect(conversation(1, 9));
      assert.equal(await chat.markers(), 0);
      await chat.page.getByRole("button", { name: "Previous branch" }).click();
      await chat.expect(conversation(...turns));
      assert.equal(await chat.markers(), 1);
    });
  });
}
