import { useQuery } from "@tanstack/react-query";
import { Bot, Boxes, Download, Hourglass, Play, RotateCcw, Save, Wrench } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { VList, type VListHandle } from "virtua";
import { Link, useSearchParams } from "wouter";
import { get } from "../api/client";
import type { Json } from "../api/types";
import { CompareButton } from "../compare/chosen";
import { runRef } from "../compare/refs";
import { describe } from "../conversation/reducer";
import { ID } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { count, dollars, duration } from "../parts/format";
import { Menu } from "../parts/menu";
import { Empty, Problem } from "../parts/problem";
import { Splitter } from "../parts/splitter";
import { Status } from "../parts/status";
import { Flame } from "./flame";
import { SpanDetail } from "./span-detail";
import { type Kind, type Prices, type Row, type Span, type Stretch, axisOf, costOf, failing, logOf, matches, parsePrices, place, readPrices, rowsOf, totalsOf, writePrices } from "./spans";

interface Answer {
  run: { run_id: string; thread_id: string; graph_id: string; status: string; attempt: number; error: Json };
  spans: Span[];
  next: string | null;
}

export const shapes: Record<Kind, typeof Bot> = { queue: Hourglass, attempt: Play, node: Boxes, model: Bot, tool: Wrench, save: Save };
const views = ["tree", "timeline", "flame", "log"] as const;
type View = (typeof views)[number];

/** How many spans the page reads. */
const limit = 20_000;

/** What happened in a run and how long it took. */
export default function RunPage({ id }: { id: string }) {
  const [params, setParams] = useSearchParams();
  const view = (views as readonly string[]).includes(params.get("view") ?? "") ? (params.get("view") as View) : "tree";
  const text = params.get("q") ?? "";
  const saves = params.has("saves");
  const folded = params.get("idle") !== "whole";
  const set = (name: string, value: string | null) =>
    setParams(
      (old) => {
        value === null || value === "" ? old.delete(name) : old.set(name, value);
        return old;
      },
      { replace: true },
    );
  const path = `/understudy/runs/${id}/spans?limit=${limit}`;
  const answer = useQuery({
    queryKey: ["spans", id],
    queryFn: async ({ signal }) => ({ ...(await get<Answer>(path, signal)), at: Date.now() }),
    // Spans begin and end without a change of the run, so they are read again while it is active.
    refetchInterval: (q) => (q.state.data && !["pending", "running"].includes(q.state.data.run.status) ? false : (q.state.data?.spans.length ?? 0) > 3_000 ? 5_000 : 1_000),
  });
  const [prices, setPrices] = useState(readPrices);
  const all = useMemo(() => rowsOf(answer.data?.spans ?? [], answer.data?.at ?? 0), [answer.data]);
  const rows = useMemo(() => all.filter((r) => (saves || r.kind !== "save") && matches(r, text)), [all, saves, text]);
  const axis = useMemo(() => axisOf(all, folded), [all, folded]);
  const totals = useMemo(() => totalsOf(all, prices), [all, prices]);
  const failed = useMemo(() => failing(all), [all]);
  const selected = all.find((r) => r.id === params.get("span")) ?? null;
  const run = answer.data?.run;
  if (answer.error && !answer.data) {
    return (
      <main className="page">
        <h1>Run</h1>
        <Problem error={answer.error} />
      </main>
    );
  }
  return (
    <main className={selected ? "run-page with-panel" : "run-page"}>
      <section className="run-main" aria-label="Run">
        <header className="bar">
          <h1>{run ? `Run of ${run.graph_id}` : "Run"}</h1>
          {run && <Status of={run.status} text />}
          {run && <ID id={run.run_id} />}
          {run && <CompareButton of={runRef(run.thread_id, run.run_id)} />}
          {run && <Link href={`/t/${run.thread_id}?panel=runs`}>thread …{run.thread_id.slice(-8)}</Link>}
          {run && <Link href={`/logs?level=debug&text=${run.run_id}`}>its log</Link>}
        </header>
        <Problem error={answer.error} />
        {run?.error && <p className="wrong">{describe(run.error).slice(0, 1_000)}</p>}
        {all.length > 0 && <Figures rows={all} totals={totals} />}
        <div className="bar wrap">
          <div className="tabs" role="group" aria-label="View">
            {views.map((v) => (
              <button key={v} type="button" className="plain" aria-pressed={view === v} onClick={() => set("view", v === "tree" ? null : v)}>
                {v[0]!.toUpperCase() + v.slice(1)}
              </button>
            ))}
          </div>
          <input type="search" data-key="/" aria-label="Find spans" placeholder="Find: name, model, error…" value={text} onChange={(e) => set("q", e.target.value)} />
          <label className="check">
            <input type="checkbox" checked={saves} onChange={(e) => set("saves", e.target.checked ? "1" : null)} /> saves
          </label>
          <label className="check">
            <input type="checkbox" checked={folded} onChange={(e) => set("idle", e.target.checked ? null : "whole")} /> fold idle time
          </label>
          {failed && (
            <button type="button" className="plain" onClick={() => set("span", failed.id)}>
              <RotateCcw size={12} aria-hidden /> Go to the failure
            </button>
          )}
          <Export id={id} />
          <CopyCall of={{ method: "GET", path }} />
        </div>
        {answer.isSuccess && all.every((r) => r.kind === "queue" || r.kind === "attempt") && (
          <Empty>Nothing in the run is recorded: it has not begun, or its server has --traces off.</Empty>
        )}
        {answer.data?.next && <p className="quiet">The first {count(limit)} spans.</p>}
        {text !== "" && <p className="quiet" role="status">{rows.length} of {all.length} spans</p>}
        {view === "flame" ? (
          <Flame rows={rows} axis={axis} selected={selected?.id ?? null} onSelect={(s) => set("span", s)} />
        ) : (
          <Rows view={view} rows={rows} axis={axis} prices={prices} selected={selected?.id ?? null} onSelect={(s) => set("span", s)} />
        )}
        <PriceTable prices={prices} unpriced={totals.unpriced} onChange={(p) => (writePrices(p), setPrices(p))} />
      </section>
      {selected && run && <Splitter name="span-width" label="Width of the span" of="main > .panel" behind />}
      {selected && run && <SpanDetail run={run} rows={all} row={selected} cost={costOf(selected, prices)} onSelect={(s) => set("span", s)} />}
    </main>
  );
}

