import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { usePoll } from "../api/use-changes";
import { get, post, request } from "../api/client";
import { readAgain } from "../api/read-again";
import { useOwn } from "../api/server";
import type { Json, JsonObject, Message, Row, Thread, ThreadStatus } from "../api/types";
import { Titles } from "./titles";

const size = 50;

const titles = new Titles();
/** Of a list that shows more of each thread. Tokens are those of the last answer: how long the conversation is to its model. */
const whole = new Titles({ last: "values.messages[-1].content", tokens: "values.messages[-1].usage_metadata.total_tokens" });

export interface ThreadFilter {
  status?: ThreadStatus;
  metadata?: JsonObject;
}

/** Threads, the last that changed first, page by page; with more of each, for lists that show it. */
export function useThreads(filter: ThreadFilter = {}, more = false) {
  return useInfiniteQuery({
    queryKey: ["threads", filter, more],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) =>
      (more ? whole : titles).add((wanted) => post<Thread[]>("/threads/search", { ...filter, limit: size, offset: pageParam, sort_by: "updated_at", sort_order: "desc", ...wanted }, signal), (ids, wanted) =>
        post<Thread[]>("/threads/search", { ids, limit: ids.length, ...wanted }, signal),
      ),
    getNextPageParam: (last, pages) => (last.length < size ? undefined : pages.length * size),
    refetchInterval: usePoll(5_000),
  });
}

/**
 * What a thread is called, as titleOf says. A LangGraph Server behind a proxy has a summary where the first message was; the proxy has the message.
 */
export function useTitle(t: Thread): string {
  const wanted = useOwn() === false && titleOf({ ...t, extracted: { title: t.extracted?.title } }, "") === "";
  const first = useQuery({
    queryKey: ["thread", t.thread_id, "first"],
    enabled: wanted,
    staleTime: 300_000,
    retry: false,
    queryFn: async ({ signal }) => {
      const { data } = await get<{ data: Row[] }>(`/threads/${t.thread_id}/messages?after_seq=0&limit=1`, signal);
      return words((data[0]?.content as Message | undefined)?.content as Json);
    },
  });
  return titleOf(wanted && first.data ? { ...t, extracted: { first: first.data } } : t);
}

/** What a thread is called: its title, else what was said first. */
export function titleOf(t: Thread, other = `Thread ${t.thread_id.slice(-8)}`): string {
  for (const value of [t.metadata?.title, t.extracted?.title, t.values?.title, t.extracted?.first]) {
    const text = words(value).trim();
    if (text) return text.length > 120 ? `${text.slice(0, 120)}…` : text;
  }
  return other;
}

/** The text of a message. */
export function words(value: Json | undefined): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((b) => words((b as JsonObject | null)?.text)).join(" ");
  return "";
}

/** Whether a thread waits for answers of a person. */
export const asks = (t: Thread) => Object.values(t.interrupts ?? {}).some((list) => list.length > 0);

/** The status of a thread as pages show it: a thread is interrupted when it asks something, and also when its run was stopped. */
export const statusOf = (t: Thread) => (t.status !== "interrupted" ? t.status : asks(t) ? "waiting" : "stopped");

export const isPinned = (t: Thread) => t.metadata?.pinned === true;

export function useThreadActions() {
  const queries = useQueryClient();
  const changed = () => readAgain(queries, ["threads"]);
  const change = useMutation({
    mutationFn: ({ id, metadata }: { id: string; metadata: JsonObject }) => request<Thread>("PATCH", `/threads/${id}`, { body: { metadata } }),
    onSuccess: (t) => void readAgain(queries, ["threads"], ["thread", t.thread_id]),
  });
  const remove = useMutation({ mutationFn: (id: string) => request("DELETE", `/threads/${id}`), onSuccess: changed });
  const copy = useMutation({ mutationFn: (id: string) => post<Thread>(`/threads/${id}/copy`, {}), onSuccess: changed });
  return { change, remove, copy };
}
