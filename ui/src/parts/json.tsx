import { useState } from "react";
import type { Json } from "../api/types";
import { CopyButton } from "./copy";

/** How many members are drawn before more are asked for. */
const step = 100;

/** JSON as a tree. What is folded is not drawn, so its size does not matter. */
export function JsonView({ value, open = 1 }: { value: Json; open?: number }) {
  return (
    <div className="json">
      <CopyButton text={() => JSON.stringify(value, null, 2) ?? "null"} label="Copy JSON" />
      <Node value={value} open={open} />
    </div>
  );
}

function Node({ name, value, open }: { name?: string; value: Json; open: number }) {
  const [unfolded, setUnfolded] = useState(open > 0);
  const [shown, setShown] = useState(step);
  const label = name === undefined ? null : <span className="key">{name}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div className="leaf">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const list = Array.isArray(value);
  const names = list ? null : Object.keys(value);
  const length = names ? names.length : (value as Json[]).length;
  const size = list ? `[${length}]` : `{${length}}`;
  if (length === 0) {
    return (
      <div className="leaf">
        {label}
        {list ? "[]" : "{}"}
      </div>
    );
  }
  return (
    <details open={unfolded} onToggle={(e) => setUnfolded((e.target as HTMLDetailsElement).open)}>
      <summary>
        {label}
        <span className="size">{size}</span>
      </summary>
      {unfolded &&
        Array.from({ length: Math.min(length, shown) }, (_, i) => {
          const key = names ? names[i]! : String(i);
          return <Node key={key} name={key} value={(value as Record<string, Json>)[key]!} open={open - 1} />;
        })}
      {unfolded && length > shown && (
        <button type="button" className="link" onClick={() => setShown(shown + 10 * step)}>
          {length - shown} more
        </button>
      )}
    </details>
  );
}

function Leaf({ value }: { value: string | number | boolean | null }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span className={value === null ? "null" : typeof value}>{String(value)}</span>;
  const long = value.length > 400 && !whole;
  return (
    <span className="string">
      "{long ? value.slice(0, 400) : value}"
      {long && (
        <button type="button" className="link" onClick={() => setWhole(true)}>
          {value.length - 400} more characters
        </button>
      )}
    </span>
  );
}
