// Components of graphs (`ui` of langgraph.json) on a page with LoadExternalComponent, in Chromium: directly, and through the proxy. It starts the servers.
//   UNDERSTUDY_BINARY=/path/to/understudy node --test components.test.mjs
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventually, launch, openPage } from "./browser.mjs";
import { bundleComponents, servePages } from "./bundle.mjs";

const skip = process.env.UNDERSTUDY_BINARY ? false : "UNDERSTUDY_BINARY is not set";
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const ends = [];
after(async () => {
  for (const end of ends.reverse()) await end();
});

/** Starts understudy with arguments, in a folder, and gives its address when it answers. */
async function start(folder, ...words) {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  const child = spawn(process.env.UNDERSTUDY_BINARY, [...words, "--port", String(port)], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  ends.push(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "exit");
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually(async () => assert.equal((await fetch(`${url}/ok`)).status, 200));
  return url;
}

/** A copy of ../ui. */
function project() {
  const folder = mkdtempSync(join(tmpdir(), "components-"));
  ends.push(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(here("../ui"), folder, { recursive: true });
  return folder;
}

test("a component on a page of another origin, directly and through the proxy, and again after a change", { skip }, async () => {
  const folder = project();
  const python = execFileSync(here("../setup"), ["python"], { encoding: "utf8" }).trim();
  const direct = await start(folder, "dev", "--python", python);
  const proxied = await start(folder, "proxy", "--upstream", direct, "--data", join(folder, "proxied"));
  const pages = await servePages({ weather: await bundleComponents() });
  ends.push(pages.close);
  const browser = await launch();
  ends.push(() => browser.close());
  for (const api of [direct, proxied]) {
    const page = await openPage(await browser.newContext());
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.goto(`${pages.url}/weather?${new URLSearchParams({ api })}`);
    await page.getByRole("button", { name: "Ask" }).click();
    const shown = page.getByRole("region", { name: "weather" }); // locators see into shadow roots
    await shown.getByText("Oslo: 21 degrees").waitFor();
    assert.equal(await shown.count(), 1);
    await shown.getByText("2 messages").waitFor(); // the context of the page's useStream
    await shown.getByRole("button", { name: "asked 0 times" }).click();
    await shown.getByRole("button", { name: "asked 1 times" }).waitFor(); // hooks: one React
    await eventually(async () => assert.equal(await shown.evaluate((e) => getComputedStyle(e).color), "rgb(1, 2, 3)"));
    await page.getByText("nothing of that name").waitFor(); // the fallback of a component that does not exist
    assert.deepEqual(errors, []);
  }
  writeFileSync(join(folder, "label.ts"), 'export const label = (city: string): string => `${city} has weather`;\n');
  await eventually(async () => assert.match(await (await fetch(`${direct}/ui/weather/entrypoint.js`)).text(), /has weather/));
  writeFileSync(join(folder, "label.ts"), "export const label = (;\n");
  writeFileSync(join(folder, "few.ts"), "export default { seen: 1 };\n");
  await eventually(async () => assert.match(await (await fetch(`${direct}/ui/my%20weather/entrypoint.js`)).text(), /seen/));
  assert.match(await (await fetch(`${direct}/ui/weather/entrypoint.js`)).text(), /has weather/); // what does not bundle stays as it was
});
