// The studio as a person has it open, for the journeys of *.test.mjs.
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { BASE_URL, eventually, launch, openPage } from "./browser.mjs";

export const skip = (await fetch(`${BASE_URL}/studio/`)).ok ? false : "the server has no studio";
/** Whether the server has what LangGraph Server does not: a proxy has no spans of what it passes on, and no runs of all threads. */
export const recorded = (await fetch(`${BASE_URL}/understudy/runs?limit=1`)).ok;
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const browser = skip ? null : await launch();
after(() => browser?.close());

/** The studio as a person has it open. Nothing may be loaded from elsewhere, and nothing may be logged as an error. */
export class Studio {
  static async open(path = "", options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    const studio = new Studio();
    studio.page = await openPage(context);
    studio.errors = [];
    studio.page.on("pageerror", (error) => studio.errors.push(`uncaught: ${error}`));
    studio.page.on("console", (message) => ["error", "warning"].includes(message.type()) && studio.errors.push(`${message.type()}: ${message.text()}`));
    studio.page.on("request", (request) => request.url().startsWith(BASE_URL) || /^(data|blob):/.test(request.url()) || studio.errors.push(`loads ${request.url()}`));
    await studio.page.goto(`${BASE_URL}/studio/${path}`);
    return studio;
  }

  get thread() {
    return new URL(this.page.url()).pathname.split("/").at(-1);
  }

  /** Kind and text of what the transcript shows. Markers have the text of their line. */
  async shown() {
    return this.page.$$eval(".transcript [data-kind]", (list) =>
      list.map((e) => [e.dataset.kind, (e.querySelector(e.dataset.kind === "marker" ? "summary" : ":scope > .markdown, :scope > pre")?.textContent ?? "").trim()]),
    );
  }

  async expect(conversation) {
    await eventually(async () => assert.deepEqual(await this.shown(), conversation));
    await this.idle();
    assert.deepEqual(await this.shown(), conversation, "and it stays so");
  }

  async idle() {
    await eventually(async () => assert.notEqual(await this.page.locator("header .status span").first().textContent(), "running"));
  }

  async begin(assistant, text) {
    await this.page.getByRole("radio", { name: new RegExp(`^${assistant}\\b`) }).click();
    await this.type(text);
    await this.page.waitForURL(/\/t\//);
  }

  async type(text) {
    await this.page.getByRole("textbox", { name: "Message" }).fill(text);
    await this.page.keyboard.press("Enter");
  }

  message(n) {
    return this.page.locator(".transcript .message").nth(n);
  }

  async rest(path, body) {
    const response = await fetch(BASE_URL + path, body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    return response.json();
  }

  /** What keeps people out: contrasts, names and roles, by axe. The debugger runs it, because the pages load no scripts of others. */
  async accessible(where) {
    await this.page.evaluate(axe);
    const { violations } = await this.page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }));
    assert.deepEqual(violations.map((v) => `${where}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(" ; ")}`), []);
  }

  async close(name) {
    if (process.env.BROWSER_SCREENSHOTS) {
      mkdirSync(process.env.BROWSER_SCREENSHOTS, { recursive: true });
      await this.page.screenshot({ path: `${process.env.BROWSER_SCREENSHOTS}/studio-${name.replace(/[^\w.]+/g, "-")}.png` });
    }
    await this.page.unrouteAll({ behavior: "ignoreErrors" }); // what a test delays may still be on its way
    await this.page.context().close();
  }
}

/** A test that opens the studio. What it logs as an error fails it. */
export const journey = (name, body, { path = "", options = {} } = {}) =>
  test(name, { timeout: 180_000 }, async () => {
    const studio = await Studio.open(path, options);
    try {
      await body(studio, studio.page);
      assert.deepEqual(studio.errors, []);
    } finally {
      await studio.close(name);
    }
  });

/** Makes so many threads, each with a run of a graph that waits for an hour, and returns their IDs. */
export async function begun(graph, n) {
  const post = async (path, body) => (await fetch(BASE_URL + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();
  const all = [];
  const one = async () => {
    const { thread_id } = await post("/threads", {});
    const { run_id } = await post(`/threads/${thread_id}/runs`, { assistant_id: graph, input: {}, after_seconds: 3600 });
    assert.ok(run_id);
    all.push(thread_id);
  };
  for (let left = n; left > 0; left -= 20) await Promise.all(Array.from({ length: Math.min(20, left) }, one));
  return all;
}

/**
 * Begins to trace a page. The function that it returns ends that, and says what the page's main thread did: the milliseconds of the processor of all tasks between
 * one frame and the next, of the longest task, and of all.
 */
export async function tracing(page) {
  await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"] });
  return async () => {
    const { traceEvents: events } = JSON.parse((await browser.stopTracing()).toString());
    // The thread of the page is the one that draws most frames.
    const drawn = new Map();
    const thread = (e) => `${e.pid} ${e.tid}`;
    for (const e of events) if (e.name === "Commit" && e.ph === "X") drawn.set(thread(e), (drawn.get(thread(e)) ?? 0) + 1);
    const [main] = [...drawn].sort((a, b) => b[1] - a[1])[0] ?? [];
    const own = events.filter((e) => thread(e) === main).sort((a, b) => a.ts - b.ts);
    const frames = [];
    let [work, longest, all] = [0, 0, 0];
    for (const e of own) {
      if (e.name === "Commit" && e.ph === "X") {
        frames.push(work);
        work = 0;
      }
      if (e.name !== "RunTask" || e.ph !== "X") continue;
      const took = (e.tdur ?? e.dur) / 1_000;
      work += took;
      all += took;
      longest = Math.max(longest, took);
    }
    return { frames: frames.slice(1), longest, all };
  };
}
