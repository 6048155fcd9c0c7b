// The examples of README.md and docs/frontend.md in Chromium, as printed: strings and blocks, questions, errors, and connections that break. Run by itself:
//   BASE_URL=http://127.0.0.1:2024 node --test snippets.test.mjs
import { connect, createServer } from "node:net";
import { readFile } from "node:fs/promises";
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { bundleChat, bundlePlain, printed, servePages } from "./bundle.mjs";
import { BASE_URL, conversation, eventually, launch, openPage, words } from "./browser.mjs";

const real = (await (await fetch(`${BASE_URL}/info`)).json()).flags.langsmith_tracing_replicas;

/** Forwards connections to the server, for one test at a time. cut() breaks all of them, as a server that is killed does. */
const wire = await new Promise((started) => {
  const target = new URL(BASE_URL), open = new Set();
  const server = createServer((socket) => {
    const upstream = connect(target.port, target.hostname);
    for (const [from, to] of [[socket, upstream], [upstream, socket]]) {
      open.add(from);
      from.on("error", () => {}).on("close", () => { open.delete(from); to.destroy(); });
      from.pipe(to);
    }
  });
  server.listen(0, "127.0.0.1", () => started({
    url: `http://127.0.0.1:${server.address().port}`,
    cut: () => open.forEach((socket) => socket.resetAndDestroy()),
    close: () => { open.forEach((socket) => socket.destroy()); server.close(); },
  }));
});

const components = {
  "the example of the README": (await printed("README.md", "jsx"))[0],
  "React": (await printed("docs/frontend.md", "jsx"))[0],
  "React, the newer package": (await printed("docs/frontend.md", "jsx"))[1],
};
const [approval, newer] = (await printed("docs/frontend.md", "jsx")).slice(2);
const lineOf = (example, start) => example.split("\n").find((line) => line.trim().startsWith(start)).trim();
const approvals = {
  "approvals": approval,
  "approvals-newer": ["import { useStream }", "const answer ="].reduce((text, start) => text.replace(lineOf(text, start), () => lineOf(newer, start)), approval),
};
const [streamModule, main] = await printed("docs/frontend.md", "js");
const graphs = { agent: "agent", tokens: "tokens", hitl: "hitl", missing: "no-such-graph" };
const names = Object.keys(components);
const scripts = { plain: await bundlePlain(main.replace("What is 6 times 7?", "say 700"), streamModule, wire.url, "tokens", "(window.seen ??= []).push(event)") };
for (const [i, name] of names.entries()) {
  for (const [label, graph] of Object.entries(graphs)) scripts[`${i}${label}`] = await bundleChat(components[name], graph === "tokens" ? wire.url : BASE_URL, graph);
  scripts[`${i}blocks`] = await bundleChat(components[name], BASE_URL, "agent", true);
}
for (const [name, example] of Object.entries(approvals)) scripts[name] = await bundleChat(example, BASE_URL, "hitl");
const browser = await launch();
const pages = await servePages(scripts);
after(async () => {
  await browser.close();
  await pages.close();
  wire.close();
});

/** A test on an own page, which has no uncaught errors, and no others than the known. */
const visit = (name, script, body, known = [], skip = false) => test(name, { timeout: 180_000, skip }, async () => {
  const page = await openPage(await browser.newContext());
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  await page.goto(`${pages.url}/${script}`);
  try {
    await body(page);
    assert.deepEqual(errors.filter((error) => !known.some((one) => one.test(error))), []);
  } finally {
    await page.context().close();
  }
});
const say = async (page, text) => {
  await page.fill("input", text);
  await page.keyboard.press("Enter");
};
const shown = (page, expected) => eventually(async () => assert.deepEqual(await page.locator("p").allTextContents(), expected.map(([kind, text]) => `${kind}: ${text}`)));
const broken = [/Failed to load resource: net::ERR_/];

