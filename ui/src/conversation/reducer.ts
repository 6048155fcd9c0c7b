// What a thread's page knows, and how it changes. Everything that is drawn follows from the state; the record on the server is the truth, and
// what is streamed only fills the time until it is recorded.

import type { StreamEvent } from "../api/events";
import type { Condensed, Interrupt, Json, JsonObject, Message, Row } from "../api/types";
import { nodeOf } from "../graph/nodes";
import { kindOf, merge } from "./message";
import { addRows, inOrder } from "./rows";

/** A node that runs or ran, for the drawing of the graph. Times are in milliseconds. */
export interface Task {
  id: string;
  node: string; // its ID in the drawing with all subgraphs, such as "parent:child"
  began: number;
  took?: number;
  error?: string;
  interrupted?: boolean;
}

export interface Conversation {
  rows: readonly Row[]; // by ascending seq
  older: boolean; // rows before the first are not loaded
  streamed: ReadonlyMap<string, Message>; // by ID, in the order of their first words; those of the record are not among them
  said: readonly Message[]; // sent from here, and not recorded yet
  nested: ReadonlyMap<string, readonly Message[]>; // messages of subagents, by the ID of the tool call that began them, or of their task
  calls: ReadonlyMap<string, string>; // tasks that execute a tool call, and its ID
  tasks: readonly Task[]; // of the current run, or of the last one
  run: string | null; // the run whose events arrive
  attempt: number; // of that run; above 1 its worker or server ended before it
  failure: string | null; // of the last run
  unsaved: string | null; // why the end of the current run cannot be saved; the server tries until it can
}

export const empty: Conversation = {
  rows: [],
  older: false,
  streamed: new Map(),
  said: [],
  nested: new Map(),
  calls: new Map(),
  tasks: [],
  run: null,
  attempt: 1,
  failure: null,
  unsaved: null,
};

export type Action =
  | { type: "rows"; rows: Row[]; older?: boolean }
  | { type: "reset"; rows: Row[]; older: boolean }
  | { type: "cut"; from: number } // the conversation leaves its path before the row of this seq
  | { type: "said"; message: Message }
  | { type: "unsaid"; id: string }
  | { type: "failed"; reason: string }
  | { type: "event"; event: StreamEvent; now: number };

/** How many tasks of a run are kept for its drawing. */
const mostTasks = 2_000;

export function reduce(c: Conversation, a: Action): Conversation {
  switch (a.type) {
    case "reset":
      return settle({ ...c, rows: a.rows, older: a.older });
    case "rows":
      return settle({ ...c, rows: addRows(c.rows, a.rows), older: a.older ?? c.older });
    case "cut":
      return { ...c, rows: c.rows.filter((r) => r.seq < a.from) };
    case "said":
      return { ...c, said: [...c.said, a.message], failure: null };
    case "unsaid":
      return { ...c, said: c.said.filter((m) => m.id !== a.id) };
    case "failed":
      return { ...c, failure: a.reason };
    case "event":
      return onEvent(c, a.event, a.now);
  }
}

/** Forgets what was streamed or said and is on record now. */
function settle(c: Conversation): Conversation {
  const recorded = new Set(c.rows.map((r) => (r.content as Message).id).filter(Boolean));
  const streamed = new Map([...c.streamed].filter(([id]) => !recorded.has(id)));
  return { ...c, streamed, said: c.said.filter((m) => !recorded.has(m.id)) };
}

function onEvent(c: Conversation, event: StreamEvent, now: number): Conversation {
  const [name, ...namespace] = event.name.split("|");
  const data = parse(event.data);
  switch (name) {
    case "metadata":
      return onMetadata(c, data as RunMetadata | null);
    case "messages":
      return onMessage(c, data as [Message, { langgraph_checkpoint_ns?: string }] | null, namespace);
    case "tasks":
      return onTask(c, data as unknown as TaskEvent | null, namespace, now);
    case "error":
      return { ...c, failure: describe(data), tasks: c.tasks.map((t) => (t.took === undefined ? { ...t, took: now - t.began } : t)) };
    case "end_not_saved":
      return { ...c, unsaved: (data as { message?: string } | null)?.message ?? "The end of the run cannot be saved." };
    default:
      return c;
  }
}

interface RunMetadata {
  run_id?: string;
  status?: string;
  attempt?: number;
}

function onMetadata(c: Conversation, data: RunMetadata | null): Conversation {
  if (!data?.run_id) return c;
  if (data.status === "run_done") return { ...c, run: c.run === data.run_id ? null : c.run, unsaved: null };
  const attempt = data.attempt ?? 1;
  if (c.run === data.run_id) return { ...c, attempt, streamed: new Map(), nested: new Map(), tasks: [], unsaved: null }; // another attempt repeats what it said
  return { ...c, run: data.run_id, attempt, failure: null, tasks: [], calls: new Map(), nested: new Map(), unsaved: null };
}

