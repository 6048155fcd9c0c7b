import { GitCompareArrows } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { post } from "../api/client";
import type { Assistant, Json, Thread } from "../api/types";
import { Composer } from "../conversation/composer";
import { Content } from "../conversation/message-view";
import { kindOf, textOf } from "../conversation/message";
import { saying, useConversation } from "../conversation/use-conversation";
import { Interrupts } from "../interrupts/interrupts";
import { useAllVersions, useAssistants, useSchemas } from "../pages/assistants";
import { Empty, Problem } from "../parts/problem";
import { chats } from "../parts/schema";
import { Status } from "../parts/status";
import { pathOf, threadRef } from "./refs";
import { assistantOf, parseTried, type Tried } from "./tried";

/** What both sides get. */
interface Turn {
  n: number;
  text?: string;
  input?: Json;
}

/** Two threads that get the same, and the assistants that answer. */
interface Pair {
  assistants: [string, string];
  threads: [string, string];
}

/** Two assistants, or two versions of one, on the same input. */
export default function TryPage() {
  const [params, setParams] = useSearchParams();
  const assistants = useAssistants();
  const list = assistants.data ?? [];
  const find = (t: Tried | null) => list.find((a) => a.assistant_id === t?.id);
  const [a, b] = [parseTried(params.get("a")), parseTried(params.get("b"))];
  const [left, right] = [find(a) ?? list[0], find(b) ?? list[1] ?? list[0]];
  const schemas = useSchemas(left?.assistant_id);
  const talks = schemas.data ? chats(schemas.data.input_schema) : true;
  const [pair, setPair] = useState<Pair | null>(null);
  const [turns, setTurns] = useState<Turn[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState<readonly [boolean, boolean]>([false, false]);
  const choose = (side: "a" | "b", value: string) => {
    setPair(null);
    setTurns([]);
    setBusy([false, false]);
    setParams((old) => (old.set(side, value), old), { replace: true });
  };
  const send = async (what: Omit<Turn, "n">) => {
    setError(null);
    try {
      if (!pair) setPair(await begin([a && find(a) ? a : latest(left!), b && find(b) ? b : latest(right!)], [left!, right!], what.text));
      setTurns((old) => [...old, { ...what, n: old.length + 1 }]);
    } catch (e) {
      setError(e);
      throw e;
    }
  };
  const sides = [left, right] as const;
  return (
    <main className="page wide try">
      <div className="bar">
        <h1>Try side by side</h1>
        {pair && (
          <Link href={pathOf(threadRef(pair.threads[0]), threadRef(pair.threads[1]))} className="button plain">
            <GitCompareArrows size={14} aria-hidden /> Compare what they did
          </Link>
        )}
      </div>
      <Problem error={assistants.error} />
      {assistants.isSuccess && list.length === 0 && <Empty>This server has no graphs. Add one to langgraph.json.</Empty>}
      <div className="beside">
        {sides.map((known, i) => {
          const side = (["a", "b"] as const)[i]!;
          return (
            known && (
              <section key={side} className={`side ${side}`} aria-label={i === 0 ? "First" : "Second"}>
                <Chooser list={list} of={known} tried={i === 0 ? a : b} label={i === 0 ? "First" : "Second"} onChoose={(value) => choose(side, value)} />
                {pair ? (
                  <Side key={pair.threads[i]} thread={pair.threads[i]!} assistant={pair.assistants[i]!} turns={turns} onBusy={(now) => setBusy((old) => (old[i] === now ? old : i === 0 ? [now, old[1]] : [old[0], now]))} />
                ) : (
                  <p className="quiet">It gets what you send below.</p>
                )}
              </section>
            )
          );
        })}
      </div>
      <Problem error={error ?? schemas.error} />
      <Composer
        key={left?.assistant_id ?? ""}
        draft="try"
        input={schemas.data?.input_schema ?? null}
        chats={talks}
        busy={false}
        disabled={!left || busy[0] || busy[1]}
        placeholder="Say the same to both"
        onSay={(text) => send({ text })}
        onInput={(input) => send({ input })}
        onStop={async () => {}}
      />
    </main>
  );
}

const latest = (a: Assistant): Tried => ({ id: a.assistant_id, version: null });

/** Makes what two sides need: an assistant for a version that is not the latest, and a thread each. */
async function begin(tried: [Tried, Tried], known: [Assistant, Assistant], text = ""): Promise<Pair> {
  const assistants = await Promise.all(tried.map((t, i) => assistantOf(t, known[i]!)));
  const threads = await Promise.all(
    assistants.map((id, i) => {
      const { name, graph_id, version } = known[i]!;
      const title = `${name}, version ${tried[i]!.version ?? version}${text && `: ${text.slice(0, 60)}`}`;
      return post<Thread>("/threads", { metadata: { graph_id, assistant_id: id, title } });
    }),
  );
  return { assistants: [assistants[0]!, assistants[1]!], threads: [threads[0]!.thread_id, threads[1]!.thread_id] };
}

interface ChooserProps {
  list: Assistant[];
  of: Assistant;
  tried: Tried | null;
  label: string;
  onChoose: (value: string) => void;
}

/** Chooses an assistant and its version. */
function Chooser({ list, of, tried, label, onChoose }: ChooserProps) {
  const versions = useAllVersions(of);
  return (
    <div className="bar wrap">
      <select aria-label={`${label} assistant`} value={of.assistant_id} onChange={(e) => onChoose(e.target.value)}>
        {list.map((a) => (
          <option key={a.assistant_id} value={a.assistant_id}>
            {a.name}
          </option>
        ))}
      </select>
      <select aria-label={`${label} version`} value={tried?.id === of.assistant_id && tried.version !== null ? tried.version : of.version} onChange={(e) => onChoose(`${of.assistant_id}@${e.target.value}`)}>
        {(versions.data ?? [of]).map((v) => (
          <option key={v.version} value={v.version}>
            version {v.version}
            {v.version === of.version && ", the latest"}
          </option>
        ))}
      </select>
      <Problem error={versions.error} />
    </div>
  );
}

interface SideProps {
  thread: string;
  assistant: string;
  turns: Turn[];
  onBusy: (busy: boolean) => void;
}

/** A conversation that gets the turns of both sides. */
function Side({ thread: id, assistant, turns, onBusy }: SideProps) {
  const { conversation, entries, thread, send, problem } = useConversation(id);
  const [error, setError] = useState<unknown>(null);
  const sent = useRef(0);
  const status = thread.data?.status ?? "busy";
  const busy = status === "busy" || conversation.run !== null || sent.current < turns.length;
  const interrupts = useMemo(() => Object.values(thread.data?.interrupts ?? {}).flat(), [thread.data]);
  useEffect(() => {
    for (const { n, text, input } of turns) {
      if (n <= sent.current) continue;
      sent.current = n;
      send(assistant, text === undefined ? { input } : saying(text)).catch(setError);
    }
  }, [assistant, send, turns]);
  const report = useRef(onBusy);
  report.current = onBusy;
  useEffect(() => report.current(busy), [busy]);
  return (
    <>
      <p className="bar">
        <Status of={busy ? "busy" : status} text />
        <Link href={`/t/${id}`}>thread …{id.slice(-8)}</Link>
      </p>
      <ol className="tried" aria-label="Conversation">
        {entries.map((e) =>
          e.kind === "message" ? (
            <li key={e.key} className={`message ${kindOf(e.message)}`} data-kind={kindOf(e.message)}>
              <Content thread={id} message={e.message} results={e.results} nested={conversation.nested} text={textOf(e.message)} run={e.row?.run_id ?? undefined} />
            </li>
          ) : (
            <li key={e.key} className="quiet">
              {e.marker.replaced_count} messages condensed
            </li>
          ),
        )}
      </ol>
      {interrupts.length > 0 && !busy && <Interrupts interrupts={interrupts} busy={busy} onAnswer={(command) => send(assistant, { command })} />}
      <Problem error={error ?? problem ?? (busy ? null : conversation.failure)} />
    </>
  );
}
