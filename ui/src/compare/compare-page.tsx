import { useQuery } from "@tanstack/react-query";
import { ArrowLeftRight } from "lucide-react";
import { useMemo, useState, type ReactNode } from "react";
import { Link, useSearchParams } from "wouter";
import { usePoll } from "../api/use-changes";
import type { JsonObject, Message } from "../api/types";
import { callsOf, kindOf, textOf } from "../conversation/message";
import { CopyButton } from "../parts/copy";
import { age, count } from "../parts/format";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { Candidates } from "./candidates";
import { ChangeList } from "./change-list";
import { diff, type Member } from "./diff";
import { load, mostMessages, type Side } from "./load";
import { beside, words, type Stretch, type Words } from "./messages";
import { nameOf, pageOf, parseRef } from "./refs";

/** Two runs, checkpoints or threads side by side. The address names both. */
export default function ComparePage() {
  const [params, setParams] = useSearchParams();
  const [a, b] = [params.get("a"), params.get("b")];
  const [left, right] = [useSide(a), useSide(b)];
  const set = (x: string | null, y: string | null) =>
    setParams(() => {
      const next = new URLSearchParams();
      if (x) next.set("a", x);
      if (y) next.set("b", y);
      return next;
    });
  return (
    <main className="page wide compare">
      <header className="bar">
        <h1>Compare</h1>
        {a && b && (
          <>
            <button type="button" className="plain" onClick={() => set(b, a)}>
              <ArrowLeftRight size={14} aria-hidden /> Swap
            </button>
            <CopyButton text={window.location.href} label="Copy the address of this comparison" />
          </>
        )}
      </header>
      <div className="beside">
        <Head letter="A" text={a} side={left.data} onRemove={() => set(null, b)} />
        <Head letter="B" text={b} side={right.data} onRemove={() => set(a, null)} />
      </div>
      <Problem error={left.error} />
      <Problem error={right.error} />
      {!a || !b ? (
        <Candidates near={parseRef(a ?? b)} other={a ?? b} onChoose={(ref) => (a ? set(a, ref) : set(ref, b))} />
      ) : left.data && right.data ? (
        <Both a={left.data} b={right.data} />
      ) : (
        !left.error && !right.error && <p className="quiet">Reading both…</p>
      )}
    </main>
  );
}

function useSide(text: string | null) {
  const poll = usePoll(2_000);
  const ref = parseRef(text);
  return useQuery({
    queryKey: ["compare", text],
    enabled: text !== null,
    retry: false,
    queryFn: ({ signal }) => {
      if (!ref) throw new Error(`"${text}" is no run, checkpoint or thread. Write run:THREAD/RUN, checkpoint:THREAD/CHECKPOINT or thread:THREAD.`);
      return load(ref, signal);
    },
    refetchInterval: (q) => (q.state.data?.active ? Math.min(poll, 5_000) : false),
  });
}

function Head({ letter, text, side, onRemove }: { letter: string; text: string | null; side: Side | undefined; onRemove: () => void }) {
  const ref = parseRef(text);
  return (
    <section className="card" aria-label={letter}>
      <div className="bar">
        <b className="letter">{letter}</b>
        {ref ? <Link href={pageOf(ref)}>{nameOf(text!)}</Link> : <span className="quiet">{text ? "unknown" : "not chosen"}</span>}
        {side?.status && <Status of={side.status} text />}
        {side && <time dateTime={side.at} title={new Date(side.at).toLocaleString()}>{age(side.at)}</time>}
        {text && (
          <button type="button" className="plain" onClick={onRemove}>
            Change<span className="hidden"> {letter}</span>
          </button>
        )}
      </div>
    </section>
  );
}

function Both({ a, b }: { a: Side; b: Side }) {
  const ofState = a.ref.kind !== "thread" && b.ref.kind !== "thread"; // the messages are those of the states
  return (
    <>
      <Figures a={a} b={b} />
      <section aria-labelledby="messages">
        <h2 id="messages">Messages</h2>
        {(a.cut || b.cut) && <p className="quiet">Of long threads, the newest {count(mostMessages)} messages.</p>}
        <Messages a={a.messages} b={b.messages} />
      </section>
      <section aria-labelledby="state">
        <h2 id="state">State</h2>
        {a.values && b.values ? (
          <Channels a={a.values} b={b.values} above={ofState} />
        ) : (
          <Empty>{!a.values && !b.values ? "Neither" : a.values ? "B" : "A"} left {a.values || b.values ? "no" : "a"} state: it saved no checkpoint, or that is too long ago.</Empty>
        )}
      </section>
    </>
  );
}

