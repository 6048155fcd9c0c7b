// The studio when something goes wrong between it and the server: no network, refusals, streams that break, threads that others delete.
//   BASE_URL=http://127.0.0.1:2024 node --test studio_troubles.test.mjs
import { describe } from "node:test";
import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { BASE_URL, eventually, openPage, words } from "./browser.mjs";
import { journey, recorded, skip } from "./studio.mjs";

const box = (page) => page.getByRole("textbox", { name: "Message" });

/** Errors of requests that a test lets fail are logged by the browser. */
const forgive = (studio, pattern) => (studio.errors = studio.errors.filter((error) => !pattern.test(error)));

/** The server behind a gate. onPiece gets each piece of the streams of threads, and write, which passes on what is to be seen instead. */
async function between(onPiece, port = 0) {
  const gate = createServer((from, to) => {
    const passed = request(BASE_URL + from.url, { method: from.method, headers: { ...from.headers, host: new URL(BASE_URL).host } }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      const cut = () => (to.destroy(), passed.destroy());
      const seen = /^\/threads\/[^/]+\/stream/.test(from.url) && onPiece ? onPiece(cut) : (piece, write) => write(piece);
      answer.on("data", (piece) => seen(piece, (...what) => to.write(...what)));
      answer.on("end", () => to.end());
    });
    passed.on("error", () => to.destroy());
    to.on("close", () => passed.destroy());
    from.pipe(passed);
  });
  await new Promise((resolve) => gate.listen(port, "127.0.0.1", resolve));
  const { port: own } = gate.address();
  return { port: own, url: `http://127.0.0.1:${own}`, stop: () => (gate.closeAllConnections(), gate.close()) };
}

/** The server, with streams of threads that end in the middle of an event as soon as they contain a text; once. */
async function cutting(text) {
  let cuts = 0;
  const gate = await between((cut) => {
    let seen = "";
    return (piece, write) => {
      seen += piece;
      const at = seen.indexOf(text);
      if (cuts > 0 || at < 0) return write(piece);
      cuts++;
      write(piece.subarray(0, Math.max(1, piece.length - (seen.length - at) + 3)), cut);
    };
  });
  return { ...gate, cuts: () => cuts };
}

/** The server, which says in the stream of a thread that the end of its run cannot be saved, before the end of a run; end lets that come. */
async function unsaved(notice) {
  let end;
  const held = new Promise((resolve) => (end = resolve));
  const gate = await between(() => {
    let said = false;
    return async (piece, write) => {
      if (String(piece).includes('"run_done"') && !said) {
        said = true;
        write(`event: end_not_saved\r\ndata: ${JSON.stringify(notice)}\r\n\r\n`);
      }
      if (said) await held;
      write(piece);
    };
  });
  return { ...gate, end };
}

