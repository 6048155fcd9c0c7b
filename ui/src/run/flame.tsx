import { useMemo, useState } from "react";
import { duration } from "../parts/format";
import { type Row, type Stretch, place } from "./spans";

const height = 22;

/** All spans at once: below each what is in it, on one time axis. */
export function Flame({ rows, axis, selected, onSelect }: { rows: Row[]; axis: Stretch[]; selected: string | null; onSelect: (span: string) => void }) {
  const lanes = useMemo(() => lanesOf(rows), [rows]);
  const [pointed, setPointed] = useState<string | null>(null);
  const shown = rows.find((r) => r.id === (pointed ?? selected));
  const index = rows.findIndex((r) => r.id === selected);
  const onKeyDown = (e: React.KeyboardEvent) => {
    const to = rows[e.key === "ArrowDown" || e.key === "j" ? index + 1 : e.key === "ArrowUp" || e.key === "k" ? index - 1 : -1];
    if (!to) return;
    e.preventDefault();
    onSelect(to.id);
  };
  const deepest = Math.max(0, ...lanes.values()) + 1;
  return (
    <div className="flame" tabIndex={0} role="group" aria-label="Flame graph" onKeyDown={onKeyDown}>
      <svg onMouseOver={(e) => setPointed((e.target as SVGElement).dataset.span ?? null)} onMouseLeave={() => setPointed(null)} viewBox={`0 0 1000 ${deepest * height}`} preserveAspectRatio="none" style={{ height: deepest * height }} aria-hidden>
        {axis.filter((s) => s.idle).map((s) => (
          <rect key={s.from} className="idle" x={s.at * 1000} y={0} width={s.width * 1000} height={deepest * height} />
        ))}
        {rows.map((r) => {
          const x = place(axis, r.start) * 1000;
          return (
            <rect
              key={r.id}
              data-span={r.id}
              className={`bar ${r.kind} ${r.status} ${r.id === selected ? "selected" : ""}`}
              x={Math.min(x, 998.5)}
              y={lanes.get(r.id)! * height + 1}
              width={Math.max(1.5, place(axis, r.end) * 1000 - x)}
              height={height - 2}
              onClick={() => onSelect(r.id)}
            />
          );
        })}
      </svg>
      <div className="labels" aria-hidden>
        {rows.map((r) => {
          const x = place(axis, r.start);
          const width = place(axis, r.end) - x;
          return width < 0.04 ? null : (
            <span key={r.id} style={{ left: `${x * 100}%`, width: `${width * 100}%`, top: lanes.get(r.id)! * height }}>
              {r.name}
            </span>
          );
        })}
      </div>
      {shown && <p className="pointed numbers">{`${shown.kind} ${shown.name}: ${duration(shown.end - shown.start)}, ${shown.status}`}</p>}
    </div>
  );
}

/** The lane of each span: below its parent, and below what runs beside it. */
export function lanesOf(rows: readonly Row[]): Map<string, number> {
  const lanes = new Map<string, number>();
  const ends: number[] = []; // of the last span in each lane
  const ordered = [...rows].sort((a, b) => a.start - b.start || a.depth - b.depth);
  for (const r of ordered) {
    let lane = (r.parent_id !== null && lanes.has(r.parent_id) ? lanes.get(r.parent_id)! : -1) + 1;
    while ((ends[lane] ?? -Infinity) > r.start) lane++;
    lanes.set(r.id, lane);
    ends[lane] = Math.max(r.end, r.start);
  }
  return lanes;
}
