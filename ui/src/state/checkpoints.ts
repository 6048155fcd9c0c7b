import { get, post } from "../api/client";
import { isOwn } from "../api/server";
import type { JsonObject, Message, Row, State } from "../api/types";
import { beginsTurn, type Checkpoint, type Tree } from "../conversation/branches";

/** How many states are read of a server that lists no checkpoints: each has all values of its thread. */
const mostStates = 50;

/** How many checkpoints are searched for one of them. */
const mostCheckpoints = 10_000;

/** The newest checkpoints of a thread, newest first; of how many, the server decides without a limit. */
export async function checkpointsOf(thread: string, signal: AbortSignal, limit?: number): Promise<Checkpoint[]> {
  if (await isOwn()) return get<Checkpoint[]>(`/understudy/threads/${thread}/tree${limit ? `?limit=${limit}` : ""}`, signal);
  return history(thread, { limit: Math.min(limit ?? mostStates, mostStates) }, signal);
}

/** The last checkpoint of a run; undefined: it saved none, or that is too long ago. */
export async function lastOf(thread: string, run: string, signal: AbortSignal): Promise<Checkpoint | undefined> {
  if (await isOwn()) return (await checkpointsOf(thread, signal, mostCheckpoints)).find((c) => c.run_id === run);
  return (await history(thread, { limit: 1, metadata: { run_id: run } }, signal))[0];
}

/** A checkpoint of a thread; undefined: there is none, or it is too long ago. */
export async function checkpointAt(thread: string, checkpoint: string, signal: AbortSignal): Promise<Checkpoint | undefined> {
  if (await isOwn()) return (await checkpointsOf(thread, signal, mostCheckpoints)).find((c) => c.checkpoint_id === checkpoint);
  return described(await get<State>(`/threads/${thread}/state/${checkpoint}?overlay=false`, signal));
}

/** Where a thread stood before a message was added to it; undefined: nowhere, it was the first. The tree has the newest checkpoints, and older ones are read. */
export async function beforeMessage(thread: string, message: Message, row: Row | undefined, tree: Tree): Promise<string | undefined> {
  const load = async (id: string) => tree.get(id) ?? described(await get<State>(`/threads/${thread}/state/${id}?overlay=false`));
  let at = (await load(row?.metadata.checkpoint_id ?? (await savedBy(thread, message)))).parent_checkpoint_id;
  while (at) {
    const c = await load(at);
    if (!beginsTurn(c) || !c.parent_checkpoint_id) break;
    at = c.parent_checkpoint_id;
  }
  return at ?? undefined;
}

/** The checkpoint that saved a message which is not in the record of the newest branch. */
async function savedBy(thread: string, message: Message): Promise<string> {
  const saved = message.id && (await isOwn()) ? await get<{ checkpoint_id: string | null }>(`/understudy/threads/${thread}/messages/${encodeURIComponent(message.id)}`) : null;
  if (!saved?.checkpoint_id) throw new Error("It is not known which step saved this message. Choose the step before it in State, and press Run from here.");
  return saved.checkpoint_id;
}

async function history(thread: string, body: JsonObject, signal: AbortSignal): Promise<Checkpoint[]> {
  return (await post<State[]>(`/threads/${thread}/history?overlay=false`, body, signal)).map(described);
}

const described = (s: State): Checkpoint => ({
  checkpoint_id: s.checkpoint.checkpoint_id,
  parent_checkpoint_id: s.parent_checkpoint?.checkpoint_id ?? null,
  created_at: s.created_at,
  step: Number(s.metadata.step),
  source: String(s.metadata.source),
  run_id: typeof s.metadata.run_id === "string" ? s.metadata.run_id : null,
});
