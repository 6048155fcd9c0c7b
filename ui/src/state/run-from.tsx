import { useQuery } from "@tanstack/react-query";
import { Play, StepForward } from "lucide-react";
import { useState } from "react";
import { get } from "../api/client";
import type { Drawing, Json } from "../api/types";
import { Problem } from "../parts/problem";
import { JsonField } from "../parts/schema-form";

/** What a run from a checkpoint begins with, and the nodes where it stops. */
export interface Beginning {
  input: Json; // null: it continues with the next nodes
  before?: string[] | "*";
  after?: string[] | "*";
}

interface Props {
  assistant: string | undefined;
  busy: boolean;
  onRun: (beginning: Beginning) => Promise<unknown>;
}

/** Runs from a checkpoint: to the end, to the next breakpoint, or for one step. Breakpoints stay for the next run. */
export function RunFrom({ assistant, busy, onRun }: Props) {
  const [unfolded, setUnfolded] = useState(false);
  const [before, setBefore] = useState<readonly string[]>([]);
  const [after, setAfter] = useState<readonly string[]>([]);
  const [input, setInput] = useState<Json>(null);
  const run = (stops: Partial<Beginning>) => void onRun({ input, ...stops }).catch(() => {}); // the page shows why
  const breakpoints = { ...(before.length > 0 && { before: [...before] }), ...(after.length > 0 && { after: [...after] }) };
  const set = before.length + after.length;
  return (
    <div className="run-from">
      <div className="buttons">
        <button type="button" className="plain" disabled={busy} onClick={() => run(breakpoints)}>
          <Play size={14} aria-hidden /> Run from here
        </button>
        <button type="button" className="plain" disabled={busy} onClick={() => run({ after: "*" })}>
          <StepForward size={14} aria-hidden /> One step
        </button>
      </div>
      <details onToggle={(e) => setUnfolded(e.currentTarget.open)}>
        <summary className="quiet">
          Breakpoints{set > 0 && `: ${set}`}, input{input !== null && ": set"}
        </summary>
        {unfolded && (
          <div className="fields">
            <Breakpoints assistant={assistant} before={before} after={after} onBefore={setBefore} onAfter={setAfter} />
            <JsonField label="Input (null: continue with the next nodes)" value={input} onChange={setInput} />
          </div>
        )}
      </details>
    </div>
  );
}

interface BreakpointsProps {
  assistant: string | undefined;
  before: readonly string[];
  after: readonly string[];
  onBefore: (nodes: readonly string[]) => void;
  onAfter: (nodes: readonly string[]) => void;
}

/** The nodes of a graph, each with the two places where a run can stop. */
function Breakpoints({ assistant, before, after, onBefore, onAfter }: BreakpointsProps) {
  const drawing = useQuery({
    queryKey: ["nodes", assistant],
    enabled: assistant !== undefined,
    staleTime: 60_000,
    queryFn: ({ signal }) => get<Drawing>(`/assistants/${assistant}/graph`, signal),
  });
  if (drawing.error) return <Problem error={drawing.error} />;
  const nodes = (drawing.data?.nodes ?? []).map((n) => String(n.id)).filter((id) => id !== "__start__" && id !== "__end__");
  return (
    <table className="breakpoints">
      <caption className="quiet">Where the run stops</caption>
      <thead>
        <tr>
          <th scope="col">Node</th>
          <th scope="col">before</th>
          <th scope="col">after</th>
        </tr>
      </thead>
      <tbody>
        {nodes.map((node) => (
          <tr key={node}>
            <th scope="row">{node}</th>
            <Stop label={`Stop before ${node}`} node={node} nodes={before} onChange={onBefore} />
            <Stop label={`Stop after ${node}`} node={node} nodes={after} onChange={onAfter} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Stop({ label, node, nodes, onChange }: { label: string; node: string; nodes: readonly string[]; onChange: (nodes: readonly string[]) => void }) {
  return (
    <td>
      <input type="checkbox" aria-label={label} checked={nodes.includes(node)} onChange={(e) => onChange(e.target.checked ? [...nodes, node] : nodes.filter((n) => n !== node))} />
    </td>
  );
}
