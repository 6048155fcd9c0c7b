import { expect, it } from "vitest";
import { Frames } from "./frames";

/** A screen that draws when the test says so. */
function drawn() {
  const requests = new Map<number, () => void>();
  const applied: number[][] = [];
  const on = { away: false, hidden: () => on.away, request: (draw: () => void) => (requests.set(requests.size + 1, draw), requests.size), cancel: (n: number) => void requests.delete(n) };
  const frame = () => [...requests.values()].forEach((draw) => draw());
  return { on, frame, applied, requests, frames: new Frames<number>((list) => applied.push(list), on) };
}

it("applies what has arrived once for a frame, in order", () => {
  const { frame, frames, applied, requests } = drawn();
  for (const n of [1, 2, 3]) frames.add(n);
  expect(applied).toEqual([]);
  expect(requests.size).toBe(1);
  frame();
  frame();
  expect(applied).toEqual([[1, 2, 3]]);
  frames.add(4);
  frames.flush(); // what follows depends on it
  expect(applied).toEqual([[1, 2, 3], [4]]);
  expect(requests.size).toBe(0);
  frames.add(5);
  frame();
  expect(applied).toEqual([[1, 2, 3], [4], [5]]);
});

it("applies at once in a tab that is hidden, and nothing that was dropped", () => {
  const { frame, frames, applied, on } = drawn();
  frames.add(1); // for a frame that does not come any more
  on.away = true;
  frames.add(2);
  expect(applied).toEqual([[1, 2]]);
  on.away = false;
  frames.add(3);
  frames.drop();
  frame();
  frames.flush();
  expect(applied).toEqual([[1, 2]]);
});
