import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get } from "../api/client";
import { recentRuns, type RecentRun } from "../api/runs";
import type { Run } from "../api/types";
import { Age } from "../parts/age";
import { duration } from "../parts/format";
import { JsonView } from "../parts/json";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";
import type { Span } from "../run/spans";
import { Changes, useStateAt } from "../state/changes";
import { checkpointsOf } from "../state/checkpoints";

/** How many of the newest runs are looked at. */
const newest = 10;

interface Execution {
  run: Run | RecentRun;
  span: Span;
}

interface Props {
  graph: string;
  node: string; // as the drawing has it
  thread?: string; // of which the runs are; undefined: of all
}

/** What the newest runs did at a node: how it ended, how long it took, and the state before and after. */
export function NodeRuns({ graph, node, thread }: Props) {
  const [open, setOpen] = useState<string | null>(null);
  const executions = useQuery({ queryKey: ["node", graph, node, thread], refetchInterval: 10_000, queryFn: ({ signal }) => executionsOf(graph, node, thread, signal) });
  return (
    <section aria-label="Runs of this node" aria-busy={executions.isPending}>
      <h3>Runs</h3>
      <Problem error={executions.error} />
      {executions.isPending && <p className="quiet">Reading…</p>}
      {executions.data?.length === 0 && <Empty>The last {newest} runs did not come here, or have no spans.</Empty>}
      <ol className="runs node-runs">
        {executions.data?.map(({ run, span }) => {
          const key = `${run.run_id} ${span.id}`;
          const nested = span.namespace?.includes("|"); // its steps are those of a subgraph
          return (
            <li key={key} data-execution={run.run_id}>
              <Status of={span.status === "lost" ? "error" : span.status} text />
              <span className="numbers">{span.end_time ? duration(Date.parse(span.end_time) - Date.parse(span.start_time)) : ""}</span>
              <Age of={span.start_time} />
              {span.step !== undefined && !nested && (
                <button type="button" className="plain" aria-expanded={open === key} onClick={() => setOpen(open === key ? null : key)}>
                  State
                </button>
              )}
              <Link href={`/r/${run.run_id}?span=${encodeURIComponent(span.id)}`}>timeline</Link>
              {span.error && <p className="wrong">{span.error.message || span.error.error}</p>}
              {open === key && <StepState thread={run.thread_id} run={run.run_id} step={span.step!} />}
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** The executions of a node, newest first. */
async function executionsOf(graph: string, node: string, thread: string | undefined, signal: AbortSignal): Promise<Execution[]> {
  const runs: (Run | RecentRun)[] = thread ? await get<Run[]>(`/threads/${thread}/runs?limit=${newest}`, signal) : (await recentRuns({ graph }, signal)).runs.slice(0, newest);
  const lists = await Promise.all(
    runs.map(async (run) => {
      const { spans } = await get<{ spans: Span[] }>(`/understudy/runs/${run.run_id}/spans?${new URLSearchParams({ node, limit: "20" })}`, signal);
      return spans.reverse().map((span) => ({ run, span }));
    }),
  );
  return lists.flat();
}

/** The state that a step of a run began with, and what it changed. Nodes of one step write one state together. */
function StepState({ thread, run, step }: { thread: string; run: string; step: number }) {
  const checkpoints = useQuery({ queryKey: ["states", thread], queryFn: ({ signal }) => checkpointsOf(thread, signal) });
  const at = (n: number) => checkpoints.data?.find((c) => c.run_id === run && c.step === n);
  const after = at(step);
  const before = after ? after.parent_checkpoint_id : (at(step - 1)?.checkpoint_id ?? null);
  const [input, output] = [useStateAt(thread, before), useStateAt(thread, after?.checkpoint_id ?? null)];
  return (
    <div className="step-state">
      <Problem error={checkpoints.error ?? input.error ?? output.error} />
      {checkpoints.data && !before && !after && <p className="quiet">The states of this step are not kept any more.</p>}
      {input.data && (
        <section aria-label="State in">
          <h4>
            <Link href={`/t/${thread}?panel=state&checkpoint=${before}`}>State before step {step}</Link>
          </h4>
          <JsonView value={input.data.values} open={1} />
        </section>
      )}
      {after && output.data && (
        <section aria-label="State out">
          <h4>
            <Link href={`/t/${thread}?panel=state&checkpoint=${after.checkpoint_id}`}>What the step changed</Link>
          </h4>
          <Changes thread={thread} parent={before} values={output.data.values} />
        </section>
      )}
      {checkpoints.data && before && !after && <p className="quiet">The step left no state: it did not end.</p>}
    </div>
  );
}
