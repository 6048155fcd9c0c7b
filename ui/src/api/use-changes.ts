import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useSyncExternalStore } from "react";
import { Refresher, followChanges, type Tools, type Word } from "./changes";
import { apiURL, credentialsKey, open, Silent } from "./client";
import { useOwn } from "./server";
import { beatOf, untilSilent } from "./silence";

/** The tools of a browser; null where tabs cannot share a stream (pages without TLS from another host). Each tab would take one of six connections. */
function browserTools(): Tools | null {
  if (!("locks" in navigator) || !("BroadcastChannel" in window)) return null;
  const name = `understudy-changes ${apiURL} ${credentialsKey()}`; // users see different changes
  const channel = new BroadcastChannel(name);
  return {
    open: (signal) => untilSilent((signal, { heard, beats }) => open("/understudy/changes", { signal, heard, opened: (headers) => beats(beatOf(headers)) }), signal, () => new Silent()),
    alone: (signal, work) =>
      navigator.locks.request(name, { signal }, work).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      }),
    channel: { post: (word) => channel.postMessage(word), hear: (on) => (channel.onmessage = ({ data }) => on(data as Word)), close: () => channel.close() },
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        const timer = setTimeout(resolve, ms);
        signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
      }),
  };
}

let [live, down] = [false, false];
const watchers = new Set<() => void>();
const watch = (changed: () => void) => (watchers.add(changed), () => watchers.delete(changed));

function setLive(now: boolean) {
  live = now;
  for (const changed of watchers) changed();
}

function setDown(now: boolean) {
  down = now;
  for (const changed of watchers) changed();
}

/** Whether the server does not answer. */
export const useDown = (): boolean => useSyncExternalStore(watch, () => down);

/** How often to read what the server does not report: ms while changes are not reported, and seldom while they are. */
export function usePoll(ms: number): number {
  const reported = useSyncExternalStore(watch, () => live);
  return reported ? Math.max(ms, 60_000) : ms;
}

/** Keeps lists up to date while the pages are open. */
export function useChanges() {
  const queries = useQueryClient();
  const reports = useOwn() === true;
  useEffect(() => {
    const tools = reports ? browserTools() : null;
    if (!tools) return;
    const refresher = new Refresher(queries);
    const onSeen = () => refresher.plan();
    document.addEventListener("visibilitychange", onSeen);
    const onDown = (now: boolean) => {
      if (down && !now) void queries.invalidateQueries(); // pages may show what they could not read meanwhile
      setDown(now);
    };
    const end = followChanges({ changed: (c) => refresher.add(c), live: setLive, down: onDown }, tools);
    return () => {
      end();
      refresher.stop();
      setLive(false);
      setDown(false);
      document.removeEventListener("visibilitychange", onSeen);
    };
  }, [queries, reports]);
}
