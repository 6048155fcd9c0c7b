// The documentation at /docs: its search, its diagrams, and requests that are tried in the reference of the API.
//   BASE_URL=http://127.0.0.1:2024 node --test docs.test.mjs
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { BASE_URL, eventually, launch, openPage } from "./browser.mjs";

// LangGraph Server has a reference of its own, and the proxy forwards it.
const ours = (await fetch(`${BASE_URL}/docs/overlay.html`)).ok;
const skip = ours ? false : "the server has no documentation of ours";

const browser = await launch();
after(() => browser.close());

/** A page of the documentation that must have nothing to complain about. */
async function read(path, body) {
  const page = await openPage(await browser.newContext());
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("request", (request) => request.url().startsWith(BASE_URL) || request.url().startsWith("data:") || errors.push(`loads ${request.url()}`));
  await page.goto(BASE_URL + path);
  await body(page);
  assert.deepEqual(errors, []);
  await page.close();
}

test("search leads to a section", { timeout: 60_000, skip }, () =>
  read("/docs", async (page) => {
    await page.keyboard.press("/");
    await page.keyboard.type("export checkpoints.sqlite");
    await page.locator("#found a", { hasText: "Import and export" }).first().waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/docs\/moving\.html/);
    await page.locator("#search").fill("surely-not-there");
    await page.getByText("Nothing found.").waitFor();
  }));

test("diagrams are drawn", { timeout: 60_000, skip }, () =>
  read("/docs/design.html", async (page) => {
    await page.locator(".mermaid svg .node").first().waitFor(); // a diagram with a mistake has none
  }));

test("a request is tried, with an example of its body", { timeout: 60_000, skip }, () =>
  read("/docs/api.html", async (page) => {
    const operation = page.locator('.opblock:has([data-path="/assistants/search"])');
    await page.locator("#operations-tag-Assistants").click();
    await operation.locator(".opblock-summary").click();
    const body = operation.locator("textarea");
    await eventually(async () => assert.match(await body.inputValue(), /graph_id/));
    await body.fill('{"limit": 1}');
    await operation.getByRole("button", { name: "Execute" }).click();
    await operation.locator(".live-responses-table .response-col_status", { hasText: "200" }).waitFor();
    assert.match(await operation.locator(".live-responses-table").innerText(), /assistant_id/);
  }));
