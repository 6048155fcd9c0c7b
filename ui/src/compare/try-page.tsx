import { GitCompareArrows } from "lucide-react";
import { useEffect, useMemo, useReducer, useRef, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { post } from "../api/client";
import type { Assistant, Thread } from "../api/types";
import { Composer } from "../conversation/composer";
import { Content } from "../conversation/message-view";
import { kindOf, textOf } from "../conversation/message";
import { saying, useConversation } from "../conversation/use-conversation";
import { Interrupts } from "../interrupts/interrupts";
import { useAllAssistants, useAllVersions, useAssistants, useSchemas } from "../pages/assistants";
import { Empty, Problem } from "../parts/problem";
import { chats } from "../parts/schema";
import { Status } from "../parts/status";
import { pathOf, threadRef } from "./refs";
import { reduce, untried, type Pair, type Turn } from "./trial";
import { deleteForgotten, MadeToTry, parseTried, type Tried } from "./tried";

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
  const choice = JSON.stringify([params.get("a"), params.get("b")]);
  const [trial, change] = useReducer(reduce, choice, untried);
  if (trial.choice !== choice) change({ type: "chosen", choice });
  const { pair, turns, busy } = trial;
  const made = useMade(choice);
  const [error, setError] = useState<unknown>(null);
  const [beginning, setBeginning] = useState(false);
  const choose = (side: "a" | "b", value: string) => {
    setError(null);
    setParams((old) => (old.set(side, value), old), { replace: true });
  };
  const send = async (turn: Omit<Turn, "n">) => {
    setError(null);
    setBeginning(!pair);
    try {
      const both: [Tried, Tried] = [a && find(a) ? a : latest(left!), b && find(b) ? b : latest(right!)];
      change({ type: "sent", choice, pair: pair ?? (await begin(made, both, [left!, right!], turn.text)), turn });
    } catch (e) {
      setError(e);
      throw e;
    } finally {
      setBeginning(false);
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
          const label = i === 0 ? "First" : "Second";
          return (
            known && (
              <section key={side} className={`side ${side}`} aria-label={label}>
                <Chooser list={list} of={known} tried={i === 0 ? a : b} label={label} disabled={beginning} onChoose={(value) => choose(side, value)} />
                {pair ? (
                  <Side key={pair.threads[i]} thread={pair.threads[i]!} assistant={pair.assistants[i]!} turns={turns} onBusy={(now) => change({ type: "busy", choice, side: i === 0 ? 0 : 1, now })} />
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

/** Makes assistants to try versions, which are deleted with the choice or the page they were made for, and those that earlier pages left. */
function useMade(choice: string): MadeToTry {
  const [made] = useState(() => new MadeToTry());
  useEffect(() => () => void made.discard(), [choice, made]);
  const { data: all } = useAllAssistants();
  const looked = useRef(false);
  useEffect(() => {
    if (!all || looked.current) return;
    looked.current = true;
    void deleteForgotten(all);
  }, [all]);
  return made;
}

/** Makes what two sides need: an assistant for a version that is not the latest, and a thread each. */
async function begin(made: MadeToTry, tried: [Tried, Tried], known: [Assistant, Assistant], text = ""): Promise<Pair> {
  const assistants = await Promise.all(tried.map((t, i) => made.assistantOf(t, known[i]!)));
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
  disabled: boolean;
  onChoose: (value: string) => void;
}

/** Chooses an assistant and its version. */
function Chooser({ list, of, tried, label, disabled, onChoose }: ChooserProps) {
  const versions = useAllVersions(of);
  return (
    <div className="bar wrap">
      <select aria-label={`${label} assistant`} disabled={disabled} value={of.assistant_id} onChange={(e) => onChoose(e.target.value)}>
        {list.map((a) => (
          <option key={a.assistant_id} value={a.assistant_id}>
            {a.name}
          </option>
        ))}
      </select>
      <select aria-label={`${label} version`} disabled={disabled} value={tried?.id === of.assistant_id && tried.version !== null ? tried.version : of.version} onChange={(e) => onChoose(`${of.assistant_id}@${e.target.value}`)}>
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
      setError(null);
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