function onMessage(c: Conversation, data: [Message, { langgraph_checkpoint_ns?: string }] | null, namespace: string[]): Conversation {
  const message = data?.[0];
  if (!message?.id || message.type === "remove") return c;
  if (namespace.length > 0 && depth(data![1]?.langgraph_checkpoint_ns) > 1) {
    const task = namespace[0]!.split(":").at(-1)!;
    const owner = c.calls.get(task) ?? task;
    const list = c.nested.get(owner) ?? [];
    const at = list.findIndex((m) => m.id === message.id);
    const next = at < 0 ? [...list, message] : list.map((m, i) => (i === at ? merge(m, message) : m));
    return { ...c, nested: new Map(c.nested).set(owner, next) };
  }
  const before = c.streamed.get(message.id);
  if (!before && (isRecorded(c, message.id) || kindOf(message) === "human")) return c;
  return { ...c, streamed: new Map(c.streamed).set(message.id, merge(before, message)) };
}

const depth = (namespace: string | undefined) => (namespace ? namespace.split("|").length : 0);

/** Only the last rows are looked at: what is streamed now cannot be on record earlier. */
function isRecorded(c: Conversation, id: string): boolean {
  for (let i = c.rows.length - 1; i >= Math.max(0, c.rows.length - 200); i--) if ((c.rows[i]!.content as Message).id === id) return true;
  return false;
}

interface TaskEvent {
  id: string;
  name: string;
  input?: Json;
  result?: Json;
  error?: Json;
  interrupts?: Interrupt[];
}

function onTask(c: Conversation, t: TaskEvent | null, namespace: string[], now: number): Conversation {
  if (!t) return c;
  const calls = toolCallOf(t.input) ? new Map(c.calls).set(t.id, toolCallOf(t.input)!) : c.calls;
  if ("input" in t) {
    if (c.tasks.some((other) => other.id === t.id)) return c;
    return { ...c, calls, tasks: [...c.tasks.slice(-mostTasks), { id: t.id, node: nodeOf(namespace, t.name), began: now }] };
  }
  const error = t.error ? describe(t.error) : undefined;
  const interrupted = (t.interrupts?.length ?? 0) > 0;
  return { ...c, calls, tasks: c.tasks.map((other) => (other.id === t.id ? { ...other, took: now - other.began, error, interrupted } : other)) };
}

/** The ID of the tool call that a task of an agent executes. */
function toolCallOf(input: Json | undefined): string | null {
  const call = (input as JsonObject | null | undefined)?.tool_call as JsonObject | undefined;
  return typeof call?.id === "string" ? call.id : null;
}

function parse(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}

export function describe(error: Json): string {
  if (typeof error === "string") return error;
  const { error: kind, message } = (error ?? {}) as { error?: Json; message?: Json };
  return [kind, message].filter((part) => typeof part === "string" && part !== "").join(": ") || JSON.stringify(error);
}

/** What the transcript consists of. The key of an entry stays from its first token to its record, and so does its place in the document. */
export type Entry =
  | { kind: "message"; key: string; message: Message; row?: Row; results: ReadonlyMap<string, Message> } // results of its calls, by their IDs
  | { kind: "marker"; key: string; marker: Condensed };

/**
 * The entries of a conversation, in order. Results of tools are shown with their calls; those without a call stand for themselves. An entry that says what it said
 * before is the same object, so that it is not drawn again for each token of another.
 */
export function entriesOf(c: Conversation, before: readonly Entry[] = []): Entry[] {
  const returned = new Map<string, Message>();
  const called = new Set<string>();
  const messages: { message: Message; row?: Row }[] = [];
  for (const row of inOrder(c.rows)) messages.push({ message: row.content as Message, row });
  for (const message of c.said) messages.push({ message });
  for (const message of c.streamed.values()) messages.push({ message });
  for (const { message } of messages) {
    for (const id of callIDs(message)) called.add(id);
    if (message.tool_call_id) returned.set(message.tool_call_id, message);
  }
  const entries: Entry[] = [];
  for (const { message, row } of messages) {
    if (row && row.category !== "message") {
      entries.push({ kind: "marker", key: `marker-${row.seq}`, marker: row.content as Condensed });
    } else if (!message.tool_call_id || !called.has(message.tool_call_id)) {
      const key = message.id ?? `row-${row?.seq}`;
      const results = resultsOf(message, returned);
      const old = before[entries.length];
      const same = old?.kind === "message" && old.message === message && old.row === row && sameResults(old.results, results);
      entries.push(same ? old : { kind: "message", key, message, row, results });
    }
  }
  return entries;
}

const none: ReadonlyMap<string, Message> = new Map();

function resultsOf(m: Message, returned: ReadonlyMap<string, Message>): ReadonlyMap<string, Message> {
  const ids = callIDs(m).filter((id) => returned.has(id));
  return ids.length === 0 ? none : new Map(ids.map((id) => [id, returned.get(id)!]));
}

const noIDs: readonly string[] = [];

function callIDs(m: Message): readonly string[] {
  if (!m.tool_calls?.length && !m.tool_call_chunks?.length) return noIDs;
  return [...(m.tool_calls ?? []), ...(m.tool_call_chunks ?? [])].flatMap((call) => call.id ?? []);
}

const sameResults = (a: ReadonlyMap<string, Message>, b: ReadonlyMap<string, Message>) => a === b || (a.size === b.size && [...a].every(([id, m]) => b.get(id) === m));
