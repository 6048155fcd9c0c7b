import { expect, test } from "vitest";
import type { Json } from "../api/types";
import { align } from "./align";
import { apply, changesOf, diff, type Diff } from "./diff";

/** The same numbers for the same seed, so that a failure can be seen again. */
function random(seed: number) {
  return (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

const names = ["a", "b", "id", "toString", "constructor", "__proto__", "0", "", "a.b", "hasOwnProperty"];

function value(rnd: (below: number) => number, depth: number): Json {
  const kind = rnd(depth > 0 ? 8 : 5);
  if (kind === 0) return null;
  if (kind === 1) return rnd(2) === 0;
  if (kind === 2) return rnd(4) - 1;
  if (kind <= 4) return ["", "x", "null", "1", "true"][rnd(5)]!;
  if (kind === 5) return Array.from({ length: rnd(7) }, () => value(rnd, depth - 1));
  if (kind === 6) return Array.from({ length: rnd(5) }, () => ({ id: `m${rnd(6)}`, content: value(rnd, depth - 1) }));
  return Object.fromEntries(Array.from({ length: rnd(5) }, () => [names[rnd(names.length)]!, value(rnd, depth - 1)]));
}

/** A value that is a with a few changes. */
function edited(a: Json, rnd: (below: number) => number): Json {
  if (rnd(6) === 0) return value(rnd, 2);
  if (Array.isArray(a)) {
    const list = a.map((v) => (rnd(3) === 0 ? edited(v, rnd) : v));
    if (rnd(2) === 0) list.splice(rnd(list.length + 1), rnd(2), value(rnd, 2));
    return list;
  }
  if (a === null || typeof a !== "object") return a;
  return Object.fromEntries(Object.entries(a).filter(() => rnd(5) > 0).map(([k, v]) => [k, rnd(2) === 0 ? edited(v, rnd) : v]));
}

const size = (v: unknown): number => (v instanceof Map ? [...v.values()].reduce((n: number, m) => n + 1 + size(m), 1) : v !== null && typeof v === "object" ? Object.values(v).reduce((n: number, m) => n + 1 + size(m), 1) : 1);

test("a diff makes the second value of the first, and is not larger than both", () => {
  for (let seed = 0; seed < 5_000; seed++) {
    const rnd = random(seed);
    const a = value(rnd, 5);
    const b = seed % 2 ? value(rnd, 5) : edited(a, rnd);
    const d = diff(a, b);
    expect(apply(d, a), `seed ${seed}`).toEqual(b);
    expect(d.kind === "same", `seed ${seed}`).toBe(JSON.stringify(sorted(a)) === JSON.stringify(sorted(b)));
    expect([...changesOf(d)].length === 0, `seed ${seed}`).toBe(d.kind === "same");
    expect(size(d), `seed ${seed}`).toBeLessThanOrEqual(8 * (size(a) + size(b)));
  }
});

const sorted = (v: Json): Json => (v === null || typeof v !== "object" ? v : Array.isArray(v) ? v.map(sorted) : Object.fromEntries(Object.entries(v).sort(([x], [y]) => (x < y ? -1 : 1)).map(([k, m]) => [`=${k}`, sorted(m)])));

test("lists are laid side by side in their order, and in a longest way when they are short", () => {
  for (let seed = 0; seed < 3_000; seed++) {
    const rnd = random(seed);
    const letters = 1 + rnd(12);
    const list = () => Array.from({ length: rnd(30) }, () => rnd(letters));
    const [a, b] = [list(), list()];
    const pairs = align(a, b);
    expect(pairs.map(([x]) => x).filter((x) => x >= 0)).toEqual(a.map((_, i) => i));
    expect(pairs.map(([, y]) => y).filter((y) => y >= 0)).toEqual(b.map((_, i) => i));
    const both = pairs.filter(([x, y]) => x >= 0 && y >= 0);
    for (const [x, y] of both) expect(a[x]).toBe(b[y]);
    expect(both.length, `seed ${seed}`).toBe(longest(a, b));
  }
});

function longest(a: number[], b: number[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const x of a) {
    const next = [0];
    b.forEach((y, j) => next.push(x === y ? row[j]! + 1 : Math.max(row[j + 1]!, next[j]!)));
    row = next;
  }
  return row.at(-1)!;
}

test("what is put before a list does not change what follows", () => {
  const messages = Array.from({ length: 50 }, (_, i) => ({ id: `m${i}`, content: `message ${i}` }));
  const d = diff({ messages }, { messages: [{ id: "s", content: "a summary" }, ...messages.slice(20, 49), { id: "m49", content: "changed" }] });
  expect([...changesOf(d)].map((c) => [c.path, c.before === undefined, c.after === undefined]).slice(-2)).toEqual([
    ["messages.0", true, false],
    ["messages.30.content", false, false],
  ]);
  expect([...changesOf(d)]).toHaveLength(22);
});

test("as many elements with other ids stand for each other", () => {
  const d = diff([{ id: "a", content: "x" }, { id: "b", content: "y" }], [{ id: "c", content: "x" }, { id: "d", content: "z" }]);
  expect([...changesOf(d)].map((c) => c.path)).toEqual(["0.id", "1.id", "1.content"]);
});

/** Counts reads of elements, which does not depend on the machine. */
function counted<T>(list: T[], reads: { n: number }): T[] {
  return new Proxy(list, { get: (target, key, receiver) => (typeof key === "string" && /^\d+$/.test(key) && reads.n++, Reflect.get(target, key, receiver) as unknown) });
}

test("the work grows with the lists when they are twice as long, whatever they are", () => {
  const kinds: Record<string, (n: number, rnd: (below: number) => number) => [number[], number[]]> = {
    "all different": (n) => [Array.from({ length: n }, (_, i) => i), Array.from({ length: n }, (_, i) => n + i)],
    "in another order": (n) => [Array.from({ length: n }, (_, i) => i), Array.from({ length: n }, (_, i) => n - i)],
    "few values": (n, rnd) => [Array.from({ length: n }, () => rnd(3)), Array.from({ length: n }, () => rnd(3))],
    "many values": (n, rnd) => [Array.from({ length: n }, () => rnd(n)), Array.from({ length: n }, () => rnd(n))],
    "moved blocks": (n) => [Array.from({ length: n }, (_, i) => i), Array.from({ length: n }, (_, i) => (i % 2 ? i : (i + 100) % n))],
    "pairs in nested frames": (n) => [Array.from({ length: n }, (_, i) => Math.min(i, n - i)), Array.from({ length: n }, (_, i) => Math.min(i, n - i) ^ 1)],
  };
  for (const [kind, make] of Object.entries(kinds)) {
    const work = (n: number) => {
      const reads = { n: 0 };
      const [a, b] = make(n, random(1));
      align(counted(a, reads), counted(b, reads));
      return reads.n;
    };
    const [once, twice] = [work(4_000), work(8_000)];
    expect(twice, `${kind}: ${once}, then ${twice}`).toBeLessThan(2.6 * once + 1_000);
  }
});

test("values that are nested deeper than the stack are compared", () => {
  const nested = (end: string) => {
    let v: Json = end;
    for (let i = 0; i < 100_000; i++) v = [v];
    return v;
  };
  expect(diff(nested("a"), nested("a"))).toEqual({ kind: "same" });
  const d: Diff = diff(nested("a"), nested("b"));
  expect([...changesOf(d)]).toHaveLength(1);
});
