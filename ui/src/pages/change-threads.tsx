import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { post, request } from "../api/client";
import { readAgain } from "../api/read-again";
import { Dialog } from "../parts/dialog";
import { plural } from "../parts/format";
import { Problem } from "../parts/problem";
import type { ThreadFilter } from "../threads/threads";

type What = "keep_latest" | "ttl" | "delete";

const effects: Record<What, [string, string]> = {
  keep_latest: ["Keep only the newest state", "Earlier checkpoints are removed, so there is no way back to them. Messages stay."],
  ttl: ["Let them expire", "A thread that does not change for so long is deleted with its history."],
  delete: ["Delete them", "They are deleted with their whole history."],
};

/** How many threads a request prunes, how many are listed with one, and how many requests are under way. */
const [batch, listed, atOnce] = [50, 1_000, 6];

/** What changes many threads: those that were chosen, or all that a filter matches, which the server counts first. */
export function ChangeThreads({ of, onClose }: { of: string[] | ThreadFilter; onClose: () => void }) {
  const [found, setFound] = useState<number | null>(Array.isArray(of) ? of.length : null);
  const [what, setWhat] = useState<What>("keep_latest");
  const [days, setDays] = useState("30");
  const [done, setDone] = useState(0);
  const [step, setStep] = useState<"asking" | "working" | "done">("asking");
  const [error, setError] = useState<unknown>(null);
  const [asked] = useState(of); // the list behind the dialog changes
  const stopped = useRef(new AbortController());
  const last = useRef<HTMLButtonElement>(null);
  const queries = useQueryClient();
  useEffect(() => {
    const left = (stopped.current = new AbortController());
    if (!Array.isArray(asked))
      post<number>("/threads/count", asked, left.signal)
        .then(setFound)
        .catch((e) => left.signal.aborted || setError(e));
    return () => left.abort();
  }, [asked]);
  useEffect(() => {
    if (step !== "asking") last.current?.focus(); // the button that was pressed is gone
  }, [step]);

  const begin = async () => {
    setStep("working");
    const { signal } = stopped.current;
    try {
      const ids = Array.isArray(asked) ? asked : await matching(asked, found!, signal);
      setFound(ids.length);
      const size = what === "ttl" ? atOnce : batch;
      for (let at = 0; at < ids.length; at += size) {
        const some = ids.slice(at, at + size);
        if (what === "ttl") await Promise.all(some.map((id) => request("PATCH", `/threads/${id}`, { body: { ttl: { ttl: Number(days) * 1_440, strategy: "delete" } }, signal })));
        else await post("/threads/prune", { thread_ids: some, strategy: what }, signal);
        setDone((n) => n + some.length);
      }
    } catch (e) {
      if (signal.aborted) return;
      setError(e);
    } finally {
      void readAgain(queries, ["threads"], ["recent"]);
    }
    setStep("done");
  };
  const valid = what !== "ttl" || Number(days) > 0;
  return (
    <Dialog title={Array.isArray(asked) ? "Change threads" : "Change all that match"} onClose={onClose}>
      {step === "asking" && (
        <>
          <p role="status">{found !== null ? `${plural(found, "thread")}${Array.isArray(asked) ? "" : ", also those that the page does not show"}.` : error ? "" : "Counting…"}</p>
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
      {step === "working" && <p role="status">{`${done} of ${plural(found ?? 0, "thread")}`}</p>}
      {step === "done" && <p role="status">{`${plural(done, "thread")} changed.`}</p>}
      {step === "working" && <progress aria-label="Changed" max={Math.max(1, found ?? 1)} value={done} />}
      <Problem error={error} />
      <div className="buttons">
        {step === "asking" && (
          <button type="button" className={what === "keep_latest" ? "" : "danger-fill"} disabled={!found || !valid} onClick={() => void begin()}>
            {found ? `${what === "delete" ? "Delete" : "Change"} ${plural(found, "thread")}` : "Change"}
          </button>
        )}
        <button ref={last} type="button" className="plain" onClick={onClose}>
          {step === "working" ? "Stop here" : step === "done" ? "Close" : "Keep them"}
        </button>
      </div>
    </Dialog>
  );
}

/** The IDs of the threads that match. Those that begin meanwhile are listed behind them and left alone. */
async function matching(filter: ThreadFilter, most: number, signal: AbortSignal): Promise<string[]> {
  const ids = new Set<string>();
  for (let offset = 0; offset < most; offset += listed) {
    const page = await post<{ thread_id: string }[]>("/threads/search", { ...filter, select: ["thread_id"], sort_by: "created_at", sort_order: "asc", limit: Math.min(listed, most - offset), offset }, signal);
    for (const t of page) ids.add(t.thread_id);
    if (page.length === 0) break;
  }
  return [...ids];
}
