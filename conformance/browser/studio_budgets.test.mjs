// What the pages of the studio may cost: work for a frame and memory, measured by the browser's own trace in time of the processor, so that a busy machine changes
// little. It takes half a minute, and runs with UNDERSTUDY_TEST_ALL=1. The sizes of the pages are checked by ui/check.mjs.
//   UNDERSTUDY_TEST_ALL=1 BASE_URL=http://127.0.0.1:2024 node --test studio_budgets.test.mjs
import { describe } from "node:test";
import assert from "node:assert/strict";
import { BASE_URL, eventually, words } from "./browser.mjs";
import { journey, skip, tracing } from "./studio.mjs";

/**
 * Milliseconds of the processor: of the tasks for a frame, for 95 of 100 of them, and of any task. 8 for a frame is the goal; docs/performance.md says what a frame
 * consists of. The limit leaves room for a machine whose caches others use as well.
 */
const limits = { frame: 14, task: 50 };
/** Megabytes that a long stream may leave. */
const memory = 20;

/** Checks what the page did between two moments. */
function within(what, { frames, longest }) {
  frames.sort((a, b) => a - b);
  const p95 = frames[Math.floor(frames.length * 0.95)] ?? 0;
  console.log(`# ${what}: ${frames.length} frames, ${p95.toFixed(1)} ms for a frame at p95, the longest task ${longest.toFixed(1)} ms`);
  assert.ok(frames.length > 10, `${what}: there are frames`);
  assert.ok(p95 <= limits.frame, `${what}: ${p95.toFixed(1)} ms for a frame at p95, more than ${limits.frame}`);
  assert.ok(longest <= limits.task, `${what}: a task of ${longest.toFixed(1)} ms, more than ${limits.task}`);
}

async function heap(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  const { usedSize } = await session.send("Runtime.getHeapUsage");
  await session.detach();
  return usedSize / 1e6;
}

describe("the budgets of the studio", { concurrency: 1, skip: skip || (process.env.UNDERSTUDY_TEST_ALL ? false : "UNDERSTUDY_TEST_ALL is not set") }, () => {
  journey("thousands of tokens arrive", async (studio, page) => {
    await studio.begin("tokens", "say 3000");
    const said = async () => ((await studio.shown()).at(-1)?.[1] ?? "").split(" ").length;
    await eventually(async () => assert.ok((await said()) > 100));
    const before = await heap(page);
    const done = await tracing(page);
    await eventually(async () => assert.ok((await said()) > 2_000));
    within("tokens", await done());
    await eventually(async () => assert.equal((await studio.shown()).at(-1)[1], words(3000)));
    await studio.idle();
    const grown = (await heap(page)) - before;
    console.log(`# tokens: ${grown.toFixed(1)} MB more`);
    assert.ok(grown <= memory, `${grown} MB more`);
  });

  journey("a long conversation with thousands of tool calls is read", async (studio, page) => {
    const { thread_id: thread } = await studio.rest("/threads", { metadata: { graph_id: "agent" } });
    const messages = [];
    for (let i = 0; i < 1_000; i++) {
      const calls = Array.from({ length: 5 }, (_, n) => ({ id: `c${i}-${n}`, name: "search", args: { q: `cats ${i} ${n}` } }));
      messages.push({ id: `h${i}`, type: "human", content: `question ${i}` }, { id: `a${i}`, type: "ai", content: `**answer** ${i}`, tool_calls: calls });
      for (const { id } of calls) messages.push({ id: `t${id}`, type: "tool", tool_call_id: id, name: "search", content: `Found ${i} results` });
    }
    messages.push({ id: "end", type: "ai", content: "the end" });
    await studio.rest(`/threads/${thread}/state`, { values: { messages }, as_node: "model" });
    await page.goto(`${BASE_URL}/studio/t/${thread}`);
    await page.getByText("the end", { exact: true }).waitFor();
    const before = await heap(page);
    await page.getByRole("log").focus();
    const done = await tracing(page);
    for (let n = 0; n < 60; n++) {
      const top = await page.getByRole("log").evaluate((e) => e.scrollTop);
      await page.keyboard.press("PageUp");
      await eventually(async () => assert.ok((await page.getByRole("log").evaluate((e) => e.scrollTop)) !== top));
    }
    within("scrolling", await done());
    assert.ok((await page.locator(".transcript .message").count()) <= 40, "only what is visible is in the document");
    const grown = (await heap(page)) - before;
    console.log(`# scrolling: ${grown.toFixed(1)} MB more`);
    assert.ok(grown <= memory, `${grown} MB more`);
  });
});
