// A person who has no mouse: nothing is clicked, and nothing gets the focus but by keys.
import assert from "node:assert/strict";
import { eventually } from "./browser.mjs";

/** The keys of a person, and where they lead. */
export class Keys {
  constructor(page) {
    this.page = page;
  }

  async press(...keys) {
    for (const key of keys) await this.page.keyboard.press(key);
  }

  /** Whether the focus is on an element, where a person sees it. */
  async on(locator) {
    return locator.evaluate((e) => e === document.activeElement && (e.matches(":focus-visible") || e.localName === "main"));
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

  /** From the beginning of a page past its lists of pages and threads. A page that has a message to write begins there, and Escape leaves it. */
  async skipToPage() {
    const main = this.page.locator("main");
    await main.waitFor();
    if (await this.page.evaluate(() => document.activeElement !== document.body)) await this.press("Escape");
    else {
      await this.to(this.page.getByRole("link", { name: "Skip to the page" }), "Tab", 1);
      await this.press("Enter");
    }
    await this.arrives(main);
  }

  /** From the first page to another, by the letter after g. */
  async go(letter) {
    await this.arrives(this.page.getByRole("textbox", { name: "Message" }));
    await this.press("Escape", "g", letter);
  }

  button(name, within = this.page) {
    return within.getByRole("button", { name, exact: typeof name === "string" });
  }

  /** Chooses an assistant on the first page, and says something to it. */
  async begin(assistant, text) {
    const radios = this.page.getByRole("radio");
    await radios.first().waitFor();
    await this.arrives(this.page.getByRole("textbox", { name: "Message" })); // who has nothing to choose may write at once
    await this.back(this.page.getByRole("radio", { checked: true }));
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
