import { expect, it } from "vitest";
import { reduce, untried, type Pair, type Trial } from "./trial";

const pair = (name: string): Pair => ({ assistants: [name, name], threads: [name, name] });
const after = (...actions: Parameters<typeof reduce>[1][]): Trial => actions.reduce(reduce, untried("a"));

it("sends turns to one pair, in order", () => {
  const trial = after({ type: "sent", choice: "a", pair: pair("p"), turn: { text: "one" } }, { type: "sent", choice: "a", pair: pair("p"), turn: { input: { x: 1 } } }, { type: "busy", choice: "a", side: 1, now: true });
  expect(trial).toEqual({ choice: "a", pair: pair("p"), turns: [{ n: 1, text: "one" }, { n: 2, input: { x: 1 } }], busy: [false, true] });
});

it("begins anew with another choice, and keeps what it has with the same", () => {
  const sent = after({ type: "sent", choice: "a", pair: pair("p"), turn: { text: "one" } });
  expect(reduce(sent, { type: "chosen", choice: "a" })).toBe(sent);
  expect(reduce(sent, { type: "chosen", choice: "b" })).toEqual(untried("b"));
});

it("leaves out what comes late for a choice that was left", () => {
  expect(after({ type: "chosen", choice: "b" }, { type: "sent", choice: "a", pair: pair("old"), turn: { text: "one" } }, { type: "busy", choice: "a", side: 0, now: true })).toEqual(untried("b"));
});
