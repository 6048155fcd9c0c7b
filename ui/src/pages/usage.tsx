import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { get } from "../api/client";
import { CopyCall } from "../parts/copy-call";
import { count, dollars, duration } from "../parts/format";
import { Empty, Problem } from "../parts/problem";
import { priceOf, readPrices } from "../run/spans";
import { useAllAssistants } from "./assistants";

interface Used {
  runs: number;
  errors: number;
  llm_calls: number;
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
}

interface Took {
  p50_ms: number;
  p95_ms: number;
}

interface Day extends Used, Took {
  date: string;
}

interface Report {
  since: string;
  until: string;
  total: Used & Took;
  days: Day[];
  graphs: (Used & Took & { graph_id: string | null })[];
  assistants: (Used & Took & { assistant_id: string | null })[];
  models: (Used & Took & { model: string | null })[];
  callers: (Used & Took & { caller: string | null })[];
}

/** What can be drawn by day. */
const measures = {
  tokens: { label: "Tokens", of: (d: Day) => d.total_tokens, show: count },
  runs: { label: "Runs", of: (d: Day) => d.runs, show: count },
  errors: { label: "Errors", of: (d: Day) => d.errors, show: count },
  p95: { label: "Time, p95", of: (d: Day) => d.p95_ms, show: duration },
} as const;

type Measure = keyof typeof measures;

/** What runs used: by day, and by model, assistant, graph and caller; of everyone or of one user. */
export default function Usage() {
  const [params, setParams] = useSearchParams();
  const days = Number(params.get("days")) || 30;
  const measure: Measure = Object.keys(measures).includes(params.get("show") ?? "") ? (params.get("show") as Measure) : "tokens";
  const user = params.get("user") ?? "";
  const path = `/understudy/usage?days=${days}${user && `&user=${encodeURIComponent(user)}`}`;
  const usage = useQuery({ queryKey: ["usage", days, user], queryFn: ({ signal }) => get<Report>(path, signal), refetchInterval: 10_000 });
  const names = new Map(useAllAssistants().data?.map((a) => [a.assistant_id, a.name]));
  const prices = readPrices();
  const set = (name: string, value: string) => setParams((old) => (value ? old.set(name, value) : old.delete(name), old));
  const report = usage.data;
  return (
    <main className="page wide">
      <div className="bar filters">
        <h1>Usage</h1>
        <label className="bar">
          Days
          <select value={days} onChange={(e) => set("days", e.target.value)}>
            {[...new Set([7, 30, 90, 366, days])].sort((a, b) => a - b).map((n) => (
              <option key={n}>{n}</option>
            ))}
          </select>
        </label>
        <User user={user} onUser={(name) => set("user", name)} />
        <CopyCall of={{ method: "GET", path }} />
      </div>
      <Problem error={usage.error} />
      {report && (
        <>
          <Figures report={report} cost={costOf(report, prices)} />
          {report.total.runs === 0 ? (
            <Empty>No run has ended in these days. Talk to a graph, or choose more days.</Empty>
          ) : (
            <>
              <Chart days={report.days} measure={measure} onMeasure={(m) => set("show", m)} />
              <Table title="Models" named="model" list={report.models.map((m) => ({ ...m, name: m.model }))} cost={(m) => (m.name ? dollarsFor(m.name, m, prices) : null)} />
              <Table title="Assistants" named="assistant" list={report.assistants.map((a) => ({ ...a, name: a.assistant_id && (names.get(a.assistant_id) ?? a.assistant_id) }))} />
              <Table title="Graphs" named="graph" list={report.graphs.map((g) => ({ ...g, name: g.graph_id, href: `/runs?graph=${g.graph_id}` }))} />
              <Table title="Callers" named="caller" list={report.callers.map((c) => ({ ...c, name: c.caller }))} />
            </>
          )}
        </>
      )}
    </main>
  );
}

/** Whose runs count; Enter or leaving the field asks for another user. */
function User({ user, onUser }: { user: string; onUser: (name: string) => void }) {
  const [text, setText] = useState(user);
  useEffect(() => setText(user), [user]); // back and forward
  const done = () => text.trim() !== user && onUser(text.trim());
  return (
    <label className="bar">
      User
      <input type="search" size={12} value={text} placeholder="all" onChange={(e) => setText(e.target.value)} onBlur={done} onKeyDown={(e) => e.key === "Enter" && done()} />
    </label>
  );
}

/** What tokens of a model cost in dollars; null when the user has no price for it. */
function dollarsFor(model: string, used: Used, prices: ReturnType<typeof readPrices>): number | null {
  const price = priceOf(model, prices);
  return price && (used.input_tokens * price.input + used.output_tokens * price.output) / 1e6;
}

