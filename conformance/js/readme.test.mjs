// The example for JavaScript in README.md, as a reader pastes it into a file.
import { test } from "node:test";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import { BASE_URL } from "./helpers.mjs";

test("README: JavaScript", { timeout: 60_000 }, async () => {
  const readme = await readFile(new URL("../../README.md", import.meta.url), "utf8");
  let [, example] = readme.match(/```js\n([\s\S]*?)```/);
  for (const [here, there] of [["http://127.0.0.1:2024", BASE_URL], ['"chat"', '"agent"'], ["What is 6 times 7?", "say 3"]]) {
    assert.ok(example.includes(here));
    example = example.replaceAll(here, there);
  }
  const file = new URL(`readme-${process.pid}.mjs`, import.meta.url); // next to the packages
  await writeFile(file, example);
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [file.pathname]);
    assert.match(stdout, /^metadata \{ run_id: /);
    for (const word of ["'w0'", "' w1'", "' w2'"]) assert.ok(stdout.includes(`content: ${word}`), stdout);
  } finally {
    await rm(file);
  }
});
