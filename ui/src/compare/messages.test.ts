import { expect, test } from "vitest";
import type { Message } from "../api/types";
import { beside, words } from "./messages";
import { parseRef, pathOf, runRef } from "./refs";

const message = (type: string, content: string, id = Math.random().toString()): Message => ({ id, type, content });

test("messages meet by what they say, and by their kind where they differ", () => {
  const a = [message("human", "hi"), message("ai", "one"), message("human", "bye"), message("ai", "end")];
  const b = [message("human", "hi"), message("ai", "two"), message("tool", "t"), message("human", "bye"), message("ai", "end")];
  expect(beside(a, b).map((s) => (s.kind === "equal" ? s.messages.map((m) => m.content) : [s.a?.content, s.b?.content]))).toEqual([["hi"], ["one", "two"], [undefined, "t"], ["bye", "end"]]);
  expect(beside([], [])).toEqual([]);
  const calls = (args: { q: string }, id: string) => ({ ...message("ai", ""), tool_calls: [{ id, name: "search", args }] });
  expect(beside([calls({ q: "a" }, "1")], [calls({ q: "a" }, "2")])[0]!.kind).toBe("equal");
  expect(beside([calls({ q: "a" }, "1")], [calls({ q: "b" }, "1")])[0]!.kind).toBe("differ");
});

test("the words of both sides are their texts, whatever is in them", () => {
  const pieces = ["a", "b ", "\n", "漢字", "שלום", "👩‍👩‍👧", "é", "x-y", "\u0000", "\ud800"];
  for (let i = 0; i < 2_000; i++) {
    const text = () => Array.from({ length: Math.floor(Math.random() * 12) }, () => pieces[Math.floor(Math.random() * pieces.length)]).join("");
    const [a, b] = [text(), text()];
    const [x, y] = words(a, b);
    expect(x.map((w) => w.text).join("")).toBe(a);
    expect(y.map((w) => w.text).join("")).toBe(b);
    const common = (side: typeof x) => side.filter((w) => !w.own).map((w) => w.text).join("");
    expect(common(x)).toBe(common(y));
  }
  expect(words("the quick fox", "the slow fox").map((side) => side.filter((w) => w.own))).toEqual([[{ text: "quick", own: true }], [{ text: "slow", own: true }]]);
  expect(words("x".repeat(60_000), "y")[0]).toHaveLength(1);
});

test("references are read as they are written, and others are refused", () => {
  expect(parseRef(runRef("t-1", "r-1"))).toEqual({ kind: "run", thread: "t-1", id: "r-1" });
  expect(parseRef("thread:t")).toEqual({ kind: "thread", thread: "t", id: "t" });
  for (const bad of [null, "", "run:t", "thread:a/b", "run:../x/y", "checkpoint:a/b/c", "thread:a?b"]) expect(parseRef(bad)).toBeNull();
  expect(new URLSearchParams(pathOf("run:a/b", "thread:c").split("?")[1]).get("a")).toBe("run:a/b");
});
