// The studio at /studio/ in Chromium: journeys of a person, by mouse and by keyboard.
//   BASE_URL=http://127.0.0.1:2024 node --test studio.test.mjs
import { describe } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { BASE_URL, eventually, openPage, words } from "./browser.mjs";
import { begun, journey, recorded, skip } from "./studio.mjs";

const own = recorded ? ["usage", "servers", "logs", "health"] : []; // pages whose routes a proxy does not have

/** A promise that the test resolves. */
function gate() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

describe("the studio", { concurrency: 2, skip }, () => {
  journey("something is said, its words come one by one, and the graph lights up", async (studio, page) => {
    await studio.begin("tokens", "say 300");
    await page.getByRole("button", { name: "Graph", exact: true }).click();
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", /^w0 w1\b/));
    const answer = page.locator('.transcript [data-kind="ai"]');
    const early = await answer.elementHandle();
    await studio.expect([["human", "say 300"], ["ai", words(300)]]);
    assert.ok(await early.evaluate((node) => node.isConnected), "the answer is the same element from its first word to its record");
    await page.locator('.graph [data-state="done"]').first().waitFor();
    await page.reload();
    await studio.expect([["human", "say 300"], ["ai", words(300)]]);
    await page.getByRole("link", { name: /say 300/ }).first().waitFor();
  });

  journey("the nodes of a subgraph light up, and one that asks waits, also after a reload", async (studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "nested" } });
    await page.goto(`${BASE_URL}/studio/t/${thread}?panel=graph`);
    const node = (id, state) => page.locator(`.graph [data-node="${id}"][data-state="${state}"]`).waitFor();
    await node("leaf:leaf_ask", "");
    await page.getByRole("textbox", { name: "value" }).waitFor(); // the input of this graph
    await page.getByRole("button", { name: "Send" }).press("Enter");
    for (const [id, state] of [["before", "done"], ["leaf:leaf_prepare", "done"], ["leaf:leaf_ask", "waiting"], ["after", ""]]) await node(id, state);
    await page.reload();
    for (const [id, state] of [["leaf:leaf_prepare", ""], ["leaf:leaf_ask", "waiting"], ["after", ""]]) await node(id, state);
  });

  for (const colorScheme of ["light", "dark"])
    journey(`a subgraph is closed and opened in place, by mouse and by keyboard, ${colorScheme}`, async (studio, page) => {
      const { assistant_id } = (await studio.rest("/assistants/search", { graph_id: "nested", limit: 1 }))[0];
      await page.goto(`${BASE_URL}/studio/graphs/${assistant_id}`);
      const node = (id) => page.locator(`.graph [data-node="${id}"]`);
      await page.locator('.graph [data-frame="leaf"]').waitFor();
      await page.getByRole("button", { name: "Close leaf" }).click();
      await node("leaf").waitFor();
      assert.equal(await node("leaf:leaf_ask").count(), 0);
      await page.reload(); // the address has it
      await node("leaf").press("Enter");
      await page.getByRole("region", { name: "Node leaf" }).waitFor();
      await studio.accessible("a closed subgraph");
      const toggle = page.getByRole("button", { name: /^(Open|Close) leaf$/ });
      await toggle.press("Enter");
      await node("leaf:leaf_ask").waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Close leaf", "the focus stays");
      await studio.accessible("an open subgraph");
      await toggle.press(" ");
      await node("leaf").waitFor();
    }, { options: { colorScheme } });

  for (const colorScheme of ["light", "dark"])
    journey(`an older version is tried beside the latest on one input, by keyboard too, ${colorScheme}`, async (studio, page) => {
      const { assistant_id } = await studio.rest("/assistants", { graph_id: "agent", name: `tried ${Date.now()}`, config: { tags: ["one"] } });
      const patch = await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ config: { tags: ["two"] } }) });
      assert.ok(patch.ok);
      const made = () => studio.rest("/assistants/search", { metadata: { studio_tries: `${assistant_id}@1` } });
      try {
        await page.goto(`${BASE_URL}/studio/graphs/${assistant_id}`);
        await page.getByRole("region", { name: "Versions" }).getByRole("link", { name: "try beside the latest" }).press("Enter");
        await page.getByRole("heading", { name: "Try side by side" }).waitFor();
        await page.getByRole("combobox", { name: "First version" }).waitFor();
        await eventually(async () => assert.deepEqual([await page.getByRole("combobox", { name: "First version" }).inputValue(), await page.getByRole("combobox", { name: "Second version" }).inputValue()], ["1", "2"]));
        await studio.accessible("what is tried");
        const box = page.getByRole("textbox", { name: "Message" });
        await box.fill("say 3");
        await box.press("Enter");
        const said = (name) => page.getByRole("region", { name }).locator('[data-kind="ai"]').allTextContents();
        for (const name of ["First", "Second"]) await eventually(async () => assert.deepEqual(await said(name), [words(3)]));
        await page.locator('button[aria-label="Send"]').waitFor();
        await box.fill("say 2");
        await eventually(async () => assert.ok(await page.getByRole("button", { name: "Send" }).isEnabled()));
        await box.press("Enter");
        for (const name of ["First", "Second"]) await eventually(async () => assert.deepEqual(await said(name), [words(3), words(2)]));
        await studio.accessible("two that answered");
        const all = await made();
        const [older] = all;
        assert.deepEqual([all.length, older.config.tags, older.name.endsWith(", version 1")], [1, ["one"], true]);
        await page.getByRole("link", { name: "Compare what they did" }).press("Enter");
        await page.getByText("4 equal messages").waitFor();
        await eventually(async () => assert.deepEqual(await made(), [], "what was made to try a version is deleted with its page"));
        await page.goto(`${BASE_URL}/studio/try`);
        await page.setViewportSize({ width: 320, height: 700 });
        await page.getByRole("combobox", { name: "First version" }).waitFor();
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
      } finally {
        for (const { assistant_id: id } of [...(await made()), { assistant_id }]) await fetch(`${BASE_URL}/assistants/${id}`, { method: "DELETE" });
      }
    }, { options: { colorScheme } });

  journey("what a subagent does is read step by step while its task runs, each step once", async (studio, page) => {
    const { thread_id } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
    const state = (messages) => studio.rest(`/threads/${thread_id}/state`, { values: { messages }, as_node: "model" });
    await state([{ id: "h", type: "human", content: "look" }, { id: "a", type: "ai", content: "", tool_calls: [{ id: "call-1", name: "task", args: { prompt: "cats" } }, { id: "call-2", name: "task", args: { prompt: "dogs" } }] }]);
    const [rows, asked] = [[], []];
    const add = (task_id, text, more = {}) => rows.push({ seq: 10 * (rows.length + 1), content: { task_id, text, kind: "ai", ...more } });
    await page.route(/\/events\?event_types=subagent\.step/, (route) => {
      const after = Number(new URL(route.request().url()).searchParams.get("after_seq"));
      const rest = rows.filter((r) => r.seq > after);
      asked.push(after);
      return route.fulfill({ json: { data: rest.slice(0, 2), has_more: rest.length > 2 } });
    });
    for (const text of ["**one**", "two", "three"]) add("call-1", text, text === "two" ? { tool_calls: [{ name: "search", args: { q: "cats" } }] } : {});
    add("call-2", "of the other task");
    await page.goto(`${BASE_URL}/studio/t/${thread_id}`);
    const call = page.locator("[data-call=task]").first();
    await call.getByRole("button").first().press("Enter");
    const steps = call.getByRole("region", { name: "In task" });
    const texts = () => steps.locator(".message .markdown").allTextContents();
    await eventually(async () => assert.deepEqual(await texts(), ["one", "two", "three"]));
    await steps.getByText('search {"q":"cats"}').waitFor();
    await studio.accessible("steps of a task");
    add("call-1", "four");
    await eventually(async () => assert.deepEqual(await texts(), ["one", "two", "three", "four"]));
    assert.deepEqual(asked.slice(0, 2), [0, 20], "page by page");
    assert.ok(asked.slice(2).every((seq) => seq >= 40), `only what is new is asked for: ${asked}`);
    add("call-1", "five");
    await state([{ id: "t1", type: "tool", tool_call_id: "call-1", name: "task", content: "done" }, { id: "t2", type: "tool", tool_call_id: "call-2", name: "task", content: "done" }]);
    await eventually(async () => assert.deepEqual(await texts(), ["one", "two", "three", "four", "five"]));
    await page.reload();
    await call.getByRole("button").first().press("Enter");
    await eventually(async () => assert.deepEqual(await texts(), ["one", "two", "three", "four", "five"]));
  });

  journey("what is copied has times in UTC, and pages show ages", async (studio, page) => {
    const { thread_id } = await studio.rest("/threads", { metadata: { title: `copied ${Date.now()}` } });
    await page.goto(`${BASE_URL}/studio/threads`);
    const line = page.locator(`[data-thread="${thread_id}"]`);
    const time = line.locator("time");
    const exact = new Date(await time.getAttribute("datetime")).toISOString();
    assert.equal(await time.textContent(), "now");
    assert.match(await time.getAttribute("title"), / UTC\)$/);
    const copied = (element) =>
      element.evaluate((e) => {
        getSelection().selectAllChildren(e);
        const event = new ClipboardEvent("copy", { bubbles: true, cancelable: true, clipboardData: new DataTransfer() });
        document.body.dispatchEvent(event);
        return [event.defaultPrevented, event.clipboardData.getData("text/plain")];
      });
    assert.deepEqual(await copied(time), [true, exact]);
    const [own, text] = await copied(line);
    assert.ok(own && text.includes(exact) && /copied \d+/.test(text), text);
    assert.deepEqual(await copied(page.locator("h1")), [false, ""], "what has no time is the browser's to copy");
  });

  journey("a graph that does not import leads to Health", async (studio, page) => {
    if (!(await studio.rest("/info")).understudy_doctor) return;
    await page.route(/\/assistants\/[^/]+\/schemas$/, (route) => route.fulfill({ status: 422, json: { detail: "ModuleNotFoundError: No module named 'x'" } }));
    await page.reload();
    await page.getByRole("radio", { name: /^agent\b/ }).press("Enter");
    const problem = page.getByRole("alert").filter({ hasText: "No module named 'x'. Health says where" });
    await problem.getByRole("link", { name: "Health" }).press("Enter");
    await page.getByRole("heading", { name: "Health" }).waitFor();
    studio.errors = studio.errors.filter((error) => !/status of 422/.test(error));
  });

  journey("a tool call with its result", async (studio, page) => {
    await studio.begin("agent", 'call search {"q": "cats"}');
    await studio.expect([["human", 'call search {"q": "cats"}'], ["ai", ""], ["ai", "tool said: Found 10 results for cats"]]);
    await page.locator("[data-call=search] > [role=button]").click();
    await page.getByText("Found 10 results for cats", { exact: true }).waitFor();
  });

  journey("a reload in the middle of an answer", async (studio, page) => {
    await studio.begin("tokens", "say 600");
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", / w20\b/));
    await page.reload();
    await studio.expect([["human", "say 600"], ["ai", words(600)]]);
    assert.equal((await studio.rest(`/threads/${studio.thread}/runs`)).length, 1);
  });

  journey("stop keeps what was said", async (studio, page) => {
    await studio.begin("tokens", "say 8000");
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", / w20\b/));
    await page.getByRole("button", { name: "Stop" }).click();
    await studio.idle();
    await page.locator(".tag", { hasText: "cut off" }).waitFor();
    await page.locator("header.bar .status", { hasText: "stopped" }).waitFor(); // and does not wait for an answer
    await page.locator(`.sidebar a[href$="${studio.thread}"] .status`, { hasText: "stopped" }).waitFor();
    assert.match((await studio.shown()).at(-1)[1], / w20\b/); // a long answer leaves no place for the question
  });

  journey("who does not want to wait for a run interrupts it with the next message", async (studio, page) => {
    await studio.begin("tokens", "say 8000");
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", / w20\b/));
    await page.getByRole("textbox", { name: "Message" }).fill("say 2");
    await page.getByRole("button", { name: "Send now" }).click();
    await eventually(async () => assert.deepEqual((await studio.shown()).slice(-2), [["human", "say 2"], ["ai", words(2)]]));
    await studio.idle();
    assert.deepEqual((await studio.rest(`/threads/${studio.thread}/runs`)).map((r) => r.status), ["success", "interrupted"]);
    assert.equal(await page.getByRole("button", { name: "Send now" }).count(), 0);
  });

  journey("a long talk is condensed: every turn stays, and a line says where", async (studio, page) => {
    await studio.begin("summarizing", "say 1");
    const turns = [["human", "say 1"], ["ai", "w0"]];
    await studio.expect(turns);
    for (const n of [2, 3, 4]) {
      await studio.type(`say ${n}`);
      turns.push(["human", `say ${n}`], ["ai", words(n)]);
      await eventually(async () => assert.deepEqual((await studio.shown()).filter(([kind]) => kind !== "marker"), turns));
      await studio.idle();
    }
    const whole = await studio.shown();
    const marker = whole.find(([kind]) => kind === "marker");
    assert.match(marker[1], /^\d+ messages condensed$/);
    await page.reload();
    await studio.expect(whole);
    await page.locator("details.marker > summary").first().click();
    await page.getByText("The model sees this summary").first().waitFor();
    await page.getByRole("link", { name: /say 1/ }).first().waitFor();
  });

  journey("a tool call is approved with edited arguments, after a reload, in the thread", async (studio, page) => {
    await studio.begin("hitl", 'call search {"q": "cats"}');
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    await page.reload();
    await page.locator(".question").getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Arguments" }).fill('{"q": "dogs"}');
    await page.getByRole("button", { name: "Approve with these arguments" }).click();
    await eventually(async () => assert.match((await studio.shown()).at(-1)[1], /Found 10 results for dogs$/));
    assert.equal(await page.getByRole("heading", { name: /waits for an answer/ }).count(), 0);
  });

  journey("a tool call is rejected on the page of approvals, by keyboard", async (studio, page) => {
    await studio.begin("hitl", 'call search {"q": "birds"}');
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    const thread = studio.thread;
    await page.locator("body").press("Escape");
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("g");
    await page.keyboard.press("a");
    const card = page.locator(`[data-thread="${thread}"]`);
    await card.getByRole("button", { name: "Reject" }).focus();
    await page.keyboard.press("Enter");
    await page.keyboard.type("not birds");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await eventually(async () => assert.equal((await studio.rest(`/threads/${thread}`)).status, "idle"));
    await eventually(async () => assert.equal(await card.count(), 0));
    const { values } = await studio.rest(`/threads/${thread}/state`);
    assert.match(JSON.stringify(values.messages), /not birds/);
  });

  journey("the assistant that asked gets the answer, also when it is newer than the page, and its graph once it is deleted", async (studio, page) => {
    const approve = page.getByRole("button", { name: "Approve", exact: true });
    const standIn = page.getByText(/was deleted, or you may not use it: hitl answers/);
    await page.getByRole("radio", { name: /^hitl\b/ }).waitFor(); // the list of assistants is read
    const { assistant_id } = await studio.rest("/assistants", { graph_id: "hitl", name: `newer ${Date.now()}` });
    const { thread_id: thread } = await studio.rest("/threads", {});
    const ask = (by) => studio.rest(`/threads/${thread}/runs/wait`, { assistant_id: by, input: { messages: [{ role: "user", content: 'call search {"q": "cats"}' }] } });
    const answered = async (runs) => {
      await eventually(async () => assert.equal((await studio.rest(`/threads/${thread}`)).status, "idle"));
      const all = await studio.rest(`/threads/${thread}/runs`);
      assert.equal(all.length, runs);
      return all[0].assistant_id;
    };
    try {
      await ask(assistant_id);
      await page.getByRole("link", { name: "Approvals" }).click();
      const card = page.locator(`[data-thread="${thread}"]`);
      await card.getByRole("link").click();
      await approve.click();
      assert.equal(await answered(2), assistant_id);
      assert.equal(await standIn.count(), 0);
      await ask(assistant_id);
      await page.getByRole("link", { name: "Approvals" }).click();
      await card.getByRole("button", { name: "Approve", exact: true }).waitFor();
      await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "DELETE" });
      await card.getByRole("button", { name: "Approve", exact: true }).click();
      await standIn.waitFor(); // nothing is sent to another one before that is said
      assert.equal((await studio.rest(`/threads/${thread}`)).status, "interrupted");
      await card.getByRole("link").click();
      await standIn.waitFor();
      await approve.click();
      assert.notEqual(await answered(4), assistant_id);
      studio.errors = studio.errors.filter((error) => !error.includes("404")); // of the deleted one
    } finally {
      await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "DELETE" });
    }
  });

  journey("a graph without messages gets its input from a form, and its question an answer", async (studio, page) => {
    await page.getByRole("radio", { name: /^pipeline\b/ }).click();
    await page.getByRole("textbox", { name: "topic" }).fill("t");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    await page.getByRole("textbox", { name: "Answer", exact: true }).fill("yes");
    await page.getByRole("button", { name: "Answer", exact: true }).click();
    await eventually(async () => assert.equal((await studio.rest(`/threads/${studio.thread}`)).status, "idle"));
    assert.equal((await studio.rest(`/threads/${studio.thread}/state`)).values.answer, "yes");
  });

  journey("an edited message begins a branch, and both stay", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    const before = [["human", "say 1"], ["ai", "w0"]];
    for (const n of [2, 6, 7]) {
      await studio.type(`say ${n}`);
      before.push(["human", `say ${n}`], ["ai", words(n)]);
      await studio.expect(before);
    }
    await studio.rest(`/threads/${studio.thread}/state`, { values: { messages: [{ type: "ai", content: "the ninth" }] }, as_node: "model" });
    before.push(["ai", "the ninth"]);
    await page.reload();
    await studio.expect(before);
    await studio.message(2).hover(); // the third of nine
    await studio.message(2).getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Edited message" }).fill("say 3");
    await studio.message(2).getByRole("button", { name: "Send" }).click();
    const edited = [["human", "say 1"], ["ai", "w0"], ["human", "say 3"], ["ai", words(3)]];
    await studio.expect(edited);
    await page.getByText("2 of 2").waitFor();
    await page.getByRole("button", { name: "Previous branch" }).click();
    await studio.expect(before);
    await page.getByRole("button", { name: "Back to the newest" }).click();
    await studio.expect(edited);
    // The checkpoints as a tree: those of the other branch stand aside.
    const panel = page.locator("header.bar").getByRole("button", { name: "State", exact: true });
    await panel.click();
    await page.locator('.steps li[data-lane="1"]').first().waitFor();
    assert.equal(await page.locator('.steps [aria-label="branches begin here"]').count(), 1);
    await studio.accessible("a tree of checkpoints");
    await panel.click();
    if (recorded) {
      // A message of an older branch is edited in its place, and not continued from the end of that branch.
      await page.getByRole("button", { name: "Previous branch" }).click();
      await studio.expect(before);
      await studio.message(2).hover();
      await studio.message(2).getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Edited message" }).fill("say 5");
      await studio.message(2).getByRole("button", { name: "Send" }).click();
      edited.splice(2, 2, ["human", "say 5"], ["ai", words(5)]);
      await studio.expect(edited);
      await page.getByText("3 of 3").waitFor();
    }
    await page.reload();
    await studio.expect(edited);
    // The first message has no state before it.
    await studio.message(0).getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Edited message" }).fill("say 4");
    await studio.message(0).getByRole("button", { name: "Send" }).click();
    await studio.expect([["human", "say 4"], ["ai", words(4)]]);
    // Another answer to the same question.
    await studio.message(1).getByRole("button", { name: "Regenerate" }).click();
    await eventually(async () => assert.equal(await studio.message(1).getByText("2 of 2").count(), 1));
    await studio.expect([["human", "say 4"], ["ai", words(4)]]);
  });

  journey("the state of each step, its changes, and a run from there", async (studio, page) => {
    await studio.begin("agent", "say 2");
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
    await page.getByRole("button", { name: "State", exact: true }).first().click();
    const steps = page.getByRole("list", { name: "Checkpoints" }).getByRole("button");
    await eventually(async () => assert.equal(await steps.count(), 3));
    await steps.nth(0).click();
    await page.getByRole("tab", { name: "changes" }).click();
    await page.locator(".changes .create").first().waitFor();
    await steps.nth(1).click();
    await page.getByText("Next: model").waitFor();
    await page.getByRole("button", { name: "Run from here" }).click();
    await eventually(async () => assert.equal(await steps.count(), 5));
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
  });

  journey("ten thousand messages: opened at the end, read from the beginning", async (studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
    const messages = Array.from({ length: 10_000 }, (_, i) => ({ id: `m${i}`, type: i % 2 ? "ai" : "human", content: `message ${i}` }));
    await studio.rest(`/threads/${thread}/state`, { values: { messages }, as_node: "model" });
    const requests = [];
    page.on("response", (response) => response.url().includes(`${thread}/messages?before_seq`) && requests.push(response.body().then((body) => body.length)));
    await page.goto(`${BASE_URL}/studio/t/${thread}`);
    await page.getByText("message 9999", { exact: true }).waitFor();
    assert.ok((await page.locator(".transcript .message").count()) <= 40, "only what is visible is in the document");
    const sizes = await Promise.all(requests);
    assert.ok(sizes.length === 1 && sizes[0] <= 60_000, `one answer of at most 60 kB: ${sizes}`);
    await page.getByRole("button", { name: "Beginning" }).click();
    await page.locator(".transcript").getByText("message 0", { exact: true }).waitFor();
    assert.ok((await page.locator(".transcript .message").count()) <= 40);
  });

  journey("hostile words are shown and do nothing", async (studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
    const words = [
      '<img src=x onerror="window.hit=1"><script>window.hit=1</script>',
      "[press](javascript:window.hit=1) ![picture](https://example.com/spy.png) <svg onload='window.hit=1'>",
      '<iframe srcdoc="<script>parent.hit=1</script>"></iframe>\n\n<a href="javascript:hit()">x</a>',
      "x".repeat(1_000_000),
      "\u202eright to left\u202c שלום 🙂‍↔️",
      "```html\n<script>window.hit=1</script>\n```",
      "&lt;b&gt; & &amp;lt;",
    ];
    const messages = words.map((content, i) => ({ id: `h${i}`, type: i % 2 ? "ai" : "human", content }));
    messages.push({ id: "calls", type: "ai", content: "", tool_calls: Array.from({ length: 300 }, (_, i) => ({ id: `c${i}`, name: "<b>search</b>", args: { q: "<img src=x onerror=hit()>" } })) });
    messages.push({ id: "last", type: "ai", content: "the end" });
    await studio.rest(`/threads/${thread}/state`, { values: { messages }, as_node: "model" });
    await page.goto(`${BASE_URL}/studio/t/${thread}`);
    await page.getByText("the end", { exact: true }).waitFor();
    await page.locator(".messages").evaluate((box) => box.scrollTo({ top: 0 }));
    await page.getByText("window.hit=1").first().waitFor();
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator(".transcript :is(script, iframe, img, .markdown svg, a[href^='javascript'])").count(), 0);
  });

  journey("hostile words are compared, in runs, states and versions, and do nothing", async (studio, page) => {
    const hostile = (n) => [
      `<img src=x onerror="window.hit=1"><script>window.hit=1</script> ${n}`,
      `[press](javascript:window.hit=1) ![picture](https://example.com/spy.png) <svg onload='window.hit=1'> ${n}`,
      `${"x".repeat(1_000_000)}${n}`,
      `\u202eright to left\u202c שלום 🙂‍↔️ ${n}`,
    ];
    const make = async (n) => {
      const { thread_id } = await studio.rest("/threads", { metadata: { graph_id: "agent", title: `<b onclick="hit()">hostile</b> ${n}` } });
      const messages = hostile(n).map((content, i) => ({ id: `h${i}`, type: i % 2 ? "ai" : "human", name: "<script>hit()</script>", content, ...(i % 2 && { tool_calls: [{ id: `c${i}`, name: "<img src=x onerror=hit()>", args: { "<b>": hostile(n)[i] } }] }) }));
      const { checkpoint_id } = await studio.rest(`/threads/${thread_id}/state`, { values: { messages }, as_node: "model" });
      return { thread: `thread:${thread_id}`, checkpoint: `checkpoint:${thread_id}/${checkpoint_id}` };
    };
    const harmless = async () => {
      assert.equal(await page.evaluate(() => window.hit), undefined);
      assert.equal(await page.locator("main :is(script, iframe, img, a[href^='javascript'])").count(), 0);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
    };
    const [a, b] = [await make(1), await make(2)];
    for (const [x, y] of [[a.thread, b.thread], [a.checkpoint, b.checkpoint]]) {
      await page.goto(`${BASE_URL}/studio/compare?${new URLSearchParams({ a: x, b: y })}`);
      await page.locator(".side.b", { hasText: "window.hit=1" }).first().waitFor();
      await page.locator(".side.b", { hasText: "שלום" }).first().waitFor();
      if (x === a.checkpoint) await page.locator("details.card summary", { hasText: "messages" }).click(); // of threads it is open
      await page.locator(".channels .changes .change").first().waitFor();
      await harmless();
    }
    await page.goto(`${BASE_URL}/studio/compare?${new URLSearchParams({ a: "javascript:hit()", b: '"><script>window.hit=1</script>' })}`);
    await page.getByRole("alert").filter({ hasText: "javascript:hit()" }).waitFor();
    await harmless();
    const { assistant_id } = await studio.rest("/assistants", { graph_id: "agent", name: hostile(1)[0], description: hostile(1)[1], metadata: { "<svg onload=hit()>": hostile(1)[3], long: "y".repeat(1_000_000) } });
    try {
      await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ name: hostile(2)[0], description: hostile(2)[3], metadata: { "<svg onload=hit()>": "javascript:hit()", long: "z".repeat(1_000_000) } }) });
      await page.goto(`${BASE_URL}/studio/graphs/${assistant_id}`);
      const section = page.getByRole("region", { name: "Versions" });
      await section.locator(".changes code", { hasText: "metadata.<svg onload=hit()>" }).waitFor();
      await section.locator(".changes", { hasText: "window.hit=1" }).waitFor();
      await harmless();
    } finally {
      await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "DELETE" });
    }
  });

  journey("large states are compared while the page stays usable", async (studio, page) => {
    // Two states of 5 MB that differ in many places.
    const make = async (n) => {
      const { thread_id } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
      const messages = Array.from({ length: 5_000 }, (_, i) => ({ id: `${n}-${i}`, type: i % 2 ? "ai" : "human", content: `${i % 7 === n ? n : 0} message ${i} ${"word ".repeat(180)}` }));
      const { checkpoint_id } = await studio.rest(`/threads/${thread_id}/state`, { values: { messages }, as_node: "model" });
      return `checkpoint:${thread_id}/${checkpoint_id}`;
    };
    const [a, b] = [await make(1), await make(2)];
    await page.addInitScript(() => {
      // Work of the page in one go: what takes long keeps keys and scrolling waiting.
      window.longest = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((e) => (window.longest = Math.max(window.longest, e.duration)))).observe({ type: "longtask", buffered: true });
      window.workers = 0;
      const { Worker } = window;
      window.Worker = class extends Worker { constructor(...args) { super(...args); window.workers++; } };
    });
    await page.goto(`${BASE_URL}/studio/compare?${new URLSearchParams({ a, b })}`);
    await page.getByRole("row", { name: /^messages 5\.0k 5\.0k/ }).waitFor();
    await page.locator(".side.a mark").first().waitFor();
    await page.locator("details.card summary", { hasText: "messages" }).click();
    await page.locator(".channels .changes .change").first().waitFor();
    await page.getByRole("button", { name: "More changes" }).waitFor();
    assert.equal(await page.evaluate(() => window.workers), 1, "a worker compares");
    const longest = await page.evaluate(() => window.longest);
    console.log(`# compared 2 x 5 MB; the longest task of the page took ${Math.round(longest)} ms`);
  });

  journey("threads are found, renamed, pinned and deleted", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    const name = `renamed ${studio.thread}`;
    const line = () => page.locator(".sidebar li", { has: page.locator(`a[href$="${studio.thread}"]`) });
    await line().getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Rename" }).click();
    await page.getByRole("textbox", { name: "Title" }).fill(name);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name }).waitFor();
    await line().getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Pin" }).click();
    await line().getByLabel("pinned").waitFor();
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("/");
    await page.keyboard.type(name);
    await eventually(async () => assert.equal(await page.locator(".sidebar li").count(), 1));
    page.on("dialog", (dialog) => dialog.accept());
    const thread = studio.thread;
    await line().getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.waitForURL(/\/studio\/$/);
    await eventually(async () => assert.equal((await fetch(`${BASE_URL}/threads/${thread}`)).status, 404));
    studio.errors = studio.errors.filter((error) => !error.includes("404")); // the stream of the deleted thread
  });

  journey("a thread that is deleted is left, also when the list has lost it before the answer arrives", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    const line = page.locator(".sidebar li", { has: page.locator(`a[href$="${studio.thread}"]`) });
    await page.route(`**/threads/${studio.thread}`, async (route) => {
      if (route.request().method() !== "DELETE") return route.continue();
      const response = await route.fetch();
      await line.waitFor({ state: "detached" });
      await route.fulfill({ response });
    });
    page.on("dialog", (dialog) => dialog.accept());
    await line.getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.waitForURL(/\/studio\/$/);
    studio.errors = studio.errors.filter((error) => !error.includes("404"));
  });

  journey("items of the store are found by namespace, edited and deleted", async (studio, page) => {
    const owner = `studio-${Math.random().toString(36).slice(2)}`;
    await fetch(`${BASE_URL}/store/items`, { method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify({ namespace: [owner, "food"], key: "ann", value: { likes: "pasta" } }) });
    await page.goto(`${BASE_URL}/studio/store`);
    await page.getByRole("button", { name: owner, exact: true }).click();
    await page.getByRole("button", { name: "food", exact: true }).click();
    await page.getByText('"pasta"').waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Value" }).fill('{"likes": "soup"}');
    await page.getByRole("spinbutton", { name: /^Minutes until it expires/ }).fill("60");
    const [put] = await Promise.all([page.waitForRequest((r) => r.method() === "PUT"), page.getByRole("button", { name: "Save" }).click()]);
    assert.equal(put.postDataJSON().ttl, 60);
    const shown = page.locator(".json", { hasText: '"soup"' }); // not the field, where it is before it is saved
    await shown.waitFor();
    await page.reload();
    await shown.waitFor();
    page.on("dialog", (dialog) => dialog.accept());
    await page.getByRole("button", { name: "Delete ann" }).click();
    await page.getByText("Nothing is stored here").waitFor();
  });

  journey("an item is shown that is saved while the list of items is still read", async (studio, page) => {
    const owner = `studio-${Math.random().toString(36).slice(2)}`;
    const [late, saved] = [gate(), gate()];
    let reads = 0;
    await page.route("**/store/items/search", async (route) => {
      const response = await route.fetch();
      if (reads++ === 0) {
        late.resolve();
        await saved.promise;
      }
      await route.fulfill({ response }).catch(() => {}); // the page has given it up
    });
    await page.goto(`${BASE_URL}/studio/store?ns=${owner}`);
    await late.promise;
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByRole("textbox", { name: "Key" }).fill("ann");
    await page.getByRole("textbox", { name: "Value" }).fill('{"likes": "soup"}');
    const put = page.waitForResponse((r) => r.request().method() === "PUT");
    await page.getByRole("button", { name: "Save" }).click();
    await put;
    saved.resolve();
    await page.locator("article.card", { hasText: '"soup"' }).waitFor();
  });

  journey("a question is shown that a run asks while its thread is still read for the first time", async (studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "hitl" } });
    const [late, asked] = [gate(), gate()];
    let reads = 0;
    await page.route(`**/threads/${thread}`, async (route) => {
      const first = reads++ === 0; // its page reads it first, and then what follows the thread
      const response = await route.fetch();
      if (first) {
        late.resolve();
        await asked.promise;
      }
      await route.fulfill({ response }).catch(() => {}); // the page has given it up
    });
    await page.route("**/understudy/changes", (route) => route.fulfill({ status: 404, body: "{}" })); // which would have it read again
    await page.goto(`${BASE_URL}/studio/t/${thread}`);
    await late.promise;
    await studio.rest(`/threads/${thread}/runs/wait`, { assistant_id: "hitl", input: { messages: [{ role: "user", content: 'call search {"q": "cats"}' }] } });
    await page.locator(".transcript .message").first().waitFor();
    asked.resolve();
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    studio.errors = studio.errors.filter((error) => !error.includes("404"));
  });

  journey("a state is written once, however often Write is pressed", async (studio, page) => {
    await studio.begin("agent", "say 2");
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
    await page.getByRole("button", { name: "State", exact: true }).first().click();
    await page.getByRole("tab", { name: "edit" }).click();
    await page.getByRole("textbox", { name: "Values" }).fill('{"messages": [{"role": "user", "content": "written"}]}');
    const held = gate();
    let writes = 0;
    await page.route("**/threads/*/state", async (route) => {
      writes++;
      await held.promise;
      await route.continue();
    });
    const write = page.getByRole("button", { name: "Write" });
    await page.getByRole("textbox", { name: "As node" }).press("Enter");
    await eventually(() => assert.equal(writes, 1));
    await eventually(async () => assert.ok(await write.isDisabled())); // the request leaves before the page is drawn
    await page.getByRole("textbox", { name: "As node" }).press("Enter");
    held.resolve();
    await page.locator(".steps .current", { hasText: "update" }).waitFor();
    assert.equal(writes, 1);
    await studio.expect([["human", "say 2"], ["ai", words(2)], ["human", "written"]]);
  });

  journey("a schedule is run now, paused and deleted", async (studio, page) => {
    const [{ assistant_id }] = await studio.rest("/assistants/search", { graph_id: "agent", metadata: { created_by: "system" } });
    const minute = Math.floor(Math.random() * 60);
    const cron = await studio.rest("/runs/crons", { assistant_id, schedule: `${minute} 5 29 2 *`, input: { messages: [{ role: "user", content: "say 2" }] } });
    const card = page.locator("article.card", { hasText: `${minute} 5 29 2 *` }).first();
    await page.goto(`${BASE_URL}/studio/crons`);
    await page.locator("article.card").first().waitFor();
    const more = page.getByRole("button", { name: "More", exact: true }); // other tests have schedules too
    await eventually(async () => {
      if ((await card.count()) === 0 && (await more.count()) > 0) await more.click();
      assert.equal(await card.count(), 1);
    });
    await card.getByRole("button", { name: "Pause" }).click();
    await eventually(async () => assert.equal((await studio.rest(`/runs/crons/${cron.cron_id}`)).enabled, false));
    await card.getByText("paused").waitFor();
    page.on("dialog", (dialog) => dialog.accept());
    await card.getByRole("button", { name: "Run now" }).click();
    await card.getByRole("link", { name: "the run that began now" }).click();
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
    await fetch(`${BASE_URL}/threads/${studio.thread}`, { method: "DELETE" });
    await page.goto(`${BASE_URL}/studio/crons`);
    await page.locator("article.card").first().waitFor();
    await eventually(async () => {
      if ((await card.count()) === 0 && (await more.count()) > 0) await more.click();
      assert.equal(await card.count(), 1);
    });
    await card.getByRole("button", { name: /^Delete/ }).click();
    await eventually(async () => assert.equal((await fetch(`${BASE_URL}/runs/crons/${cron.cron_id}`)).status, 404));
    studio.errors = studio.errors.filter((error) => !error.includes("404")); // the stream of the deleted thread
  });

  journey("the next times of a schedule, in its zone", async (studio, page) => {
    if (!recorded) return;
    const [{ assistant_id }] = await studio.rest("/assistants/search", { graph_id: "agent", metadata: { created_by: "system" } });
    const minute = Math.floor(Math.random() * 60);
    const cron = await studio.rest("/runs/crons", { assistant_id, schedule: `${minute} 5 * * 3`, timezone: "Asia/Kolkata", input: { messages: [{ role: "user", content: "say 2" }] } });
    try {
      const card = page.locator("article.card", { hasText: `${minute} 5 * * 3` }).first();
      await page.goto(`${BASE_URL}/studio/crons`);
      const more = page.getByRole("button", { name: "More", exact: true });
      await page.locator("article.card").first().waitFor();
      await eventually(async () => {
        if ((await card.count()) === 0 && (await more.count()) > 0) await more.click();
        assert.equal(await card.count(), 1);
      });
      await card.getByText("Next times").press("Enter");
      const times = card.getByRole("list", { name: "Next times" }).getByRole("time");
      await eventually(async () => assert.equal(await times.count(), 5));
      const at = `05:${String(minute).padStart(2, "0")} +05:30`;
      for (const text of await times.allTextContents()) assert.ok(text.startsWith("Wed ") && text.endsWith(at), text);
      await card.locator("header time", { hasText: at }).waitFor();
      await studio.accessible("next times");
    } finally {
      await fetch(`${BASE_URL}/runs/crons/${cron.cron_id}`, { method: "DELETE" });
    }
  });

  journey("how the last runs of a schedule ended, newest first", async (studio, page) => {
    if (!recorded) return;
    const [{ assistant_id }] = await studio.rest("/assistants/search", { graph_id: "failing", limit: 1 });
    const { thread_id } = await studio.rest("/threads", { metadata: { graph_id: "failing" } });
    const name = `results ${Date.now()}`;
    const cron = await studio.rest(`/threads/${thread_id}/runs/crons`, { assistant_id, schedule: "* * * * * *", input: { name } }); // each second
    const change = (method, body) => fetch(`${BASE_URL}/runs/crons/${cron.cron_id}`, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });
    try {
      const ended = async () => (await studio.rest(`/understudy/runs?cron_id=${cron.cron_id}&status=error`)).runs;
      await eventually(async () => assert.ok((await ended()).length > 0));
      await change("PATCH", { enabled: false });
      await page.goto(`${BASE_URL}/studio/crons`);
      const card = page.locator("article.card", { hasText: name }).first();
      const more = page.getByRole("button", { name: "More", exact: true });
      await eventually(async () => {
        if ((await card.count()) === 0 && (await more.count()) > 0) await more.click();
        assert.equal(await card.count(), 1);
      });
      await card.getByText("Last results").press("Enter");
      const results = card.getByRole("list", { name: "Last results" }).getByRole("listitem");
      await results.first().locator(".status", { hasText: "error" }).waitFor();
      await results.first().locator(".why").waitFor();
      await studio.accessible("last results");
      await results.first().getByRole("link", { name: "timeline" }).press("Enter");
      await page.getByRole("heading", { name: "Run of failing" }).waitFor();
    } finally {
      await change("DELETE");
    }
  });

  journey("a run that waits says what for, and one that is executed where, with its lease", async (studio, page) => {
    if (!recorded) return;
    const [late] = await begun("memory", 1);
    const { thread_id } = await studio.rest("/threads", {});
    const say = (text) => studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "tokens", input: { messages: [{ role: "user", content: text }] }, multitask_strategy: "enqueue" });
    const [first, second] = [await say("say 9000"), await say("say 1")];
    try {
      await page.goto(`${BASE_URL}/studio/runs`);
      await page.locator(`[data-run="${second.run_id}"]`, { hasText: "waits for another run of its thread" }).waitFor();
      await page.locator(`[data-run="${first.run_id}"]`, { hasText: "on server …" }).waitFor();
      await page.locator("[data-run]", { has: page.locator(`a[href*="${late}"]`) }).filter({ hasText: "waits until" }).waitFor();
      await page.goto(`${BASE_URL}/studio/servers`);
      const mine = page.locator("[data-server] .runs li", { has: page.locator(`a[href$="${first.run_id}"]`) });
      await mine.getByText(/^lease for \d+/).waitFor();
      await studio.accessible("servers with runs");
    } finally {
      for (const [thread, runs] of [[thread_id, [first, second]], [late, await studio.rest(`/threads/${late}/runs`)]])
        await fetch(`${BASE_URL}/runs/cancel`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ thread_id: thread, run_ids: runs.map((r) => r.run_id) }) });
    }
  });

  for (const colorScheme of ["light", "dark"])
    journey(`servers show why graphs do not import, and why a reload changed nothing, with the place, ${colorScheme}`, async (studio, page) => {
      if (!recorded) return;
      const { servers } = await studio.rest("/understudy/servers");
      const problems = [
        { graph: "refunds", at: "refunds.py:3", error: "ModuleNotFoundError: No module named 'stripe'", reload: false },
        { graph: "support", at: "support/graph.py:41", error: "SyntaxError: '(' was never closed", reload: true },
        { graph: null, at: null, error: "langgraph.json: graphs: not an object", reload: true },
      ];
      await page.route(/\/understudy\/servers$/, (route) => route.fulfill({ json: { servers: [{ ...servers[0], problems, blocked: 3, blocked_at: "support/graph.py:12", worker_memory_bytes: [310e6, 340e6] }] } }));
      await page.goto(`${BASE_URL}/studio/servers`);
      const card = page.locator("[data-server]");
      await card.getByText("refunds.py:3").waitFor();
      await card.getByText("Not reloaded: support").waitFor();
      await card.getByText("not an object").waitFor();
      await card.getByText("3, last at support/graph.py:12").waitFor();
      await card.getByText("310.0 MB, 340.0 MB").waitFor();
      await studio.accessible("servers with problems");
      await page.setViewportSize({ width: 320, height: 700 });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
    }, { options: { colorScheme } });

  journey("a run stops at breakpoints, goes one step, and then to its end", async (studio, page) => {
    const call = 'call search {"q": "cats"}';
    await studio.begin("agent", call);
    const whole = [["human", call], ["ai", ""], ["ai", "tool said: Found 10 results for cats"]];
    await studio.expect(whole);
    await page.locator("header.bar").getByRole("button", { name: "State", exact: true }).click();
    const steps = page.getByRole("list", { name: "Checkpoints" }).getByRole("button");
    await eventually(async () => assert.equal(await steps.count(), 5));
    const state = page.getByRole("region", { name: "State" });
    await steps.nth(3).click(); // before the model answers
    await state.getByText("Next: model").waitFor();
    await state.getByText("Breakpoints, input").press("Enter");
    await state.getByRole("checkbox", { name: "Stop before tools" }).press("Space");
    await studio.accessible("breakpoints");
    await state.getByRole("button", { name: "Run from here" }).press("Enter");
    await state.getByText("Next: tools").waitFor();
    await studio.expect([["human", call], ["ai", ""]]);
    await page.locator("header.bar").getByRole("button", { name: "Graph", exact: true }).click();
    await page.locator('.graph [data-node="tools"][data-state="waiting"]').waitFor();
    await page.reload(); // and so it is after a reload
    await page.locator('.graph [data-node="tools"][data-state="waiting"]').waitFor();
    await page.locator("header.bar").getByRole("button", { name: "State", exact: true }).click();
    await state.getByText("Next: tools").waitFor();
    await state.getByRole("button", { name: "One step" }).press("Enter");
    await state.getByText("Next: model").waitFor();
    await state.getByRole("button", { name: "Run from here" }).press("Enter");
    await studio.expect(whole);
    assert.equal((await studio.rest(`/threads/${studio.thread}`)).status, "idle");
  });

  journey("a run from a checkpoint with another input", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    await page.locator("header.bar").getByRole("button", { name: "State", exact: true }).click();
    const state = page.getByRole("region", { name: "State" });
    await state.getByText("Breakpoints, input").click();
    await state.getByRole("textbox", { name: /^Input/ }).fill('{"messages": [{"role": "user", "content": "say 3"}]}');
    await state.getByRole("button", { name: "Run from here" }).click();
    await studio.expect([["human", "say 1"], ["ai", "w0"], ["human", "say 3"], ["ai", words(3)]]);
  });

  journey("what pages show is copied as curl, Python and JavaScript, which ask for it", async (studio, page) => {
    const { thread_id } = await studio.rest("/threads", { metadata: { title: "copied" } });
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: "say 2" }] } });
    const [{ run_id }] = await studio.rest(`/threads/${thread_id}/runs`);
    const python = process.env.UNDERSTUDY_TEST_PYTHON;
    const folder = fileURLToPath(new URL(".", import.meta.url)); // whose packages have the SDK
    const run = async (file, args) => (await promisify(execFile)(file, args, { cwd: folder, maxBuffer: 1 << 26 })).stdout;
    const programs = {
      curl: (text) => run("sh", ["-c", text.replace("curl ", "curl -fsS ")]),
      JavaScript: (text) => run(process.execPath, ["--input-type=module", "-e", text]),
      ...(python && { Python: (text) => run(python, ["-c", text]) }),
    };
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    /** Copies what a button of a page copies, as each language, and expects some text in what the programs print. */
    const copied = async (path, button, expected, languages = Object.keys(programs)) => {
      await page.goto(`${BASE_URL}/studio/${path}`);
      for (const language of languages) {
        const program = programs[language];
        await page.getByRole("button", { name: button }).first().press("Enter");
        await page.getByRole("menuitem", { name: language }).press("Enter");
        await page.getByRole("status").filter({ hasText: "Copied" }).first().waitFor();
        const text = await page.evaluate(() => navigator.clipboard.readText());
        assert.match(await program(text), expected, `${path}: ${text}`);
      }
    };
    const as = (what) => `Copy ${what && `${what} `}as curl, Python or JavaScript`;
    await copied(`t/${thread_id}`, as("the messages"), /say 2/);
    await copied(`t/${thread_id}?panel=state`, as("this state"), /say 2/, ["curl"]);
    await copied(`t/${thread_id}?panel=runs`, as("the runs"), new RegExp(run_id));
    await copied("graphs", as("the graph"), /__start__/);
    await copied("graphs", as("versions"), /assistant_id/);
    await copied("approvals", as(""), /\[/);
    await copied("store", as(""), /items/);
    await copied("crons", as(""), /\[/);
    if (!recorded) return;
    // Those without a method in the SDKs are all made alike.
    await copied("health", as(""), /verdict/);
    await copied(`r/${run_id}`, as(""), new RegExp(run_id), ["curl"]);
    await copied("runs?graph=agent", as(""), new RegExp(run_id), ["curl"]);
    await copied("usage", as(""), /p95_ms/, ["curl"]);
    await copied("servers", as(""), /heartbeat_at/, ["curl"]);
    await copied("logs", as(""), /attributes/, ["curl"]);
  });

  journey("a node says where its code is, and leads to the runs of its graph", async (studio, page) => {
    await page.goto(`${BASE_URL}/studio/graphs`);
    await page.getByRole("navigation", { name: "Assistants" }).getByRole("link", { name: "nested", exact: true }).click();
    await page.locator('.graph [data-node="leaf:leaf_ask"]').press("Enter");
    const detail = page.getByRole("region", { name: "Node leaf:leaf_ask" });
    if (recorded) {
      await detail.getByText(/^graphs\.py:\d+$/).waitFor();
      await detail.getByText("graphs.leaf_ask").waitFor();
      await studio.accessible("a node");
      await page.reload(); // the address names it
      await detail.getByText(/^graphs\.py:\d+$/).waitFor();
    }
    await page.locator('.graph [data-node="before"]').press("Enter");
    await page.getByRole("region", { name: "Node before" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("region", { name: "Node before" }).waitFor({ state: "detached" });
    await page.locator('.graph [data-node="before"]').click();
    await page.getByRole("region", { name: "Node before" }).getByRole("link", { name: "Runs of this graph" }).click();
    await page.waitForURL(/\/runs\?graph=nested/);
  });

  journey("programs that connect to an assistant talk to it", async (studio, page) => {
    await page.goto(`${BASE_URL}/studio/`);
    await page.locator("body").press("Escape");
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("g");
    await page.keyboard.press("o");
    await page.getByRole("combobox", { name: "Assistant" }).selectOption({ label: "agent" });
    const shown = page.getByRole("region", { name: "From a program" }).locator("pre");
    const python = process.env.UNDERSTUDY_TEST_PYTHON;
    const folder = fileURLToPath(new URL(".", import.meta.url));
    const run = async (file, args) => (await promisify(execFile)(file, args, { cwd: folder })).stdout;
    for (const [language, program] of [["curl", (text) => run("sh", ["-c", text])], ["JavaScript", (text) => run(process.execPath, ["--input-type=module", "-e", text])], ["Python", (text) => python && run(python, ["-c", text])]]) {
      await page.getByRole("tab", { name: language }).press("Enter");
      const text = await shown.textContent();
      const said = await program(text);
      if (said) assert.match(said, /w0 w1 w2/, text); // what the agent says to anything
    }
    assert.match(await page.getByRole("region", { name: "With agent-chat-ui" }).locator("pre").textContent(), new RegExp(`NEXT_PUBLIC_API_URL=${BASE_URL} NEXT_PUBLIC_ASSISTANT_ID=agent`));
    await studio.accessible("connect");
    // A graph without messages has the fields of its input.
    await page.getByRole("combobox", { name: "Assistant" }).selectOption({ label: "pipeline" });
    await page.getByRole("region", { name: "With agent-chat-ui" }).waitFor({ state: "detached" });
    await shown.filter({ hasText: '"pipeline"' }).waitFor();
  });

  journey("doctor finds what is well with the server", async (studio, page) => {
    if (!recorded) return;
    await page.goto(`${BASE_URL}/studio/health`);
    await page.locator('[data-check="config"].is-ok').first().waitFor();
    await page.locator('[data-check="graph"]', { hasText: "agent is imported" }).first().waitFor();
    await studio.accessible("health");
    await page.getByRole("button", { name: "Check again" }).press("Enter");
    await page.getByRole("button", { name: "Checking…" }).waitFor();
    await page.getByRole("button", { name: "Check again" }).waitFor();
    await page.locator('[data-check="config"].is-ok').first().waitFor();
  });

  journey("runs of all threads: one that failed says why, and many are cancelled at once", async (studio, page) => {
    const threads = await Promise.all([1, 2, 3].map(() => studio.rest("/threads", {})));
    const failed = await studio.rest("/threads", {});
    await studio.rest(`/threads/${failed.thread_id}/runs/wait`, { assistant_id: "failing", input: {} });
    const runs = await Promise.all(threads.map((t) => studio.rest(`/threads/${t.thread_id}/runs`, { assistant_id: "tokens", input: { messages: [{ role: "user", content: "say 9000" }] } })));
    await page.goto(`${BASE_URL}/studio/runs?status=error&graph=failing`);
    const line = page.locator("li", { hasText: failed.thread_id.slice(-8) });
    await (recorded ? line.locator(".why") : line).waitFor(); // LangGraph Server does not say why
    await page.goto(`${BASE_URL}/studio/runs?graph=tokens`);
    for (const run of runs) await page.getByRole("checkbox", { name: `Choose run ${run.run_id}` }).check();
    page.on("dialog", (dialog) => dialog.accept());
    await page.getByRole("button", { name: /^Cancel 3/ }).click();
    await eventually(async () => {
      const statuses = await Promise.all(runs.map(async (run) => (await studio.rest(`/threads/${run.thread_id}/runs/${run.run_id}`)).status));
      assert.deepEqual(statuses, ["interrupted", "interrupted", "interrupted"]);
    });
  });

  journey("lists follow what other clients do, by one stream for all tabs", async (studio, page) => {
    const reported = (await fetch(`${BASE_URL}/understudy/changes`, { method: "HEAD" })).ok; // a proxy has no such stream
    const streams = new Set();
    page.context().on("request", (request) => request.url().endsWith("/understudy/changes") && streams.add(request));
    for (const end of ["requestfinished", "requestfailed"]) page.context().on(end, (request) => streams.delete(request));
    await page.reload();
    const other = await openPage(page.context());
    await other.goto(`${BASE_URL}/studio/runs?graph=failing`);
    const { thread_id } = await studio.rest("/threads", { metadata: { title: `made elsewhere ${Date.now()}` } });
    const { run_id } = await studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "failing", input: {} });
    await page.locator(`.sidebar a[href$="${thread_id}"] .status`, { hasText: "error" }).waitFor();
    await other.locator(`[data-run="${run_id}"]`, { hasText: "error" }).waitFor();
    await fetch(`${BASE_URL}/threads/${thread_id}`, { method: "DELETE" });
    await page.locator(`.sidebar a[href$="${thread_id}"]`).waitFor({ state: "detached" });
    await other.locator(`[data-run="${run_id}"]`).waitFor({ state: "detached" });
    if (!reported) return;
    await eventually(() => assert.equal(streams.size, 1));
    await page.close();
    await eventually(() => assert.equal(streams.size, 1, "another tab continues"));
    studio.page = other;
  });

  /** A headless browser shows all tabs at once, so the test says which of them is seen. */
  const sight = async (context) => {
    await context.addInitScript(() => Object.defineProperty(document, "hidden", { get: () => window.away === true }));
    return (tab, on) => tab.evaluate((on) => ((window.away = !on), document.dispatchEvent(new Event("visibilitychange"))), on);
  };

  journey("the logs in a tab that is not seen hold no connection, and have what was logged when it is seen again", async (studio, page) => {
    if (!recorded) return;
    const show = await sight(page.context());
    const streams = new Set();
    page.on("request", (request) => request.url().includes("/understudy/logs/stream") && streams.add(request));
    for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => streams.delete(request));
    await page.goto(`${BASE_URL}/studio/logs?level=debug`);
    await page.locator(".log-lines li").first().waitFor();
    assert.equal(streams.size, 1);
    await show(page, false);
    await eventually(() => assert.equal(streams.size, 0));
    const { thread_id } = await studio.rest("/threads", {});
    const { run_id } = await studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "failing", input: {} });
    await eventually(async () => assert.notEqual((await studio.rest(`/understudy/logs?level=debug&text=${run_id}`)).lines.length, 0));
    assert.equal(await page.locator(".log-lines", { hasText: run_id }).count(), 0);
    await show(page, true);
    await page.locator(".log-lines", { hasText: run_id }).waitFor();
    assert.equal(streams.size, 1);
    assert.equal(await page.locator(".problem").count(), 0);
  });

  journey("ten tabs with threads: those that are not seen hold no connection, and know what happened when they are seen again", async (studio, page) => {
    const show = await sight(page.context());
    const threads = await Promise.all(Array.from({ length: 10 }, () => studio.rest("/threads", { metadata: { graph_id: "agent" } })));
    await Promise.all(threads.map((t) => studio.rest(`/threads/${t.thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: "say 1" }] } })));
    const tabs = [];
    for (const { thread_id } of threads) {
      const tab = await openPage(page.context());
      tabs.push(tab);
      const left = new Promise((resolve) => tab.on("requestfailed", (request) => request.url().endsWith(`${thread_id}/stream`) && resolve()));
      await tab.goto(`${BASE_URL}/studio/t/${thread_id}`);
      await tab.locator('.transcript [data-kind="ai"]', { hasText: "w0" }).waitFor(); // a browser has six connections to a server
      if (tabs.length === 10) break;
      await show(tab, false);
      await left;
    }
    const [{ thread_id }] = threads;
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: "say 2" }] } });
    await show(tabs.at(-1), false);
    await show(tabs[0], true);
    await tabs[0].locator('.transcript [data-kind="ai"]', { hasText: "w0 w1" }).waitFor();
    assert.equal(await tabs[0].locator(".transcript [data-kind]").count(), 4);
    assert.equal(await tabs[0].getByText("reconnecting").count(), 0);
  });

  journey("a node of a graph: its last runs, and the state that went in and what came out, of all threads and of one", async (studio, page) => {
    if (!recorded) return;
    const { thread_id } = await studio.rest("/threads", {});
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "pipeline", input: { items: ["seed"] } });
    const [{ run_id }] = await studio.rest(`/threads/${thread_id}/runs`);
    const { spans } = await studio.rest(`/understudy/runs/${run_id}/spans`);
    const nodes = spans.filter((s) => s.kind === "node");
    assert.ok(nodes.length > 1);
    const { name } = nodes[0];
    assert.deepEqual((await studio.rest(`/understudy/runs/${run_id}/spans?node=${name}`)).spans, nodes.filter((s) => s.name === name));
    const detail = page.getByRole("region", { name: `Node ${name}` });
    const line = detail.locator(`[data-execution="${run_id}"]`);
    for (const path of ["graphs/pipeline", `t/${thread_id}?panel=graph`]) {
      await page.goto(`${BASE_URL}/studio/${path}`);
      await page.locator(`.graph [data-node="${name}"]`).press("Enter");
      await line.getByText("success").waitFor();
      await line.getByRole("button", { name: "State" }).press("Enter");
      const [into, out] = [line.getByRole("region", { name: "State in" }), line.getByRole("region", { name: "State out" })];
      await into.getByText("items").waitFor();
      await out.getByText("items").first().waitFor();
      await studio.accessible(path);
    }
    assert.equal(await detail.locator("[data-execution]").count(), 1, "only the runs of this thread");
    await line.getByRole("button", { name: "State" }).press("Enter");
    await line.getByRole("region", { name: "State in" }).waitFor({ state: "detached" });
    await line.getByRole("link", { name: "timeline" }).press("Enter");
    await page.getByRole("complementary", { name: "Span" }).getByRole("heading", { name, exact: true }).waitFor();
    // A node of a subgraph.
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "nested", input: { trail: [] } });
    await page.goto(`${BASE_URL}/studio/graphs/nested?node=leaf:leaf_prepare`);
    await page.getByRole("region", { name: "Node leaf:leaf_prepare" }).locator("[data-execution]", { hasText: "success" }).first().waitFor();
  });

  journey("a failed run: from its timeline to the failure, to the checkpoint before it, and to a run that works", async (studio, page) => {
    if (!recorded) return;
    const { thread_id } = await studio.rest("/threads", {});
    const { run_id } = await studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "failing", input: { kind: "value" } });
    await page.goto(`${BASE_URL}/studio/runs?graph=failing`);
    await page.locator(`[data-run="${run_id}"]`).getByRole("link", { name: "timeline" }).click();
    await page.getByRole("button", { name: "Go to the failure" }).click();
    const detail = page.getByRole("complementary", { name: "Span" });
    await detail.getByRole("heading", { name: "ValueError" }).waitFor();
    await detail.locator(".stack", { hasText: "graphs.py" }).waitFor();
    for (const view of ["Timeline", "Flame", "Log", "Tree"]) {
      await page.getByRole("button", { name: view, exact: true }).click();
      await page.locator(view === "Flame" ? ".flame rect.error" : ".span-row.error").first().waitFor();
    }
    // A name finds its span; the type of the error, which servers that keep no contents have too, also finds the attempt, which failed with it.
    const names = (list) => list.map((e) => e.dataset.span && e.querySelector(".span-name > span:not(.status, .hidden)").textContent);
    for (const [text, found] of [["OK", ["ok"]], ["ValueError", ["failing", "boom"]], ["nosuchspan", []]]) {
      await page.getByRole("searchbox", { name: "Find spans" }).fill(text);
      await page.getByRole("status").filter({ hasText: new RegExp(`^${found.length} of`) }).waitFor();
      await eventually(async () => assert.deepEqual(await page.$$eval(".span-row", names), found));
    }
    await page.getByRole("searchbox", { name: "Find spans" }).fill("");
    await page.locator(".span-list").focus();
    await page.keyboard.press("k");
    await detail.getByRole("heading", { name: "ok", exact: true }).waitFor();
    await page.keyboard.press("j");
    await detail.getByRole("heading", { name: "boom", exact: true }).waitFor();
    const saved = async (form) => {
      await page.getByRole("button", { name: "Export" }).click();
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: form, exact: true }).click()]);
      return JSON.parse(readFileSync(await download.path(), "utf8"));
    };
    const otlp = (await saved("OTLP (JSON)")).resourceSpans[0].scopeSpans[0].spans;
    assert.deepEqual(otlp.filter((s) => s.name.startsWith("node ")).map((s) => [s.name, s.status.code ?? 0]), [["node ok", 0], ["node boom", 2]]);
    assert.ok(otlp.every((s) => /^[0-9a-f]{16}$/.test(s.spanId)));
    const exported = await saved("JSON");
    assert.deepEqual(exported.spans.filter((s) => s.kind === "node").map((s) => [s.name, s.status]), [["ok", "success"], ["boom", "error"]]);
    await page.reload();
    await detail.getByRole("link", { name: "The checkpoint before it" }).click();
    await page.waitForURL(new RegExp(`/t/${thread_id}.*checkpoint=`));
    await page.getByRole("tab", { name: "edit" }).click();
    await page.getByRole("textbox", { name: "Values" }).fill('{"kind": "none"}');
    await page.getByRole("textbox", { name: "As node" }).fill("ok");
    await page.getByRole("button", { name: "Write" }).click();
    await page.locator(".steps .current", { hasText: "update" }).waitFor(); // until the page has it, it runs from the checkpoint before
    assert.equal((await studio.rest(`/threads/${thread_id}/state`)).values.kind, "none");
    await page.getByRole("button", { name: "Run from here" }).click();
    await eventually(async () => assert.deepEqual((await studio.rest(`/threads/${thread_id}/state`)).values.items, ["ok", "survived"]));
  });

  journey("the timeline of a run that is active grows until its end, and axe finds nothing", async (studio, page) => {
    if (!recorded) return;
    const { thread_id } = await studio.rest("/threads", {});
    const { run_id } = await studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "tokens", input: { messages: [{ role: "user", content: "say 3000" }] }, stream_mode: ["messages-tuple"] });
    await page.goto(`${BASE_URL}/studio/r/${run_id}`);
    await page.locator('.span-row:not(.success) [class~="model"], .span-row.success [class~="model"]').first().waitFor();
    await page.locator("header .status.done").first().waitFor({ timeout: 120_000 });
    await page.locator(".span-row.success .model").first().click();
    await page.getByRole("complementary", { name: "Span" }).getByText("first token").waitFor();
    for (const view of ["Tree", "Timeline", "Flame", "Log"]) {
      await page.getByRole("button", { name: view, exact: true }).click();
      await page.locator(view === "Flame" ? ".flame rect.model" : ".span-row .model").first().waitFor();
      await studio.accessible(view);
    }
    await page.setViewportSize({ width: 320, height: 700 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
  }, { options: { colorScheme: "dark" } });

  journey("a message is found by its words, from the list and inside of its thread", async (studio, page) => {
    if (!(await fetch(`${BASE_URL}/understudy/threads/search?text=x`)).ok) return; // a proxy has no such search
    const word = `needle${Date.now()}`;
    await studio.begin("agent", `Where is the ${word}?`);
    await page.locator(".transcript .message", { hasText: "w0 w1 w2" }).waitFor(); // idle alone may be seen before the run is created
    await studio.idle();
    const { thread } = studio;
    await page.goto(`${BASE_URL}/studio/`);
    await page.keyboard.press("/");
    await page.getByRole("searchbox", { name: "Find threads and messages" }).fill(word.slice(0, -1).toUpperCase());
    const result = page.locator(".found a", { has: page.locator("mark", { hasText: word }) }).first();
    await result.waitFor(); // the page looks again until there is one
    await studio.accessible("search");
    await result.click();
    await page.locator(".message.at", { hasText: word }).waitFor();
    assert.equal(studio.thread, thread);
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.getByRole("searchbox", { name: "Find in this thread" }).fill("where");
    await page.locator("aside .found mark", { hasText: "Where" }).first().waitFor();
    await studio.accessible("search in a thread");
    // What is said while words are searched is found too.
    await studio.type("Where is it now?");
    await page.locator("aside .found a", { hasText: "it now" }).first().waitFor();
    await studio.idle();
    // The result of a tool is shown at its call, and what was replaced is not there any more.
    await studio.type(`call search {"q": "${word}"}`);
    const inside = page.locator("aside .found a");
    await page.getByRole("searchbox", { name: "Find in this thread" }).fill(`results for ${word}`);
    await inside.filter({ hasText: /^tool ·/ }).first().click();
    await page.locator(".message.at", { has: page.locator("[data-call=search]") }).waitFor();
    await page.goto(`${page.url().replace(/\?.*/, "")}?at=nosuchmessage`);
    await page.getByText("is not in this conversation any more").waitFor();
    await page.goto(`${BASE_URL}/studio/t/${thread}?panel=search`);
    await page.getByRole("searchbox", { name: "Find in this thread" }).fill("nosuchword");
    await page.getByText("No message has these words").waitFor();
  });

  for (const colorScheme of ["light", "dark"])
    journey(`all threads: found by metadata, and changed, chosen ones or all that match, ${colorScheme}`, async (studio, page) => {
      const batch = `batch${Math.random().toString(36).slice(2)}`;
      const say = async (n) => {
        const { thread_id } = await studio.rest("/threads", { metadata: { batch, owner: `owner ${n}`, level: n } });
        await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: `say ${n}` }] } });
        return thread_id;
      };
      const [one, two, three] = [await say(2), await say(3), await say(4)];
      const states = async (id) => (await studio.rest(`/threads/${id}/history?limit=10`)).length;
      const line = (id) => page.locator(`tr[data-thread="${id}"]`);
      await page.getByRole("link", { name: "All threads" }).click();
      await page.waitForURL(/\/threads$/);
      const field = page.getByRole("searchbox", { name: "Metadata" });
      await field.fill(`batch=${batch}`);
      await eventually(async () => assert.equal(await page.locator("tr[data-thread]").count(), 3));
      for (const [id, n] of [[one, 2], [two, 3], [three, 4]]) {
        await line(id).getByRole("link", { name: `say ${n}`, exact: true }).waitFor();
        await line(id).getByText(words(n), { exact: true }).waitFor(); // the last words
        for (const cell of ["agent", `owner ${n}`]) await line(id).getByRole("cell", { name: cell, exact: true }).waitFor();
        assert.match(await line(id).locator("td.numbers").textContent(), /^\d+$/);
      }
      await studio.accessible("all threads");
      // What is no metadata is said, and the address has what is.
      await field.fill("batch");
      await page.getByRole("alert").filter({ hasText: "write name=value" }).waitFor();
      assert.ok(await page.getByRole("button", { name: "Change all that match…" }).isDisabled());
      await field.fill(JSON.stringify({ batch, level: 4 }));
      await eventually(async () => assert.equal(await page.locator("tr[data-thread]").count(), 1));
      await page.reload();
      await line(three).waitFor();
      // A chosen one is deleted.
      await page.getByRole("checkbox", { name: "Choose say 4" }).check();
      await page.getByRole("button", { name: "Change 1 thread…" }).click();
      const chosen = page.getByRole("dialog", { name: "Change threads" });
      await chosen.getByRole("radio", { name: "Delete" }).check();
      await studio.accessible("what to do with threads");
      await chosen.getByRole("button", { name: "Delete 1 thread" }).click();
      await chosen.getByText("1 thread deleted.").waitFor();
      await chosen.getByRole("button", { name: "Close" }).click();
      await page.getByText("No thread matches.").waitFor();
      // All that match keep their newest state only, and expire.
      await field.fill(`batch=${batch}`);
      await eventually(async () => assert.equal(await page.locator("tr[data-thread]").count(), 2));
      assert.ok((await states(one)) > 1);
      const change = async (what) => {
        await page.getByRole("button", { name: "Change all that match…" }).click();
        const dialog = page.getByRole("dialog", { name: "Change all that match" });
        await dialog.getByText(`2 threads with metadata {"batch":"${batch}"}, also those that the page does not show.`).waitFor();
        await dialog.getByRole("radio", { name: what }).check();
        if (what.includes("expiry")) await dialog.getByRole("spinbutton", { name: "Days" }).fill("2");
        await dialog.getByRole("button", { name: "Change 2 threads" }).click();
        await dialog.getByText("2 threads changed.").waitFor();
        await dialog.getByRole("button", { name: "Close" }).click();
      };
      await change("Keep only the latest state");
      for (const id of [one, two]) assert.equal(await states(id), 1);
      await change("Set an expiry");
      for (const id of [one, two]) assert.equal((await studio.rest(`/threads/${id}?include=ttl`)).ttl.ttl_minutes, 2_880);
      // Words find messages: all that match are not those that have them.
      const all = page.getByRole("button", { name: "Change all that match…" });
      const said = page.getByRole("searchbox", { name: "Words in messages" });
      await said.fill("say");
      await page.getByText("Words find messages and do not filter the list below.").waitFor();
      assert.ok(await all.isDisabled());
      await said.fill("");
      // Without a filter the dialog says so, and its cancel changes nothing.
      await field.fill("");
      await page.waitForURL(/\/threads$/);
      await all.click();
      const dialog = page.getByRole("dialog", { name: "Change all threads" });
      await dialog.getByText(/^All [\d,]+ threads, also those that the page does not show\.$/).waitFor();
      await dialog.getByRole("button", { name: /^Change all [\d,]+ threads$/ }).waitFor();
      await dialog.getByRole("button", { name: "Cancel" }).click();
      await dialog.waitFor({ state: "hidden" });
      // A thread that leaves the filter while others are changed is left alone, and one that is gone stops nothing.
      const [four, five] = [await say(5), await say(6)];
      await field.fill(`batch=${batch}`);
      await eventually(async () => assert.equal(await page.locator("tr[data-thread]").count(), 4));
      await all.click();
      const last = page.getByRole("dialog", { name: "Change all that match" });
      await last.getByRole("radio", { name: "Delete" }).check();
      const confirm = last.getByRole("button", { name: "Delete 4 threads" });
      await confirm.waitFor();
      let left = false;
      await page.route("**/threads/search", async (route) => {
        const { ids, metadata } = route.request().postDataJSON();
        if (left || !ids || !metadata) return route.fallback(); // only when the batch is searched again
        left = true;
        await fetch(`${BASE_URL}/threads/${four}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify({ metadata: { batch: "another" } }) });
        return route.fallback();
      });
      const missing = { status: 404, json: { detail: "Thread not found" } }; // as with authentication, if one of them is gone
      await page.route("**/threads/prune", (route) => route.fulfill(missing), { times: 1 });
      await confirm.click();
      await last.getByText("3 threads deleted. 1 thread did not match any more.").waitFor();
      await studio.rest(`/threads/${four}`);
      for (const id of [one, two, five]) assert.equal((await fetch(`${BASE_URL}/threads/${id}`)).status, 404);
      studio.errors = studio.errors.filter((error) => !/status of 404/.test(error));
    }, { options: { colorScheme } });

  journey("a narrow screen has one column at a time", async (studio, page) => {
    await studio.begin("agent", "say 3");
    await studio.expect([["human", "say 3"], ["ai", words(3)]]);
    const seen = async (selector) => (await page.locator(selector).evaluateAll((list) => list.filter((e) => e.checkVisibility()).length)) > 0;
    const panel = page.locator("header.bar").getByRole("button", { name: "State", exact: true });
    await panel.click();
    await page.locator('aside[aria-label="state"] .steps li').first().waitFor();
    assert.deepEqual([await seen(".transcript"), await seen(".panel")], [false, true]);
    await panel.click();
    await eventually(async () => assert.deepEqual([await seen(".transcript"), await seen(".panel")], [true, false]));
    assert.deepEqual(await studio.shown(), [["human", "say 3"], ["ai", words(3)]]);
    if (!recorded) return;
    const [{ run_id }] = await studio.rest(`/threads/${studio.thread}/runs`);
    await page.goto(`${BASE_URL}/studio/r/${run_id}`);
    await page.locator("[data-span]").first().click();
    await page.locator("aside.span-detail").waitFor();
    assert.equal(await seen(".run-main"), false);
    await page.getByRole("button", { name: "Close" }).click();
    await eventually(async () => assert.ok(await seen(".run-main")));
  }, { options: { viewport: { width: 390, height: 700 } } }); // lower than all assistants of the first page together

  journey("what runs used, by day and by model", async (studio, page) => {
    if (!recorded) return;
    const runsOf = async () => (await studio.rest("/understudy/usage?days=7")).graphs.find((g) => g.graph_id === "agent")?.runs ?? 0;
    const before = await runsOf();
    await studio.begin("agent", "hello");
    await studio.idle();
    await page.getByRole("link", { name: "Usage" }).click();
    await page.getByRole("combobox", { name: "Days" }).selectOption("7");
    await eventually(async () => assert.ok((await runsOf()) > before)); // a run counts when its end is saved
    await page.reload();
    const runs = page.getByRole("region", { name: "Graphs" }).getByRole("row", { name: /^agent/ }).locator("td").first();
    await eventually(async () => assert.ok(Number((await runs.getAttribute("title")).replaceAll(/\D/g, "")) > before));
    for (const name of ["Graphs", "Assistants"]) {
      const row = page.getByRole("region", { name, exact: true }).getByRole("row", { name: /^agent/ }).first();
      await row.waitFor(); // the parts of the page are read one by one
      const [p50, p95] = (await row.locator("td").allTextContents()).slice(5);
      assert.match(p50, /^\d.* (ms|s|min|h)$/);
      assert.match(p95, /^\d.* (ms|s|min|h)$/);
    }
    const user = page.getByRole("searchbox", { name: "User" });
    await user.fill("nobody & none");
    await user.press("Enter");
    await page.getByText("No run has ended in these days").waitFor();
    assert.equal(new URL(page.url()).searchParams.get("user"), "nobody & none");
    await page.keyboard.press("ControlOrMeta+A"); // the field keeps the focus
    await page.keyboard.press("Delete");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Runs", exact: true }).click();
    await page.getByRole("img", { name: /^Runs by day/ }).waitFor();
    await page.getByText("As a table").click();
    await page.locator(".usage-chart tbody tr").first().waitFor();
    await page.getByRole("region", { name: "Graphs" }).getByRole("link", { name: "agent", exact: true }).click();
    await page.waitForURL(/\/runs\?graph=agent/);
  });

  journey("the servers, and what they log", async (studio, page) => {
    if (!recorded) return;
    const { servers } = await studio.rest("/understudy/servers");
    await page.getByRole("link", { name: "Servers" }).click();
    for (const { id } of servers) await page.locator(`[data-server="${id}"]`).waitFor();
    await page.locator(`[data-server="${servers[0].id}"]`).getByRole("link", { name: "its log" }).click();
    await page.locator(".log-lines li").first().waitFor();
    const word = `graph${Date.now()}`;
    await page.goto(`${BASE_URL}/studio/logs`);
    await page.getByRole("searchbox", { name: "Find in the logs" }).fill(word);
    await page.getByText("No line of the last ones").waitFor();
    await page.getByRole("searchbox", { name: "Find in the logs" }).fill("");
    await page.locator(".log-lines li").first().waitFor();
    const request = page.locator(".log-lines li", { hasText: "route=/threads/search" });
    assert.equal(await request.count(), 0, "what pages ask for is not what is looked for");
    await page.getByRole("checkbox", { name: "Requests" }).press("Space");
    await request.first().waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Continue" }).waitFor();
  });

  for (const colorScheme of ["light", "dark"])
    journey(`two runs, two checkpoints and two threads are compared, ${colorScheme}`, async (studio, page) => {
      const say = async (text) => {
        const { thread_id } = await studio.rest("/threads", { metadata: { title: `compared ${text} ${Date.now()}` } });
        const input = { messages: [{ role: "user", content: "call search {\"q\": \"cats\"}" }] };
        await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input });
        await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: text }] } });
        const [{ run_id }] = await studio.rest(`/threads/${thread_id}/runs`);
        return { thread_id, run_id };
      };
      const [a, b] = [await say("say 2"), await say("say 3")];
      // Runs: chosen one after the other, on pages of their own.
      const press = (place, name) => place.getByRole("button", { name }).first().press("Enter");
      if (recorded) {
        await page.goto(`${BASE_URL}/studio/r/${a.run_id}`);
        await press(page.locator("header"), "Compare with another");
        await page.getByText(`Compare run …${a.run_id.slice(-8)}`).waitFor();
        await page.goto(`${BASE_URL}/studio/runs?graph=agent`);
        await press(page.locator(`[data-run="${b.run_id}"]`), `Compare with run …${a.run_id.slice(-8)}`);
      } else await page.goto(`${BASE_URL}/studio/compare?a=run:${a.thread_id}/${a.run_id}&b=run:${b.thread_id}/${b.run_id}`);
      const marks = (side) => page.$$eval(`.side.${side} mark`, (list) => list.map((e) => e.textContent));
      await page.getByText("4 equal messages").waitFor();
      assert.equal(await page.locator(".chosen").count(), 0, "the choice has ended");
      assert.deepEqual([await marks("a"), await marks("b")], [["2"], ["3", " w2"]]);
      await page.getByRole("row", { name: /^messages 6 6 equal/ }).waitFor();
      if (recorded) await page.getByRole("row", { name: /^model calls 1 1 equal/ }).waitFor();
      await page.getByText("4 equal messages").click();
      await page.getByText("tool said: Found 10 results for cats").waitFor();
      await page.locator("details.card summary", { hasText: "messages" }).click();
      await page.locator(".channels .changes .change", { hasText: /^5\.content/ }).waitFor();
      await studio.accessible("compare");
      await page.reload();
      await page.getByText("4 equal messages").waitFor();
      await page.getByRole("button", { name: "Swap" }).click();
      await eventually(async () => assert.deepEqual([await marks("a"), await marks("b")], [["3", " w2"], ["2"]]));
      await page.setViewportSize({ width: 320, height: 700 });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
      await page.setViewportSize({ width: 1280, height: 800 });
      // Checkpoints, from the states of a thread.
      await page.goto(`${BASE_URL}/studio/t/${a.thread_id}?panel=state`);
      const steps = page.getByRole("list", { name: "Checkpoints" }).getByRole("button");
      await eventually(async () => assert.ok((await steps.count()) > 4));
      const state = page.getByRole("region", { name: "State" });
      await press(state, "Compare with another");
      await steps.nth(1).click();
      await press(state, /Compare with checkpoint/);
      await page.getByText("B has no such message.").waitFor();
      await page.getByRole("row", { name: /^step .* −1/ }).waitFor();
      // Threads, from the menu of one and the list of the page.
      await page.goto(`${BASE_URL}/studio/t/${a.thread_id}`);
      await page.locator(".sidebar li.current").getByRole("button", { name: /Actions/ }).click();
      await page.getByRole("menuitem", { name: "Compare" }).click();
      await page.getByRole("link", { name: "choose from a list" }).click();
      await page.getByRole("region", { name: "Threads" }).getByRole("button").first().waitFor();
      await studio.accessible("what to compare with");
      await page.getByRole("region", { name: "Threads" }).getByRole("button", { name: /^compared say 3/ }).first().click();
      await eventually(async () => assert.match(new URL(page.url()).searchParams.get("b") ?? "", /^thread:/));
      await page.getByText("4 equal messages").waitFor();
      // What is no reference is named, and nothing is asked for it.
      await page.goto(`${BASE_URL}/studio/compare?a=run:../x&b=thread:${b.thread_id}`);
      await page.getByRole("alert").filter({ hasText: '"run:../x" is no run, checkpoint or thread' }).waitFor();
    }, { options: { colorScheme } });

  for (const colorScheme of ["light", "dark"])
    journey(`the versions of an assistant differ, and another becomes the latest, ${colorScheme}`, async (studio, page) => {
      const body = { graph_id: "agent", name: `versioned ${Date.now()}`, config: { recursion_limit: 10, tags: ["a", "b"] } };
      const { assistant_id } = await studio.rest("/assistants", body);
      const patch = (change) => fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify(change) });
      try {
        await page.goto(`${BASE_URL}/studio/graphs/${assistant_id}`);
        const section = page.getByRole("region", { name: "Versions" });
        await section.getByText("There is one version").waitFor();
        await patch({ config: { recursion_limit: 20, tags: ["new", "a", "b"] } });
        await patch({ description: "The third" });
        await page.reload();
        await section.locator('[data-version="3"] .tag').waitFor();
        const changed = () => section.locator(".changes code").allTextContents();
        await eventually(async () => assert.deepEqual((await changed()).sort(), ["description"]));
        await section.getByRole("combobox", { name: "From" }).selectOption("1");
        await section.getByRole("combobox", { name: "to" }).selectOption("2");
        await eventually(async () => assert.deepEqual((await changed()).sort(), ["config.recursion_limit", "config.tags.0"]));
        await page.reload();
        await eventually(async () => assert.deepEqual((await changed()).sort(), ["config.recursion_limit", "config.tags.0"], "the address names them"));
        await studio.accessible("versions");
        await section.getByRole("button", { name: "Make 1 the latest" }).press("Enter");
        await section.locator('[data-version="1"] .tag').waitFor();
        const now = await studio.rest(`/assistants/${assistant_id}`);
        assert.deepEqual([now.version, now.config.recursion_limit], [1, 10]);
        await page.getByRole("region", { name: "Settings" }).getByText("Graph agent, version 1").waitFor();
        await page.setViewportSize({ width: 320, height: 700 });
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "not wider than the screen");
      } finally {
        await fetch(`${BASE_URL}/assistants/${assistant_id}`, { method: "DELETE" });
      }
    }, { options: { colorScheme } });

  for (const colorScheme of ["light", "dark"])
    journey(`axe finds nothing to complain about, ${colorScheme}`, async (studio, page) => {
      await page.getByRole("textbox", { name: "Message" }).waitFor();
      await studio.accessible("home");
      await studio.begin("agent", 'call search {"q": "cats"}');
      await page.getByText("tool said").waitFor();
      await studio.idle();
      await page.locator("[data-call=search] > [role=button]").click();
      for (const panel of ["State", "Graph", "Runs"]) {
        await page.locator("header.bar").getByRole("button", { name: panel, exact: true }).click();
        await page.locator(`aside[aria-label="${panel.toLowerCase()}"] :is(.steps li, .graph .node, .runs li)`).first().waitFor();
        await studio.accessible(panel);
      }
      await page.goto(`${BASE_URL}/studio/`);
      await studio.begin("hitl", 'call search {"q": "cats"}');
      await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
      await studio.accessible("a question");
      for (const path of ["approvals", "threads", "runs", "graphs", "store", "crons", "connect", ...own, "nowhere"]) {
        await page.goto(`${BASE_URL}/studio/${path}`);
        await page.locator("h1").waitFor();
        if (path === "graphs") await page.locator(".graph .node").first().waitFor();
        if (path === "approvals") await page.locator(".question").first().waitFor();
        await studio.accessible(path);
      }
    }, { options: { colorScheme } });

  /** What each page has when it is there. */
  const ready = (thread, run) => ({
    "": ".choice",
    [`t/${thread}`]: ".transcript .message",
    [`t/${thread}?panel=state`]: ".steps li",
    [`t/${thread}?panel=graph`]: ".graph .node",
    [`t/${thread}?panel=runs`]: ".panel .runs li",
    [`compare?a=thread:${thread}&b=run:${thread}/${run}`]: ".compare details",
    compare: ".columns li",
    try: '[aria-label="First version"] option',
    approvals: ".question, .empty",
    threads: "[data-thread]",
    runs: "[data-run]",
    graphs: ".graph .node",
    store: "main .tabs, .empty, main form",
    crons: "article.card, .empty",
    connect: "pre",
    ...(recorded && { [`t/${thread}?panel=search`]: '.panel input[type="search"]', [`r/${run}`]: ".span-row", usage: ".figures", servers: "[data-server]", logs: ".log-lines li", health: ".findings li" }),
  });

  for (const colorScheme of ["light", "dark"])
    for (const width of [320, 768, 1920])
      journey(`nothing is wider than a screen of ${width} pixels, and axe finds nothing, ${colorScheme}`, async (studio, page) => {
        await studio.begin("agent", 'call search {"q": "cats"}');
        await page.getByText("tool said").waitFor();
        await studio.idle();
        const thread = studio.thread;
        const [{ run_id }] = await studio.rest(`/threads/${thread}/runs`);
        for (const [path, there] of Object.entries(ready(thread, run_id))) {
          await page.goto(`${BASE_URL}/studio/${path}`);
          await page.locator(there).first().waitFor({ state: "attached" });
          assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `/studio/${path}`);
          await studio.accessible(`${path}, ${width} pixels`);
        }
      }, { options: { viewport: { width, height: 700 }, colorScheme } });
});

