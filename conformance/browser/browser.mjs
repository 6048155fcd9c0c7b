// Chromium, a page in it, and what a person can see and do there.
import { existsSync, mkdirSync } from "node:fs";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

export const BASE_URL = process.env.BASE_URL ?? "http://127.0.0.1:2024";
const SECONDS = Number(process.env.BROWSER_SECONDS ?? 60);

/** Starts the Chromium of the system; CHROMIUM names another. */
export async function launch() {
  const folders = process.env.PATH.split(":");
  const installed = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => folders.map((folder) => `${folder}/${name}`));
  const found = [process.env.CHROMIUM, ...installed].find((path) => path && existsSync(path));
  assert.ok(found, "Chromium is missing; on Debian: apt-get install chromium");
  const quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  return chromium.launch({ executablePath: found, args: [...quiet, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])] });
}

/** Opens a page. BROWSER_SLOWER=8 gives it an eighth of the processor, which shows tests that count on a fast one. */
export async function openPage(context) {
  const page = await context.newPage();
  const rate = Number(process.env.BROWSER_SLOWER ?? 1);
  if (rate > 1) await (await context.newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate });
  page.setDefaultTimeout(SECONDS * 1000);
  return page;
}

/** Polls until the check no longer throws. */
export async function eventually(check) {
  const deadline = Date.now() + SECONDS * 1000;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
  }
}

/** Runs in the page: keeps every list of messages that was on the screen, one after the other. */
function record() {
  window.frames_ = [];
  const look = () => {
    const list = document.getElementById("messages");
    if (!list) return;
    const frame = [...list.children].map((li) => [li.dataset.kind, li.querySelector(".text")?.textContent ?? "", li.dataset.id]);
    if (JSON.stringify(frame) !== JSON.stringify(window.frames_.at(-1))) window.frames_.push(frame);
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
}

/** A page as a person has it open. */
export class Visit {
  static async open(browser, pages, name, query) {
    const context = await browser.newContext({ viewport: { width: 900, height: 900 } });
    const page = await openPage(context);
    const visit = new Visit(page);
    await page.addInitScript(record);
    page.on("pageerror", (error) => visit.errors.push(`uncaught: ${error}`));
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && visit.errors.push(`${message.type()}: ${message.text()}`));
    await page.goto(`${pages.url}/${name}?${new URLSearchParams({ api: BASE_URL, ...query })}`);
    return visit;
  }

  constructor(page) {
    this.page = page;
    this.errors = [];
  }

  async close(name) {
    const folder = process.env.BROWSER_SCREENSHOTS;
    if (folder) {
      mkdirSync(folder, { recursive: true });
      await this.page.screenshot({ path: `${folder}/${name.replace(/[^\w.]+/g, "-")}.png`, fullPage: true });
    }
    await this.page.context().close();
  }

  /** Leaves for another page, or the same again. A page that is left in the middle of a request says that it failed. */
  async leave(go) {
    const before = this.errors.length;
    await go(this.page);
    this.errors.push(...this.errors.splice(before).filter((error) => !/TypeError: network error|Failed to fetch/.test(error)));
  }

  async reload() {
    await this.leave((page) => page.reload());
  }

  get threadId() {
    return new URL(this.page.url()).searchParams.get("thread");
  }

  /** What is on the screen: kind and text of each entry. */
  async shown() {
    return this.page.$$eval("#messages > li", (list) => list.map((li) => [li.dataset.kind, li.querySelector(".text")?.textContent ?? ""]));
  }

  async people() {
    return (await this.shown()).filter(([kind]) => kind !== "marker");
  }

  async markers() {
    return (await this.shown()).filter(([kind]) => kind === "marker").length;
  }

  async values() {
    return JSON.parse(await this.page.textContent("#values"));
  }

  async events(name) {
    return this.page.$$eval(`#events > li[data-name="${name}"]`, (list) => list.map((li) => li.textContent));
  }

  async frames() {
    return this.page.evaluate(() => window.frames_);
  }

  /** The run that the SDK would rejoin, which it keeps while one goes on. */
  async rejoins(thread) {
    return this.page.evaluate((thread) => sessionStorage.getItem(`lg:stream:${thread}`), thread);
  }

  async idle() {
    await eventually(async () => assert.equal(await this.page.getAttribute("#status", "data-status"), "idle"));
  }

  async type(text) {
    await this.idle();
    await this.page.fill("#composer :is(input, textarea)", text);
    await this.page.click("#composer button");
  }

  /** Says something and waits until the conversation is as expected. */
  async say(text, expected) {
    await this.type(text);
    await this.expect(expected);
  }

  async expect(conversation) {
    await eventually(async () => assert.deepEqual(await this.people(), conversation));
    await this.idle();
    assert.deepEqual(await this.people(), conversation, "and it stays so");
  }

  /** Presses a button of the n-th message of a person. */
  async press(n, button) {
    await this.idle();
    await this.page.locator('#messages > li:not([data-kind="marker"])').nth(n).getByRole("button", { name: button }).click();
  }

  async edit(n, text) {
    await this.press(n, "Edit");
    await this.page.fill('#messages [name="draft"]', text);
    await this.page.locator("#messages").getByRole("button", { name: "Save" }).click();
  }

  async rest(path) {
    const answer = await fetch(BASE_URL + path);
    assert.equal(answer.status, 200, path);
    return answer.json();
  }
}

export const words = (n) => Array.from({ length: n }, (_, i) => `w${i}`).join(" ");
export const conversation = (...turns) => turns.flatMap((n) => [["human", `say ${n}`], ["ai", words(n)]]);

/**
 * Every frame is the beginning of the conversation, its last entry perhaps not yet complete: nothing was lost, doubled or shown that nobody said.
 * Where the SDK rejoins a run that has ended meanwhile, it shows the end first and then plays the run from its beginning: `replayed`.
 */
export function assertOnlyGrew(frames, conversation, { replayed = false } = {}) {
  let longest = 0;
  for (const frame of frames) {
    const people = frame.filter(([kind]) => kind !== "marker");
    people.forEach(([kind, text], i) => {
      const [expectedKind, expectedText] = conversation[i] ?? [];
      const last = i === people.length - 1;
      assert.equal(kind, expectedKind, `in ${JSON.stringify(frame)}`);
      assert.ok(last ? expectedText.startsWith(text) : text === expectedText, `in ${JSON.stringify(frame)}`);
    });
    assert.ok(replayed || people.length >= longest, `${longest} entries were shown, then ${JSON.stringify(frame)}`);
    longest = people.length;
  }
}
