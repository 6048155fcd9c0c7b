import { expect, test } from "vitest";
import type { Schemas } from "../api/types";
import { firstTalker } from "./schema";

const talks = { isPending: false, data: { input_schema: { properties: { messages: { type: "array", items: {} } } } } as unknown as Schemas };
const fields = { isPending: false, data: { input_schema: { properties: { topic: { type: "string" } } } } as unknown as Schemas };
const failed = { isPending: false };
const waits = { isPending: true };

test("the first that talks is offered, once those before it are known not to", () => {
  expect(firstTalker(["a", "b", "c"], [fields, failed, talks], false)).toBe("c");
  expect(firstTalker(["a", "b"], [waits, talks], false)).toBeUndefined();
  expect(firstTalker(["a", "b"], [fields, waits], false)).toBeUndefined();
  expect(firstTalker(["a", "b"], [fields, failed], false)).toBe("a");
});

test("when it is late, one that is known to talk, else the first", () => {
  expect(firstTalker(["a", "b"], [waits, talks], true)).toBe("b");
  expect(firstTalker(["a", "b"], [waits, waits], true)).toBe("a");
  expect(firstTalker([], [], true)).toBeUndefined();
});
