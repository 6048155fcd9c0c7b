import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { get } from "../api/client";
import type { Json, State } from "../api/types";
import { ChangeList } from "../compare/change-list";
import { diff } from "../compare/diff";
import { Problem } from "../parts/problem";

/** What the graph has at a checkpoint: without the overlay, because this is about the graph. */
export function useStateAt(thread: string, checkpoint: string | null) {
  return useQuery({
    queryKey: ["state", thread, checkpoint],
    enabled: checkpoint !== null,
    staleTime: Infinity,
    queryFn: ({ signal }) => get<State>(`/threads/${thread}/state/${checkpoint}?overlay=false`, signal),
  });
}

/** How values differ from those of the checkpoint before them. */
export function Changes({ thread, parent, values }: { thread: string; parent: string | null; values: Json }) {
  const before = useStateAt(thread, parent);
  const changes = useMemo(() => {
    const from = parent ? before.data?.values : {};
    return from === undefined ? null : diff(from, values);
  }, [before.data, parent, values]);
  if (before.error) return <Problem error={before.error} />;
  if (!changes) return <p className="quiet">Comparing…</p>;
  return <ChangeList diff={changes} nothing="Nothing changed in this step." />;
}
