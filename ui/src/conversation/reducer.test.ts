import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { EventParser, type StreamEvent } from "../api/events";
import type { Message, Row } from "../api/types";
import { textOf } from "./message";
import { empty, entriesOf, reduce, type Conversation } from "./reducer";
import { addRows, inOrder } from "./rows";

const recordings = new URL("../../../conformance/wire/", import.meta.url);

/** The event streams of recorded exchanges with a LangGraph Server. */
function streams(): [string, StreamEvent[]][] {
  return readdirSync(recordings)
    .filter((name) => name.endsWith(".http"))
    .map((name): [string, StreamEvent[]] => {
      const text = readFileSync(new URL(name, recordings), "utf8");
      const at = text.search(/^event: /m);
      return [name, at < 0 ? [] : new EventParser().push(`${text.slice(at)}\n\n`)];
    })
    .filter(([, events]) => events.length > 0);
}

const run = (c: Conversation, events: StreamEvent[]) => events.reduce((c, event) => reduce(c, { type: "event", event, now: 0 }), c);

/** What a person sees of a conversation, without what only this page knows. */
const seen = (c: Conversation) => entriesOf(c).map((e) => (e.kind === "marker" ? e.marker : [e.key, e.message.type.replace("MessageChunk", "").toLowerCase(), textOf(e.message)]));

describe("recorded streams", () => {
  const all = streams();
  test("there are some", () => expect(all.length).toBeGreaterThan(10));
  test.each(all)("%s: a page that joins again at any event, from the first on, shows the same", (_, events) => {
    const whole = seen(run(empty, events));
    for (let cut = 0; cut <= events.length; cut++) {
      // The stream is replayed from its beginning into what was seen before.
      expect(seen(run(run(empty, events.slice(0, cut)), events))).toEqual(whole);
    }
  });
  test.each(all)("%s: what is on record is shown once", (_, events) => {
    const streamed = run(empty, events);
    const rows = entriesOf(streamed).flatMap((e, i): Row[] => (e.kind === "marker" ? [] : [row(i + 1, e.message)]));
    const recorded = reduce(streamed, { type: "rows", rows });
    expect(recorded.streamed.size).toBe(0);
    expect(new Set(entriesOf(recorded).map((e) => e.key)).size).toBe(entriesOf(recorded).length);
    expect(entriesOf(run(recorded, events)).length).toBe(entriesOf(recorded).length);
  });
});

const row = (seq: number, content: Message | object, metadata: Row["metadata"] = {}, category = "message"): Row => ({
  seq, run_id: null, event_type: "", category, content: content as Message, metadata, created_at: "",
});

/** The rule of the documentation, row by row. */
function inserted(rows: readonly Row[]): Row[] {
  const out: Row[] = [];
  for (const r of rows) {
    const after = r.metadata.after_seq;
    if (after === undefined) out.push(r);
    else if (after === 0) out.unshift(r);
    else {
      const at = out.findIndex((other) => other.seq === after);
      if (at < 0) out.push(r);
      else out.splice(at + 1, 0, r);
    }
  }
  return out;
}

describe("rows", () => {
  test("random rows come in the order of the documentation", () => {
    let seed = 1;
    const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
    for (let round = 0; round < 2_000; round++) {
      const rows: Row[] = [];
      for (let seq = 1; seq <= 1 + random(12); seq++) rows.push(row(seq, {}, random(3) === 0 ? { after_seq: random(seq) } : {}));
      expect(inOrder(rows).map((r) => r.seq)).toEqual(inserted(rows).map((r) => r.seq));
    }
  });
  test("100,000 rows behind one another take little time", () => {
    const rows = Array.from({ length: 100_000 }, (_, i) => row(i + 1, {}, { after_seq: i }));
    const began = performance.now();
    expect(inOrder(rows).length).toBe(rows.length);
    expect(performance.now() - began).toBeLessThan(2_000);
  });
  test("a revised row replaces", () => {
    const rows = addRows([row(1, { id: "a", type: "human", content: "x" })], [row(1, { id: "a", type: "human", content: "y" }), row(2, {})]);
    expect(rows.map((r) => [r.seq, (r.content as Message).content])).toEqual([[1, "y"], [2, undefined]]);
  });
});

