// The journeys of studio.test.mjs by keyboard alone: nothing is clicked, and nothing gets the focus but by keys.
//   BASE_URL=http://127.0.0.1:2024 node --test studio_keyboard.test.mjs
import { describe } from "node:test";
import assert from "node:assert/strict";
import { BASE_URL, eventually, words } from "./browser.mjs";
import { begun, journey, recorded, skip } from "./studio.mjs";

/** The keys of a person, and where they lead. */
class Keys {
  constructor(studio) {
    this.studio = studio;
    this.page = studio.page;
  }

  async press(...keys) {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  /** Whether the focus is on an element, where a person sees it. */
  async on(locator) {
    return locator.evaluate((e) => e === document.activeElement && e.matches(":focus-visible"));
  }

  /** Moves the focus to an element with a key, at most so often, and returns how often it was. */
  async to(locator, key = "Tab", most = 80) {
    await locator.waitFor();
    for (let n = 0; n <= most; n++) {
      if (await this.on(locator)) return n;
      await this.press(key);
    }
    assert.fail(`${most} times ${key} do not lead to ${locator}, but to ${await this.at()}`);
  }

  back(locator, most) {
    return this.to(locator, "Shift+Tab", most);
  }

  /** Waits until the page has moved the focus to an element. */
  async arrives(locator) {
    await eventually(async () => assert.ok(await this.on(locator), `the focus is on ${await this.at()}`));
  }

  async at() {
    return this.page.evaluate(() => document.activeElement?.outerHTML.slice(0, 200));
  }

  async skipToPage() {
    await this.press("Home");
    await this.page.evaluate(() => document.activeElement?.blur()); // a page that is just opened
    await this.to(this.page.getByRole("link", { name: "Skip to the page" }), "Tab", 1);
    await this.press("Enter");
  }

  button(name, within = this.page) {
    return within.getByRole("button", { name, exact: typeof name === "string" });
  }

  /** Chooses an assistant on the first page, and says something to it. */
  async begin(assistant, text) {
    const radios = this.page.getByRole("radio");
    await this.to(this.page.getByRole("radio", { checked: true }));
    const wanted = this.page.getByRole("radio", { name: new RegExp(`^${assistant}\\b`) });
    await this.to(wanted, "ArrowRight", await radios.count());
    assert.equal(await wanted.getAttribute("aria-checked"), "true", "arrows choose");
    await this.say(text);
    await this.page.waitForURL(/\/t\//);
  }

  async say(text) {
    await this.to(this.page.getByRole("textbox", { name: "Message" }));
    await this.page.keyboard.type(text);
    await this.press("Enter");
  }
}

const walk = (name, body, options) => journey(`by keyboard: ${name}`, (studio, page) => body(new Keys(studio), studio, page), options);

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
    await keys.arrives(page.getByRole("heading", { name: "Runs" }));
    const statuses = await Promise.all(threads.map(async (id) => (await studio.rest(`/threads/${id}/runs`))[0].status));
    assert.deepEqual(new Set(statuses), new Set(["interrupted"]));
  });
});
