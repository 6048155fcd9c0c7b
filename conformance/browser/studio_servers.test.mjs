// The studio of servers that these tests start: with authentication, behind a prefix, across a restart, and of a proxy.
//   UNDERSTUDY_BINARY=bin/understudy node --test studio_servers.test.mjs
// With STUDIO_DATABASES, a list of empty Postgres databases in JSON, and STUDIO_REDIS each server is two on one of them, behind a program that hands each request
// to the next; only the journeys that this can break are walked then. `conformance/run --cluster` does so.
import { after, describe, test } from "node:test";
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { eventually, launch, openPage, words } from "./browser.mjs";
import { Keys } from "./keys.mjs";

const binary = process.env.UNDERSTUDY_BINARY;
const skip = binary ? false : "UNDERSTUDY_BINARY is not set";
const shared = process.env.STUDIO_DATABASES ? { databases: JSON.parse(process.env.STUDIO_DATABASES), redis: process.env.STUDIO_REDIS } : null;
const browser = await launch();
const folder = mkdtempSync(join(tmpdir(), "studio-"));
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts the program and returns its URL, what it printed, and how to stop it. */
const start = (...args) => startProgram(binary, args);

/** Starts a server, or two on one database, with what their data is called. */
async function serve(data, ...args) {
  if (!shared) return start("serve", ...args, "--data", join(folder, data), "--port", "0").then((server) => ({ ...server, pids: [server.pid] }));
  const database = shared.databases.shift();
  assert.ok(database, "there is another empty database");
  const servers = [];
  for (let n = 0; n < 2; n++) servers.push(await start("serve", ...args, "--database-url", database, "--redis-url", shared.redis, "--redis-prefix", data, "--port", "0")); // one after the other: the first makes the tables
  const front = await startProgram(join(dirname(binary), "roundrobin"), servers.map((server) => server.url));
  return { url: front.url, pids: servers.map((server) => server.pid), stop: () => Promise.all([front, ...servers].map((one) => one.stop())) };
}

async function startProgram(program, args) {
  const process_ = spawn(program, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env.PATH, HOME: folder } });
  let printed = "";
  for (const stream of [process_.stdout, process_.stderr]) stream.on("data", (data) => (printed += data));
  const ended = new Promise((resolve) => process_.once("exit", resolve));
  const url = await eventually(() => {
    const found = /listening on (http:\S+)/.exec(printed);
    assert.ok(found && process_.exitCode === null, printed);
    return found[1];
  });
  return { url, pid: process_.pid, printed: () => printed, stop: () => (process_.kill("SIGTERM"), ended) };
}

