import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "wouter";
import { get } from "../api/client";
import type { Drawing as Shape } from "../api/types";
import type { Task } from "../conversation/reducer";
import { duration } from "../parts/format";
import { Problem } from "../parts/problem";
import { closedOf, fold, toggle, toggledIn } from "./fold";
import { place, type Layout } from "./layout";

interface Props {
  assistant: string;
  tasks?: readonly Task[]; // of the run that is shown on it
  waiting?: readonly string[]; // nodes that come next
  selected?: string;
  onSelect?: (node: string) => void;
}

/**
 * The graph of an assistant. Nodes show whether they run, how often they ran and how long the last time took. Subgraphs are opened and closed in place; the address
 * has which.
 */
export default function Drawing({ assistant, tasks = [], waiting = [], selected, onSelect }: Props) {
  const { data, error } = useQuery({ queryKey: ["graph", assistant], queryFn: ({ signal }) => get<Shape>(`/assistants/${assistant}/graph?xray=true`, signal), staleTime: 60_000 });
  const [params, setParams] = useSearchParams();
  const drawn = useMemo(() => {
    if (!data) return null;
    const closed = closedOf(data, toggledIn(params));
    return { layout: place(fold(data, closed)), closed };
  }, [data, params]);
  if (error) return <Problem error={error} />;
  if (!drawn) return <p className="quiet">Drawing…</p>;
  return <Picture {...drawn} tasks={tasks} waiting={waiting} selected={selected} onSelect={onSelect} onToggle={(subgraph) => setParams((old) => toggle(old, subgraph), { replace: true })} />;
}

interface PictureProps extends Omit<Props, "assistant"> {
  layout: Layout;
  closed: ReadonlySet<string>; // subgraphs that are drawn as nodes
  tasks: readonly Task[];
  waiting: readonly string[];
  onToggle: (subgraph: string) => void;
}

function Picture({ layout, closed, tasks, waiting, selected, onSelect, onToggle }: PictureProps) {
  const { width, height } = layout;
  return (
    <svg className="graph" viewBox={`0 0 ${width} ${height}`} style={{ maxWidth: width * 1.25 }} role="group" aria-label="Graph">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0 0 8 4 0 8z" />
        </marker>
      </defs>
      {layout.frames.map((f) => (
        <g key={f.id} className="frame" data-frame={f.id} transform={`translate(${f.x - f.width / 2} ${f.y - f.height / 2})`}>
          <rect width={f.width} height={f.height} rx={10} />
          <text x={12} y={17}>
            {f.id.split(":").at(-1)}
          </text>
        </g>
      ))}
      {layout.lines.map((line, i) => (
        <g key={i} className={line.conditional ? "edge conditional" : "edge"}>
          <path d={curve(line.points)} markerEnd="url(#arrow)" />
          {line.label && (
            <text x={line.points[Math.floor(line.points.length / 2)]!.x + 4} y={line.points[Math.floor(line.points.length / 2)]!.y - 4}>
              {line.label}
            </text>
          )}
        </g>
      ))}
      {layout.boxes.map((box) => {
        const own = tasks.filter((t) => t.node === box.id);
        const last = own.at(-1);
        const waits = waiting.includes(box.id) || (closed.has(box.id) && waiting.some((node) => node.startsWith(`${box.id}:`)));
        const state = !last ? (waits ? "waiting" : "") : last.interrupted ? "waiting" : last.error ? "failed" : last.took === undefined ? "running" : "done";
        return (
          <g
            key={box.id}
            className={`node ${state} ${box.end ? "end" : ""} ${selected === box.id ? "selected" : ""}`}
            data-node={box.id}
            data-state={state}
            transform={`translate(${box.x - box.width / 2} ${box.y - box.height / 2})`}
            tabIndex={onSelect && !box.end ? 0 : undefined}
            role={onSelect && !box.end ? "button" : undefined}
            aria-label={`${box.label}${state ? `, ${state}` : ""}`}
            onClick={() => !box.end && onSelect?.(box.id)}
            onKeyDown={(e) => (e.key === "Enter" || e.key === " ") && !box.end && onSelect?.(box.id)}
          >
            <rect width={box.width} height={box.height} rx={box.end ? box.height / 2 : 8} />
            <text x={box.width / 2} y={box.height / 2 + (own.length > 0 ? -2 : 4.5)} textAnchor="middle">
              {box.label}
            </text>
            {own.length > 0 && (
              <text className="note" x={box.width / 2} y={box.height - 7} textAnchor="middle">
                {own.length > 1 ? `${own.length} × ` : ""}
                {last!.took === undefined ? "running" : duration(last!.took)}
              </text>
            )}
          </g>
        );
      })}
      {[...layout.frames, ...layout.boxes.filter((b) => closed.has(b.id))].map((o) => {
        const open = !closed.has(o.id);
        const name = `${open ? "Close" : "Open"} ${o.id}`;
        return (
          <g
            key={o.id}
            className="toggle"
            data-toggle={o.id}
            transform={`translate(${o.x + o.width / 2 - (open ? 16 : 0)} ${o.y - o.height / 2 + (open ? 14 : 0)})`}
            tabIndex={0}
            role="button"
            aria-label={name}
            aria-expanded={open}
            onClick={() => onToggle(o.id)}
            onKeyDown={(e) => (e.key === "Enter" || e.key === " ") && (e.preventDefault(), onToggle(o.id))}
          >
            <title>{name}</title>
            <circle r={9} />
            <path d={open ? "M-4 0H4" : "M-4 0H4M0 -4V4"} />
          </g>
        );
      })}
    </svg>
  );
}

/** A line through the points without corners. */
function curve(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  let d = `M${first!.x} ${first!.y}`;
  rest.forEach((p, i) => {
    const next = rest[i + 1];
    d += next ? ` Q${p.x} ${p.y} ${(p.x + next.x) / 2} ${(p.y + next.y) / 2}` : ` L${p.x} ${p.y}`;
  });
  return d;
}
