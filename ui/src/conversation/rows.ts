import type { Row } from "../api/types";

/** Adds rows to those that are known. A row of the same seq replaces: messages are revised in place. The result is by ascending seq. */
export function addRows(known: readonly Row[], more: readonly Row[]): Row[] {
  if (more.length === 0) return known as Row[];
  const bySeq = new Map(known.map((r) => [r.seq, r]));
  for (const row of more) bySeq.set(row.seq, row);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}

const orders = new WeakMap<readonly Row[], Row[]>();

/** As order has it, computed once: rows stay the same while tokens arrive. */
export function inOrder(rows: readonly Row[]): readonly Row[] {
  let ordered = orders.get(rows);
  if (!ordered) orders.set(rows, (ordered = order(rows)));
  return ordered;
}

/**
 * Puts rows, by ascending seq, in the order of the conversation: a row with after_seq stands behind the row of that seq, or at the beginning
 * for 0; where that row is not among them, at its own place. Linear in their number.
 */
function order(rows: readonly Row[]): Row[] {
  const known = new Set(rows.map((r) => r.seq));
  const behind = new Map<number, Row[]>();
  const roots: Row[] = [];
  for (const row of rows) {
    const after = row.metadata.after_seq;
    if (after === undefined || (after !== 0 && !known.has(after))) roots.push(row);
    else (behind.get(after) ?? behind.set(after, []).get(after)!).push(row);
  }
  const out: Row[] = [];
  // Of several rows behind the same one, the last that was written stands next to it.
  const stack: Row[] = [...roots.reverse(), ...(behind.get(0) ?? [])];
  for (let row = stack.pop(); row; row = stack.pop()) {
    out.push(row);
    stack.push(...(behind.get(row.seq) ?? []));
  }
  return out;
}