function costOf(report: Report, prices: ReturnType<typeof readPrices>): number | null {
  const known = report.models.map((m) => (m.model ? dollarsFor(m.model, m, prices) : null)).filter((c) => c !== null);
  return known.length > 0 ? known.reduce((a, b) => a + b, 0) : null;
}

function Figures({ report: { total }, cost }: { report: Report; cost: number | null }) {
  const figures: [string, string][] = [
    ["runs", count(total.runs)],
    ["errors", total.errors === 0 ? "0" : `${count(total.errors)} (${((100 * total.errors) / total.runs).toFixed(1)} %)`],
    ["model calls", count(total.llm_calls)],
    ["tokens in", count(total.input_tokens)],
    ["tokens out", count(total.output_tokens)],
    ["cost", cost === null ? "–" : dollars(cost)],
    ["time, p50", total.runs ? duration(total.p50_ms) : "–"],
    ["time, p95", total.runs ? duration(total.p95_ms) : "–"],
  ];
  return (
    <dl className="figures numbers">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Bars in one scale. A table in the page's text says the same. */
function Chart({ days, measure, onMeasure }: { days: Day[]; measure: Measure; onMeasure: (m: Measure) => void }) {
  const { label, of, show } = measures[measure];
  const most = Math.max(1, ...days.map(of));
  const height = 120;
  return (
    <section className="usage-chart" aria-label="By day">
      <div className="tabs" role="group" aria-label="Show">
        {(Object.keys(measures) as Measure[]).map((m) => (
          <button key={m} type="button" className="plain" aria-pressed={m === measure} onClick={() => onMeasure(m)}>
            {measures[m].label}
          </button>
        ))}
      </div>
      <figure>
        <svg viewBox={`0 0 ${days.length * 10} ${height}`} preserveAspectRatio="none" role="img" aria-label={`${label} by day, at most ${show(most)}`}>
          {days.map((d, i) => {
            const tall = (of(d) / most) * height;
            return (
              <rect key={d.date} className="bar" x={i * 10 + 1} width={8} y={height - tall} height={tall}>
                <title>{`${d.date}: ${show(of(d))}`}</title>
              </rect>
            );
          })}
        </svg>
        <figcaption className="quiet numbers">
          <span>{days[0]?.date}</span>
          <span>at most {show(most)} a day</span>
          <span>{days.at(-1)?.date}</span>
        </figcaption>
      </figure>
      <details>
        <summary className="quiet">As a table</summary>
        <Scrolling label="By day">
          <table className="numbers">
            <thead>
              <tr>
                {["day", "runs", "errors", "in", "out", "p50", "p95"].map((h) => (
                  <th key={h}>{h}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {days
                .filter((d) => d.runs > 0)
                .reverse()
                .map((d) => (
                  <tr key={d.date}>
                    <th scope="row">{d.date}</th>
                    {[count(d.runs), count(d.errors), count(d.input_tokens), count(d.output_tokens), duration(d.p50_ms), duration(d.p95_ms)].map((v, i) => (
                      <td key={i}>{v}</td>
                    ))}
                  </tr>
                ))}
            </tbody>
          </table>
        </Scrolling>
      </details>
    </section>
  );
}

interface Named extends Used, Took {
  name: string | null; // null: all others
  href?: string;
}

function Table({ title, named, list, cost }: { title: string; named: string; list: Named[]; cost?: (n: Named) => number | null }) {
  if (list.length === 0) return null;
  const heads = [named, "runs", "errors", "model calls", "in", "out", "p50", "p95", ...(cost ? ["cost"] : [])];
  return (
    <section className="usage-table">
      <h2>{title}</h2>
      <Scrolling label={title}>
        <table className="numbers">
          <thead>
            <tr>
              {heads.map((h) => (
                <th key={h}>{h}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {list.map((n) => {
              const price = cost?.(n) ?? null;
              return (
                <tr key={n.name}>
                  <th scope="row">{n.href && n.name ? <Link href={n.href}>{n.name}</Link> : (n.name ?? "all others")}</th>
                  {[n.runs, n.errors, n.llm_calls, n.input_tokens, n.output_tokens].map((v, i) => (
                    <td key={i} title={v.toLocaleString()}>
                      {count(v)}
                    </td>
                  ))}
                  {[n.p50_ms, n.p95_ms].map((v, i) => (
                    <td key={i}>{v === 0 ? "–" : duration(v)}</td>
                  ))}
                  {cost && <td>{price === null ? "–" : dollars(price)}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scrolling>
    </section>
  );
}

/** A region that scrolls sideways, also by keyboard. */
function Scrolling({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div className="scrolls" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}
