import type { Json } from "../api/types";

export type Kind = "queue" | "attempt" | "node" | "model" | "tool" | "save";
export type SpanStatus = "running" | "success" | "error" | "interrupted" | "cancelled" | "lost";

/** A span as GET /understudy/runs/{id}/spans has it. */
export interface Span {
  id: string;
  parent_id: string | null;
  attempt: number;
  kind: Kind;
  name: string;
  status: SpanStatus;
  start_time: string;
  end_time: string | null;
  first_token_time?: string;
  namespace?: string;
  node?: string;
  step?: number;
  model?: string;
  message_id?: string;
  usage?: { input_tokens: number; output_tokens: number; total_tokens: number; cached_tokens: number };
  checkpoints?: number;
  dropped_spans?: number;
  error?: { error: string; message: string; stack: string };
  has_content?: boolean;
  input?: Json;
  input_cut?: boolean;
  output?: Json;
  output_cut?: boolean;
}

/** A span with its times in milliseconds and its place. */
export interface Row extends Span {
  start: number;
  end: number; // now, while it runs
  depth: number;
  tries: [number, number] | null; // this try, of how many
}

/** Dollars for a million tokens. */
export interface Price {
  input: number;
  output: number;
  cached?: number;
}
export type Prices = Record<string, Price>;

/** Spans as rows, each followed by what is in it, in the order of their begins. */
export function rowsOf(spans: readonly Span[], now: number): Row[] {
  const known = new Set(spans.map((s) => s.id));
  const below = new Map<string | null, Span[]>();
  for (const span of spans) {
    const parent = span.parent_id !== null && known.has(span.parent_id) && span.parent_id !== span.id ? span.parent_id : null;
    const list = below.get(parent);
    list ? list.push(span) : below.set(parent, [span]);
  }
  const tries = triesOf(spans);
  const rows: Row[] = [];
  // A stack in place of a recursion: agents call agents. What is in a circle is no one's child and does not appear.
  const stack = [...(below.get(null) ?? [])].reverse().map((span) => ({ span, depth: 0 }));
  while (stack.length > 0) {
    const { span, depth } = stack.pop()!;
    const start = Date.parse(span.start_time);
    rows.push({ ...span, start, end: span.end_time ? Date.parse(span.end_time) : Math.max(start, now), depth, tries: tries.get(span.id) ?? null });
    const children = below.get(span.id) ?? [];
    for (let i = children.length - 1; i >= 0; i--) stack.push({ span: children[i]!, depth: depth + 1 });
  }
  return rows;
}

/** The tries of nodes that were retried: spans of one task, which has one namespace. Attempts are tries of the run. */
function triesOf(spans: readonly Span[]): Map<string, [number, number]> {
  const groups = new Map<string, string[]>();
  for (const s of spans) {
    const key = s.kind === "attempt" ? "attempt" : s.kind === "node" && s.namespace ? `${s.attempt} ${s.namespace}` : null;
    if (key === null) continue;
    const list = groups.get(key);
    list ? list.push(s.id) : groups.set(key, [s.id]);
  }
  const out = new Map<string, [number, number]>();
  for (const list of groups.values()) if (list.length > 1) list.forEach((id, i) => out.set(id, [i + 1, list.length]));
  return out;
}

/** The tries of which a row is one, in order. */
export function siblings(rows: readonly Row[], row: Row): Row[] {
  return row.tries ? rows.filter((r) => r.tries && r.kind === row.kind && (row.kind === "attempt" || (r.namespace === row.namespace && r.attempt === row.attempt))) : [];
}

/** A stretch of time on the axis: from and to in milliseconds, at and width as fractions of it. Idle ones are narrower than their time. */
export interface Stretch {
  from: number;
  to: number;
  at: number;
  width: number;
  idle: boolean;
}

/** How wide a folded stretch is. */
const foldedWidth = 0.03;

/** The time axis of rows. With fold, stretches in which no node, model or tool ran are narrow. */
export function axisOf(rows: readonly Row[], fold: boolean): Stretch[] {
  if (rows.length === 0) return [];
  let from = Infinity;
  let to = -Infinity;
  for (const r of rows) {
    from = Math.min(from, r.start);
    to = Math.max(to, r.end);
  }
  to = Math.max(to, from + 1);
  const stretches: { from: number; to: number; idle: boolean }[] = [];
  if (fold) {
    const least = Math.max(1_000, (to - from) * 0.1);
    let at = from;
    for (const r of rows.filter((r) => r.kind !== "queue" && r.kind !== "attempt").sort((a, b) => a.start - b.start)) {
      if (r.start - at >= least) stretches.push({ from: at, to: r.start, idle: true });
      at = Math.max(at, r.end);
    }
    if (to - at >= least) stretches.push({ from: at, to, idle: true });
  }
  const all: typeof stretches = [];
  let at = from;
  for (const s of stretches) {
    if (s.from > at) all.push({ from: at, to: s.from, idle: false });
    all.push(s);
    at = s.to;
  }
  if (at < to) all.push({ from: at, to, idle: false });
  const busy = all.reduce((n, s) => n + (s.idle ? 0 : s.to - s.from), 0);
  const idle = all.filter((s) => s.idle).length;
  const narrow = busy === 0 ? 1 / Math.max(1, idle) : foldedWidth;
  const rest = 1 - idle * narrow;
  let x = 0;
  return all.map((s) => {
    const width = s.idle ? narrow : ((s.to - s.from) / busy) * rest;
    const out = { ...s, at: x, width };
    x += width;
    return out;
  });
}