function Figures({ a, b }: { a: Side; b: Side }) {
  const nothing = (side: Side, name: string) => (side.figures.get(name)?.value ?? 0) === 0;
  const names = [...new Set([...a.figures.keys(), ...b.figures.keys()])].filter((name) => !nothing(a, name) || !nothing(b, name));
  if (names.length === 0) return null;
  return (
    <section aria-label="Figures" className="scrolls" tabIndex={0}>
      <table className="figures-table">
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col">A</th>
            <th scope="col">B</th>
            <th scope="col">B against A</th>
          </tr>
        </thead>
        <tbody>
          {names.map((name) => {
            const [x, y] = [a.figures.get(name), b.figures.get(name)];
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td className="numbers">{x ? x.show(x.value) : "–"}</td>
                <td className="numbers">{y ? y.show(y.value) : "–"}</td>
                <td className="numbers">{x && y ? difference(x.value, y.value, x.show) : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

/** +1.2 s (+40 %), or "equal". */
function difference(a: number, b: number, show: (n: number) => string): string {
  if (a === b) return "equal";
  const sign = b > a ? "+" : "−";
  const part = a === 0 ? "" : ` (${sign}${Math.round((Math.abs(b - a) / Math.abs(a)) * 100)} %)`;
  return sign + show(Math.abs(b - a)) + part;
}

/** How many places are drawn before more are asked for. */
const step = 100;

function Messages({ a, b }: { a: readonly Message[]; b: readonly Message[] }) {
  const stretches = useMemo(() => beside(a, b), [a, b]);
  const [shown, setShown] = useState(step);
  if (stretches.length === 0) return <Empty>Neither side has messages.</Empty>;
  return (
    <div className="stretches">
      {stretches.every((s) => s.kind === "equal") && <p className="quiet">Both say the same.</p>}
      {stretches.slice(0, shown).map((s, i) => (s.kind === "equal" ? <Equal key={i} messages={s.messages} /> : <Differ key={i} {...s} />))}
      {stretches.length > shown && (
        <button type="button" className="link" onClick={() => setShown(shown + step)}>
          {count(stretches.length - shown)} more
        </button>
      )}
    </div>
  );
}

/** Equal messages, folded: what differs is looked for. */
function Equal({ messages }: { messages: readonly Message[] }) {
  const [open, setOpen] = useState(false);
  const [shown, setShown] = useState(step);
  return (
    <details className="marker" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>{messages.length === 1 ? "1 equal message" : `${count(messages.length)} equal messages`}</summary>
      {open && messages.slice(0, shown).map((m, i) => <Said key={i} message={m} text={textOf(m)} />)}
      {open && messages.length > shown && (
        <button type="button" className="link" onClick={() => setShown(shown + step)}>
          {count(messages.length - shown)} more
        </button>
      )}
    </details>
  );
}

function Differ({ a, b }: Extract<Stretch, { kind: "differ" }>) {
  const [x, y] = useMemo(() => words(a ? textOf(a) : "", b ? textOf(b) : ""), [a, b]);
  const both = a !== undefined && b !== undefined;
  return (
    <div className="beside">
      <div className="side a">{a ? <Said letter="A" message={a} text={both ? <Marked words={x} /> : textOf(a)} /> : <p className="quiet">A has no such message.</p>}</div>
      <div className="side b">{b ? <Said letter="B" message={b} text={both ? <Marked words={y} /> : textOf(b)} /> : <p className="quiet">B has no such message.</p>}</div>
    </div>
  );
}

const speakers = { human: "You", ai: "Assistant", tool: "Tool", system: "System" };

function Said({ letter, message, text }: { letter?: string; message: Message; text: ReactNode }) {
  const kind = kindOf(message);
  return (
    <article className="said" data-kind={kind}>
      <b>
        {letter && <span className="letter">{letter} </span>}
        {message.name || speakers[kind]}
      </b>
      {text !== "" && <pre className="result">{text}</pre>}
      {callsOf(message).map((c) => (
        <p key={c.id}>
          calls <code>{c.name}</code> <code className="quiet">{c.args.slice(0, 2_000)}</code>
        </p>
      ))}
    </article>
  );
}

const Marked = ({ words }: { words: Words[] }) => words.map((w, i) => (w.own ? <mark key={i}>{w.text}</mark> : w.text));

function Channels({ a, b, above }: { a: JsonObject; b: JsonObject; above: boolean }) {
  const { changed, equal } = useMemo(() => {
    const d = diff(a, b);
    const changed: [string, Member][] = d.kind === "object" ? [...d.members] : [];
    const different = new Set(changed.map(([name]) => name));
    return { changed, equal: Object.keys(a).filter((name) => !different.has(name)) };
  }, [a, b]);
  return (
    <div className="channels">
      {changed.length === 0 && <p className="quiet">The states are equal.</p>}
      {changed.map(([name, d]) => (
        <Channel key={name} name={name} of={d} above={above && name === "messages"} />
      ))}
      {equal.length > 0 && changed.length > 0 && <p className="quiet">Equal: {equal.slice(0, 100).join(", ")}{equal.length > 100 && ` and ${equal.length - 100} more`}</p>}
    </div>
  );
}

const changes = { added: "only in B", removed: "only in A", value: "differs", object: "differs", list: "differs" };

function Channel({ name, of, above }: { name: string; of: Member; above: boolean }) {
  const [open, setOpen] = useState(!above);
  // The root of a list of changes has no member of its own.
  const d = of.kind === "added" || of.kind === "removed" ? { kind: "object" as const, members: new Map([[name, of]]) } : of;
  return (
    <details className="card" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <code>{name}</code> <span className="quiet">{changes[of.kind]}{above && ", see the messages above"}</span>
      </summary>
      {open && <ChangeList diff={d} nothing="Nothing differs." />}
    </details>
  );
}
