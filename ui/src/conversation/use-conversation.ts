import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "react";
import { APIError, get, open, post } from "../api/client";
import { readAgain } from "../api/read-again";
import { beginRun } from "../api/runs";
import { inSight } from "../api/seen";
import type { Json, JsonObject, Message, Row, Run, Thread } from "../api/types";
import { Frames } from "./frames";
import { empty, entriesOf, reduce, type Action, type Entry } from "./reducer";

const page = 50; // rows to open a thread with
const earlier = 200; // rows that are read before those while someone scrolls up
const end = Number.MAX_SAFE_INTEGER;
const patience = 500; // ms that the record waits for the stream

interface Page {
  data: Row[];
  has_more: boolean;
}

/** What is sent: an input or an answer to interrupts, and where it continues. */
export interface Turn {
  input?: Json;
  command?: JsonObject;
  said?: Message;
  checkpoint?: string; // continue behind this one
  cut?: number; // what is said from this seq on belongs to the path that is left
  strategy?: string; // what happens to a run that is under way
  before?: string[] | "*"; // the nodes before and after which the run stops
  after?: string[] | "*";
}

/** A turn with the words of a person. */
export function saying(text: string): Turn {
  const message = { id: crypto.randomUUID(), type: "human", content: text };
  return { said: message, input: { messages: [message] } };
}

