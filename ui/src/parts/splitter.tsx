import { useEffect, useState, type KeyboardEvent, type PointerEvent } from "react";

const stored = "understudy:width:";

/** A width that a person chose, in this browser; null: none. */
function read(name: string): number | null {
  try {
    const text = localStorage.getItem(stored + name);
    return text !== null && Number.isFinite(Number(text)) ? Number(text) : null;
  } catch {
    return null; // a browser may keep nothing
  }
}

function write(name: string, width: number | null) {
  try {
    if (width === null) localStorage.removeItem(stored + name);
    else localStorage.setItem(stored + name, String(width));
  } catch {
    // then it lasts as long as the page
  }
}

const [least, most, step] = [160, 900, 24];

interface Props {
  name: string; // of the custom property that has the width, as `--panel`
  label: string;
  /** The column that it makes wider or narrower. */
  of: string;
  /** Whether that is behind it. */
  behind?: boolean;
  /** Whether it folds to nothing. */
  folds?: boolean;
}

/** The edge of a column: it is dragged, or moved with arrows; Enter folds what folds, and Home gives the width back that it had at first. */
export function Splitter({ name, label, of, behind = false, folds = false }: Props) {
  const [width, setWidth] = useState<number | null>(() => read(name));
  const [dragged, setDragged] = useState(false);
  useEffect(() => {
    const { style } = document.documentElement;
    if (width === null) style.removeProperty(`--${name}`);
    else style.setProperty(`--${name}`, `${width}px`);
  }, [name, width]);
  const now = () => document.querySelector(of)?.getBoundingClientRect().width ?? 0;
  const [first, setFirst] = useState(least); // the width that nobody chose
  useEffect(() => {
    if (width === null) setFirst(Math.round(document.querySelector(of)?.getBoundingClientRect().width ?? least));
  }, [of, width]);
  const set = (to: number | null) => {
    if (to !== null) to = folds && to < least / 2 ? 0 : Math.round(Math.min(Math.max(to, least), most, window.innerWidth * 0.7));
    setWidth(to);
    return to;
  };
  const keep = (to: number | null) => write(name, set(to));
  const onKeyDown = (e: KeyboardEvent) => {
    const towards = { ArrowLeft: behind ? 1 : -1, ArrowRight: behind ? -1 : 1 }[e.key];
    if (towards) keep(width === 0 ? (towards > 0 ? least : 0) : now() + towards * step);
    else if (e.key === "Home") keep(null);
    else if (e.key === "Enter" && folds) keep(width === 0 ? null : 0);
    else return;
    e.preventDefault();
  };
  const onPointerMove = (e: PointerEvent) => {
    if (!dragged) return;
    const box = document.querySelector(of)?.getBoundingClientRect();
    if (box) set(behind ? box.right - e.clientX : e.clientX - box.left);
  };
  return (
    <div
      className={`splitter ${name}-edge`}
      role="separator"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label={label}
      aria-valuenow={width ?? first}
      aria-valuemin={folds ? 0 : least}
      aria-valuemax={most}
      title={`${label}: drag, arrows${folds ? ", Enter folds" : ""}`}
      onKeyDown={onKeyDown}
      onDoubleClick={() => keep(null)}
      onPointerDown={(e) => (e.currentTarget.setPointerCapture(e.pointerId), setDragged(true))}
      onPointerMove={onPointerMove}
      onLostPointerCapture={() => (setDragged(false), write(name, width))} // also when the button is released
    />
  );
}
