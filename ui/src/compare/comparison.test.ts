import { expect, test } from "vitest";
import type { Json, Message } from "../api/types";
import { Comparison, firstChanges } from "./comparison";
import { diff } from "./diff";

const bytes = (values: Json) => new TextEncoder().encode(JSON.stringify({ values })).buffer as ArrayBuffer;
const said = (n: number, from = 0): Message[] => Array.from({ length: n }, (_, i) => ({ id: `${from}-${i}`, type: i % 2 ? "ai" : "human", content: `m${i}`, usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3 } }) as Message);

test("details are those of the diff, page by page, and survive being handed over", () => {
  const x = { messages: said(40) as unknown as Json, list: Array.from({ length: 30 }, (_, i) => i), same: { deep: [1] }, gone: 1, __proto__: null } as Json;
  const y = { messages: [...said(40, 1).slice(0, 39), { id: "z", type: "ai", content: "other" }] as unknown as Json, list: Array.from({ length: 30 }, (_, i) => i * 2), same: { deep: [1] }, added: { a: 1 } } as Json;
  const c = new Comparison({ state: bytes(x), messages: null }, { state: bytes(y), messages: null });
  expect(structuredClone(c.overview)).toEqual({
    counts: [40, 40],
    tokens: [{ input: 40, output: 80 }, { input: 39, output: 78 }],
    places: 2,
    allEqual: false,
    states: [true, true],
    changed: [
      { name: "messages", kind: "list" },
      { name: "list", kind: "list" },
      { name: "gone", kind: "removed" },
      { name: "added", kind: "added" },
    ],
    equal: ["same"],
  });
  expect(structuredClone(c.places(10)).map((p) => p.kind)).toEqual(["equal", "differ"]);
  expect(c.places(1)).toEqual([{ kind: "equal", count: 39 }]);
  expect(c.equalAt(0, 5)).toHaveLength(5);
  expect(c.equalAt(1, 5)).toEqual([]);
  const whole = firstChanges(diff((x as { list: Json }).list, (y as { list: Json }).list), 1_000).changes;
  for (const n of [1, 7, whole.length, 1_000]) expect(structuredClone(c.changes("list", n))).toEqual({ changes: whole.slice(0, n), more: n < whole.length });
  expect(c.changes("gone", 5)).toEqual({ changes: [{ path: "gone", before: 1 }], more: false });
  expect(c.changes("nosuch", 5)).toEqual({ changes: [], more: false });
});

test("without a state, and with messages of a thread", () => {
  const c = new Comparison({ state: null, messages: said(3) }, { state: bytes([1, 2]), messages: said(3, 1) });
  expect(c.overview).toMatchObject({ states: [false, false], counts: [3, 3], allEqual: true, changed: [], equal: [] });
  expect(() => new Comparison({ state: new TextEncoder().encode("{").buffer as ArrayBuffer, messages: null }, { state: null, messages: null })).toThrow();
  expect(new Comparison({ state: bytes({ messages: "none" }), messages: null }, { state: bytes({}), messages: null }).overview.counts).toEqual([0, 0]);
});
