import { beforeEach, expect, it, vi } from "vitest";

beforeEach(() => vi.stubGlobal("document", { baseURI: "http://test/studio/", cookie: "" }));

/** What exists() says of a server that answers with a status. */
async function asked(status: number): Promise<boolean> {
  vi.stubGlobal("fetch", async () => Response.json({ detail: `status ${status}` }, { status }));
  const { exists } = await import("./missing");
  return exists("x");
}

it("an assistant that the list does not have yet is not missing, and answers its thread", async () => {
  const { answerer, isMissing } = await import("./missing");
  const made = { assistant_id: "new", graph_id: "agent" };
  for (const found of [undefined, await asked(200)]) {
    const missing = isMissing(made.assistant_id, ["old"], found);
    expect(missing).toBe(false);
    expect(answerer(made, missing)).toBe("new");
  }
});

it("only an assistant that the server does not have is missing, and its graph answers", async () => {
  const { answerer, isMissing } = await import("./missing");
  const missing = isMissing("gone", ["old"], await asked(404));
  expect(missing).toBe(true);
  expect(answerer({ assistant_id: "gone", graph_id: "agent" }, missing)).toBe("agent");
  expect(answerer({ assistant_id: "gone" }, missing)).toBe("gone"); // the server says what is wrong
});

it("a server that fails says nothing of an assistant", async () => {
  for (const status of [401, 403, 422, 500, 503]) await expect(asked(status)).rejects.toThrow(`status ${status}`);
});

it("a thread that names its graph only is answered by it", async () => {
  const { answerer, isMissing } = await import("./missing");
  expect(answerer({ graph_id: "agent" }, isMissing(undefined, ["old"], undefined))).toBe("agent");
});
