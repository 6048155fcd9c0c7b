import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { APIError, get, post } from "../api/client";
import { exists, isMissing } from "../api/missing";
import { readAgain } from "../api/read-again";
import { isOwn } from "../api/server";
import type { Assistant, Schemas } from "../api/types";
import { triedKey } from "../compare/tried";
import { firstTalker } from "../parts/schema";

export type Version = Omit<Assistant, "updated_at">;

const most = 1_000; // assistants that are read

/** All assistants, those that the server makes of its graphs first, and the graphs that the server has; null: it does not say. */
const all = {
  queryKey: ["assistants"],
  staleTime: 30_000,
  queryFn: async ({ signal }: { signal: AbortSignal }) => {
    const [assistants, graphs] = await Promise.all([post<Assistant[]>("/assistants/search", { limit: most }, signal), served(signal)]);
    const own = (a: Assistant) => a.metadata?.created_by === "system";
    return { assistants: assistants.sort((a, b) => Number(own(b)) - Number(own(a)) || a.name.localeCompare(b.name)), graphs };
  },
};

async function served(signal: AbortSignal): Promise<string[] | null> {
  if (!(await isOwn())) return null;
  // A proxy in front of a LangGraph Server that does not say what it is has no such route.
  return get<{ graphs: string[] }>("/understudy/graphs", signal).then((answer) => answer.graphs, () => null);
}

type All = Awaited<ReturnType<typeof all.queryFn>>;
const canRun = ({ graphs }: All, a: Assistant) => (graphs === null || graphs.includes(a.graph_id)) && a.metadata?.[triedKey] === undefined;
const thatRun = (known: All) => known.assistants.filter((a) => canRun(known, a));
const thatCannot = (known: All) => known.assistants.filter((a) => !canRun(known, a) && a.metadata?.[triedKey] === undefined);

/** The assistants that can run: those of graphs that left langgraph.json cannot. Those that were made to try a version of another one are left out. */
export const useAssistants = () => useQuery({ ...all, select: thatRun });

/** Those that cannot run too, for what was done before. */
export const useAllAssistants = () => useQuery({ ...all, select: (known) => known.assistants });

/** Whether the server has no assistant of an ID, or none that this person may use. The list may be older than the assistant: the server is asked for one that is not in it. */
export function useMissing(id: unknown): boolean {
  const queries = useQueryClient();
  const listed = useAllAssistants().data?.map((a) => a.assistant_id);
  const unlisted = typeof id === "string" && listed !== undefined && !listed.includes(id);
  const found = useQuery({ queryKey: ["assistant", id], enabled: unlisted, gcTime: 0, queryFn: ({ signal }) => exists(id as string, signal) }).data;
  useEffect(() => {
    if (found) void queries.invalidateQueries({ queryKey: all.queryKey });
  }, [found, queries]);
  return isMissing(id, listed, found);
}

/** What to call with the error of a run that the server refuses: its assistant may have been deleted since the list was read. */
export function useRefused(): (error: unknown) => void {
  const queries = useQueryClient();
  return useCallback((error) => void (error instanceof APIError && error.status === 404 && readAgain(queries, all.queryKey, ["assistant"])), [queries]);
}

/** The assistants of graphs that the server does not have. */
export const useStranded = () => useQuery({ ...all, select: thatCannot }).data ?? [];

/** How many versions are listed, the newest ones. */
export const mostVersions = 1_000;

/** The versions of an assistant, the newest first. */
export const useAllVersions = (of: Assistant) =>
  useQuery({
    queryKey: ["versions", of.assistant_id, of.version],
    queryFn: async ({ signal }) => (await post<Version[]>(`/assistants/${of.assistant_id}/versions`, { limit: mostVersions }, signal)).sort((a, b) => b.version - a.version),
  });

const schemasOf = (assistant: string | undefined) => ({
  queryKey: ["schemas", assistant],
  enabled: assistant !== undefined,
  staleTime: 60_000,
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Schemas>(`/assistants/${assistant}/schemas`, signal),
});

export const useSchemas = (assistant: string | undefined) => useQuery(schemasOf(assistant));

/** How long a page waits for the schemas of its first assistants. A server that has just started may still import their graphs. */
const patience = 1_500;

/** The assistant to begin with: of the first few, one that talks; undefined until that is known, which does not take long. */
export function useFirstTalker(assistants: Assistant[]): Assistant | undefined {
  const few = assistants.slice(0, 8);
  const schemas = useQueries({ queries: few.map((a) => schemasOf(a.assistant_id)) });
  const [late, setLate] = useState(false);
  const some = few.length > 0;
  useEffect(() => {
    if (!some) return;
    const timer = setTimeout(() => setLate(true), patience);
    return () => clearTimeout(timer);
  }, [some]);
  const chosen = useRef<string | null>(null); // what was offered stays: something may have been typed
  const kept = few.find((a) => a.assistant_id === chosen.current);
  if (kept) return kept;
  const found = firstTalker(few, schemas, late);
  chosen.current = found?.assistant_id ?? null;
  return found;
}
