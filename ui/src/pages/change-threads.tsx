import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { request } from "../api/client";
import { readAgain } from "../api/read-again";
import { isOwn } from "../api/server";
import { Dialog } from "../parts/dialog";
import { plural } from "../parts/format";
import { Problem } from "../parts/problem";
import { changeMany, countMatching, filterInWords, listMatching, outcomeInWords, type Outcome, type Send, type What } from "../threads/change-many";
import type { ThreadFilter } from "../threads/threads";

const effects: Record<What, [string, string]> = {
  keep_latest: ["Keep only the latest state", "Earlier checkpoints are deleted and cannot be restored. Messages stay. Threads with active runs are skipped."],
  ttl: ["Set an expiry", "A thread that does not change for this many days is deleted with its history."],
  delete: ["Delete", "The threads are deleted with their history, also those with active runs."],
};

/** What changes many threads: those that were chosen, or all that match a filter, which the server counts first. */
export function ChangeThreads({ of, onClose }: { of: string[] | ThreadFilter; onClose: () => void }) {
  const [found, setFound] = useState<number | null>(Array.isArray(of) ? of.length : null);
  const [what, setWhat] = useState<What>("keep_latest");
  const [days, setDays] = useState("30");
  const [until, setUntil] = useState("");
  const [outcome, setOutcome] = useState<Outcome>({ changed: 0, skipped: 0, gone: 0, left: 0 });
  const [step, setStep] = useState<"asking" | "working" | "done">("asking");
  const [error, setError] = useState<unknown>(null);
  const [asked] = useState(of); // the list behind the dialog changes
  const stopped = useRef(new AbortController());
  const last = useRef<HTMLButtonElement>(null);
  const queries = useQueryClient();
  useEffect(() => {
    const left = (stopped.current = new AbortController());
    if (!Array.isArray(asked))
      countMatching(sending(left.signal), asked)
        .then(({ count, until }) => (setFound(count), setUntil(until)))
        .catch((e) => left.signal.aborted || setError(e));
    return () => left.abort();
  }, [asked]);
  useEffect(() => {
    if (step !== "asking") last.current?.focus(); // the button that was pressed is gone
  }, [step]);

  const begin = async () => {
    setStep("working");
    const { signal } = stopped.current;
    const send = sending(signal);
    try {
      const ids = Array.isArray(asked) ? asked : await listMatching(send, asked, until);
      setFound(ids.length);
      await changeMany(send, ids, { what, minutes: Number(days) * 1_440, conditional: await isOwn() }, Array.isArray(asked) ? null : asked, setOutcome);
    } catch (e) {
      if (signal.aborted) return;
      setError(e);
    } finally {
      void readAgain(queries, ["threads"], ["recent"]);
    }
    setStep("done");
  };
  const done = outcome.changed + outcome.skipped + outcome.gone + outcome.left;
  const words = Array.isArray(asked) ? "" : filterInWords(asked);
  const all = !Array.isArray(asked) && words === "";
  const those = `${all ? "all " : ""}${plural(found ?? 0, "thread")}`;
  const valid = what !== "ttl" || Number(days) > 0;
  return (
    <Dialog title={Array.isArray(asked) ? "Change threads" : all ? "Change all threads" : "Change all that match"} onClose={onClose}>
      {step === "asking" && (
        <>
          <p role="status">{found === null ? (error ? "" : "Counting…") : Array.isArray(asked) ? `${those}.` : `${those[0]!.toUpperCase()}${those.slice(1)}${words && ` with ${words}`}, also those that the page does not show.`}</p>
          <div className="fields" role="radiogroup" aria-label="What to do">
            {(Object.keys(effects) as What[]).map((w) => (
              <label key={w} className="check">
                <input type="radio" name="what" checked={what === w} onChange={() => setWhat(w)} /> {effects[w][0]}
              </label>
            ))}
          </div>
          {what === "ttl" && (
            <label>
              Days <input type="number" min="0" step="any" value={days} onChange={(e) => setDays(e.target.value)} />
            </label>
          )}
          <p className="quiet">{effects[what][1]}</p>
        </>
      )}
      {step === "working" && <p role="status">{`${done.toLocaleString("en")} of ${plural(found ?? 0, "thread")}`}</p>}
      {step === "done" && <p role="status">{outcomeInWords(outcome, what)}</p>}
      {step === "working" && <progress aria-label="Changed" max={Math.max(1, found ?? 1)} value={done} />}
      <Problem error={error} />
      <div className="buttons">
        {step === "asking" && (
          <button type="button" className={what === "keep_latest" ? "" : "danger-fill"} disabled={!found || !valid} onClick={() => void begin()}>
            {found ? `${what === "delete" ? "Delete" : "Change"} ${those}` : "Change"}
          </button>
        )}
        <button ref={last} type="button" className="plain" onClick={onClose}>
          {step === "working" ? "Stop here" : step === "done" ? "Close" : "Cancel"}
        </button>
      </div>
    </Dialog>
  );
}

const sending =
  (signal: AbortSignal): Send =>
  (method, path, body) =>
    request(method, path, { body, signal });
