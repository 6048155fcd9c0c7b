import { post } from "./client";
import type { Run } from "./types";

/** Begins a run that the pages can draw while it executes, and again after a reload. body has what else POST /threads/{id}/runs takes. */
export function beginRun(thread: string, body: Record<string, unknown> & { assistant_id: unknown }): Promise<Run> {
  return post<Run>(`/threads/${thread}/runs`, {
    ...body,
    multitask_strategy: body.multitask_strategy ?? "reject",
    stream_mode: ["messages-tuple", "updates", "tasks", "custom"],
    stream_subgraphs: true,
    stream_resumable: true,
  });
}

/** Whether a run has not ended. */
export const isActive = (r: Run) => r.status === "pending" || r.status === "running";
