import { expect, test } from "vitest";
import { Tree, type Checkpoint } from "./branches";

const id = (n: number) => n.toString().padStart(4, "0");
const checkpoint = (n: number, parent: number | null, source = "loop"): Checkpoint => ({
  checkpoint_id: id(n), parent_checkpoint_id: parent === null ? null : id(parent), created_at: "", step: 0, source, run_id: null,
});

test("an edited message, and another answer", () => {
  // 1 input, 2 question, 3 answer; 4 input, 5 edited question, 6 answer, both behind 3's run; 7 fork and 8 another answer to 5.
  const tree = new Tree([
    checkpoint(1, null, "input"), checkpoint(2, 1), checkpoint(3, 2),
    checkpoint(4, 3, "input"), checkpoint(5, 4), checkpoint(6, 5),
    checkpoint(7, 3, "input"), checkpoint(8, 7), checkpoint(9, 8),
    checkpoint(10, 8, "fork"), checkpoint(11, 10),
  ]);
  expect(tree.before(id(5))).toBe(id(3));
  expect(tree.before(id(2))).toBe(id(1)); // nothing was before it, but the input
  expect(tree.branchesAt(id(8))).toEqual({ at: 1, all: [id(6), id(11)] });
  expect(tree.branchesAt(id(5))).toEqual({ at: 0, all: [id(6), id(11)] });
  expect(tree.branchesAt(id(11))).toEqual({ at: 1, all: [id(9), id(11)] });
  expect(tree.branchesAt(id(2)).all.length).toBe(1);
});

test("in random trees a branch ends at the newest checkpoint below its beginning", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 300; round++) {
    const all: Checkpoint[] = [];
    for (let n = 1; n <= 2 + random(25); n++) all.push(checkpoint(n, n === 1 || random(12) === 0 ? null : 1 + random(n - 1), ["loop", "input", "fork"][random(3)]));
    const tree = new Tree(all.toSorted(() => random(3) - 1));
    const parent = new Map(all.map((c) => [c.checkpoint_id, c.parent_checkpoint_id]));
    const below = (top: string) => all.filter((c) => { for (let at: string | null = c.checkpoint_id; at; at = parent.get(at) ?? null) if (at === top) return true; return false; });
    for (const c of all) {
      const fork = tree.before(c.checkpoint_id);
      const { at, all: ends } = tree.branchesAt(c.checkpoint_id);
      if (!fork) { expect(ends).toEqual([]); continue; }
      const starts = all.filter((o) => o.parent_checkpoint_id === fork).map((o) => o.checkpoint_id).sort();
      expect(ends).toEqual(starts.map((s) => below(s).map((o) => o.checkpoint_id).sort().at(-1)));
      expect(below(starts[at]!)).toContain(c);
    }
  }
});
