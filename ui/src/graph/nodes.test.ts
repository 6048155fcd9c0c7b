import { expect, it } from "vitest";
import type { State } from "../api/types";
import { waitingNodes } from "./nodes";

const state = (next: string[], tasks: [string, unknown?][] = []) => ({ next, tasks: tasks.map(([name, state]) => ({ id: name, name, interrupts: [], state })) }) as unknown as State;

it("names the nodes that wait as the drawing with all subgraphs does", () => {
  expect(waitingNodes(state([]))).toEqual([]);
  expect(waitingNodes(state(["a", "b"], [["a"], ["b", null]]))).toEqual(["a", "b"]);
  expect(waitingNodes(state(["a"], [["a", { configurable: { checkpoint_ns: "a:1" } }]]))).toEqual(["a"]);
  expect(waitingNodes(state(["a", "c"], [["a", state(["x"], [["x", state(["y", "z"])]])], ["c", state([])]]))).toEqual(["a:x:y", "a:x:z", "c"]);
});
