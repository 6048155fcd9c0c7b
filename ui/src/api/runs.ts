import { APIError, get, post } from "./client";
import { isOwn } from "./server";
import type { Json, JsonObject, Run, Thread } from "./types";

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

/** A run in the list of all threads. */
export interface RecentRun extends Run {
  graph_id: string;
  started_at: string | null;
  ended_at: string | null;
  attempt: number;
  error: Json;
  waits_for?: "time" | "thread" | "job" | null; // of a pending one
  server?: string | null; // that executes it
  lease_until?: string | null; // when another server takes it over, unless this one reports that it lives
}

export interface RecentRuns {
  runs: RecentRun[];
  next: string | null; // the before of the next page
}

export interface RunFilter {
  status?: string;
  graph?: string;
  cron?: string; // where the server lists the runs of all threads
  before?: string;
}

/** The runs of all threads, newest first, page by page. */
export async function recentRuns(filter: RunFilter, signal: AbortSignal): Promise<RecentRuns> {
  return (await isOwn()) ? get<RecentRuns>(recentPath(filter), signal) : runsOfThreads(filter, signal);
}

/** The route of the runs of all threads, which LangGraph Server does not have. */
export function recentPath({ status, graph, cron, before }: RunFilter): string {
  return `/understudy/runs?${new URLSearchParams({ limit: "50", ...(status && { status }), ...(graph && { graph_id: graph }), ...(cron && { cron_id: cron }), ...(before && { before }) })}`;
}

/** How many threads a page of runs is of, and how many runs it has of each, where a server lists the runs of one thread only. */
const [threadsAtOnce, runsOfEach] = [20, 10];

async function runsOfThreads({ status, graph, before }: RunFilter, signal: AbortSignal): Promise<RecentRuns> {
  const offset = Number(before ?? 0);
  const threads = await post<Thread[]>(
    "/threads/search",
    { limit: threadsAtOnce, offset, sort_by: "updated_at", sort_order: "desc", select: ["thread_id", "metadata"], ...(graph && { metadata: { graph_id: graph } as JsonObject }) },
    signal,
  );
  const lists = await Promise.all(
    threads.map(async (t) => {
      const runs = await get<Run[]>(`/threads/${t.thread_id}/runs?limit=${runsOfEach}${status ? `&status=${status}` : ""}`, signal).catch((error: unknown): Run[] => {
        if (error instanceof APIError && error.status === 404) return []; // the thread was deleted meanwhile
        throw error;
      });
      return runs.map((r): RecentRun => ({ ...r, graph_id: String(t.metadata?.graph_id ?? ""), started_at: r.created_at, ended_at: isActive(r) ? null : r.updated_at, attempt: 1, error: null }));
    }),
  );
  return { runs: lists.flat().sort((a, b) => (a.created_at < b.created_at ? 1 : -1)), next: threads.length < threadsAtOnce ? null : String(offset + threadsAtOnce) };
}
