import { useMemo, useState } from "react";
import { JsonView } from "../parts/json";
import { firstChanges, type Changes } from "./comparison";
import type { Diff } from "./diff";

/** How many changes are drawn before more are asked for. */
export const step = 200;

/** Of how many changes the values are unfolded. */
const opened = 20;

/** The differences of two values, one below the other. nothing is said when there is none. */
export function ChangeList({ diff, nothing }: { diff: Diff; nothing: string }) {
  const [shown, setShown] = useState(step);
  const first = useMemo(() => firstChanges(diff, shown), [diff, shown]);
  return <ChangeRows {...first} nothing={nothing} onMore={() => setShown(shown + 10 * step)} />;
}

/** The same for changes that are known. */
export function ChangeRows({ changes, more, nothing, onMore }: Changes & { nothing: string; onMore: () => void }) {
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
        <button type="button" className="link" onClick={onMore}>
          More changes
        </button>
      )}
    </>
  );
}