describe("the studio in trouble", { concurrency: 2, skip }, () => {
  journey("without a network what is typed is kept, and when it is back the page goes on by itself", async (studio, page) => {
    await studio.begin("tokens", "say 400");
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", / w5\b/));
    await page.context().setOffline(true);
    await page.getByText("reconnecting").waitFor();
    await box(page).fill("say 2");
    await box(page).press("Enter");
    await page.getByRole("alert").filter({ hasText: "does not answer" }).first().waitFor();
    await eventually(async () => assert.equal(await box(page).inputValue(), "say 2", "what was typed is kept"));
    await page.context().setOffline(false);
    await page.getByText("reconnecting").waitFor({ state: "detached" });
    await studio.expect([["human", "say 400"], ["ai", words(400)]]);
    await box(page).press("Enter");
    await studio.expect([["human", "say 400"], ["ai", words(400)], ["human", "say 2"], ["ai", words(2)]]);
    assert.equal(await page.getByRole("alert").count(), 0);
    forgive(studio, /net::ERR/);
  });

  journey("a browser that reports no network still shows what a server on the same machine says", async (studio, page) => {
    await page.evaluate(() => dispatchEvent(new Event("offline")));
    const { thread_id } = await studio.rest("/threads", { metadata: { title: `made offline ${Date.now()}` } });
    await page.locator(`.sidebar a[href$="${thread_id}"]`).waitFor();
    const line = page.locator(".sidebar li", { has: page.locator(`a[href$="${thread_id}"]`) });
    await line.getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Pin" }).click();
    await line.getByLabel("pinned").waitFor();
  });

  journey("a thread that is deleted in another tab says so, and is left with a press", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    const thread = studio.thread;
    const other = await openPage(page.context());
    await other.goto(page.url());
    await other.locator('.transcript [data-kind="ai"]').waitFor();
    await other.getByRole("textbox", { name: "Message" }).fill("to nobody");
    page.on("dialog", (dialog) => dialog.accept());
    await page.locator(".sidebar li", { has: page.locator(`a[href$="${thread}"]`) }).getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.waitForURL(/\/studio\/$/);
    await other.getByRole("alert").filter({ hasText: /not found/i }).waitFor();
    await other.locator(`.sidebar a[href$="${thread}"]`).waitFor({ state: "detached" });
    await other.getByRole("link", { name: "New thread" }).click();
    await other.getByRole("heading", { name: "Talk to a graph" }).waitFor();
    forgive(studio, /404/);
  });

  journey("a stream that breaks in the middle of a tool call shows the call once, with its result", async (studio, page) => {
    const gate = await cutting('"tool_call_chunks":[{"');
    try {
      await page.goto(`${gate.url}/studio/`);
      await page.getByRole("radio", { name: /^agent\b/ }).click();
      await studio.type('call search {"q": "cats"}');
      await studio.expect([["human", 'call search {"q": "cats"}'], ["ai", ""], ["ai", "tool said: Found 10 results for cats"]]);
      assert.equal(await page.locator("[data-call=search]").count(), 1);
      await page.locator("[data-call=search] > [role=button]").click();
      await page.getByText("Found 10 results for cats", { exact: true }).waitFor();
      assert.equal(gate.cuts(), 1);
      await page.getByText("reconnecting").waitFor({ state: "detached" });
    } finally {
      gate.stop();
    }
    forgive(studio, /net::ERR|^loads /);
  });

  journey("a run whose end cannot be saved says so at once, and what to do, until it has ended", async (studio, page) => {
    const gate = await unsaved({ error: "ServiceUnavailable", message: "The run has stopped, but its end cannot be saved: the disk is full." });
    try {
      await page.goto(`${gate.url}/studio/`);
      await studio.begin("agent", "say 3");
      const problem = page.getByRole("alert").filter({ hasText: "its end cannot be saved: the disk is full" });
      await problem.getByText("Free space on the disk").waitFor();
      await page.locator("header .status", { hasText: "running" }).waitFor();
      await studio.accessible("a run that cannot be saved");
      gate.end();
      await problem.waitFor({ state: "detached" });
      await studio.expect([["human", "say 3"], ["ai", words(3)]]);
    } finally {
      gate.stop();
    }
    forgive(studio, /net::ERR|^loads /);
  });

  journey("a server that dies is named within three seconds on every page, and what was not read is there when it is back", async (studio, page) => {
    if (!recorded) return; // who has no stream of changes asks every few seconds
    let gate;
    for (const path of ["crons", "t/none", "runs"]) {
      gate = await between();
      const opened = page.waitForResponse(/\/understudy\/changes$/);
      await page.goto(`${gate.url}/studio/${path}`);
      await opened;
      gate.stop();
      await page.locator(".down", { hasText: "does not answer. See that it runs" }).waitFor({ timeout: 3_000 });
    }
    await studio.accessible("a server that does not answer");
    const back = await between(undefined, gate.port);
    try {
      await page.locator(".down").waitFor({ state: "detached" });
      await eventually(async () => assert.equal(await page.getByRole("alert").count(), 0));
    } finally {
      back.stop();
    }
    forgive(studio, /net::ERR|^loads |40[04]|422/);
  });

  journey("a thread says why its last run failed, also to who comes later, and tries again", async (studio, page) => {
    if (!recorded) return; // LangGraph Server may keep no error with a thread
    const { thread_id } = await studio.rest("/threads", { metadata: { graph_id: "failing" } });
    await studio.rest(`/threads/${thread_id}/runs/wait`, { assistant_id: "failing", input: { kind: "value" } });
    await page.goto(`${BASE_URL}/studio/t/${thread_id}`);
    await page.getByRole("alert").filter({ hasText: "ValueError: boom: node failed" }).getByRole("button", { name: "Try again from the last step" }).click();
    await eventually(async () => assert.equal((await studio.rest(`/threads/${thread_id}/runs`)).length, 2));
    await studio.accessible("a thread whose run failed");
  });

  journey("an answer that the server refuses is kept, and sent again", async (studio, page) => {
    let refused = 0;
    await page.route(/\/threads\/[^/]+\/runs$/, (route) => (route.request().method() === "POST" && route.request().postData().includes("resume") && refused++ < 1 ? route.fulfill({ status: 503, json: { detail: "The database is read-only." } }) : route.continue()));
    await studio.begin("hitl", 'call search {"q": "cats"}');
    await page.locator(".question").getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Arguments" }).fill('{"q": "dogs"}');
    await page.getByRole("button", { name: "Approve with these arguments" }).click();
    await page.getByRole("alert").filter({ hasText: "read-only" }).waitFor();
    assert.match(await page.getByRole("textbox", { name: "Arguments" }).inputValue(), /dogs/);
    await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), "Approve with these arguments"));
    await page.getByRole("button", { name: "Approve with these arguments" }).click();
    await eventually(async () => assert.match((await studio.shown()).at(-1)[1], /Found 10 results for dogs$/));
    forgive(studio, /503/);
  });

  journey("what the server refuses to write is said where it was asked, and stays typed", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    // As of a database that is read-only.
    const refuse = (route) => (["POST", "PATCH", "PUT", "DELETE"].includes(route.request().method()) && !/\/(search|count)$/.test(new URL(route.request().url()).pathname) ? route.fulfill({ status: 503, json: { detail: "The database is read-only." } }) : route.continue());
    await page.route("**/*", refuse);
    await studio.type("say 2");
    await page.getByRole("alert").filter({ hasText: "read-only" }).waitFor();
    assert.equal(await box(page).inputValue(), "say 2");
    const line = page.locator(".sidebar li", { has: page.locator(`a[href$="${studio.thread}"]`) });
    await line.getByRole("button", { name: /Actions/ }).click();
    await page.getByRole("menuitem", { name: "Pin" }).click();
    await line.getByRole("alert").filter({ hasText: "read-only" }).waitFor();
    await page.unroute("**/*", refuse);
    await box(page).press("Enter");
    await studio.expect([["human", "say 1"], ["ai", "w0"], ["human", "say 2"], ["ai", words(2)]]);
    forgive(studio, /503/);
  });

  journey("a first message that the server refuses goes back to where it was typed", async (studio, page) => {
    let refused = 0;
    await page.route(/\/threads\/[^/]+\/runs$/, (route) => (route.request().method() === "POST" && refused++ < 1 ? route.fulfill({ status: 503, json: { detail: "The database is read-only." } }) : route.continue()));
    await studio.begin("agent", "say 2");
    await page.getByRole("alert").filter({ hasText: "read-only" }).waitFor();
    await eventually(async () => assert.equal(await box(page).inputValue(), "say 2"));
    await box(page).press("Enter");
    await studio.expect([["human", "say 2"], ["ai", words(2)]]);
    await page.reload();
    await box(page).waitFor();
    assert.equal(await box(page).inputValue(), "", "what was sent is not typed any more");
    forgive(studio, /503/);
  });

  journey("a session that ends while something is typed: the page asks to sign in, and what was typed is still there", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    const expired = (route) => (route.request().method() === "POST" ? route.fulfill({ status: 401, json: { detail: "The session has expired." } }) : route.continue());
    await page.route(/\/threads\/[^/]+\/runs$/, expired);
    await page.route("**/auth/methods", (route) => route.fulfill({ json: { api_key: true, token: false, providers: [] } }));
    await studio.type("say 2");
    await page.getByRole("heading", { name: "Sign in to this server" }).waitFor();
    await page.unroute(/\/threads\/[^/]+\/runs$/, expired);
    await page.getByLabel("API key").last().fill("a key");
    await page.keyboard.press("Enter");
    await eventually(async () => assert.equal(await box(page).inputValue(), "say 2"));
    await page.locator('button[aria-label="Send"]:enabled').waitFor(); // the assistants are read again
    await box(page).press("Enter");
    await studio.expect([["human", "say 1"], ["ai", "w0"], ["human", "say 2"], ["ai", words(2)]]);
    await page.reload();
    await box(page).waitFor();
    assert.equal(await box(page).inputValue(), "", "what was sent is not typed any more");
    forgive(studio, /401/);
  });

  journey("drafts are hidden until the server says whose session it is, and the page is shown meanwhile", async (studio, page) => {
    await studio.begin("agent", "say 1");
    await studio.expect([["human", "say 1"], ["ai", "w0"]]);
    await page.context().addCookies([{ name: "understudy_csrf", value: "x", url: BASE_URL }]);
    const answers = []; // of the requests for the session, in turn; further ones are not answered
    let asked = 0;
    await page.route("**/auth/session", (route) => void answers[asked++]?.then((answer) => route.fulfill(answer)));
    const of = (identity) => ({ json: { identity } });
    const given = () => page.evaluate(() => JSON.stringify(sessionStorage));
    answers.push(Promise.resolve(of("ada")));
    await page.reload();
    await box(page).fill("a draft of ada");
    await eventually(async () => assert.match(await given(), /session ada.*a draft of ada|a draft of ada.*session ada/));
    // The server fails, then takes its time.
    let answer;
    answers.push(Promise.resolve({ status: 503, json: { detail: "The database is read-only." } }), new Promise((resolve) => (answer = resolve)));
    await page.reload();
    await eventually(() => assert.equal(asked, 3));
    assert.equal(await box(page).inputValue(), "");
    answer(of("ada"));
    await eventually(async () => assert.equal(await box(page).inputValue(), "a draft of ada"));
    // Another person types before it is known who they are.
    answers.push(new Promise((resolve) => (answer = resolve)));
    await page.reload();
    await box(page).fill("a draft of bob");
    answer(of("bob"));
    await eventually(async () => assert.match(await given(), /a draft of bob/));
    assert.equal(await box(page).inputValue(), "a draft of bob");
    assert.ok(!(await given()).includes("ada"));
    // A server without sessions says 404.
    answers.push(Promise.resolve({ status: 404, json: { detail: "Not Found" } }));
    await page.reload();
    await eventually(async () => assert.match(await given(), /anyone/));
    assert.equal(await box(page).inputValue(), "");
    forgive(studio, /503|404/);
  });

  journey("a run that does not end says so after Stop, and the page stays usable", async (studio, page) => {
    const held = {};
    held.until = new Promise((resolve) => (held.go = resolve));
    await page.route(/\/cancel\?wait=true$/, async (route) => (await held.until, route.continue().catch(() => {})));
    await studio.begin("tokens", "say 8000");
    await eventually(async () => assert.match((await studio.shown())[1]?.[1] ?? "", / w5\b/));
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("Stopping…").waitFor();
    await page.getByRole("button", { name: "Runs", exact: true }).first().click();
    await page.locator('aside[aria-label="runs"] li').first().waitFor();
    held.go();
    await studio.idle();
    await page.locator(".tag", { hasText: "cut off" }).waitFor();
  });

  journey("a server that has just started: someone may talk before all graphs are known", async (studio, page) => {
    await page.route(/\/assistants\/[^/]+\/schemas$/, () => {}); // no answer
    await page.reload();
    await page.getByRole("radio", { checked: true }).waitFor();
    await box(page).fill("say 1");
    assert.ok(await page.getByRole("button", { name: "Send" }).isEnabled());
  });
});