// Hundreds of threads that change push those of other journeys out of what the list has loaded.
describe("the studio with hundreds of threads", { skip }, () => {
  journey("three hundred stuck runs are cancelled at once, those that the page does not show too", async (studio, page) => {
    if (!recorded) return;
    const threads = await begun("memory", 300);
    const one = (await studio.rest(`/threads/${threads[0]}/runs`))[0]; // of another status than the filter selects
    await fetch(`${BASE_URL}/threads/${threads[0]}/runs/${one.run_id}/cancel`, { method: "POST" });
    await page.goto(`${BASE_URL}/studio/runs?status=pending&graph=memory`);
    await page.locator("[data-run]").first().waitFor();
    assert.ok((await page.locator("[data-run]").count()) < 299, "the page shows some of them");
    const { count } = await studio.rest("/understudy/runs/count?status=pending&graph_id=memory");
    assert.ok(count >= 299);
    await page.getByRole("button", { name: "Cancel all that match…" }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel all that match" });
    await dialog.getByText(`${count} pending runs of memory will be cancelled`).waitFor();
    const [later] = await begun("memory", 1); // after the count: nobody agreed to this one
    const progress = page.evaluate(() => new Promise((resolve) => new MutationObserver(() => document.querySelector("progress") && resolve(true)).observe(document.body, { childList: true, subtree: true })));
    await dialog.getByRole("button", { name: `Cancel ${count} runs` }).click();
    assert.ok(await progress);
    await dialog.getByText(`${count} runs cancelled.`).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.locator(`li a[href*="${later}"]`).first().waitFor();
    await eventually(async () => assert.equal(await page.locator("[data-run]").count(), 1));
    const statuses = await Promise.all(threads.map(async (id) => (await studio.rest(`/threads/${id}/runs`))[0].status));
    assert.deepEqual(new Set(statuses), new Set(["interrupted"]));
    await fetch(`${BASE_URL}/runs/cancel`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ thread_id: later, run_ids: [(await studio.rest(`/threads/${later}/runs`))[0].run_id] }) });
  });
});
