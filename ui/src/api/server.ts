import { useQuery } from "@tanstack/react-query";
import { APIError, get } from "./client";

interface Info {
  understudy_version?: string;
  understudy_doctor?: boolean;
}

let asked: Promise<boolean> | undefined;

/**
 * Whether the server has the routes below /understudy/. `understudy proxy` passes them on, and a LangGraph Server behind it has none: pages then do without them,
 * and do not ask. A server that does not say what it is (`disable_meta`) is taken for one that has them.
 */
export function isOwn(): Promise<boolean> {
  asked ??= get<Info | null>("/info").then(
    (info) => typeof info?.understudy_version === "string",
    (error: unknown) => {
      if (!(error instanceof APIError && error.status === 404)) asked = undefined; // it may answer the next time
      return true;
    },
  );
  return asked;
}

/** The same for what is drawn; undefined until it is known. What is assumed of a server that did not answer is asked again. */
export const useOwn = (): boolean | undefined => useQuery({ queryKey: ["own"], queryFn: isOwn, staleTime: () => (asked ? Infinity : 0) }).data;

/** Whether the server checks itself, which one that is part of another program does not; undefined until it is known. */
export const useDoctor = (): boolean | undefined =>
  useQuery({ queryKey: ["has-doctor"], queryFn: () => get<Info | null>("/info").then((info) => info?.understudy_doctor !== false, () => true), staleTime: Infinity }).data;
