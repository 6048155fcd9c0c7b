// The journeys of studio.test.mjs by keyboard alone: nothing is clicked, and nothing gets the focus but by keys.
//   BASE_URL=http://127.0.0.1:2024 node --test studio_keyboard.test.mjs
import { describe } from "node:test";
import assert from "node:assert/strict";
import { BASE_URL, eventually, words } from "./browser.mjs";
import { Keys } from "./keys.mjs";
import { begun, journey, recorded, skip } from "./studio.mjs";

const walk = (name, body, options) => journey(`by keyboard: ${name}`, (studio, page) => body(new Keys(page), studio, page), options);

describe("the studio by keyboard", { concurrency: 2, skip }, () => {
  walk("hundreds of runs are cancelled, those that the page does not show too", async (keys, studio, page) => {
    if (!recorded) return;
    const threads = await begun("kinds", 120);
    await page.goto(`${BASE_URL}/studio/runs?status=pending&graph=kinds`);
    await page.locator(`[data-run]`).first().waitFor();
    const open = keys.button("Cancel all that match…");
    await keys.skipToPage();
    await keys.to(open, "Tab", 8);
    await keys.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Cancel all that match" });
    await dialog.getByText(/^\d+ pending runs of kinds will be cancelled/).waitFor();
    // The focus stays inside, and returns to where it was.
    for (let n = 0; n < 5; n++) {
      await keys.press("Tab");
      assert.ok(await page.evaluate(() => document.activeElement === document.body || document.querySelector("dialog").contains(document.activeElement)), await keys.at());
    }
    await keys.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await keys.arrives(open);
    await keys.press("Enter");
    await keys.to(dialog.getByRole("button", { name: /^Cancel \d+ runs/ }), "Tab", 3);
    await studio.accessible("what cancels many");
    await keys.press("Enter");
    await dialog.getByText(/^\d+ runs cancelled\./).waitFor();
    await keys.arrives(dialog.getByRole("button", { name: "Close" }));
    await keys.press("Enter");
    await dialog.waitFor({ state: "detached" });
    await page.getByText("No run is like this").waitFor();
    await keys.arrives(page.locator("main")); // the button is gone, because nothing is left to cancel
    const statuses = await Promise.all(threads.map(async (id) => (await studio.rest(`/threads/${id}/runs`))[0].status));
    assert.deepEqual(new Set(statuses), new Set(["interrupted"]));
  });

  walk("something is said, its words come one by one, and the graph lights up", async (keys, studio, page) => {
    await keys.begin("tokens", "say 300");
    await keys.back(keys.button("Graph"), 40);
    await keys.press("Enter");
    await studio.expect([["human", "say 300"], ["ai", words(300)]]);
    await page.locator('.graph [data-state="done"]').first().waitFor();
    await page.reload();
    await studio.expect([["human", "say 300"], ["ai", words(300)]]);
    // A long answer is stopped from wherever the focus is in its thread.
    await keys.skipToPage();
    await keys.say("say 8000");
    await eventually(async () => assert.match((await studio.shown()).at(-1)?.[1] ?? "", / w20\b/));
    await keys.back(keys.button("State", page.locator("header.bar")), 40);
    await keys.press("Escape");
    await studio.idle();
    await page.locator(".tag", { hasText: "cut off" }).waitFor();
  });

  walk("a long talk is condensed, and its summary is read", async (keys, studio, page) => {
    await keys.begin("summarizing", "say 1");
    for (const n of [2, 3, 4]) {
      await eventually(async () => assert.deepEqual((await studio.shown()).filter(([kind]) => kind !== "marker").at(-1), ["ai", words(n - 1)]));
      await studio.idle();
      await keys.say(`say ${n}`);
    }
    await eventually(async () => assert.deepEqual((await studio.shown()).at(-1), ["ai", words(4)]));
    await studio.idle();
    await page.reload();
    await page.locator("details.marker > summary").first().waitFor();
    await keys.skipToPage();
    await keys.to(page.locator("details.marker > summary").first(), "Tab", 40);
    await keys.press("Enter");
    await page.getByText("The model sees this summary").first().waitFor();
  });

  walk("a tool call is approved with edited arguments, after a reload", async (keys, studio, page) => {
    await keys.begin("hitl", 'call search {"q": "cats"}');
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
    await keys.skipToPage();
    const question = page.locator(".question");
    await keys.to(keys.button("Edit", question), "Tab", 40);
    await keys.press("Enter");
    await keys.arrives(page.getByRole("textbox", { name: "Arguments" }));
    await keys.to(keys.button("Back", question), "Tab", 3);
    await keys.press("Enter");
    await keys.arrives(keys.button("Edit", question));
    await keys.press("Enter", "Control+a");
    await page.keyboard.type('{"q": "dogs"}');
    await keys.to(page.getByRole("button", { name: "Approve with these arguments" }), "Tab", 2);
    await keys.press("Enter");
    await eventually(async () => assert.match((await studio.shown()).at(-1)[1], /Found 10 results for dogs$/));
    await eventually(async () => assert.ok(await page.evaluate(() => document.querySelector(".talk").contains(document.activeElement)), "the focus stays in the thread"));
    await keys.to(page.getByRole("textbox", { name: "Message" }), "Tab", 10);
  });

  walk("a failed run is found by a word of its thread, run again from before its failure, and compared", async (keys, studio, page) => {
    if (!recorded) return;
    const word = `broken${Date.now()}`;
    const { thread_id } = await studio.rest("/threads", { metadata: { title: `The ${word} one` } });
    const { run_id } = await studio.rest(`/threads/${thread_id}/runs`, { assistant_id: "failing", input: { kind: "value" } });
    await page.locator(`.sidebar a[href$="${thread_id}"] .status`, { hasText: "error" }).waitFor();
    await keys.press("Escape", "/");
    await page.keyboard.type(word);
    await eventually(async () => assert.equal(await page.locator(".sidebar > ul > li").count(), 1));
    await keys.to(page.locator(`.sidebar a[href$="${thread_id}"]`), "Tab", 3);
    await keys.press("Enter");
    await page.waitForURL(new RegExp(thread_id));
    await page.getByRole("heading", { name: new RegExp(word) }).waitFor();
    await keys.to(keys.button("Runs", page.locator("header.bar")), "Tab", 30);
    await keys.press("Enter");
    await keys.to(page.locator("aside .runs a", { hasText: "timeline" }).first(), "Tab", 40);
    await keys.press("Enter");
    await page.waitForURL(new RegExp(`/r/${run_id}`));
    await keys.to(keys.button("Go to the failure"), "Tab", 40);
    await keys.press("Enter");
    const detail = page.getByRole("complementary", { name: "Span" });
    await detail.getByRole("heading", { name: "ValueError" }).waitFor();
    // The list of spans is one stop, in which keys choose.
    await keys.to(page.locator(".span-list"), "Tab", 5);
    await keys.press("k");
    await detail.getByRole("heading", { name: "ok", exact: true }).waitFor();
    await keys.press("j");
    await detail.getByRole("heading", { name: "boom", exact: true }).waitFor();
    await keys.to(detail.getByRole("link", { name: "The checkpoint before it" }), "Tab", 12);
    await keys.press("Enter");
    await page.waitForURL(new RegExp(`/t/${thread_id}.*checkpoint=`));
    const tab = (name) => page.getByRole("tab", { name });
    await keys.to(tab("values"), "Tab", 80);
    await keys.press("ArrowRight", "ArrowRight");
    await keys.arrives(tab("edit"));
    await keys.to(page.getByRole("textbox", { name: "Values" }), "Tab", 6);
    await keys.press("Control+a");
    await page.keyboard.type('{"kind": "none"}');
    await keys.press("Tab");
    await page.keyboard.type("ok");
    await keys.press("Tab", "Enter");
    await page.locator(".steps .current", { hasText: "update" }).waitFor();
    await keys.to(keys.button("Run from here"), "Tab", 12);
    await keys.press("Enter");
    await eventually(async () => assert.deepEqual((await studio.rest(`/threads/${thread_id}/state`)).values.items, ["ok", "survived"]));
    await studio.idle();
    await keys.press("g", "r");
    await page.waitForURL(/\/runs$/);
    const line = page.locator(`[data-run="${run_id}"]`);
    await keys.skipToPage();
    await keys.to(line.getByRole("button", { name: "Compare with another" }), "Tab", 300);
    await keys.press("Enter");
    const [again] = await studio.rest(`/threads/${thread_id}/runs`);
    await keys.back(page.locator(`[data-run="${again.run_id}"]`).getByRole("button", { name: /^Compare with run/ }), 300); // other tests have runs too
    await keys.press("Enter");
    await page.waitForURL(/\/compare\?/);
    await page.getByRole("row", { name: /^time/ }).waitFor();
    // And without the panel of the thread: a menu, with its arrows, where its focus was.
    await keys.press("g", "t");
    const more = page.locator(".sidebar li", { has: page.locator(`a[href$="${thread_id}"]`) }).getByRole("button", { name: /Actions/ });
    await keys.to(more, "Tab", 60);
    await keys.press("Enter");
    await keys.arrives(page.getByRole("menuitem", { name: "Rename" }));
    await keys.press("End");
    await keys.arrives(page.getByRole("menuitem", { name: "Delete" }));
    await keys.press("Escape");
    await keys.arrives(more);
    await keys.press("Enter", "Enter", "Control+a");
    await page.keyboard.type(`The mended ${word}`);
    await keys.press("Enter");
    await keys.arrives(more);
    await page.locator(".sidebar .title", { hasText: `The mended ${word}` }).waitFor();
  });

  walk("an edited message begins a branch, and both stay", async (keys, studio, page) => {
    await keys.begin("agent", "say 1");
    const before = [];
    for (let n = 1; n <= 4; n++) {
      before.push(["human", `say ${n}`], ["ai", words(n)]);
      await studio.expect(before);
      if (n < 4) await keys.say(`say ${n + 1}`);
    }
    await keys.back(keys.button("Edit", studio.message(4)), 30); // the third question
    await keys.press("Enter");
    await keys.arrives(page.getByRole("textbox", { name: "Edited message" }));
    await keys.press("Escape");
    await keys.arrives(keys.button("Edit", studio.message(4)));
    await keys.press("Enter", "Control+a");
    await page.keyboard.type("say 7");
    await keys.to(keys.button("Send", studio.message(4)), "Tab", 2);
    await keys.press("Enter");
    const edited = [...before.slice(0, 4), ["human", "say 7"], ["ai", words(7)]];
    await studio.expect(edited);
    await page.getByText("2 of 2").waitFor();
    await keys.to(keys.button("Previous branch"), "Tab", 60);
    await keys.press("Enter");
    await studio.expect(before);
    await keys.to(keys.button("Back to the newest"), "Shift+Tab", 60);
    await keys.press("Enter");
    await studio.expect(edited);
    // The last question, by one key.
    await keys.press("Escape");
    await keys.to(keys.button("State", page.locator("header.bar")), "Tab", 20);
    await keys.press("e");
    await keys.arrives(page.getByRole("textbox", { name: "Edited message" }));
  });

  walk("ten thousand messages: opened at the end, read from the beginning, searched", async (keys, studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
    const messages = Array.from({ length: 10_000 }, (_, i) => ({ id: `m${i}`, type: i % 2 ? "ai" : "human", content: i === 9_700 ? "a needle of hay" : `message ${i}` }));
    await studio.rest(`/threads/${thread}/state`, { values: { messages }, as_node: "model" });
    await page.goto(`${BASE_URL}/studio/t/${thread}`);
    await page.getByText("message 9999", { exact: true }).waitFor();
    await keys.skipToPage();
    const log = page.getByRole("log");
    await keys.to(log, "Tab", 20);
    await keys.press("PageUp", "PageUp");
    await eventually(async () => assert.equal(await page.getByText("message 9999", { exact: true }).count(), 0));
    await keys.press("End");
    await page.getByText("message 9999", { exact: true }).waitFor();
    await keys.to(page.getByRole("textbox", { name: "Message" }), "Tab", 120);
    await keys.back(keys.button("Beginning"), 3);
    await keys.press("Enter");
    await page.locator(".transcript").getByText("message 0", { exact: true }).waitFor();
    if (!(await fetch(`${BASE_URL}/understudy/threads/search?text=x`)).ok) return; // a proxy has no such search
    await keys.back(keys.button("Search", page.locator("header.bar")), 200);
    await keys.press("Enter");
    await keys.to(page.getByRole("searchbox", { name: "Find in this thread" }), "Tab", 200);
    await page.keyboard.type("needle");
    await keys.to(page.locator("aside .found a").first(), "Tab", 5);
    await keys.press("Enter");
    await page.locator(".message.at", { hasText: "a needle of hay" }).waitFor();
  });

  walk("a run stops at a breakpoint, and goes one step", async (keys, studio, page) => {
    const call = 'call search {"q": "cats"}';
    await keys.begin("agent", call);
    const whole = [["human", call], ["ai", ""], ["ai", "tool said: Found 10 results for cats"]];
    await studio.expect(whole);
    await keys.back(keys.button("State", page.locator("header.bar")), 40);
    await keys.press("Enter");
    const state = page.getByRole("region", { name: "State" });
    const steps = page.getByRole("list", { name: "Checkpoints" });
    await eventually(async () => assert.equal(await steps.getByRole("button").count(), 5));
    await keys.to(steps, "Tab", 40);
    await keys.press("j", "j", "j"); // before the model answers
    await state.getByText("Next: model").waitFor();
    await keys.to(state.locator("summary", { hasText: "Breakpoints, input" }), "Tab", 40);
    await keys.press("Enter");
    const stop = state.getByRole("checkbox", { name: "Stop before tools" });
    await keys.to(stop, "Tab", 10);
    await keys.press("Space");
    assert.ok(await stop.isChecked());
    await keys.back(keys.button("Run from here", state), 10);
    await keys.press("Enter");
    await state.getByText("Next: tools").waitFor();
    await studio.expect(whole.slice(0, 2));
    await keys.to(keys.button("One step", state), "Tab", 80);
    await keys.press("Enter");
    await state.getByText("Next: model").waitFor();
    await keys.to(keys.button("Run from here", state), "Tab", 80);
    await keys.press("Enter");
    await studio.expect(whole);
  });

  walk("a node of a graph, its state in and out, and the timeline of a run that came there", async (keys, studio, page) => {
    if (!recorded) return;
    const { thread_id } = await studio.rest("/threads", {});
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "agent", input: { messages: [{ role: "user", content: "say 2" }] } });
    const [{ run_id }] = await studio.rest(`/threads/${thread_id}/runs`);
    await page.goto(`${BASE_URL}/studio/t/${thread_id}?panel=graph`);
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
    await keys.skipToPage();
    await keys.to(page.locator('.graph [data-node="model"]'), "Tab", 60);
    await keys.press("Enter");
    const line = page.locator(`[data-execution="${run_id}"]`);
    await keys.to(keys.button("State", line), "Tab", 20);
    await keys.press("Enter");
    await line.getByRole("region", { name: "State out" }).getByText("w0 w1").first().waitFor();
    await keys.to(line.getByRole("link", { name: "timeline" }), "Tab", 20);
    await keys.press("Enter");
    await page.getByRole("complementary", { name: "Span" }).getByRole("heading", { name: "model", exact: true }).waitFor();
    await page.goBack();
    await page.getByRole("region", { name: "Node model" }).waitFor();
    await keys.skipToPage();
    await keys.to(page.getByRole("region", { name: "Node model" }).getByRole("button", { name: "Close" }), "Tab", 80);
    await keys.press("Enter");
    await page.getByRole("region", { name: "Node model" }).waitFor({ state: "detached" });
    await keys.arrives(page.locator('.graph [data-node="model"]'));
  });

  walk("the next times of a schedule", async (keys, studio, page) => {
    if (!recorded) return;
    const [{ assistant_id }] = await studio.rest("/assistants/search", { graph_id: "agent", metadata: { created_by: "system" } });
    const schedule = `${Math.floor(Math.random() * 60)} 6 * * 4`;
    const { cron_id } = await studio.rest("/runs/crons", { assistant_id, schedule, timezone: "Asia/Kolkata", input: { messages: [{ role: "user", content: "say 2" }] } });
    try {
      await keys.go("c");
      await page.waitForURL(/\/crons$/);
      const card = page.locator("article.card", { hasText: schedule }).first();
      await card.waitFor();
      await keys.skipToPage();
      await keys.to(card.locator("summary", { hasText: "Next times" }), "Tab", 400);
      await keys.press("Enter");
      await eventually(async () => assert.equal(await card.getByRole("list", { name: "Next times" }).getByRole("time").count(), 5));
    } finally {
      await fetch(`${BASE_URL}/runs/crons/${cron_id}`, { method: "DELETE" });
    }
  });

  walk("the checks of Health, and what they ask is copied as curl", async (keys, studio, page) => {
    if (!recorded) return;
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await keys.go("h");
    await page.waitForURL(/\/health$/);
    await page.locator('[data-check="config"].is-ok').first().waitFor();
    await keys.skipToPage();
    const copy = page.getByRole("button", { name: "Copy as curl, Python or JavaScript" });
    await keys.to(copy, "Tab", 10);
    await keys.press("Enter");
    const item = (name) => page.getByRole("menuitem", { name });
    await keys.arrives(item("curl"));
    await keys.press("Escape");
    await keys.arrives(copy);
    await keys.press("Enter");
    await keys.arrives(item("curl"));
    await keys.to(item("JavaScript"), "ArrowDown", 2);
    await keys.to(item("curl"), "ArrowUp", 2);
    await keys.press("Enter");
    await page.getByRole("status").filter({ hasText: "Copied" }).first().waitFor();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^curl .*doctor/s);
    await keys.arrives(copy);
    await keys.to(keys.button("Check again"), "Tab", 3);
    await keys.press("Enter");
    await keys.button("Checking…").waitFor();
    await page.locator('[data-check="config"].is-ok').first().waitFor();
    await keys.arrives(keys.button("Check again"));
  });

  walk("how programs connect to an assistant", async (keys, studio, page) => {
    await keys.go("o");
    await page.waitForURL(/\/connect/);
    const shown = page.getByRole("region", { name: "From a program" }).locator("pre");
    await shown.waitFor();
    await keys.skipToPage();
    const assistants = page.getByRole("combobox", { name: "Assistant" });
    await keys.to(assistants, "Tab", 5);
    await page.keyboard.type("pipeline");
    await shown.filter({ hasText: "pipeline" }).waitFor();
    await keys.to(page.getByRole("tab", { selected: true }), "Tab", 5);
    const before = await page.getByRole("tab", { selected: true }).textContent();
    await keys.press("ArrowRight");
    await eventually(async () => assert.notEqual(await page.getByRole("tab", { selected: true }).textContent(), before));
    await keys.arrives(page.getByRole("tab", { selected: true }));
    await keys.to(shown, "Tab", 2); // long lines are scrolled with arrows
    await keys.to(page.getByRole("region", { name: "From a program" }).getByRole("button", { name: /^Copy/ }), "Tab", 2);
  });

  walk("columns are made wider, folded, and keep their sizes", async (keys, studio, page) => {
    await keys.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    await page.goto(`${page.url().split("?")[0]}?panel=state`);
    const widths = () => page.evaluate(() => ["nav.sidebar", "main > .panel"].map((of) => Math.round(document.querySelector(of).getBoundingClientRect().width)));
    const [threads, panel] = ["Width of the threads", "Width of the panel"].map((name) => page.getByRole("separator", { name }));
    await panel.waitFor();
    await page.getByRole("heading", { level: 1, name: /\S/ }).waitFor(); // the thread is read
    const before = await widths();
    await studio.accessible("columns as they are at first");
    await panel.focus();
    await keys.press("ArrowLeft", "ArrowLeft");
    assert.deepEqual(await widths(), [before[0], before[1] + 48]);
    await threads.focus();
    await keys.press("ArrowRight");
    assert.deepEqual(await widths(), [before[0] + 24, before[1] + 48]);
    await studio.accessible("columns");
    await page.reload();
    await panel.waitFor();
    assert.deepEqual(await widths(), [before[0] + 24, before[1] + 48], "they are kept");
    await threads.focus();
    await keys.press("Enter");
    assert.equal((await widths())[0], 0);
    await page.locator("nav.sidebar a").first().waitFor({ state: "hidden" });
    await keys.press("Home");
    await panel.focus();
    await keys.press("Home");
    assert.deepEqual(await widths(), before);
    // By mouse as well.
    const edge = await panel.boundingBox();
    await page.mouse.move(edge.x + 4, 300);
    await page.mouse.down();
    await page.mouse.move(edge.x - 96, 300, { steps: 4 });
    await page.mouse.up();
    const [, wider] = await widths();
    assert.ok(Math.abs(wider - before[1] - 100) < 8, `${wider}`);
    await page.reload();
    await panel.waitFor();
    assert.equal((await widths())[1], wider, "what was dragged is kept");
    // The edge of a span.
    const [{ run_id }] = await studio.rest(`/threads/${studio.thread}/runs`);
    if (!(await fetch(`${BASE_URL}/understudy/runs/${run_id}/spans`)).ok) return;
    await page.goto(`${BASE_URL}/studio/r/${run_id}`);
    await page.locator("[data-span]").first().click();
    const span = page.getByRole("separator", { name: "Width of the span" });
    const width = () => page.locator("aside.span-detail").evaluate((e) => Math.round(e.getBoundingClientRect().width));
    await span.waitFor();
    const first = await width();
    await span.focus();
    await keys.press("ArrowLeft");
    assert.equal(await width(), first + 24);
  });

  walk("commands are found by their names: a page, a thread, and what the page can do", async (keys, studio, page) => {
    const title = `command ${Math.random().toString(36).slice(2)}`;
    const { thread_id } = await studio.rest("/threads", { metadata: { title, graph_id: "agent" } });
    await page.locator(`.sidebar a[href$="${thread_id}"]`).waitFor();
    const field = page.getByRole("combobox", { name: "Command" });
    const find = async (words) => {
      await keys.press("Control+k");
      await keys.arrives(field);
      await page.keyboard.type(words);
    };
    await find(title);
    await studio.accessible("commands");
    await keys.press("Enter");
    await page.waitForURL(new RegExp(thread_id));
    await find("state this");
    await keys.press("Enter");
    await page.locator('aside[aria-label="state"]').waitFor();
    await find("no such command");
    await page.getByText("Nothing has these words.").waitFor();
    await keys.press("Enter");
    await keys.press("Escape");
    await field.waitFor({ state: "detached" });
    await find("page");
    await keys.press("ArrowDown", "ArrowUp", "ArrowUp");
    assert.equal(await page.getByRole("dialog", { name: "Commands" }).getByRole("option", { selected: true }).count(), 1);
    await keys.press("Control+a");
    await page.keyboard.type("store");
    await keys.press("Enter");
    await page.getByRole("heading", { name: "Store" }).waitFor();
  });

  walk("keys are listed, and the focus returns", async (keys, studio, page) => {
    await page.getByRole("textbox", { name: "Message" }).waitFor();
    await keys.skipToPage();
    await keys.press("?");
    const help = page.getByRole("dialog", { name: "Keys" });
    await help.waitFor();
    await studio.accessible("the list of keys");
    await keys.press("Escape");
    await keys.arrives(page.locator("main"));
  });
});
