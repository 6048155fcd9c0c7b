import { useQuery } from "@tanstack/react-query";
import { ArrowLeftRight } from "lucide-react";
import { useEffect, useMemo, useState, type ReactNode } from "react";
import { Link, useSearchParams } from "wouter";
import { usePoll } from "../api/use-changes";
import type { Message } from "../api/types";
import { callsOf, kindOf, textOf } from "../conversation/message";
import { Age } from "../parts/age";
import { CopyButton } from "../parts/copy";
import { count } from "../parts/format";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { Beside } from "./beside-page";
import { Candidates } from "./candidates";
import { ChangeRows, step as changesAtOnce } from "./change-list";
import type { Overview } from "./comparison";
import { load, mostMessages, type Side } from "./load";
import { words, type Stretch, type Words } from "./messages";
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
        {side?.at && <Age of={side.at} />}
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
  const [made, setMade] = useState<{ overview: Overview; by: Beside } | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const by = new Beside();
    by.compare({ state: a.state, messages: a.messages }, { state: b.state, messages: b.messages }).then((overview) => (setMade({ overview, by }), setError(null)), setError);
    return () => by.close();
  }, [a, b]);
  if (error) return <Problem error={error} />;
  if (!made) return <p className="quiet" role="status">Comparing…</p>;
  const { overview, by } = made;
  const [x, y] = overview.states;
  return (
    <>
      <Figures a={withMessages(a, overview, 0)} b={withMessages(b, overview, 1)} />
      <section aria-labelledby="messages">
        <h2 id="messages">Messages</h2>
        {(a.cut || b.cut) && <p className="quiet">Of long threads, the newest {count(mostMessages)} messages.</p>}
        <Messages overview={overview} by={by} />
      </section>
      <section aria-labelledby="state">
        <h2 id="state">State</h2>
        {x && y ? (
          <Channels overview={overview} by={by} above={ofState} />
        ) : (
          <Empty>{!x && !y ? "Neither" : x ? "B" : "A"} left {x || y ? "no" : "a"} state: it saved no checkpoint, or that is too long ago.</Empty>
        )}
      </section>
    </>
  );
}

/** The figures of a side with those that its messages have. What its spans say of tokens is kept. */
function withMessages(side: Side, overview: Overview, i: 0 | 1): Side {
  const figures = new Map(side.figures);
  const { input, output } = overview.tokens[i];
  if (input + output > 0 && side.ref.kind !== "run") {
    figures.set("tokens in", { value: input, show: count });
    figures.set("tokens out", { value: output, show: count });
  }
  figures.set("messages", { value: overview.counts[i], show: count });
  return { ...side, figures };
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

/** What a comparison answers, asked again when it or the question changes. What it answered before stays until then. */
function useAnswer<T>(by: Beside, ask: (by: Beside) => Promise<T>, ...of: unknown[]): T | null {
  const [answer, setAnswer] = useState<T | null>(null);
  useEffect(() => {
    let left = false;
    ask(by).then((value) => left || setAnswer(value), () => {}); // a worker that fails is reported by what it compares
    return () => void (left = true);
  }, [by, ...of]);
  return answer;
}

function Messages({ overview, by }: { overview: Overview; by: Beside }) {
  const [shown, setShown] = useState(step);
  const places = useAnswer(by, (by) => by.places(shown), shown) ?? [];
  if (overview.places === 0) return <Empty>Neither side has messages.</Empty>;
  return (
    <div className="stretches">
      {overview.allEqual && <p className="quiet">Both say the same.</p>}
      {places.map((p, i) => (p.kind === "equal" ? <Equal key={i} place={i} of={p.count} by={by} /> : <Differ key={i} {...p} />))}
      {overview.places > shown && (
        <button type="button" className="link" onClick={() => setShown(shown + step)}>
          {count(overview.places - shown)} more
        </button>
      )}
    </div>
  );
}

/** Equal messages, folded: what differs is looked for. */
function Equal({ place, of, by }: { place: number; of: number; by: Beside }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="marker" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>{of === 1 ? "1 equal message" : `${count(of)} equal messages`}</summary>
      {open && <EqualMessages place={place} of={of} by={by} />}
    </details>
  );
}

function EqualMessages({ place, of, by }: { place: number; of: number; by: Beside }) {
  const [shown, setShown] = useState(step);
  const messages = useAnswer(by, (by) => by.equalAt(place, shown), place, shown) ?? [];
  return (
    <>
      {messages.map((m, i) => (
        <Said key={i} message={m} text={textOf(m)} />
      ))}
      {of > shown && (
        <button type="button" className="link" onClick={() => setShown(shown + step)}>
          {count(of - shown)} more
        </button>
      )}
    </>
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

function Channels({ overview: { changed, equal }, by, above }: { overview: Overview; by: Beside; above: boolean }) {
  return (
    <div className="channels">
      {changed.length === 0 && <p className="quiet">The states are equal.</p>}
      {changed.slice(0, mostChannels).map((c) => (
        <Channel key={c.name} {...c} by={by} above={above && c.name === "messages"} />
      ))}
      {changed.length > mostChannels && <p className="quiet">{count(changed.length - mostChannels)} more channels differ.</p>}
      {equal.length > 0 && changed.length > 0 && <p className="quiet">Equal: {equal.slice(0, 100).join(", ")}{equal.length > 100 && ` and ${equal.length - 100} more`}</p>}
    </div>
  );
}

const mostChannels = 200;

const changes = { added: "only in B", removed: "only in A", value: "differs", object: "differs", list: "differs" };

function Channel({ name, kind, by, above }: { name: string; kind: keyof typeof changes; by: Beside; above: boolean }) {
  const [open, setOpen] = useState(!above);
  return (
    <details className="card" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <code>{name}</code> <span className="quiet">{changes[kind]}{above && ", see the messages above"}</span>
      </summary>
      {open && <ChannelChanges name={name} by={by} />}
    </details>
  );
}

function ChannelChanges({ name, by }: { name: string; by: Beside }) {
  const [shown, setShown] = useState(changesAtOnce);
  const first = useAnswer(by, (by) => by.changes(name, shown), name, shown);
  if (!first) return null;
  return <ChangeRows {...first} nothing="Nothing differs." onMore={() => setShown(shown + 10 * changesAtOnce)} />;
}
