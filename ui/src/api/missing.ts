import { APIError, get } from "./client";

/** Whether the server has an assistant that this person may use. Any answer but 404 says neither. */
export function exists(assistant: string, signal?: AbortSignal): Promise<boolean> {
  return get(`/assistants/${encodeURIComponent(assistant)}`, signal).then(
    () => true,
    (error: unknown) => {
      if (error instanceof APIError && error.status === 404) return false;
      throw error;
    },
  );
}

/** Whether an assistant is missing. The list may be older than it, so what the server says of it counts; undefined: not known yet. */
export const isMissing = (id: unknown, listed: string[] | undefined, found: boolean | undefined): boolean => typeof id === "string" && listed !== undefined && !listed.includes(id) && found === false;

/** The assistant or graph that answers what a thread asks: who asked, unless that is missing. */
export const answerer = ({ assistant_id, graph_id }: { assistant_id?: unknown; graph_id?: unknown }, missing: boolean): unknown => (missing && graph_id) || (assistant_id ?? graph_id);
