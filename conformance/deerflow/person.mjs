// People who visit DeerFlow's own web UI, which understudy serves in the Gateway's place: conformance/deerflow/ui starts both. BASE_URL is that of the UI.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { BASE_URL, eventually, openPage } from "../browser/browser.mjs";

const folder = process.env.BROWSER_SCREENSHOTS;
let pictures = 0;

/** A person with a session of their own. */
export class Person {
  static async arrive(browser) {
    const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, locale: "en-US" });
    const person = new Person();
    person.page = await openPage(context);
    person.failures = [];
    person.page.on("response", (res) => {
      const known = person.expected?.some(([status, part]) => res.status() === status && res.url().includes(part));
      if (res.status() >= 400 && !known) person.failures.push(`${res.status()} ${res.request().method()} ${res.url()}`);
    });
    person.page.on("pageerror", (error) => {
      const known = person.expected?.some(([status, part]) => `${error}`.includes(`HTTP ${status}`) && `${error}`.includes(part));
      if (!known) person.failures.push(`uncaught: ${error}`);
    });
    return person;
  }

  /** Ends the visit: no request failed that should not have. */
  async leave() {
    await this.picture("end");
    await this.page.context().close();
    assert.deepEqual(this.failures, []);
  }

  async picture(name) {
    if (!folder) return;
    mkdirSync(folder, { recursive: true });
    await this.page.screenshot({ path: `${folder}/${String(++pictures).padStart(2, "0")}-${name}.png` });
  }

  /** Creates the administrator, unless there is one. */
  async setUp() {
    await this.page.goto(`${BASE_URL}/workspace`);
    await this.page.waitForURL(/\/(login|setup)/);
    const status = await this.api("GET", "/v1/auth/setup-status");
    if (!status.needs_setup) return;
    await this.page.goto(`${BASE_URL}/setup`);
    await this.page.getByPlaceholder("you@example.com").fill("admin@example.com");
    await this.page.getByPlaceholder("Password (min. 8 characters)").fill("correct-horse-battery");
    await this.page.getByPlaceholder("Confirm password").fill("correct-horse-battery");
    await this.page.getByRole("button", { name: "Create Admin Account" }).click();
    await this.input.waitFor();
    await this.page.context().clearCookies();
  }

  async register(email) {
    await this.page.goto(`${BASE_URL}/login`);
    await this.page.getByRole("button", { name: /Don't have an account/i }).click();
    await this.page.locator("input[type=email]").fill(email);
    await this.page.locator("input[type=password]").fill("correct-horse-battery");
    await this.page.locator("button[type=submit]").click();
    await this.input.waitFor();
  }

  async signOutAndIn(email) {
    await this.page.context().clearCookies();
    await this.page.goto(`${BASE_URL}/workspace`);
    await this.page.waitForURL(/\/login/);
    await this.page.locator("input[type=email]").fill(email);
    await this.page.locator("input[type=password]").fill("correct-horse-battery");
    await this.page.locator("button[type=submit]").click();
    await this.input.waitFor();
  }

  get input() {
    return this.page.getByPlaceholder(/how can i assist you/i);
  }

  get submit() {
    return this.page.getByRole("button", { name: "Submit" });
  }

  get list() {
    return this.page.getByTestId("main-message-list");
  }

  async open(thread = "new") {
    await this.page.goto(`${BASE_URL}/workspace/chats/${thread}`);
    await this.input.waitFor();
  }

  get thread() {
    return this.page.url().split("/").pop().split("?")[0];
  }

  /** Sends a message, and waits for the answer's text and for the end of the run. */
  async say(text, answer) {
    await this.input.fill(text);
    await this.input.press("Enter");
    if (answer) await this.sees(answer);
  }

  async sees(...texts) {
    for (const text of texts) await this.list.getByText(text).first().waitFor();
  }

  async idle() {
    await eventually(async () => {
      const runs = await this.api("GET", `/threads/${this.thread}/runs`);
      assert.ok(runs.length > 0 && runs.every((run) => !["pending", "running"].includes(run.status)));
    });
    await this.submit.locator("svg.lucide-arrow-up").waitFor();
  }

  /** What the page itself may ask for, with its cookies. */
  async api(method, path, body) {
    return this.page.evaluate(
      async ([method, path, body]) => {
        const csrf = document.cookie.match(/csrf_token=([^;]*)/)?.[1] ?? "";
        const headers = { "content-type": "application/json", "x-csrf-token": decodeURIComponent(csrf) };
        const res = await fetch(`/api${path}`, { method, headers, body: body && JSON.stringify(body) });
        if (!res.ok) return { failed: res.status, ...(await res.json().catch(() => ({}))) };
        return res.json();
      },
      [method, path, body],
    );
  }
}

/** Returns a function that makes a step of a test. What follows a step that failed has nothing to start from. */
export function stepsOf(t, person) {
  let failed = false;
  return (name, fn) =>
    t.test(name, async (t) => {
      if (failed) return t.skip("a step before failed");
      try {
        await fn();
      } catch (error) {
        failed = true;
        await person.picture("failed");
        throw error;
      }
    });
}
