import { useQuery } from "@tanstack/react-query";
import { Play, X } from "lucide-react";
import { Link } from "wouter";
import { get } from "../api/client";
import { checkpointsOf } from "../state/checkpoints";
import { ID } from "../parts/copy";
import { count, dollars, duration } from "../parts/format";
import { JsonView } from "../parts/json";
import { Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { type Row, type Span, rootStep, siblings } from "./spans";

interface Props {
  run: { run_id: string; thread_id: string };
  rows: Row[];
  row: Row;
  cost: number | null;
  onSelect: (span: string | null) => void;
}

/** What is known of one span. */
export function SpanDetail({ run, rows, row, cost, onSelect }: Props) {
  const content = useQuery({
    queryKey: ["span", run.run_id, row.id, row.status],
    enabled: row.has_content === true,
    queryFn: ({ signal }) => get<{ spans: Span[] }>(`/understudy/runs/${run.run_id}/spans?content=true&id=${encodeURIComponent(row.id)}`, signal),
  });
  const whole = content.data?.spans[0];
  const tries = siblings(rows, row);
  const facts: [string, string | undefined][] = [
    ["took", duration(row.end - row.start)],
    ["began", new Date(row.start).toLocaleString()],
    ["first token", row.first_token_time && `after ${duration(Date.parse(row.first_token_time) - row.start)}`],
    ["model", row.model],
    ["tokens", row.usage && `${count(row.usage.input_tokens)} in (${count(row.usage.cached_tokens)} cached), ${count(row.usage.output_tokens)} out`],
    ["cost", cost === null ? undefined : dollars(cost)],
    ["node", row.node],
    ["step", row.step?.toString()],
    ["namespace", row.namespace],
    ["checkpoints", row.checkpoints?.toString()],
    ["not recorded", row.dropped_spans ? `${count(row.dropped_spans)} further spans` : undefined],
  ];
  return (
    <aside className="panel span-detail" aria-label="Span">
      <header className="bar">
        <h2>{row.name}</h2>
        <span className="quiet">{row.kind}</span>
        <Status of={row.status === "lost" ? "error" : row.status} text />
        <button type="button" className="icon" aria-label="Close" onClick={() => onSelect(null)}>
          <X size={16} />
        </button>
      </header>
      <dl className="facts">
        {facts.map(([name, value]) => value && (
          <div key={name}>
            <dt>{name}</dt>
            <dd className="numbers">{value}</dd>
          </div>
        ))}
      </dl>
      {row.message_id && <p className="quiet">answer <ID id={row.message_id} /></p>}
      {tries.length > 1 && (
        <section aria-label="Tries">
          <h3>Tries</h3>
          <div className="tries">
            {tries.map((t) => (
              <button key={t.id} type="button" className="plain" aria-pressed={t.id === row.id} onClick={() => onSelect(t.id)}>
                <Status of={t.status === "lost" ? "error" : t.status} /> {t.tries![0]} of {t.tries![1]}
                <span className="quiet numbers">{duration(t.end - t.start)}</span>
                {t.error && <span className="wrong">{t.error.error}</span>}
              </button>
            ))}
          </div>
        </section>
      )}
      {row.error && (
        <section aria-label="Error">
          <h3>{row.error.error}</h3>
          {row.error.message && <p className="wrong">{row.error.message}</p>}
          {row.error.stack && <pre className="stack" tabIndex={0}>{row.error.stack}</pre>}
        </section>
      )}
      <Again thread={run.thread_id} run={run.run_id} step={rootStep(rows, row)} />
      <Problem error={content.error} />
      {whole?.input !== undefined && (
        <section aria-label="Input">
          <h3>Input{whole.input_cut && ", not all of it"}</h3>
          <JsonView value={whole.input} open={2} />
        </section>
      )}
      {whole?.output !== undefined && (
        <section aria-label="Output">
          <h3>Output{whole.output_cut && ", not all of it"}</h3>
          <JsonView value={whole.output} open={2} />
        </section>
      )}
    </aside>
  );
}

/** The way to the checkpoint before the step of a span: to look at its state, change it, and run again. */
function Again({ thread, run, step }: { thread: string; run: string; step: number | null }) {
  const checkpoints = useQuery({ queryKey: ["states", thread], enabled: step !== null, queryFn: ({ signal }) => checkpointsOf(thread, signal), retry: false });
  const before = step === null ? undefined : checkpoints.data?.find((c) => c.run_id === run && c.step === step - 1);
  if (!before) return null;
  return (
    <Link className="button" href={`/t/${thread}?panel=state&checkpoint=${before.checkpoint_id}`}>
      <Play size={14} aria-hidden /> The checkpoint before it: change it, run again
    </Link>
  );
}
