import { useQueries, useQuery } from "@tanstack/react-query";
import { get, post } from "../api/client";
import type { Assistant, Schemas } from "../api/types";
import { chats } from "../parts/schema";

/** All assistants, those that the server makes of its graphs first. */
export function useAssistants() {
  return useQuery({
    queryKey: ["assistants"],
    staleTime: 30_000,
    queryFn: async ({ signal }) => {
      const all = await post<Assistant[]>("/assistants/search", { limit: 1000 }, signal);
      const own = (a: Assistant) => a.metadata?.created_by === "system";
      return all.sort((a, b) => Number(own(b)) - Number(own(a)) || a.name.localeCompare(b.name));
    },
  });
}

const schemasOf = (assistant: string | undefined) => ({
  queryKey: ["schemas", assistant],
  enabled: assistant !== undefined,
  staleTime: 60_000,
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Schemas>(`/assistants/${assistant}/schemas`, signal),
});

export const useSchemas = (assistant: string | undefined) => useQuery(schemasOf(assistant));

/** The assistant to begin with: of the first few, one that talks; undefined until that is known. */
export function useFirstTalker(assistants: Assistant[]): Assistant | undefined {
  const few = assistants.slice(0, 8);
  const schemas = useQueries({ queries: few.map((a) => schemasOf(a.assistant_id)) });
  for (const [i, s] of schemas.entries()) {
    if (s.isPending) return undefined;
    if (s.data && chats(s.data.input_schema)) return few[i];
  }
  return few[0];
}
