import { useMemo, useState } from "react";
import { JsonView } from "../parts/json";
import { changesOf, type Change, type Diff } from "./diff";

/** How many changes are drawn before more are asked for. */
const step = 200;

/** Of how many changes the values are unfolded. */
const opened = 20;

/** The differences of two values, one below the other. nothing is said when there is none. */
export function ChangeList({ diff, nothing }: { diff: Diff; nothing: string }) {
  const [shown, setShown] = useState(step);
  const { changes, more } = useMemo(() => first(diff, shown), [diff, shown]);
  if (changes.length === 0) return <p className="quiet">{nothing}</p>;
  return (
    <>
      <ul className="changes">
        {changes.map((c, i) => (
          <li key={i} className={c.before === undefined ? "create" : c.after === undefined ? "remove" : "change"}>
            <code>{c.path}</code>
            <div className="sides">
              {c.before !== undefined && (
                <div className="before">
                  <span className="hidden">before: </span>
                  <JsonView value={c.before} open={i < opened ? 1 : 0} />
                </div>
              )}
              {c.after !== undefined && (
                <div className="after">
                  <span className="hidden">after: </span>
                  <JsonView value={c.after} open={i < opened ? 1 : 0} />
                </div>
              )}
            </div>
          </li>
        ))}
      </ul>
      {more && (
        <button type="button" className="link" onClick={() => setShown(shown + 10 * step)}>
          More changes
        </button>
      )}
    </>
  );
}

function first(diff: Diff, limit: number): { changes: Change[]; more: boolean } {
  const changes: Change[] = [];
  for (const c of changesOf(diff)) {
    if (changes.length === limit) return { changes, more: true };
    changes.push(c);
  }
  return { changes, more: false };
}