/** Where a time is on the axis, as a fraction. */
export function place(axis: readonly Stretch[], time: number): number {
  let low = 0;
  let high = axis.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis[middle]!.to < time) low = middle + 1;
    else high = middle;
  }
  const s = axis[low];
  if (!s) return 0;
  return s.at + s.width * Math.min(1, Math.max(0, (time - s.from) / (s.to - s.from)));
}

/** The price of a model; null when the table has none. The longest name that the model's begins with counts. */
export function priceOf(model: string, prices: Prices): Price | null {
  const name = Object.keys(prices)
    .filter((p) => model.startsWith(p))
    .sort((a, b) => b.length - a.length)[0];
  return name === undefined ? null : prices[name]!;
}

/** What a model call cost in dollars; null when the table has no price. */
export function costOf(span: Span, prices: Prices): number | null {
  const price = span.usage && span.model ? priceOf(span.model, prices) : null;
  if (!price || !span.usage) return null;
  const { input, output, cached } = price;
  const { input_tokens, output_tokens, cached_tokens } = span.usage;
  return ((input_tokens - cached_tokens) * input + cached_tokens * (cached ?? input) + output_tokens * output) / 1e6;
}

export interface Totals {
  calls: number;
  input: number;
  output: number;
  cached: number;
  cost: number | null; // null: no call has a price
  unpriced: number; // calls without one
  errors: number;
  first: number | null; // ms from the begin of the run to its first token
}

export function totalsOf(rows: readonly Row[], prices: Prices): Totals {
  const out: Totals = { calls: 0, input: 0, output: 0, cached: 0, cost: null, unpriced: 0, errors: 0, first: null };
  const begin = rows[0]?.start ?? 0;
  for (const r of rows) {
    if (r.status === "error") out.errors++;
    if (r.first_token_time) {
      const after = Date.parse(r.first_token_time) - begin;
      out.first = out.first === null ? after : Math.min(out.first, after);
    }
    if (r.kind !== "model") continue;
    out.calls++;
    out.input += r.usage?.input_tokens ?? 0;
    out.output += r.usage?.output_tokens ?? 0;
    out.cached += r.usage?.cached_tokens ?? 0;
    const cost = costOf(r, prices);
    if (cost === null) out.unpriced++;
    else out.cost = (out.cost ?? 0) + cost;
  }
  return out;
}

/** Whether a row has a text in what is shown of it. */
export function matches(row: Row, text: string): boolean {
  const wanted = text.trim().toLowerCase();
  return wanted === "" || [row.name, row.kind, row.status, row.model, row.node, row.namespace, row.error?.error, row.error?.message].some((t) => t?.toLowerCase().includes(wanted));
}

/** The innermost failed span: what the failure of the run began with. */
export function failing(rows: readonly Row[]): Row | null {
  let deepest: Row | null = null;
  for (const r of rows) if (r.status === "error" && (!deepest || r.depth > deepest.depth || (r.depth === deepest.depth && r.attempt > deepest.attempt))) deepest = r;
  return deepest;
}

/** The step of the graph itself that a span is in, whose checkpoint before it can be run again; null in none. */
export function rootStep(rows: readonly Row[], row: Row): number | null {
  const byID = new Map(rows.map((r) => [r.id, r]));
  let step: number | null = null;
  for (let r: Row | undefined = row; r; r = r.parent_id === null ? undefined : byID.get(r.parent_id)) if (r.kind === "node" && r.step !== undefined) step = r.step;
  return step;
}

export interface Entry {
  time: number;
  row: Row;
  end: boolean;
}

/** Begins and ends in the order of time. */
export function logOf(rows: readonly Row[]): Entry[] {
  const out: Entry[] = [];
  for (const row of rows) {
    out.push({ time: row.start, row, end: false });
    if (row.end_time) out.push({ time: row.end, row, end: true });
  }
  // What began first ends last when the times are equal.
  return out.sort((a, b) => a.time - b.time || Number(a.end) - Number(b.end) || (a.end ? b.row.depth - a.row.depth : a.row.depth - b.row.depth));
}

const key = "understudy.prices";

/** The user's prices, which this browser keeps. */
export function readPrices(): Prices {
  try {
    return parsePrices(localStorage.getItem(key) ?? "{}");
  } catch {
    return {};
  }
}

export function writePrices(prices: Prices) {
  try {
    localStorage.setItem(key, JSON.stringify(prices));
  } catch {
    // Private windows keep nothing; the prices count until the page is closed.
  }
}

/** Reads {"model": {"input", "output", "cached"?}}; the error says what is wrong. */
export function parsePrices(text: string): Prices {
  const value = JSON.parse(text) as unknown;
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error('Write an object: {"gpt-4o": {"input": 2.5, "output": 10, "cached": 1.25}}');
  for (const [name, p] of Object.entries(value as Record<string, Price>)) {
    const good = (n: unknown, needed: boolean) => (n === undefined ? !needed : typeof n === "number" && n >= 0);
    if (!p || !good(p.input, true) || !good(p.output, true) || !good(p.cached, false)) throw new Error(`${name} needs input and output: dollars for a million tokens`);
  }
  return value as Prices;
}
