import { expect, test } from "vitest";
import { axisOf, costOf, failing, logOf, matches, parsePrices, place, rootStep, rowsOf, siblings, totalsOf, type Span } from "./spans";

const at = (ms: number) => new Date(1_000_000 + ms).toISOString();
const span = (id: string, parent: string | null, start: number, end: number | null, more: Partial<Span> = {}): Span => ({
  id, parent_id: parent, attempt: 1, kind: "node", name: id, status: end === null ? "running" : "success", start_time: at(start), end_time: end === null ? null : at(end), ...more,
});
const run = [
  span("q1", null, 0, 5_000, { kind: "queue" }),
  span("1", null, 5_000, null, { kind: "attempt" }),
  span("1.1", "1", 5_000, 6_000, { namespace: "a:1", step: 2, status: "error", error: { error: "E", message: "boom", stack: "" } }),
  span("1.2", "1.1", 5_100, 5_900, { kind: "model", model: "m-large-1", first_token_time: at(5_200), usage: { input_tokens: 1000, output_tokens: 100, total_tokens: 1100, cached_tokens: 400 } }),
  span("1.3", "1", 7_000, 8_000, { namespace: "a:1", step: 2 }),
  span("1.4", "1", 60_000, 61_000, { kind: "tool" }),
  span("1.5", "gone", 61_000, null, { kind: "model" }),
];

test("rows are a tree with tries, and running spans end now", () => {
  const rows = rowsOf(run, 1_062_000);
  expect(rows.map((r) => [r.id, r.depth, r.tries, r.end - r.start])).toEqual([
    ["q1", 0, null, 5_000], ["1", 0, null, 57_000], ["1.1", 1, [1, 2], 1_000], ["1.2", 2, null, 800], ["1.3", 1, [2, 2], 1_000], ["1.4", 1, null, 1_000], ["1.5", 0, null, 1_000],
  ]);
  expect(siblings(rows, rows[2]!).map((r) => r.id)).toEqual(["1.1", "1.3"]);
  expect(siblings(rows, rows[5]!)).toEqual([]);
  expect(failing(rows)?.id).toBe("1.1");
  expect(rootStep(rows, rows[3]!)).toBe(2);
  expect(rootStep(rows, rows[5]!)).toBeNull();
});

test("circles and unknown parents end", () => {
  expect(rowsOf([span("a", "b", 0, 1), span("b", "a", 0, 1), span("c", "c", 0, 1)], 0).map((r) => r.id)).toEqual(["c"]);
});

test("the axis folds what is idle, and keeps the order of times", () => {
  const rows = rowsOf(run, 1_062_000);
  const folded = axisOf(rows, true);
  expect(folded.filter((s) => s.idle)).toHaveLength(1); // before the tool; the queue is shorter than a tenth
  for (const fold of [true, false]) {
    const axis = axisOf(rows, fold);
    expect(axis.reduce((n, s) => n + s.width, 0)).toBeCloseTo(1);
    let before = -1;
    for (let t = 1_000_000; t <= 1_062_000; t += 137) {
      const x = place(axis, t);
      expect(x).toBeGreaterThanOrEqual(before);
      expect(x).toBeLessThanOrEqual(1 + 1e-9);
      before = x;
    }
    expect(place(axis, 1_000_000)).toBe(0);
    expect(place(axis, 1_062_000)).toBeCloseTo(1);
  }
  expect(place(axisOf(rows, false), 1_031_000)).toBeCloseTo(0.5);
  expect(axisOf([], true)).toEqual([]);
  expect(place([], 5)).toBe(0);
  expect(axisOf(rowsOf([span("q", null, 0, 10_000, { kind: "queue" })], 0), true)).toHaveLength(1);
});

test("random runs have a monotonous axis", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  for (let round = 0; round < 200; round++) {
    const spans = Array.from({ length: 1 + random(20) }, (_, i) => {
      const start = random(100_000);
      return span(String(i), i > 0 && random(2) ? String(random(i)) : null, start, start + random(random(2) ? 100 : 20_000), { kind: (["queue", "attempt", "node", "model"] as const)[random(4)] });
    });
    const rows = rowsOf(spans, 0);
    expect(rows).toHaveLength(spans.length);
    const axis = axisOf(rows, true);
    for (const r of rows) {
      expect(place(axis, r.start)).toBeLessThanOrEqual(place(axis, r.end));
      expect(place(axis, r.end)).toBeLessThanOrEqual(1 + 1e-9);
    }
    const log = logOf(rows);
    for (let i = 1; i < log.length; i++) expect(log[i]!.time).toBeGreaterThanOrEqual(log[i - 1]!.time);
  }
});

test("2,000 spans take little time", () => {
  const many = Array.from({ length: 2_000 }, (_, i) => span(String(i + 1), i ? String(Math.ceil(i / 3)) : null, i * 10, i * 10 + 500));
  const begin = performance.now();
  const rows = rowsOf(many, 0);
  const axis = axisOf(rows, true);
  for (const r of rows) place(axis, r.start);
  logOf(rows);
  expect(rows).toHaveLength(2_000);
  expect(performance.now() - begin).toBeLessThan(300);
});

test("costs and totals", () => {
  const prices = { m: { input: 100, output: 100 }, "m-large": { input: 2, output: 10, cached: 1 } };
  expect(costOf(run[3]!, prices)).toBeCloseTo((600 * 2 + 400 * 1 + 100 * 10) / 1e6);
  expect(costOf(run[3]!, { other: { input: 1, output: 1 } })).toBeNull();
  expect(totalsOf(rowsOf(run, 0), prices)).toMatchObject({ calls: 2, input: 1000, output: 100, cached: 400, unpriced: 1, errors: 1, first: 5_200 });
  expect(totalsOf(rowsOf(run, 0), {}).cost).toBeNull();
  for (const wrong of ["[]", "1", "null", '{"m":{}}', '{"m":{"input":-1,"output":1}}', '{"m":{"input":1,"output":1,"cached":"1"}}', "{"]) expect(() => parsePrices(wrong)).toThrow();
  expect(parsePrices('{"m":{"input":1,"output":2}}')).toEqual({ m: { input: 1, output: 2 } });
});

test("search", () => {
  const rows = rowsOf(run, 0);
  expect(rows.filter((r) => matches(r, " BOOM")).map((r) => r.id)).toEqual(["1.1"]);
  expect(rows.filter((r) => matches(r, "m-large")).map((r) => r.id)).toEqual(["1.2"]);
  expect(rows.filter((r) => matches(r, ""))).toHaveLength(rows.length);
});
