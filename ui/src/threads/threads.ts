import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { usePoll } from "../api/use-changes";
import { post, request } from "../api/client";
import type { Json, JsonObject, Thread, ThreadStatus } from "../api/types";

const size = 50;

/** The words that a list shows of a thread, without reading its values. */
const extract = { title: "values.title", first: "values.messages[0].content" };

export interface ThreadFilter {
  status?: ThreadStatus;
  metadata?: JsonObject;
}

/** Threads, the last that changed first, page by page. */
export function useThreads(filter: ThreadFilter = {}) {
  return useInfiniteQuery({
    queryKey: ["threads", filter],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) =>
      post<Thread[]>("/threads/search", { ...filter, limit: size, offset: pageParam, sort_by: "updated_at", sort_order: "desc", select: ["thread_id", "created_at", "updated_at", "metadata", "status", "interrupts"], extract }, signal),
    getNextPageParam: (last, pages) => (last.length < size ? undefined : pages.length * size),
    refetchInterval: usePoll(5_000),
  });
}

/** What a thread is called: its title, else what was said first. */
export function titleOf(t: Thread): string {
  for (const value of [t.metadata?.title, t.extracted?.title, t.extracted?.first]) {
    const text = words(value).trim();
    if (text) return text.length > 120 ? `${text.slice(0, 120)}…` : text;
  }
  return `Thread ${t.thread_id.slice(-8)}`;
}

function words(value: Json | undefined): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((b) => words((b as JsonObject | null)?.text)).join(" ");
  return "";
}

export const isPinned = (t: Thread) => t.metadata?.pinned === true;

export function useThreadActions() {
  const queries = useQueryClient();
  const changed = () => queries.invalidateQueries({ queryKey: ["threads"] });
  const change = useMutation({
    mutationFn: ({ id, metadata }: { id: string; metadata: JsonObject }) => request<Thread>("PATCH", `/threads/${id}`, { body: { metadata } }),
    onSuccess: (t) => {
      void changed();
      void queries.invalidateQueries({ queryKey: ["thread", t.thread_id] });
    },
  });
  const remove = useMutation({ mutationFn: (id: string) => request("DELETE", `/threads/${id}`), onSuccess: changed });
  const copy = useMutation({ mutationFn: (id: string) => post<Thread>(`/threads/${id}/copy`, {}), onSuccess: changed });
  return { change, remove, copy };
}
