import { APIError, get } from "../api/client";
import { isActive } from "../api/runs";
import type { Json, JsonObject, Message, Row as MessageRow, Run, State, Thread } from "../api/types";
import { inOrder } from "../conversation/rows";
import { count, dollars, duration } from "../parts/format";
import { readPrices, rowsOf, totalsOf, type Span } from "../run/spans";
import { checkpointsOf } from "../state/checkpoints";
import type { Ref } from "./refs";

/** One of the two that are compared. */
export interface Side {
  ref: Ref;
  status: string | null;
  active: boolean; // it may change by itself
  at: string;
  figures: Map<string, Figure>;
  messages: Message[];
  cut: boolean; // it has older messages than those
  values: JsonObject | null; // its state by channel; null: it left none
}

export interface Figure {
  value: number;
  show: (value: number) => string;
}

/** How many messages of a thread are compared, the newest ones. */
export const mostMessages = 2_000;

/** How many checkpoints are searched for the last one of a run. */
const mostCheckpoints = 10_000;

export function load(ref: Ref, signal: AbortSignal): Promise<Side> {
  return ref.kind === "run" ? loadRun(ref, signal) : ref.kind === "thread" ? loadThread(ref, signal) : loadCheckpoint(ref, signal);
}

async function loadRun(ref: Ref, signal: AbortSignal): Promise<Side> {
  const run = await get<Run>(`/threads/${ref.thread}/runs/${ref.id}`, signal);
  const [spans, checkpoints] = await Promise.all([spansOf(ref.id, signal), checkpointsOf(ref.thread, signal, mostCheckpoints)]);
  const last = checkpoints.find((c) => c.run_id === ref.id);
  const state = last ? await stateAt(ref.thread, last.checkpoint_id, signal) : null;
  const messages = messagesOf(state?.values);
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
  if (messages.length > 0) figures.set("messages", { value: messages.length, show: count });
  return { ref, status: run.status, active: isActive(run), at: run.created_at, figures, messages, cut: false, values: asObject(state?.values) };
}

async function loadCheckpoint(ref: Ref, signal: AbortSignal): Promise<Side> {
  const state = await stateAt(ref.thread, ref.id, signal);
  const messages = messagesOf(state.values);
  const figures = new Map<string, Figure>();
  if (typeof state.metadata.step === "number") figures.set("step", { value: state.metadata.step, show: String });
  addMessages(figures, messages);
  return { ref, status: null, active: false, at: state.created_at, figures, messages, cut: false, values: asObject(state.values) };
}

async function loadThread(ref: Ref, signal: AbortSignal): Promise<Side> {
  const path = `/threads/${ref.thread}`;
  const thread = await get<Thread>(path, signal);
  const [state, conversation] = await Promise.all([get<State>(`${path}/state?overlay=false`, signal), newest(path, signal)]);
  const messages = inOrder(conversation.rows).filter((r) => r.category === "message").map((r) => r.content as Message);
  const figures = new Map<string, Figure>();
  addMessages(figures, messages);
  return { ref, status: thread.status, active: thread.status === "busy", at: thread.updated_at, figures, messages, cut: conversation.older, values: asObject(state.values) };
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
  try {
    return (await get<{ spans: Span[] }>(`/understudy/runs/${run}/spans?limit=20000`, signal)).spans;
  } catch (error) {
    if (error instanceof APIError && error.status === 404) return null;
    throw error;
  }
}

const stateAt = (thread: string, checkpoint: string, signal: AbortSignal) => get<State>(`/threads/${thread}/state/${checkpoint}?overlay=false`, signal);

function addMessages(figures: Map<string, Figure>, messages: Message[]) {
  figures.set("messages", { value: messages.length, show: count });
  let [input, output] = [0, 0];
  for (const m of messages) [input, output] = [input + (m.usage_metadata?.input_tokens ?? 0), output + (m.usage_metadata?.output_tokens ?? 0)];
  if (input + output === 0) return;
  figures.set("tokens in", { value: input, show: count });
  figures.set("tokens out", { value: output, show: count });
}

const asObject = (values: Json | undefined): JsonObject | null => (values !== null && typeof values === "object" && !Array.isArray(values) ? values : null);

/** The messages in a state; none when it keeps something else by that name. */
function messagesOf(values: Json | undefined): Message[] {
  const list = asObject(values)?.messages;
  const good = Array.isArray(list) && list.every((m) => typeof asObject(m)?.type === "string" && (typeof asObject(m)!.content === "string" || Array.isArray(asObject(m)!.content)));
  return good ? (list as unknown as Message[]) : [];
}