describe("a conversation", () => {
  const human: Message = { id: "h", type: "human", content: "hi" };
  test("what is said is shown until it is on record, under the same key", () => {
    const said = reduce(empty, { type: "said", message: human });
    const recorded = reduce(said, { type: "rows", rows: [row(1, human)] });
    expect(entriesOf(said).map((e) => e.key)).toEqual(entriesOf(recorded).map((e) => e.key));
    expect(recorded.said).toEqual([]);
  });
  test("what a path left behind is gone at once", () => {
    const c = reduce(empty, { type: "rows", rows: [row(1, human), row(2, { ...human, id: "b" }), row(3, { ...human, id: "c" })] });
    expect(entriesOf(reduce(c, { type: "cut", from: 2 })).map((e) => e.key)).toEqual(["h"]);
  });
  test("results are shown with their calls, and alone without", () => {
    const call = { id: "1", type: "ai", content: "", tool_calls: [{ id: "t", name: "f", args: {} }] };
    const result = { id: "2", type: "tool", content: "r", tool_call_id: "t" };
    const c = reduce(empty, { type: "rows", rows: [row(1, call), row(2, result), row(3, { ...result, id: "3", tool_call_id: "other" })] });
    expect(entriesOf(c).map((e) => e.key)).toEqual(["1", "3"]);
  });
  test("an entry that says what it said before is the same object, so that tokens of another draw only that", () => {
    const call = { id: "1", type: "ai", content: "", tool_calls: [{ id: "t", name: "f", args: {} }] };
    let c = reduce(empty, { type: "rows", rows: [row(0, { id: "0", type: "human", content: "q" }), row(1, call)] });
    c = run(c, [event("messages", [{ id: "2", type: "AIMessageChunk", content: "a" }, {}])]);
    const before = entriesOf(c);
    const after = entriesOf(run(c, [event("messages", [{ id: "2", type: "AIMessageChunk", content: "b" }, {}])]), before);
    expect(after.map((e, i) => e === before[i])).toEqual([true, true, false]);
    const answered = entriesOf(reduce(c, { type: "rows", rows: [row(2, { id: "3", type: "tool", content: "r", tool_call_id: "t" })] }), after);
    expect(answered.map((e, i) => e === after[i])).toEqual([true, false, false]);
  });
  const event = (name: string, data: unknown): StreamEvent => ({ name, data: JSON.stringify(data) });
  test("tasks show how long they took and how they ended", () => {
    let c = reduce(empty, { type: "event", event: event("tasks", { id: "1", name: "n", input: {} }), now: 10 });
    c = reduce(c, { type: "event", event: event("tasks", { id: "1", name: "n", error: "no", result: {}, interrupts: [] }), now: 30 });
    expect(c.tasks).toEqual([{ id: "1", node: "n", began: 10, took: 20, error: "no", interrupted: false }]);
  });
  test("that the end of a run cannot be saved is known until the run has ended, or is tried again", () => {
    const unsaved = run(empty, [event("metadata", { run_id: "r", attempt: 1 }), event("end_not_saved", { error: "ServiceUnavailable", message: "The disk is full." })]);
    expect([unsaved.unsaved, unsaved.run, unsaved.failure]).toEqual(["The disk is full.", "r", null]);
    for (const next of [{ run_id: "r", status: "run_done" }, { run_id: "r", attempt: 2 }, { run_id: "s", attempt: 1 }]) expect(run(unsaved, [event("metadata", next)]).unsaved).toBeNull();
  });
  test("tasks of subgraphs have the ID of their node in the drawing", () => {
    const inside = "outer:7788|inner:99|1";
    let c = reduce(empty, { type: "event", event: event("tasks", { id: "1", name: "outer", input: {} }), now: 0 });
    c = reduce(c, { type: "event", event: event(`tasks|${inside}`, { id: "2", name: "leaf", input: {} }), now: 5 });
    c = reduce(c, { type: "event", event: event(`tasks|${inside}`, { id: "2", name: "leaf", result: {}, interrupts: [{ id: "i", value: 1 }] }), now: 9 });
    expect(c.tasks).toEqual([
      { id: "1", node: "outer", began: 0 },
      { id: "2", node: "outer:inner:leaf", began: 5, took: 4, error: undefined, interrupted: true },
    ]);
  });
});