/** Follows a thread: its record, its runs whoever began them, and its status. */
export function useConversation(threadID: string) {
  const [conversation, change] = useReducer(reduce, empty);
  // Events wait for a frame; what else changes the conversation comes behind those that arrived before it.
  const [events] = useState(() => new Frames<Action>((list) => list.forEach(change)));
  const dispatch = useCallback((action: Action) => (events.flush(), change(action)), [events]);
  const [connection, setConnection] = useState<"connecting" | "open" | "lost">("connecting");
  const [problem, setProblem] = useState<Error | null>(null);
  const queries = useQueryClient();
  const path = `/threads/${threadID}`;
  const thread = useQuery({ queryKey: ["thread", threadID], queryFn: ({ signal }) => get<Thread>(path, signal) });
  const opened = useRef(gate());
  const rows = useRef(conversation.rows);
  rows.current = conversation.rows;

  /** Loads the end of the record. What was loaded before stays, unless the conversation has left its path: then rows are gone. */
  const refresh = useCallback(async () => {
    const newest = await get<Page>(`${path}/messages?before_seq=${end}&limit=${page}`);
    const first = newest.data[0]?.seq ?? 0;
    const seqs = new Set(newest.data.map((r) => r.seq));
    const known = rows.current;
    const left = known.some((r) => r.seq >= first && !seqs.has(r.seq));
    const hole = known.length > 0 && newest.has_more && known.at(-1)!.seq < first;
    if (known.length === 0 || left || hole) dispatch({ type: "reset", rows: newest.data, older: newest.has_more });
    else dispatch({ type: "rows", rows: newest.data });
    void readAgain(queries, ["threads"], ["states", threadID], ["runs", threadID], ["search"]);
    await readAgain(queries, ["thread", threadID]);
  }, [path, queries, threadID]);

  useEffect(() => {
    const stop = new AbortController();
    void follow(stop.signal);
    return () => (stop.abort(), events.drop());

    async function follow(signal: AbortSignal) {
      let lastEvent: string | undefined;
      let loaded = false;
      let away = false; // the tab was hidden, and does not know what happened meanwhile
      for (let failures = 0; !signal.aborted; ) {
        try {
          away = await inSight(signal, async (seen) => {
            if (away) lastEvent ||= undefined; // without an event to continue from, a run that began meanwhile is read from its beginning
            if (lastEvent === undefined) {
              const { status } = await get<Thread>(path, signal);
              lastEvent = status === "busy" ? "0-0" : "";
            }
            const opening = open(`${path}/stream`, { signal: seen, headers: lastEvent ? { "last-event-id": lastEvent } : {} });
            let missed = failures > 0 || away;
            away = false;
            if (!loaded) {
              // The record is read while the stream is open, or the end of a run in between would be missed. A stream that does not open soon does not keep it from view.
              missed = !(await Promise.race([opening.then(() => true, () => false), sleep(patience, signal).then(() => false)]));
              await refresh();
              loaded = true;
            }
            const arriving = await opening;
            setConnection("open");
            setProblem(null);
            opened.current.resolve();
            if (missed) await refresh();
            failures = 0;
            for await (const event of arriving) {
              if (event.id) lastEvent = event.id;
              const over = event.name === "metadata" && event.data.includes('"run_done"');
              try {
                // Before a run is over for the page, the page has what it left; or else a question that was answered shows up once more.
                if (over) await refresh();
              } finally {
                events.add({ type: "event", event, now: performance.now() });
              }
            }
          });
          if (away) continue;
        } catch (error) {
          if (error instanceof APIError && error.status >= 400 && error.status < 500 && error.status !== 429) {
            setProblem(error);
            return;
          }
        }
        if (signal.aborted) return;
        setConnection("lost");
        await sleep(Math.min(500 * 2 ** failures++, 10_000), signal, "online");
      }
    }
  }, [path, refresh]);

  const older = useCallback(async () => {
    const first = conversation.rows[0]?.seq;
    if (first === undefined || !conversation.older) return;
    const more = await get<Page>(`${path}/messages?before_seq=${first}&limit=${earlier}`);
    dispatch({ type: "rows", rows: more.data, older: more.has_more });
  }, [conversation, path]);

  /** Loads the thread to its first row. */
  const all = useCallback(async () => {
    for (let first = rows.current[0]?.seq; first !== undefined; ) {
      const more: Page = await get<Page>(`${path}/messages?before_seq=${first}&limit=1000`);
      dispatch({ type: "rows", rows: more.data, older: more.has_more });
      if (!more.has_more) return;
      first = more.data[0]!.seq;
    }
  }, [path]);

  const send = useCallback(
    async (assistant: string, turn: Turn) => {
      if (turn.cut !== undefined) dispatch({ type: "cut", from: turn.cut });
      if (turn.said) dispatch({ type: "said", message: turn.said });
      try {
        await opened.current.promise; // so that no event is missed
        const run = await beginRun(threadID, {
          assistant_id: assistant,
          input: turn.input ?? null,
          command: turn.command,
          checkpoint_id: turn.checkpoint,
          multitask_strategy: turn.strategy,
          interrupt_before: turn.before,
          interrupt_after: turn.after,
        });
        void readAgain(queries, ["thread", threadID], ["threads"]);
        return run;
      } catch (error) {
        if (turn.said?.id) dispatch({ type: "unsaid", id: turn.said.id });
        if (turn.cut !== undefined) await refresh();
        throw error;
      }
    },
    [path, queries, refresh, threadID],
  );

  const stop = useCallback(async () => {
    const active = await Promise.all(["running", "pending"].map((status) => get<Run[]>(`${path}/runs?status=${status}&limit=100`)));
    await Promise.all(active.flat().map((run) => post(`${path}/runs/${run.run_id}/cancel?wait=true`, {})));
    await refresh();
  }, [path, refresh]);

  const before = useRef<Entry[]>([]);
  const entries = useMemo(() => entriesOf(conversation, before.current), [conversation]);
  useEffect(() => void (before.current = entries), [entries]);
  return { thread, conversation, entries, connection, problem, older, all, send, stop, refresh };
}

function gate() {
  let resolve = () => {};
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

/** Waits so long; less when the signal aborts, or an event of the window comes. */
function sleep(ms: number, signal: AbortSignal, event?: string): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      if (event) window.removeEventListener(event, end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    if (event) window.addEventListener(event, end);
  });
}
