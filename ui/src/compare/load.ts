import { get, getBytes } from "../api/client";
import { isOwn } from "../api/server";
import { isActive } from "../api/runs";
import type { Message, Row as MessageRow, Run, Thread } from "../api/types";
import { inOrder } from "../conversation/rows";
import { count, dollars, duration } from "../parts/format";
import { readPrices, rowsOf, totalsOf, type Span } from "../run/spans";
import { checkpointAt, lastOf } from "../state/checkpoints";
import { statusOf } from "../threads/threads";
import type { Ref } from "./refs";

/** One of the two that are compared. */
export interface Side {
  ref: Ref;
  status: string | null;
  active: boolean; // it may change by itself
  at: string;
  figures: Map<string, Figure>;
  messages: Message[] | null; // null: those of its state
  cut: boolean; // it has older messages than those
  state: ArrayBuffer | null; // as the server sent it; null: it left none
}

export interface Figure {
  value: number;
  show: (value: number) => string;
}

/** How many messages of a thread are compared, the newest ones. */
export const mostMessages = 2_000;

export function load(ref: Ref, signal: AbortSignal): Promise<Side> {
  return ref.kind === "run" ? loadRun(ref, signal) : ref.kind === "thread" ? loadThread(ref, signal) : loadCheckpoint(ref, signal);
}

async function loadRun(ref: Ref, signal: AbortSignal): Promise<Side> {
  const run = await get<Run>(`/threads/${ref.thread}/runs/${ref.id}`, signal);
  const [spans, last] = await Promise.all([spansOf(ref.id, signal), lastOf(ref.thread, ref.id, signal)]);
  const state = last ? await stateAt(ref.thread, last.checkpoint_id, signal) : null;
  const figures = new Map<string, Figure>();
  if (!isActive(run)) figures.set("time", { value: Date.parse(run.updated_at) - Date.parse(run.created_at), show: duration });
  if (spans && spans.length > 0) {
    const rows = rowsOf(spans, Date.now());
    const t = totalsOf(rows, readPrices());
    const whole = (name: string, value: number | null, show: Figure["show"] = count) => value !== null && figures.set(name, { value, show });
    whole("to first token", t.first, duration);
    whole("steps", new Set(rows.filter((r) => r.kind === "node").map((r) => `${r.attempt} ${r.step}`)).size);
    whole("model calls", t.calls);
    whole("tool calls", rows.filter((r) => r.kind === "tool").length);
    whole("tokens in", t.input);
    whole("cached", t.cached);
    whole("tokens out", t.output);
    whole("cost", t.cost, dollars);
    whole("failed spans", t.errors);
  }
  return { ref, status: run.status, active: isActive(run), at: run.created_at, figures, messages: null, cut: false, state };
}

async function loadCheckpoint(ref: Ref, signal: AbortSignal): Promise<Side> {
  const [state, c] = await Promise.all([stateAt(ref.thread, ref.id, signal), checkpointAt(ref.thread, ref.id, signal)]);
  const figures = new Map<string, Figure>();
  if (c) figures.set("step", { value: c.step, show: String });
  return { ref, status: null, active: false, at: c?.created_at ?? "", figures, messages: null, cut: false, state };
}

async function loadThread(ref: Ref, signal: AbortSignal): Promise<Side> {
  const path = `/threads/${ref.thread}`;
  const thread = await get<Thread>(path, signal);
  const [state, conversation] = await Promise.all([getBytes(`${path}/state?overlay=false`, signal), newest(path, signal)]);
  const messages = inOrder(conversation.rows).filter((r) => r.category === "message").map((r) => r.content as Message);
  return { ref, status: statusOf(thread), active: thread.status === "busy", at: thread.updated_at, figures: new Map(), messages, cut: conversation.older, state };
}

/** The newest messages of a thread, also those that were condensed. */
async function newest(path: string, signal: AbortSignal): Promise<{ rows: MessageRow[]; older: boolean }> {
  let rows: MessageRow[] = [];
  for (let before = Number.MAX_SAFE_INTEGER; ; ) {
    const page = await get<{ data: MessageRow[]; has_more: boolean }>(`${path}/messages?before_seq=${before}&limit=1000`, signal);
    rows = [...page.data, ...rows];
    const first = page.data[0];
    if (!page.has_more || !first) return { rows, older: false };
    if (rows.length >= mostMessages) return { rows, older: true };
    before = first.seq;
  }
}

/** The spans of a run; null in front of a server that has none. */
async function spansOf(run: string, signal: AbortSignal): Promise<Span[] | null> {
  if (!(await isOwn())) return null;
  return (await get<{ spans: Span[] }>(`/understudy/runs/${run}/spans?limit=20000`, signal)).spans;
}

const stateAt = (thread: string, checkpoint: string, signal: AbortSignal) => getBytes(`/threads/${thread}/state/${checkpoint}?overlay=false`, signal);
