// What the agent in Go does for a person in DeerFlow's own web UI: plans, questions, subagents, files, and the memory. conformance/deerflow/ui starts both.
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, launch } from "../browser/browser.mjs";
import { Person, stepsOf } from "./person.mjs";

/** Chooses the model that thinks, which the modes need, and a mode. */
async function choose(person, mode) {
  const { page } = person;
  await page.getByRole("button", { name: /^(Flash|Reasoning|Pro|Ultra)$/ }).waitFor();
  const other = page.getByRole("button", { name: "Fake Model" });
  if ((await other.count()) > 0) {
    await other.click();
    await page.getByRole("option", { name: /fake-2/ }).click(); // it has no name to show
    await other.waitFor({ state: "detached" });
  }
  await page.getByRole("button", { name: /^(Flash|Reasoning|Pro|Ultra)$/ }).click();
  await page.getByRole("menuitem", { name: new RegExp(`^${mode}`) }).click();
  await page.keyboard.press("Escape"); // the menu stays
  await page.getByRole("button", { name: mode, exact: true }).waitFor();
}

const call = (name, args) => `${name} ${JSON.stringify(args)}`;

test("the agent at work", async (t) => {
  const browser = await launch();
  t.after(() => browser.close());
  const once = `${process.pid}-${Date.now()}`;
  const ada = await Person.arrive(browser);
  const step = stepsOf(t, ada);
  const ask = async (text, answer) => {
    await ada.say(text, answer);
    await ada.page.waitForURL((url) => !url.pathname.endsWith("/new"));
    await ada.idle();
  };

  await step("sign up", async () => {
    await ada.setUp();
    await ada.register(`ada-${once}@example.com`);
  });

  await step("a plan, which is shown and worked off", async () => {
    await ada.open();
    await choose(ada, "Pro");
    const todos = (...states) => ({ todos: states.map((status, n) => ({ content: `part ${n + 1} of ${once}`, status })) });
    await ask(`CALL ${call("write_todos", todos("in_progress", "pending"))} THEN ${call("write_todos", todos("completed", "in_progress"))} THEN ${call("write_todos", todos("completed", "completed"))}`, /^done\.$/);
    const { values } = await ada.api("GET", `/threads/${ada.thread}/state`);
    assert.deepEqual(values.todos, todos("completed", "completed").todos);
    await ada.page.reload();
    await ada.sees(/^done\.$/);
    await ada.page.getByText("To-dos").first().click();
    for (const todo of values.todos) await ada.page.getByText(todo.content, { exact: true }).first().waitFor();
    await ada.picture("plan");
  });

  await step("subagents, at once, with their results", async () => {
    await ada.open();
    await choose(ada, "Ultra");
    const tasks = [1, 2].map((n) => call("task", { description: `errand ${n} of ${once}`, prompt: `SAY result ${n} of ${once}`, subagent_type: "general-purpose" }));
    await ask(`CALL ${tasks.join(" ;; ")}`, /^done\.$/);
    for (const reloaded of [false, true]) {
      if (reloaded) await ada.page.reload();
      await ada.sees(/^done\.$/);
      for (const n of [1, 2]) {
        const card = ada.list.getByRole("button", { name: new RegExp(`errand ${n} of ${once}`) });
        await card.getByText("Subtask completed").waitFor();
        await card.click();
        await ada.list.getByText(`result ${n} of ${once}`, { exact: true }).first().waitFor();
      }
    }
    await ada.picture("subagents");
    const usage = await ada.api("GET", `/threads/${ada.thread}/token-usage`);
    assert.ok(usage.by_caller.subagent > 0 && usage.by_caller.lead_agent > 0, JSON.stringify(usage));
  });

  await step("a question to the person, and the answer", async () => {
    await ada.open();
    await ask(`CALL ${call("ask_clarification", { question: `Which color, ${once}?`, clarification_type: "approach_choice", options: ["red", "blue"] })}`, new RegExp(`Which color, ${once}\\?`));
    assert.equal((await ada.api("GET", `/threads/${ada.thread}/runs`))[0].status, "success");
    await ada.page.reload();
    const card = ada.page.getByTestId("human-input-card");
    await card.getByRole("button", { name: /blue/ }).click();
    await eventually(async () => assert.equal((await ada.api("GET", `/threads/${ada.thread}/runs`)).length, 2));
    await ada.idle();
    const { data } = await ada.api("GET", `/threads/${ada.thread}/messages/page?limit=200`);
    const questions = data.filter((row) => row.content.type === "human");
    assert.match(JSON.stringify(questions.at(-1).content.content), /blue/);
    await ada.page.reload();
    await card.getByText(/answered/i).first().waitFor();
    await ada.picture("answered");
  });

  await step("a table is uploaded, and a chart comes back", async () => {
    await ada.open();
    await ada.page.locator("input[type=file]").first().setInputFiles({ name: "table.csv", mimeType: "text/csv", buffer: Buffer.from("month,tea\n1,30\n2,70\n3,50\n") });
    // A PNG of bars as high as the table says, by what every Python has.
    const chart = `import csv, struct, zlib
rows = list(csv.DictReader(open("../uploads/table.csv")))
pixels = b"".join(b"\\0" + b"".join((b"\\x20\\x60\\xc0" if int(r["tea"]) > 99 - y else b"\\xff" * 3) * 40 for r in rows) for y in range(100))
part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
open("../outputs/chart.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", 40 * len(rows), 100, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(pixels)) + part(b"IEND", b""))
`;
    await ask(
      "CALL " + [
        call("write_file", { description: "w", path: "/mnt/user-data/workspace/chart.py", content: chart }),
        call("bash", { description: "draw", command: "python3 /mnt/user-data/workspace/chart.py && ls /mnt/user-data/outputs" }),
        call("present_files", { filepaths: ["/mnt/user-data/outputs/chart.png"] }),
      ].join(" THEN "),
      /^done\.$/,
    );
    await ada.page.getByText("chart.png", { exact: true }).first().click();
    const frame = ada.page.locator("iframe");
    await frame.waitFor();
    // What the panel shows is the picture: 120 by 100, and the second of three bars is the highest.
    const colors = await ada.page.evaluate(async (src) => {
      const image = await createImageBitmap(await (await fetch(src)).blob());
      const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
      canvas.drawImage(image, 0, 0);
      const blue = (x, y) => canvas.getImageData(x, y, 1, 1).data[0] === 0x20;
      return [image.width, image.height, blue(20, 40), blue(60, 40), blue(100, 60)];
    }, await frame.getAttribute("src"));
    assert.deepEqual(colors, [120, 100, false, true, true]);
    await ada.picture("chart");
  });

  await step("what was said is remembered in a new conversation", async () => {
    await ada.open();
    await ask(`REMEMBER ${once} likes green tea\nSAY noted`, /^noted$/);
    await eventually(async () => assert.match(JSON.stringify(await ada.api("GET", "/memory")), new RegExp(`${once} likes green tea`)));
    await ada.open();
    await ask("ECHO", /^seen:/);
    await ada.sees(new RegExp(`${once} likes green tea`));
    await ada.picture("remembered");
    await ada.leave();
  });

  await step("a second user has none of it", async () => {
    const ben = await Person.arrive(browser);
    await ben.register(`ben-${once}@example.com`);
    await ben.say("ECHO", /^seen:/);
    assert.equal(await ben.list.getByText(once).count(), 0);
    assert.doesNotMatch(JSON.stringify(await ben.api("GET", "/memory")), new RegExp(once));
    await ben.leave();
  });
});
