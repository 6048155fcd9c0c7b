import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { GitFork, ListTree, Network, Play, RotateCcw, Search, WifiOff } from "lucide-react";
import { lazy, memo, Suspense, useCallback, useEffect, useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { get } from "../api/client";
import { useOwn } from "../api/server";
import type { Interrupt, Json, Message, Row, Schema, State, Thread } from "../api/types";
import { Tree, type Branch } from "../conversation/branches";
import { beforeMessage, checkpointsOf } from "../state/checkpoints";
import { CompareButton } from "../compare/chosen";
import { threadRef } from "../compare/refs";
import { Composer } from "../conversation/composer";
import { keepDraft } from "../conversation/draft";
import type { MessageActions, MessageEntry } from "../conversation/message-view";
import { describe, entriesOf, empty } from "../conversation/reducer";
import { Transcript } from "../conversation/transcript";
import { Unsaved } from "../conversation/unsaved";
import { saying, useConversation, type Turn } from "../conversation/use-conversation";
import { NodeDetail } from "../graph/node-detail";
import { waitingNodes } from "../graph/nodes";
import { Interrupts } from "../interrupts/interrupts";
import { CopyCall } from "../parts/copy-call";
import { Empty, Problem } from "../parts/problem";
import { chats } from "../parts/schema";
import { Splitter } from "../parts/splitter";
import { StandIn } from "../parts/stand-in";
import { Status } from "../parts/status";
import { Inspector } from "../state/inspector";
import { ThreadSearch } from "../threads/found";
import { statusOf, useThreads, useTitle } from "../threads/threads";
import { useAssistants, useMissing, useRefused, useSchemas } from "./assistants";
import { RunList } from "./run-list";

const Drawing = lazy(() => import("../graph/drawing"));

const panels = [
  ["state", "State", ListTree],
  ["graph", "Graph", Network],
  ["runs", "Runs", Play],
  ["search", "Search", Search],
] as const;

export function ThreadPage({ id }: { id: string }) {
  const { thread, conversation, entries, connection, problem, older, all, send, stop, refresh } = useConversation(id);
  const [params, setParams] = useSearchParams();
  const panel = params.get("panel");
  const checkpoint = params.get("checkpoint"); // whose state is inspected
  const branch = params.get("branch"); // the checkpoint whose path is shown instead of the newest
  const node = params.get("node"); // of the graph, whose runs are shown
  const at = params.get("at"); // the message that a search has found
  const [failure, setFailure] = useState<unknown>(null);
  const [refused, setRefused] = useState(0); // first messages that were refused, each of which goes back to where it was typed

  const assistants = useAssistants();
  const [chosen, setChosen] = useState<string | null>(null);
  const of = thread.data?.metadata; // a thread that another client made may name its graph only
  const ofGraph = assistants.data?.find((a) => a.graph_id === of?.graph_id);
  const standIn = useMissing(of?.assistant_id) ? ofGraph : undefined;
  const own = standIn ? undefined : (of?.assistant_id as string | undefined);
  const refusedRun = useRefused();
  // Until the thread is read nothing is sent: it may have an assistant of its own.
  const assistant = chosen ?? (of && (own ?? (ofGraph ?? assistants.data?.[0])?.assistant_id));
  const known = assistants.data?.find((a) => a.assistant_id === assistant);
  const schemas = useSchemas(assistant);
  const talks = schemas.data ? chats(schemas.data.input_schema) : true;

  const states = useQuery({ queryKey: ["states", id], queryFn: ({ signal }) => checkpointsOf(id, signal), retry: false });
  const tree = useMemo(() => new Tree(states.data ?? []), [states.data]);
  const other = useQuery({ queryKey: ["branch", id, branch], enabled: branch !== null, placeholderData: keepPreviousData, queryFn: ({ signal }) => get<State>(`/threads/${id}/state/${branch}`, signal) });
  // Until a branch is read, what was shown stays: the place of the reader, and the focus, are in it.
  const shown = useMemo(() => (branch && other.data ? entriesOf({ ...empty, rows: rowsOf(other.data) }) : entries), [branch, entries, other.data]);

  // The nodes that come next, of a thread that waits for an answer or stopped at a breakpoint.
  const head = useQuery({ queryKey: ["states", id, "head"], enabled: panel === "graph" && thread.data?.status === "interrupted", retry: false, queryFn: ({ signal }) => get<State>(`/threads/${id}/state?overlay=false&subgraphs=true`, signal) });

  const status = thread.data ? statusOf(thread.data) : "idle";
  const busy = status === "busy" || conversation.run !== null;
  // After a reload the stream does not say any more why the last run failed.
  const failed = conversation.failure ?? (status === "error" && thread.data?.error ? describe(thread.data.error) : null);
  const listed = useThreads().data?.pages.flat().find((t) => t.thread_id === id); // what was said first may not be loaded
  const named = useTitle({ ...(thread.data ?? nameless(id)), extracted: listed?.extracted ?? { first: firstWords(entries) } });
  const title = thread.data ? named : " ";
  const interrupts = useMemo(() => Object.values(thread.data?.interrupts ?? {}).flat(), [thread.data]);

  const set = useCallback(
    (changes: Record<string, string | null>) =>
      setParams((old) => {
        for (const [k, v] of Object.entries(changes)) v === null ? old.delete(k) : old.set(k, v);
        return old;
      }),
    [setParams],
  );

  const submit = useCallback(
    async (turn: Turn) => {
      if (!assistant) return;
      setFailure(null);
      try {
        await send(assistant, { ...turn, checkpoint: turn.checkpoint ?? branch ?? undefined });
        if (branch) set({ branch: null });
      } catch (error) {
        setFailure(error);
        refusedRun(error);
        throw error;
      }
    },
    [assistant, branch, refusedRun, send, set],
  );
  const say = useCallback((text: string, turn: Turn = {}) => submit({ ...turn, ...saying(text) }), [submit]);

  const halt = useCallback(() => stop().catch(setFailure), [stop]);
  const showPanel = useCallback((key: string) => set({ panel: panel === key ? null : key }), [panel, set]);

  // A conversation that was begun on the first page.
  useEffect(() => {
    const first = takeFirst(id);
    if (!first) return;
    setChosen(first.assistant);
    send(first.assistant, first.text === undefined ? { input: first.input } : saying(first.text)).catch((error: unknown) => {
      keepDraft(id, first.text ?? ""); // what is refused is typed once
      setRefused((n) => n + 1);
      setFailure(error);
    });
  }, [id, send]);

  const actions = useMemo<MessageActions>(() => {
    /** Continues from before a message. What is behind it leaves the page. */
    const instead = (entry: MessageEntry, send: (turn: Turn) => Promise<unknown>) =>
      void beforeMessage(id, entry.message, entry.row, tree)
        .then((checkpoint) => send({ checkpoint, cut: branch ? undefined : entry.row?.seq })) // another branch is left as a whole
        .catch(setFailure);
    return {
      edit: (entry, text) => instead(entry, (turn) => say(text, turn)),
      regenerate: (entry) => instead(entry, (turn) => submit({ ...turn, input: null })),
      inspect: (at) => set({ panel: "state", checkpoint: at }),
      choose: (at) => set({ branch: at === states.data?.[0]?.checkpoint_id ? null : at }),
    };
  }, [branch, id, say, set, states.data, submit, tree]);
  const branches = useMemo(() => branchesOf(tree, shown.filter((e): e is MessageEntry => e.kind === "message")), [shown, tree]);

  if (problem) return <main className="page"><Problem error={problem}> Choose another thread on the left.</Problem></main>;
  return (
    <main className={panel ? "thread with-panel" : "thread"}>
      <section className="talk" aria-label="Thread" onKeyDown={(e) => e.key === "Escape" && busy && void halt()}>
        <Bar id={id} status={busy ? "busy" : status} title={title} lost={connection === "lost"} assistant={assistant} graph={of?.graph_id as string | undefined} panel={panel} onChoose={setChosen} onPanel={showPanel} />
        {branch && (
          <p className="notice">
            <GitFork size={14} aria-hidden /> This is another branch. What you send continues it.{" "}
            <button type="button" className="link" onClick={() => set({ branch: null })}>
              Back to the newest
            </button>
          </p>
        )}
        {shown.length === 0 && !busy && thread.isSuccess ? (
          <Empty>{talks ? "Nothing was said yet." : "This graph keeps no messages. Open State, at the top right, to see what it keeps."}</Empty>
        ) : (
          <Transcript thread={id} entries={shown} nested={conversation.nested} older={!branch && conversation.older} onOlder={older} onAll={all} busy={busy} branches={branches} actions={actions} at={branch ? null : at} />
        )}
        <div aria-live="polite" className="hidden">
          {busy ? "" : conversation.tasks.length > 0 ? "The answer is complete." : ""}
        </div>
        {busy && conversation.attempt > 1 && (
          <p className="notice" role="status">
            <RotateCcw size={14} aria-hidden /> The worker or server of this run stopped. The run continues from the last saved step: attempt {conversation.attempt}.
          </p>
        )}
        {standIn && chosen === null && <StandIn name={standIn.name} />}
        {busy && conversation.unsaved && <Unsaved why={conversation.unsaved} />}
        <YourTurn id={id} busy={busy} refused={refused} assistant={assistant} input={schemas.data?.input_schema ?? null} talks={talks} interrupts={interrupts} failed={failed} failure={failure} say={say} submit={submit} onStop={halt} />
      </section>
      {panel && <Splitter name="panel-width" label="Width of the panel" of="main > .panel" behind />}
      {panel && (
        <aside className="panel" aria-label={panel}>
          {panel === "state" && (
            <>
              <Problem error={states.error} />
              <Inspector
                thread={id}
                assistant={assistant}
                checkpoints={states.data ?? []}
                selected={checkpoint}
                busy={busy}
                onSelect={(c) => set({ checkpoint: c })}
                onRun={(c, beginning) => submit({ ...beginning, checkpoint: c }).then(() => set({ checkpoint: null }))}
                onChanged={() => {
                  set({ checkpoint: null });
                  void refresh();
                }}
              />
            </>
          )}
          {panel === "graph" && assistant && (
            <Suspense fallback={<p className="quiet">Drawing…</p>}>
              <Drawing assistant={assistant} tasks={conversation.tasks} waiting={busy || !head.data ? [] : waitingNodes(head.data)} selected={node ?? undefined} onSelect={(n) => set({ node: n === node ? null : n })} />
              {node && <NodeDetail assistant={assistant} graph={known?.graph_id ?? assistant} node={node} thread={id} onClose={() => set({ node: null })} />}
            </Suspense>
          )}
          {panel === "runs" && <RunList thread={id} />}
          {panel === "search" && <ThreadSearch thread={id} />}
        </aside>
      )}
    </main>
  );
}

interface BarProps {
  id: string;
  status: string;
  title: string;
  lost: boolean;
  assistant?: string;
  graph?: string;
  panel: string | null;
  onChoose: (assistant: string) => void;
  onPanel: (key: string) => void;
}

/** What the page is about, and what else it can show. Like YourTurn it is not drawn again for each frame of a stream. */
const Bar = memo(function Bar({ id, status, title, lost, assistant, graph, panel, onChoose, onPanel }: BarProps) {
  const searched = useOwn() !== false; // a proxy has no search
  const assistants = useAssistants();
  const known = assistants.data?.some((a) => a.assistant_id === assistant);
  return (
    <header className="bar">
      <Status of={status} text />
      <h1>{title}</h1>
      {lost && (
        <span className="lost" role="status">
          <WifiOff size={14} aria-hidden /> reconnecting
        </span>
      )}
      <select aria-label="Assistant" value={assistant ?? ""} onChange={(e) => onChoose(e.target.value)}>
        {assistant && assistants.data && !known && <option value={assistant}>{graph ?? "Another assistant"}, not on this server</option>}
        {assistants.data?.map((a) => (
          <option key={a.assistant_id} value={a.assistant_id}>
            {a.name}
          </option>
        ))}
      </select>
      <CompareButton of={threadRef(id)} />
      <CopyCall of={{ method: "GET", path: `/threads/${id}/messages?limit=50` }} what="the messages" />
      {panels.filter(([key]) => searched || key !== "search").map(([key, label, Shape]) => (
        <button key={key} type="button" className="icon" aria-label={label} title={label} aria-pressed={panel === key} onClick={() => onPanel(key)}>
          <Shape size={16} />
        </button>
      ))}
    </header>
  );
});

interface TurnProps {
  id: string;
  busy: boolean;
  refused: number;
  assistant?: string;
  input: Schema | null;
  talks: boolean;
  interrupts: Interrupt[];
  failed: string | null; // why the last run failed
  failure: unknown; // of what was tried here
  say: (text: string, turn?: Turn) => Promise<void>;
  submit: (turn: Turn) => Promise<void>;
  onStop: () => Promise<void>;
}

/** What a person can say or answer. */
const YourTurn = memo(function YourTurn({ id, busy, refused, assistant, input, talks, interrupts, failed, failure, say, submit, onStop }: TurnProps) {
  return (
    <div className="turn" role="group" aria-label="Your turn">
      {failed && !busy && (
        <Problem error={failed}>
          {" "}
          <button type="button" className="link" onClick={() => void submit({ input: null }).catch(() => {})}>
            Try again from the last step
          </button>
        </Problem>
      )}
      {interrupts.length > 0 && !busy && <Interrupts interrupts={interrupts} busy={busy} onAnswer={(command) => submit({ command })} />}
      <Problem error={failure} />
      <Composer
        key={`${id} ${refused}`}
        draft={id}
        input={input}
        chats={talks}
        busy={busy}
        disabled={!assistant}
        placeholder={interrupts.length > 0 ? "Or say something else" : "Say something"}
        onSay={(text, now) => say(text, busy ? { strategy: now ? "interrupt" : "enqueue" } : {})}
        onInput={(input: Json, now) => submit(busy ? { input, strategy: now ? "interrupt" : "enqueue" } : { input })}
        onStop={onStop}
      />
    </div>
  );
});

const nameless = (id: string): Thread => ({ thread_id: id, created_at: "", updated_at: "", metadata: {}, status: "idle" });

/** The branches at each message, by the key of its entry. Of the messages behind a fork, the first has the switch. */
function branchesOf(tree: Tree, entries: MessageEntry[]): ReadonlyMap<string, Branch> {
  const out = new Map<string, Branch>();
  if (tree.size === 0) return out;
  let last: string | undefined;
  for (const e of entries) {
    const checkpoint = e.row?.metadata.checkpoint_id;
    if (!checkpoint || checkpoint === last) continue;
    last = checkpoint;
    const branch = tree.branchesAt(checkpoint);
    if (branch.all.length > 1) out.set(e.key, branch);
  }
  return out;
}

/** Rows of the messages in a state, for branches that the record does not list. */
function rowsOf(state: State | undefined): Row[] {
  const messages = (state?.values as { messages?: Message[] } | undefined)?.messages;
  if (!Array.isArray(messages)) return [];
  return messages.map((m, i): Row => ({ seq: i + 1, run_id: null, event_type: "", category: "message", content: m, metadata: {}, created_at: state!.created_at }));
}

function firstWords(entries: ReturnType<typeof entriesOf>): string {
  const e = entries.find((entry): entry is MessageEntry => entry.kind === "message");
  return typeof e?.message.content === "string" ? e.message.content : "";
}

interface First {
  thread: string;
  assistant: string;
  text?: string;
  input?: Json;
}

let first: First | null = null;

/** What a thread that is just made begins with. */
export function beginWith(f: First) {
  first = f;
}

function takeFirst(thread: string): First | null {
  if (first?.thread !== thread) return null;
  const taken = first;
  first = null;
  return taken;
}
