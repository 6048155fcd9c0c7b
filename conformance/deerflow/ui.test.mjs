// A person's visit to DeerFlow's own web UI, which understudy serves in the Gateway's place: conformance/deerflow/ui starts both. BASE_URL is that of the UI.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BASE_URL, eventually, launch } from "../browser/browser.mjs";
import { Person, stepsOf } from "./person.mjs";

test("a visit to DeerFlow", async (t) => {
  const browser = await launch();
  t.after(() => browser.close());
  const once = `${process.pid}-${Date.now()}`;
  const ada = await Person.arrive(browser);
  const step = stepsOf(t, ada);

  await step("the first visitor creates the administrator", () => ada.setUp());

  await step("sign up and sign in", async () => {
    await ada.register(`ada-${once}@example.com`);
    await ada.signOutAndIn(`ada-${once}@example.com`);
    await ada.picture("signed-in");
  });

  const turns = [1, 2, 3, 4, 5, 6, 7].map((n) => [`SAY answer number ${n} of ${once}`, `answer number ${n} of ${once}`]);
  let chat;
  await step("seven turns, of which a summary replaces the first", async () => {
    await ada.open();
    for (const [question, answer] of turns) {
      await ada.say(question, new RegExp(`^${answer}$`));
      await ada.page.waitForURL((url) => !url.pathname.endsWith("/new"));
      await ada.idle();
    }
    chat = ada.thread;
    await ada.picture("seven-turns");
    const feed = await ada.api("GET", `/threads/${chat}/messages/page?limit=200`);
    assert.equal(feed.data.length, 14);
    const runs = await ada.api("GET", `/threads/${chat}/runs`);
    assert.ok(runs.some((run) => run.middleware_tokens > 0), "nothing was summarized");
  });

  /** What is on the screen: all texts of the conversation in their order. */
  const shown = async () => (await ada.list.innerText()).split("\n").map((line) => line.trim()).filter((line) => line.includes(`of ${once}`));

  await step("a reload shows all of it, once and in order", async () => {
    await ada.page.reload();
    await ada.sees(new RegExp(`^${turns[6][1]}$`));
    await eventually(async () => {
      // The page loads what is further up when one looks at it.
      await ada.list.getByText(turns[0][0]).first().scrollIntoViewIfNeeded({ timeout: 2000 }).catch(() => ada.page.mouse.wheel(0, -2000));
      assert.deepEqual(await shown(), turns.flat());
    });
    assert.equal(await ada.list.getByText("SUMMARY-OF-OLD-TURNS").count(), 0);
    await ada.picture("reloaded");
  });

  await step("a reload during a run continues it", async () => {
    await ada.say(`SLOW 100 of ${once}`);
    await ada.sees(/w5 w6/);
    await ada.page.reload();
    await ada.sees(/w97 w98 w99/);
    await ada.idle();
    const text = await ada.list.getByText(/w97 w98 w99/).first().innerText();
    assert.equal(text.trim(), [...Array(100).keys()].map((n) => `w${n}`).join(" "));
  });

  await step("stop", async () => {
    await ada.say(`SLOW 600 of ${once}`);
    const answered = async () => assert.equal((await ada.list.innerText()).split("w9 w10").length, 3); // the answer of the step before, and this one
    await eventually(answered);
    await ada.submit.click();
    await ada.idle();
    const [run] = await ada.api("GET", `/threads/${chat}/runs`);
    assert.equal(run.status, "interrupted");
    await ada.page.reload();
    await eventually(answered);
  });

  await step("regenerate, edit", async () => {
    await ada.say(`SAY before ${once}`, new RegExp(`^before ${once}$`));
    await ada.idle();
    const turn = ada.page.locator("[data-assistant-turn]").last();
    await turn.hover();
    await turn.getByRole("button", { name: "Regenerate" }).click();
    await eventually(async () => assert.ok((await ada.api("GET", `/threads/${chat}/runs`))[0].metadata.regenerate_from_run_id));
    await ada.idle();
    await eventually(async () => assert.equal(await ada.list.getByText(new RegExp(`^before ${once}$`)).count(), 1));
    const question = ada.list.locator(".is-user").last();
    await question.hover();
    await ada.page.getByRole("button", { name: "Edit and rerun" }).last().click();
    await ada.list.locator("textarea").fill(`SAY after ${once}`);
    await ada.picture("edit");
    await ada.list.locator("textarea").press("Control+Enter");
    await ada.list.getByRole("button", { name: /rerun|send|save|submit/i }).last().click({ timeout: 3000 }).catch(() => {});
    await ada.sees(new RegExp(`^after ${once}$`));
    await ada.idle();
    await ada.page.reload();
    await ada.sees(new RegExp(`^after ${once}$`));
    await eventually(async () => assert.equal(await ada.list.getByText(new RegExp(`^before ${once}$`)).count(), 0));
    await ada.picture("edited");
  });

  await step("rate, as far as the pages of this version let people do so", async () => {
    const [run] = await ada.api("GET", `/threads/${chat}/runs`);
    const rated = await ada.api("PUT", `/threads/${chat}/runs/${run.run_id}/feedback`, { rating: 1 });
    assert.equal(rated.rating, 1);
    const { data } = await ada.api("GET", `/threads/${chat}/messages/page?limit=200`);
    assert.deepEqual(data.filter((row) => row.feedback).map((row) => [row.run_id, row.content.type, row.feedback.rating]), [[run.run_id, "ai", 1]]);
  });

  await step("branch", async () => {
    const turn = ada.page.locator("[data-assistant-turn]").last();
    await turn.hover();
    await turn.getByRole("button", { name: "Branch conversation" }).click();
    await ada.page.waitForURL((url) => !url.pathname.endsWith(chat));
    const branch = ada.thread;
    await ada.sees(new RegExp(`^after ${once}$`));
    await ada.say(`SAY in the branch ${once}`, new RegExp(`^in the branch ${once}$`));
    await ada.idle();
    await ada.page.reload();
    await ada.sees(new RegExp(`^after ${once}$`), new RegExp(`^in the branch ${once}$`));
    await ada.open(chat);
    await ada.sees(new RegExp(`^after ${once}$`));
    assert.equal(await ada.list.getByText(`in the branch ${once}`).count(), 0);
    assert.notEqual(branch, chat);
  });

  await step("upload a file and ask about it", async () => {
    await ada.open();
    await ada.page.locator("input[type=file]").first().setInputFiles({ name: "notes of ada.txt", mimeType: "text/plain", buffer: Buffer.from("the word is heliotrope") });
    await ada.say(`CALL read_file {"description": "read it", "path": "/mnt/user-data/uploads/notes of ada.txt"} THEN bash {"description": "x", "command": "true"}`, /^done\.$/);
    await ada.page.waitForURL((url) => !url.pathname.endsWith("/new"));
    await ada.idle();
    await ada.sees("notes of ada.txt");
    const { data } = await ada.api("GET", `/threads/${ada.thread}/messages/page?limit=200`);
    assert.ok(data.some((row) => row.content.type === "tool" && JSON.stringify(row.content.content).includes("heliotrope")));
    await ada.page.reload();
    await ada.sees("notes of ada.txt", /^done\.$/);
    await ada.picture("uploaded");
  });

  await step("open an artifact", async () => {
    await ada.say(
      `CALL write_file {"description": "w", "path": "/mnt/user-data/outputs/report.md", "content": "# Report of ${once}"} THEN present_files {"filepaths": ["/mnt/user-data/outputs/report.md"]}`,
      /report\.md/,
    );
    await ada.idle();
    await ada.page.getByText("report.md", { exact: true }).first().click();
    await ada.page.getByRole("heading", { name: `Report of ${once}` }).waitFor(); // in the panel, from the file
    await ada.picture("artifact");
  });

  const entry = () => ada.page.locator("[data-sidebar='menu-item']").filter({ has: ada.page.locator(`a[href$="${chat}"]`) }); // the branch has the same title
  const menu = async (name) => {
    await entry().hover();
    await entry().getByRole("button", { name: /more/i }).click();
    await ada.page.getByRole("menuitem", { name }).click();
  };

  await step("rename and pin", async () => {
    await ada.open(chat);
    await ada.page.keyboard.press("Control+b"); // the artifact had closed the sidebar
    await menu("Rename");
    const name = `Renamed ${once}`;
    await ada.page.getByRole("dialog").getByRole("textbox").fill(name);
    await ada.page.getByRole("dialog").getByRole("textbox").press("Enter");
    await entry().getByText(name).waitFor();
    await menu("Pin chat");
    await entry().locator("svg.lucide-pin").first().waitFor();
    await ada.page.reload();
    await entry().locator("svg.lucide-pin").first().waitFor();
    await ada.picture("pinned");
  });

  await step("a second user sees nothing of it", async () => {
    const ben = await Person.arrive(browser);
    await ben.register(`ben-${once}@example.com`);
    assert.deepEqual(await ben.api("POST", "/langgraph/threads/search", {}), []);
    ben.expected = [[404, chat]];
    await ben.page.goto(`${BASE_URL}/workspace/chats/${chat}`);
    await ben.input.waitFor();
    assert.equal((await ben.api("GET", `/threads/${chat}`)).failed, 404);
    assert.equal((await ben.api("GET", `/threads/${chat}/messages/page`)).failed, 404);
    assert.equal(await ben.page.getByText(once).count(), 0);
    await ben.leave();
  });

  await step("delete", async () => {
    ada.expected = [[404, chat]]; // the page deletes twice
    await menu("Delete");
    await ada.page.getByRole("button", { name: /^(delete|confirm)$/i }).click({ timeout: 2000 }).catch(() => {});
    await eventually(async () => assert.equal(await entry().count(), 0));
    await eventually(async () => assert.equal((await ada.api("GET", `/threads/${chat}`)).failed, 404)); // the list is ahead of the server
    await ada.leave();
  });
});
