/** An element of two lists laid side by side: its place in each, -1 where the list has none like it. */
export type Pair = [a: number, b: number];

/** A gap of at most this many pairs per element is compared pair by pair, so that the work grows with the lists and not with their product. */
const dense = 64;

/** How often a gap between matches is divided again by elements that are unique inside it. */
const deepest = 8;

/**
 * Lays two lists side by side so that equal elements meet where that keeps their order. What stands between two matches stays unmatched: first what
 * only a has, then what only b has. The work is within n log n: elements that both lists have exactly once are matched first, as in a patience diff.
 */
export function align<T>(a: readonly T[], b: readonly T[]): Pair[] {
  const out: Pair[] = [];
  within(a, 0, a.length, b, 0, b.length, deepest, out);
  return out;
}

function within<T>(a: readonly T[], aFrom: number, aTo: number, b: readonly T[], bFrom: number, bTo: number, depth: number, out: Pair[]) {
  while (aFrom < aTo && bFrom < bTo && a[aFrom] === b[bFrom]) out.push([aFrom++, bFrom++]);
  let tail = 0;
  while (aFrom < aTo - tail && bFrom < bTo - tail && a[aTo - tail - 1] === b[bTo - tail - 1]) tail++;
  const [aEnd, bEnd] = [aTo - tail, bTo - tail];
  const matches = aFrom === aEnd || bFrom === bEnd ? [] : matchesOf(a, aFrom, aEnd, b, bFrom, bEnd, depth);
  for (const [x, y] of [...matches, [aEnd, bEnd] as Pair]) {
    // Without a match, dividing would find the same gap again.
    if (matches.length > 0) within(a, aFrom, x, b, bFrom, y, depth - 1, out);
    else {
      for (let i = aFrom; i < x; i++) out.push([i, -1]);
      for (let i = bFrom; i < y; i++) out.push([-1, i]);
    }
    if (x < aEnd) out.push([x, y]);
    [aFrom, bFrom] = [x + 1, y + 1];
  }
  for (let i = 0; i < tail; i++) out.push([aEnd + i, bEnd + i]);
}

function matchesOf<T>(a: readonly T[], aFrom: number, aTo: number, b: readonly T[], bFrom: number, bTo: number, depth: number): Pair[] {
  const [n, m] = [aTo - aFrom, bTo - bFrom];
  if (n * m <= dense * (n + m)) return longestCommon(a, aFrom, n, b, bFrom, m);
  return depth > 0 ? uniqueMatches(a, aFrom, aTo, b, bFrom, bTo) : [];
}

/** A longest common subsequence, by the table of all pairs. */
function longestCommon<T>(a: readonly T[], aFrom: number, n: number, b: readonly T[], bFrom: number, m: number): Pair[] {
  const width = m + 1;
  const best = new Uint32Array((n + 1) * width); // of what begins at i and j
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--) best[i * width + j] = a[aFrom + i] === b[bFrom + j] ? best[(i + 1) * width + j + 1]! + 1 : Math.max(best[(i + 1) * width + j]!, best[i * width + j + 1]!);
  const out: Pair[] = [];
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (a[aFrom + i] === b[bFrom + j]) out.push([aFrom + i++, bFrom + j++]);
    else if (best[(i + 1) * width + j]! >= best[i * width + j + 1]!) i++;
    else j++;
  }
  return out;
}

/** Of the elements that both parts have exactly once, most of those that are in the same order in both: the longest ascending run of their places. */
function uniqueMatches<T>(a: readonly T[], aFrom: number, aTo: number, b: readonly T[], bFrom: number, bTo: number): Pair[] {
  const inB = places(b, bFrom, bTo);
  const common: Pair[] = [];
  for (const [element, at] of places(a, aFrom, aTo)) {
    const other = inB.get(element) ?? -1;
    if (at >= 0 && other >= 0) common.push([at, other]);
  }
  common.sort((x, y) => x[0] - y[0]);
  const ends: number[] = []; // the smallest last place in b of an ascending run, by its length
  const previous: number[] = [];
  for (const [i, [, y]] of common.entries()) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (common[ends[middle]!]![1] < y) low = middle + 1;
      else high = middle;
    }
    previous[i] = low > 0 ? ends[low - 1]! : -1;
    ends[low] = i;
  }
  const out: Pair[] = [];
  for (let i = ends.at(-1) ?? -1; i >= 0; i = previous[i]!) out.push(common[i]!);
  return out.reverse();
}

/** Where each element of a part is; -1 when it is there more than once. */
function places<T>(list: readonly T[], from: number, to: number): Map<T, number> {
  const out = new Map<T, number>();
  for (let i = from; i < to; i++) out.set(list[i]!, out.has(list[i]!) ? -1 : i);
  return out;
}