for (const [i, name] of names.entries()) describe(name, { concurrency: 3 }, () => {
  for (const script of ["agent", "blocks"]) {
    visit(`a conversation of ${script === "blocks" ? "content blocks" : "strings"}`, `${i}${script}`, async (page) => {
      for (const n of [3, 4]) {
        await say(page, `say ${n}`);
        await page.getByText(`ai: ${words(n)}`, { exact: true }).waitFor();
      }
      await shown(page, conversation(3, 4));
      assert.equal(await page.inputValue("input"), "", "the line is empty again");
    });
  }
  visit("a graph that does not exist is named", `${i}missing`, async (page) => {
    await say(page, "hello");
    await page.getByRole("alert").filter({ hasText: /no-such-graph/ }).waitFor();
  }, [/422/]);
  visit("a connection that breaks in the middle of an answer", `${i}tokens`, async (page) => {
    await say(page, "say 900");
    await page.getByText(/^ai: .* w20\b/).waitFor();
    wire.cut();
    await shown(page, conversation(900));
    assert.equal(await page.getByRole("alert").count(), 0);
  }, broken, real);
  if (i === 0) return; // the README has no room for more
  // The newer package begins a thread anew that is not there.
  if (names[i] === "React") for (const reload of [false, true]) visit(`a thread that was deleted is forgotten${reload ? ", after a reload" : ""}`, `${i}agent`, async (page) => {
    await say(page, "say 3");
    await page.getByText(`ai: ${words(3)}`, { exact: true }).waitFor();
    const thread = await page.evaluate(() => sessionStorage.getItem("thread"));
    assert.equal((await fetch(`${BASE_URL}/threads/${thread}`, { method: "DELETE" })).status, 204);
    if (reload) await page.reload();
    else await say(page, "say 3");
    await page.getByRole("status").filter({ hasText: "not there any more" }).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.getItem("thread")), null);
    await say(page, "say 4");
    await shown(page, conversation(4));
  }, [/404/]);
  visit("a question, answered after a reload", `${i}hitl`, async (page) => {
    await say(page, 'call search {"q": "dogs"}');
    await page.getByText(/^question: .*action_requests/).waitFor();
    await page.reload();
    await page.getByText(/^question: .*action_requests/).waitFor();
    await page.getByRole("button", { name: "New" }).click();
    await eventually(async () => assert.equal(await page.locator("p").count(), 0));
  });
});

for (const name of Object.keys(approvals)) visit(`${name}: a call is approved, edited and rejected, and what is no JSON is named`, name, async (page) => {
  const ask = async () => {
    await page.getByLabel("Message").fill('call search {"q": "dogs"}');
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "approve" }).waitFor();
  };
  const decide = (decision) => page.getByRole("button", { name: decision }).click();
  await ask();
  await page.reload(); // the question is still there
  await decide("approve");
  await page.getByText("tool: Found 10 results for dogs").waitFor();
  await ask();
  await page.getByLabel("Arguments").fill("cats");
  await decide("edit");
  await page.getByRole("alert").filter({ hasText: "not JSON" }).waitFor();
  await page.getByLabel("Arguments").fill('{"q": "cats"}');
  await decide("edit");
  await page.getByText(/^tool: .*Found 10 results for cats/s).waitFor();
  await ask();
  await page.getByLabel("Reason").fill("no more animals");
  await decide("reject");
  await page.getByText(/^tool: .*no more animals/s).waitFor();
  await page.getByLabel("Message").waitFor();
});

test("without a package: it continues for as long as the page says, while nothing listens", async () => {
  const promised = Number((await readFile(new URL("../../docs/frontend.md", import.meta.url), "utf8")).match(/they retry for about (\d+) s/)[1]);
  const { stream } = await import(`data:text/javascript,${encodeURIComponent(streamModule)}`);
  const { fetch, setTimeout } = globalThis;
  let waited = 0, calls = 0;
  let sent = false; // the answer breaks after its first event, and then nothing listens
  const text = new TextEncoder().encode("id: 1\r\nevent: metadata\r\ndata: {}\r\n\r\n");
  const broken = new ReadableStream({ pull: (c) => sent ? c.error(new TypeError("terminated")) : (sent = true, c.enqueue(text)) });
  globalThis.fetch = async () => {
    if (calls++) throw new TypeError("fetch failed");
    return new Response(broken, { headers: { location: "/x" } });
  };
  globalThis.setTimeout = (go, time) => { waited += time; queueMicrotask(go); };
  try {
    await assert.rejects(async () => { for await (const _ of stream("http://x", "t", {})); }, TypeError);
  } finally {
    Object.assign(globalThis, { fetch, setTimeout });
  }
  assert.ok(waited >= promised * 1000, `${waited} ms`);
});

visit("without a package: a connection that breaks twice loses and repeats nothing", "plain", async (page) => {
  for (const word of ["w20", "w200"]) {
    await page.waitForFunction((word) => document.body.textContent.includes(` ${word} `), word);
    wire.cut();
  }
  await eventually(async () => assert.equal(await page.textContent("body"), words(700)));
  const seen = await page.evaluate(() => window.seen);
  assert.equal(seen.filter((event) => event === "metadata").length, 1);
}, broken, real);