/** What LangGraph Server would be in place of a server: without the routes below /understudy/, and without a word of them. */
async function withoutOwnRoutes(url) {
  const gate = createServer((from, to) => {
    if (from.url.startsWith("/understudy/")) return void to.writeHead(404, { "content-type": "application/json" }).end('{"detail":"Not Found"}');
    const passed = request(url + from.url, { method: from.method, headers: from.headers }, async (answer) => {
      if (from.url !== "/info") return void answer.pipe(to.writeHead(answer.statusCode, answer.headers));
      const { understudy_version, ...info } = JSON.parse(Buffer.concat(await answer.toArray()));
      to.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(info));
    });
    passed.on("error", () => to.destroy());
    to.on("close", () => passed.destroy());
    from.pipe(passed);
  });
  await new Promise((resolve) => gate.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${gate.address().port}`, stop: () => (gate.closeAllConnections(), gate.close()) };
}

/** A declared agent that answers at once, and one that asks before it calls its tool. */
function project(name, extra = {}) {
  const script = join(folder, `${name}.script.json`);
  writeFileSync(script, JSON.stringify({ answers: [
    { from: "tool", when: "(?s)^(.*)$", content: "tool said: ${1}" },
    { from: "human", when: "calculate both (\\S+) and (\\S+)", tool_calls: [{ name: "calculator", args: { expression: "$1" } }, { name: "calculator", args: { expression: "$2" } }] },
    { from: "human", when: "calculate (.*)", tool_calls: [{ name: "calculator", args: { expression: "$1" } }] },
    { when: "(?s)^(.*)$", content: "you said: $1" },
  ] }));
  const agent = (middleware) => ({ agent: { model: `scripted:${script}`, tools: ["calculator"], middleware } });
  const file = join(folder, `${name}.json`);
  writeFileSync(file, JSON.stringify({ graphs: { parrot: agent({}), careful: agent({ human_in_the_loop: { calculator: true } }), forgetful: agent({ summarization: { trigger: { messages: 6 }, keep: { messages: 2 } } }) }, ...extra }));
  return file;
}

async function open(url) {
  const page = await openPage(await browser.newContext({ viewport: { width: 1280, height: 800 } }));
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  await page.goto(url);
  return { page, errors };
}

const post = async (url, path, body) => (await fetch(url + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();

const say = async (page, assistant, text) => {
  await page.getByRole("radio", { name: new RegExp(`^${assistant}\\b`) }).click();
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.keyboard.press("Enter");
};

describe("the studio of other servers", { concurrency: 2, skip }, () => {
  // These count on no other server.
  const alone = shared ? () => {} : test;

  alone("asks for an API key, forgets it, and shows a user only their own threads", { timeout: 120_000 }, async () => {
    const data = join(folder, "auth");
    const args = ["--config", project("auth", { auth: { api_keys: true } }), "--data", data];
    const key = (identity) => execFileSync(binary, ["keys", "create", "--name", identity, ...args], { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    const [ada, bob] = ["ada", "bob"].map(key);
    const server = await start("serve", "--studio", "--port", "0", ...args);
    try {
      const { page, errors } = await open(`${server.url}/studio/`);
      const signIn = async (secret) => {
        await page.getByRole("heading", { name: "Sign in to this server" }).waitFor();
        await page.getByLabel("API key").last().fill(secret);
        await page.keyboard.press("Enter");
      };
      await page.getByText("understudy keys create").waitFor();
      await signIn("wrong");
      await page.getByRole("alert").getByText(/does not accept this key/).waitFor();
      await signIn(ada);
      await say(page, "parrot", "secret of ada");
      await page.getByText("you said: secret of ada").waitFor();
      // Who answered is with the run.
      const box = page.getByRole("textbox", { name: "Message" });
      await page.getByRole("combobox", { name: "Assistant" }).selectOption("careful");
      await box.fill("calculate 6*7");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Approve" }).click();
      await page.getByText(/tool said: .*42$/).waitFor();
      await page.getByRole("button", { name: "Runs", exact: true }).first().click();
      await page.locator("aside .runs").getByText("Answered by ada", { exact: true }).waitFor();
      // What she types is still hers after she signed in again, and is not shown to another.
      await box.fill("a draft of ada");
      await page.reload();
      await signIn(ada);
      await box.waitFor();
      assert.equal(await box.inputValue(), "a draft of ada");
      await page.reload();
      await signIn(bob);
      await page.getByText(/not found/i).first().waitFor();
      assert.ok(!(await page.evaluate(() => JSON.stringify(sessionStorage))).includes("a draft of ada"));
      await page.goto(`${server.url}/studio/`);
      await signIn(bob);
      await page.getByText("No threads yet").waitFor();
      assert.deepEqual(errors.filter((error) => !/status of 40[134]/.test(error)), []);
      assert.ok(!server.printed().includes(ada), "the key is not in the log");
    } finally {
      await server.stop();
    }
  });

  alone("works behind a prefix, and continues after a restart with an approval", { timeout: 120_000 }, async () => {
    const args = ["--studio", "--mount-prefix", "/agents", "--config", project("restart"), "--data", join(folder, "restart"), "--port"];
    let server = await start("serve", ...args, "0");
    const port = new URL(server.url).port;
    try {
      const { page, errors } = await open(`http://127.0.0.1:${port}/agents/`);
      await say(page, "careful", "calculate 6 * 7");
      await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
      await server.stop();
      await page.getByText("reconnecting").waitFor();
      server = await start("serve", ...args, port);
      await page.getByText("reconnecting").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Edit" }).last().click();
      await page.getByRole("textbox", { name: "Arguments" }).fill('{"expression": "6 * 8"}');
      await page.getByRole("button", { name: "Approve with these arguments" }).click();
      await page.getByText(/tool said: .*48$/).waitFor();
      // The same by keyboard alone.
      const keys = new Keys(page);
      await keys.say("calculate 7 * 7");
      await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
      await server.stop();
      await page.getByText("reconnecting").waitFor();
      server = await start("serve", ...args, port);
      await page.getByText("reconnecting").waitFor({ state: "detached" });
      const question = page.locator(".question");
      await keys.skipToPage();
      await keys.to(keys.button("Edit", question), "Tab", 60);
      await keys.press("Enter");
      await keys.arrives(page.getByRole("textbox", { name: "Arguments" }));
      await keys.press("Control+a");
      await page.keyboard.type('{"expression": "7 * 8"}');
      await keys.to(keys.button("Approve with these arguments"), "Tab", 3);
      await keys.press("Enter");
      await page.getByText(/tool said: .*56$/).waitFor();
      assert.deepEqual(errors.filter((error) => !/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_NETWORK|net::ERR/.test(error)), []);
    } finally {
      await server.stop();
    }
  });

  test("two calls in one question: one is edited, one rejected after all, and both are sent at once, also after a refusal", { timeout: 120_000 }, async () => {
    const server = await serve("several", "--studio", "--config", project("several"));
    try {
      const { page, errors } = await open(`${server.url}/studio/`);
      await say(page, "careful", "calculate both 6*7 and 6*8");
      await page.getByRole("heading", { name: /waits for an answer/ }).waitFor();
      const [first, second] = [0, 1].map((n) => page.locator(".question").nth(n));
      const send = page.getByRole("button", { name: /^Send \d of 2 decisions$/ });
      assert.ok(await send.isDisabled());
      await first.getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Arguments" }).fill('{"expression": "6*9"}');
      await page.getByRole("button", { name: "Approve with these arguments" }).click();
      await first.getByText("6*9").waitFor();
      await second.getByRole("button", { name: "Approve" }).click();
      await second.getByRole("button", { name: "Change" }).click();
      await second.getByRole("button", { name: "Reject" }).click();
      await page.keyboard.type("not this one");
      await second.getByRole("button", { name: "Reject" }).last().click();
      // A refusal loses none of the decisions.
      const refuse = (route) => (route.request().method() === "POST" ? route.fulfill({ status: 503, json: { detail: "busy, try again" } }) : route.continue());
      await page.route(/\/threads\/[^/]+\/runs$/, refuse);
      await send.click();
      await page.getByRole("alert").filter({ hasText: "busy, try again" }).waitFor();
      await page.unroute(/\/threads\/[^/]+\/runs$/, refuse);
      await page.getByText("not this one").waitFor();
      await send.click();
      await eventually(async () => {
        const thread = new URL(page.url()).pathname.split("/").at(-1);
        const { values } = await (await fetch(`${server.url}/threads/${thread}/state`)).json();
        const results = values.messages.filter((m) => m.type === "tool").map((m) => m.content);
        assert.equal(results.length, 2);
        assert.match(results.join(" "), /54/);
        assert.match(results.join(" "), /not this one/);
      });
      await page.getByRole("heading", { name: /waits for an answer/ }).waitFor({ state: "detached" });
      assert.deepEqual(errors.filter((error) => !/status of 503/.test(error)), []);
    } finally {
      await server.stop();
    }
  });

  alone("a graph that left langgraph.json is offered no more, and its threads say so", { timeout: 120_000 }, async () => {
    const [file, data] = [project("left"), join(folder, "left")];
    const serveIt = () => start("serve", "--studio", "--config", file, "--data", data, "--port", "0");
    let server = await serveIt();
    try {
      const { thread_id } = await post(server.url, "/threads", { metadata: { graph_id: "careful" } });
      const { assistant_id } = await post(server.url, "/assistants", { graph_id: "careful", name: "my own" });
      await post(server.url, `/threads/${thread_id}/runs/wait`, { assistant_id, input: { messages: [{ role: "user", content: "hello" }] } });
      await server.stop();
      const config = JSON.parse(readFileSync(file, "utf8"));
      delete config.graphs.careful;
      writeFileSync(file, JSON.stringify(config));
      server = await serveIt();
      const { page, errors } = await open(`${server.url}/studio/`);
      await page.getByRole("radio", { name: /^parrot/ }).waitFor();
      assert.equal(await page.getByRole("radio", { name: /careful|my own/ }).count(), 0);
      await page.goto(`${server.url}/studio/graphs`);
      await page.getByText("Not on this server").filter({ hasText: "careful" }).filter({ hasText: "my own (careful)" }).waitFor();
      await page.goto(`${server.url}/studio/t/${thread_id}`);
      await page.getByText("you said: hello").waitFor();
      assert.match(await page.getByRole("combobox", { name: "Assistant" }).evaluate((e) => e.selectedOptions[0].textContent), /^careful, not on this server/);
      await page.getByRole("textbox", { name: "Message" }).fill("are you there?");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").getByText(/Graph 'careful' not found/).waitFor();
      assert.equal(await page.getByRole("textbox", { name: "Message" }).inputValue(), "are you there?", "what was typed is kept");
      await page.getByRole("combobox", { name: "Assistant" }).selectOption("parrot");
      await page.getByRole("textbox", { name: "Message" }).press("Enter");
      await page.getByText("you said: are you there?").waitFor();
      assert.deepEqual(errors.filter((error) => !/status of 404/.test(error)), []);
    } finally {
      await server.stop();
    }
  });

  test("in front of another server, by keyboard and by mouse: whole conversations, and two runs compared", { timeout: 120_000 }, async () => {
    // The upstream shows what LangGraph Server would: what the graph has.
    const off = { state: false, history: false, threads: false, wait: false, stream: false, updates: false };
    const upstream = await serve("upstream", "--config", project("upstream", { history: { overlay: off, markers: "off" } }));
    const gate = await withoutOwnRoutes(upstream.url);
    const proxy = await start("proxy", "--studio", "--upstream", gate.url, "--port", "0", "--data", join(folder, "proxy"));
    try {
      const { page, errors } = await open(`${proxy.url}/studio/`);
      const keys = new Keys(page);
      await keys.begin("forgetful", "turn 1");
      await page.getByText("you said: turn 1").waitFor();
      for (const n of [2, 3, 4]) {
        await keys.say(`turn ${n}`);
        await page.getByText(`you said: turn ${n}`).waitFor();
        await eventually(async () => assert.notEqual(await page.locator("header .status span").first().textContent(), "running"));
      }
      const marker = page.locator("details.marker > summary");
      await marker.waitFor();
      await page.reload();
      await page.locator(".transcript").getByText("turn 1", { exact: true }).waitFor();
      await keys.skipToPage();
      await keys.to(marker, "Tab", 60);
      await keys.press("Enter");
      await page.getByText("The model sees this summary").waitFor();
      await page.locator(".sidebar").getByRole("link", { name: /turn 1/ }).waitFor(); // the summary is not the title
      const bar = page.locator("header.bar");
      await keys.back(keys.button("State", bar), 60);
      await keys.press("Enter");
      await page.getByRole("list", { name: "Checkpoints" }).getByRole("button").first().waitFor();
      // Two of its runs, which the upstream lists by thread only.
      await keys.to(keys.button("Runs", bar), "Tab", 3);
      await keys.press("Enter");
      const compare = page.locator("aside .runs").getByRole("button", { name: /^Compare with/ });
      await keys.to(compare.last(), "Tab", 80);
      await keys.press("Enter");
      await keys.back(compare.first(), 20);
      await keys.press("Enter");
      await page.waitForURL(/\/compare\?/);
      await page.getByRole("row", { name: /^time/ }).waitFor();
      await page.locator(".side.b", { hasText: "you said: turn 4" }).waitFor();
      // The same by mouse.
      await page.goto(`${proxy.url}/studio/`);
      await say(page, "forgetful", "move 1");
      const idle = () => eventually(async () => assert.notEqual(await page.locator("header .status span").first().textContent(), "running"));
      for (const n of [1, 2, 3, 4]) {
        if (n > 1) {
          await page.getByRole("textbox", { name: "Message" }).fill(`move ${n}`);
          await page.getByRole("button", { name: "Send" }).click();
        }
        await page.getByText(`you said: move ${n}`).waitFor();
        await idle();
      }
      await page.reload();
      await page.getByText("you said: move 4").waitFor();
      await page.locator(".messages").hover();
      await eventually(async () => {
        await page.mouse.wheel(0, -2_000);
        assert.ok(await page.locator(".transcript").getByText("move 1", { exact: true }).isVisible());
      });
      await marker.click();
      await page.getByText("The model sees this summary").waitFor();
      await page.locator(".sidebar").getByRole("link", { name: /move 1/ }).waitFor();
      // All runs, and what such a server does not record.
      await page.goto(`${proxy.url}/studio/`);
      await keys.arrives(page.getByRole("textbox", { name: "Message" }));
      await keys.press("Escape");
      await keys.press("g", "r");
      await eventually(async () => assert.equal(await page.locator("[data-run]", { hasText: "success" }).count(), 8));
      assert.equal(await page.getByRole("link", { name: "timeline" }).count(), 0);
      for (const [key, title] of [["u", "Usage"], ["v", "Servers"], ["l", "Logs"]]) {
        await keys.press("g", key);
        await page.getByRole("heading", { name: title }).waitFor();
        await page.getByText("keeps no such record").waitFor();
      }
      assert.deepEqual(errors, []);
    } finally {
      await proxy.stop();
      gate.stop();
      await upstream.stop();
    }
  });

  test("in front of another understudy: a message that a search finds opens", { timeout: 120_000 }, async () => {
    const upstream = await serve("searched", "--config", project("searched"));
    const proxy = await start("proxy", "--studio", "--upstream", upstream.url, "--port", "0", "--data", join(folder, "searching"));
    try {
      // The proxy has not seen how this thread began, so its record counts its messages differently.
      const { thread_id } = await post(upstream.url, "/threads", {});
      await post(upstream.url, `/threads/${thread_id}/runs/wait`, { assistant_id: "parrot", input: { messages: [{ role: "user", content: "the first words" }] } });
      const { page, errors } = await open(`${proxy.url}/studio/t/${thread_id}`);
      await page.getByText("you said: the first words").waitFor();
      await page.getByRole("textbox", { name: "Message" }).fill("where is the needle");
      await page.keyboard.press("Enter");
      await page.getByText("you said: where is the needle").waitFor();
      await page.goto(`${proxy.url}/studio/`);
      await page.getByRole("searchbox", { name: "Find threads and messages" }).fill("needle");
      await page.locator(".found a", { hasText: "person" }).first().click();
      await page.locator(".message.at", { hasText: "where is the needle" }).waitFor();
      assert.deepEqual(errors, []);
    } finally {
      await proxy.stop();
      await upstream.stop();
    }
  });

  test("a server that hangs with its connections open is named, and the page continues when it does", { timeout: 120_000 }, async () => {
    const server = await serve("hanging", "--studio", "--config", project("hanging"));
    const all = (signal) => server.pids.forEach((pid) => process.kill(pid, signal));
    try {
      const { page, errors } = await open(`${server.url}/studio/runs`);
      const opened = page.waitForResponse(/\/understudy\/changes$/);
      await page.reload();
      await opened;
      await page.locator(".down").waitFor({ state: "detached" });
      all("SIGSTOP");
      await page.locator(".down", { hasText: "does not answer" }).waitFor({ timeout: 8_000 }); // two and a half heartbeats; to open a stream may take longer than this
      all("SIGCONT");
      await page.locator(".down").waitFor({ state: "detached" });
      assert.deepEqual(errors.filter((error) => !/net::ERR/.test(error)), []);
    } finally {
      all("SIGCONT");
      await server.stop();
    }
  });

  test("a worker is killed in the middle of an answer: the page says so, and nothing is doubled", { timeout: 120_000, skip: process.env.UNDERSTUDY_TEST_PYTHON ? false : "UNDERSTUDY_TEST_PYTHON is not set" }, async () => {
    const config = new URL("../graphs/langgraph.json", import.meta.url).pathname;
    const server = await serve("killed", "--studio", "--config", config, "--python", process.env.UNDERSTUDY_TEST_PYTHON, "--workers", "1");
    try {
      const { page, errors } = await open(`${server.url}/studio/`);
      const keys = new Keys(page);
      await keys.begin("tokens", "say 900");
      const answer = page.locator('.transcript [data-kind="ai"]');
      await answer.filter({ hasText: "w20 " }).waitFor();
      const killed = server.pids.flatMap(workers); // one of them executes the run
      assert.ok(killed.length > 0, "there is a worker");
      for (const pid of killed) process.kill(pid, "SIGKILL");
      const notice = page.getByRole("status").filter({ hasText: "attempt 2" });
      await notice.waitFor();
      await page.reload();
      await notice.waitFor(); // also who comes later is told
      // A long answer leaves no place for the question.
      const said = () => page.$$eval('.transcript [data-kind="ai"]', (list) => list.map((e) => e.querySelector(":scope > .markdown")?.textContent.trim() ?? ""));
      await eventually(async () => assert.ok((await said()).join() === words(900), "the whole answer, once"));
      await notice.waitFor({ state: "detached" });
      const thread = new URL(page.url()).pathname.split("/").at(-1);
      const { values } = await (await fetch(`${server.url}/threads/${thread}/state`)).json();
      assert.deepEqual(values.messages.map((m) => m.content), ["say 900", words(900)]);
      // Its timeline has both attempts.
      await keys.skipToPage();
      await keys.to(keys.button("Runs", page.locator("header.bar")), "Tab", 20);
      await keys.press("Enter");
      await keys.to(page.locator("aside .runs a", { hasText: "timeline" }), "Tab", 40);
      await keys.press("Enter");
      await page.getByText("try 1 of 2").waitFor();
      await page.getByText("try 2 of 2").waitFor();
      assert.deepEqual(errors.filter((error) => !/net::ERR/.test(error)), []);
    } finally {
      await server.stop();
    }
  });
});

/** The processes of Python below a process. */
function workers(pid) {
  const parents = new Map(); // by process
  const names = new Map();
  for (const entry of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const [, name, rest] = /\((.*)\) (.*)/s.exec(readFileSync(`/proc/${entry}/stat`, "utf8"));
      parents.set(Number(entry), Number(rest.split(" ")[1]));
      names.set(Number(entry), name);
    } catch {
      // it has ended
    }
  }
  const below = (p) => p === pid || (parents.has(p) && parents.get(p) > 1 && below(parents.get(p)));
  return [...parents.keys()].filter((p) => p !== pid && below(p) && names.get(p).startsWith("python"));
}
