import { APIError, get, post } from "../api/client";
import type { State } from "../api/types";
import type { Checkpoint } from "../conversation/branches";

/** The newest checkpoints of a thread, newest first; of how many, the server decides without a limit. In front of a server that has no such list, they are read from its history. */
export async function checkpointsOf(thread: string, signal: AbortSignal, limit?: number): Promise<Checkpoint[]> {
  try {
    return await get<Checkpoint[]>(`/understudy/threads/${thread}/tree${limit ? `?limit=${limit}` : ""}`, signal);
  } catch (error) {
    if (!(error instanceof APIError && error.status === 404)) throw error;
  }
  const states = await post<State[]>(`/threads/${thread}/history?overlay=false`, { limit: 100 }, signal);
  return states.map((s) => ({
    checkpoint_id: s.checkpoint.checkpoint_id,
    parent_checkpoint_id: s.parent_checkpoint?.checkpoint_id ?? null,
    created_at: s.created_at,
    step: Number(s.metadata.step),
    source: String(s.metadata.source),
    run_id: typeof s.metadata.run_id === "string" ? s.metadata.run_id : null,
  }));
}