function Figures({ rows, totals }: { rows: Row[]; totals: ReturnType<typeof totalsOf> }) {
  const from = rows[0]!.start;
  const to = rows.reduce((n, r) => Math.max(n, r.end), from);
  const figures: [string, string][] = [
    ["took", duration(to - from)],
    ["first token", totals.first === null ? "–" : duration(totals.first)],
    ["model calls", count(totals.calls)],
    ["tokens in", count(totals.input)],
    ["cached", count(totals.cached)],
    ["tokens out", count(totals.output)],
    ["cost", totals.cost === null ? "–" : dollars(totals.cost)],
    ["failed spans", count(totals.errors)],
  ];
  return (
    <dl className="figures">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="numbers">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

interface RowsProps {
  view: View;
  rows: Row[];
  axis: Stretch[];
  prices: Prices;
  selected: string | null;
  onSelect: (span: string | null) => void;
}

/** The rows of all views but the flame graph. Only those in sight are in the document. */
function Rows({ view, rows, axis, prices, selected, onSelect }: RowsProps) {
  const list = useRef<VListHandle>(null);
  const entries = useMemo(() => (view === "log" ? logOf(rows) : null), [view, rows]);
  const length = entries?.length ?? rows.length;
  const index = rows.findIndex((r) => r.id === selected);
  const onKeyDown = (e: React.KeyboardEvent) => {
    const to = e.key === "ArrowDown" || e.key === "j" ? index + 1 : e.key === "ArrowUp" || e.key === "k" ? index - 1 : -1;
    if (e.key === "Escape") onSelect(null);
    if (!rows[to]) return;
    e.preventDefault();
    onSelect(rows[to].id);
    if (!entries) list.current?.scrollToIndex(to, { align: "nearest" });
  };
  return (
    <VList ref={list} data={Array.from({ length }, (_, i) => i)} className="span-list" style={{ height: "auto" }} role="group" aria-label="Spans" tabIndex={0} onKeyDown={onKeyDown}>
      {(i) => {
        if (entries) {
          const { row, end, time } = entries[i]!;
          return (
            <button type="button" tabIndex={-1} key={`${row.id}${end}`} className={`span-row log ${row.status}`} aria-current={row.id === selected} onClick={() => onSelect(row.id)}>
              <time className="numbers" dateTime={new Date(time).toISOString()}>{new Date(time).toISOString().slice(11, 23)}</time>
              <Name row={row} depth={0} />
              <span className="quiet">{end ? `${row.status} after ${duration(row.end - row.start)}` : "began"}</span>
              {end && row.error && <span className="wrong">{row.error.error} {row.error.message}</span>}
            </button>
          );
        }
        const row = rows[i]!;
        const cost = costOf(row, prices);
        return (
          <button type="button" tabIndex={-1} key={row.id} data-span={row.id} className={`span-row ${view} ${row.status}`} aria-current={row.id === selected} onClick={() => onSelect(row.id)}>
            <Name row={row} depth={row.depth} />
            {view === "timeline" ? (
              <Bar row={row} axis={axis} />
            ) : (
              <span className="quiet numbers facts">
                {row.usage && `${count(row.usage.input_tokens)} in, ${count(row.usage.output_tokens)} out`}
                {row.first_token_time && `, first token ${duration(Date.parse(row.first_token_time) - row.start)}`}
                {cost !== null && `, ${dollars(cost)}`}
              </span>
            )}
            <span className="numbers took">{duration(row.end - row.start)}</span>
          </button>
        );
      }}
    </VList>
  );
}

function Name({ row, depth }: { row: Row; depth: number }) {
  const Shape = shapes[row.kind];
  return (
    <span className="span-name" style={{ paddingLeft: Math.min(depth, 12) * 14 }}>
      <Status of={row.status === "lost" ? "error" : row.status} />
      <Shape size={14} aria-hidden className={row.kind} />
      <span className="hidden">{row.kind}</span>
      <span>{row.name}</span>
      {row.tries && <span className="tag">try {row.tries[0]} of {row.tries[1]}</span>}
      {row.status === "lost" && <span className="tag">lost</span>}
    </span>
  );
}

/** A span on the time axis, with idle time hatched and the first token marked. */
function Bar({ row, axis }: { row: Row; axis: Stretch[] }) {
  const from = place(axis, row.start) * 1000;
  const width = Math.max(2, place(axis, row.end) * 1000 - from);
  const first = row.first_token_time ? place(axis, Date.parse(row.first_token_time)) * 1000 : null;
  return (
    <svg className="span-bar" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden>
      {axis.filter((s) => s.idle).map((s) => (
        <rect key={s.from} className="idle" x={s.at * 1000} y={0} width={s.width * 1000} height={20} />
      ))}
      <rect className={`bar ${row.kind} ${row.status}`} x={Math.min(from, 998)} y={4} width={width} height={12} />
      {first !== null && <rect className="first" x={first} y={2} width={2} height={16} />}
    </svg>
  );
}

/** What a run is saved as: the route that has it, and what its file is called. */
const forms = {
  JSON: [`spans?limit=${limit}&content=true`, ""],
  "OTLP (JSON)": ["otlp?content=true", "-otlp"],
} as const;

function Export({ id }: { id: string }) {
  const [error, setError] = useState<unknown>(null);
  const save = async (form: keyof typeof forms) => {
    try {
      const whole = await get<Json>(`/understudy/runs/${id}/${forms[form][0]}`);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(whole, null, 2)], { type: "application/json" }));
      link.download = `run-${id}${forms[form][1]}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      setError(null);
    } catch (e) {
      setError(e);
    }
  };
  return (
    <>
      <Menu label="Export" menu="Export as" className="plain" icon={<><Download size={12} aria-hidden /> Export</>}>
        {(close) =>
          (Object.keys(forms) as (keyof typeof forms)[]).map((form) => (
            <button key={form} type="button" role="menuitem" onClick={() => (close(), void save(form))}>
              {form}
            </button>
          ))
        }
      </Menu>
      <Problem error={error} />
    </>
  );
}

/** The user's prices, for costs. */
function PriceTable({ prices, unpriced, onChange }: { prices: Prices; unpriced: number; onChange: (p: Prices) => void }) {
  const [text, setText] = useState(() => JSON.stringify(prices, null, 2));
  const [error, setError] = useState("");
  return (
    <details className="prices">
      <summary className="quiet">Prices{unpriced > 0 && `: ${unpriced} model calls have none`}</summary>
      <form
        className="fields code"
        onSubmit={(e) => {
          e.preventDefault();
          try {
            onChange(parsePrices(text));
            setError("");
          } catch (e) {
            setError(e instanceof Error ? e.message : String(e));
          }
        }}
      >
        <label>
          <span>Dollars for a million tokens, by the beginning of a model's name. This browser keeps them.</span>
          <textarea rows={5} value={text} spellCheck={false} aria-invalid={error !== ""} placeholder='{"gpt-4o": {"input": 2.5, "output": 10, "cached": 1.25}}' onChange={(e) => setText(e.target.value)} />
        </label>
        {error && <p className="wrong" role="alert">{error}</p>}
        <div className="buttons">
          <button type="submit" className="plain">Use these prices</button>
        </div>
      </form>
    </details>
  );
}
