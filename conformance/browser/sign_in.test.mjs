// Signing in to the studio at an OpenID provider, in Chromium. It starts the provider and a server.
//   UNDERSTUDY_BINARY=/path/to/understudy node --test sign_in.test.mjs
import { after, test } from "node:test";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, launch, openPage } from "./browser.mjs";

const skip = process.env.UNDERSTUDY_BINARY ? false : "UNDERSTUDY_BINARY is not set";
const ends = [];
after(async () => {
  for (const end of ends.reverse()) await end();
});

async function provider() {
  const child = spawn("go", ["run", "./internal/oidctest/provider"], { cwd: new URL("../..", import.meta.url), stdio: ["pipe", "pipe", "inherit"] });
  ends.push(async () => {
    child.stdin.end();
    if (child.exitCode === null) await once(child, "exit");
  });
  const [line] = await once(child.stdout, "data");
  const [issuer, client_id, ...secret] = String(line).trim().split(" ");
  return { issuer, client_id, secret: secret.join(" ") };
}

async function server(oidc) {
  const folder = mkdtempSync(join(tmpdir(), "sign-in-"));
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  const agent = { model: { name: "scripted:", script: [{ content: "Good day." }, { content: "Bye." }] } };
  const { issuer, client_id } = oidc;
  writeFileSync(
    join(folder, "langgraph.json"),
    JSON.stringify({ graphs: { talk: { agent } }, auth: { api_keys: true, oidc: { issuer, client_id, client_secret_env: "CLIENT_SECRET", name: "Test" } }, env: { CLIENT_SECRET: oidc.secret } }),
  );
  const child = spawn(process.env.UNDERSTUDY_BINARY, ["serve", "--studio", "--port", String(port)], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  ends.push(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "exit");
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually(async () => assert.equal((await fetch(`${url}/ok`)).status, 200));
  return url;
}

test("signing in, talking, another tab, signing out", { skip }, async () => {
  const url = await server(await provider());
  const browser = await launch();
  ends.push(() => browser.close());
  const context = await browser.newContext();
  const page = await openPage(context);
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(`${url}/studio/runs`);
  await page.getByLabel("API key").waitFor(); // what is configured: keys too, and no tokens
  assert.equal(await page.getByText("Bearer token").count(), 0);
  await page.getByRole("link", { name: "Sign in with Test" }).click();
  await page.waitForURL(`${url}/studio/runs`);
  await page.getByRole("button", { name: "Sign out" }).waitFor();

  await page.goto(`${url}/studio/`);
  await page.getByRole("radio", { name: /^talk\b/ }).click();
  await page.getByRole("textbox", { name: "Message" }).fill("Hello");
  await page.keyboard.press("Enter");
  await page.getByText("Good day.").first().waitFor();
  const cookies = await context.cookies();
  assert.deepEqual(
    cookies.map((c) => [c.name, c.httpOnly, c.sameSite]).sort(),
    [["understudy_csrf", false, "Strict"], ["understudy_session", true, "Lax"]],
  );
  assert.equal(await page.evaluate(() => document.cookie.includes("understudy_session")), false);

  const other = await openPage(context);
  await other.goto(page.url());
  await other.getByText("Good day.").first().waitFor();
  await other.getByRole("button", { name: "Sign out" }).click();
  await other.getByRole("link", { name: "Sign in with Test" }).waitFor();
  await page.reload();
  await page.getByRole("link", { name: "Sign in with Test" }).waitFor();
  assert.deepEqual(errors, []);
});
