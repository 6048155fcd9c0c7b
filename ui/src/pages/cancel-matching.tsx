import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { get, post } from "../api/client";
import { readAgain } from "../api/read-again";
import { Dialog } from "../parts/dialog";
import { plural } from "../parts/format";
import { Problem } from "../parts/problem";

/** Selects active runs as the server does: of a status, "" for pending and running ones, and of a graph, "" for all. */
export interface ActiveFilter {
  status: "" | "pending" | "running";
  graph: string;
}

/** more: there are more runs than the server counts, so that others may match too. */
interface Count {
  count: number;
  more: boolean;
  until: string;
}

const bodyOf = ({ status, graph }: ActiveFilter) => ({ ...(status && { status }), ...(graph && { graph_id: graph }) });

/** What cancels all that match: the server counts first, and then cancels those of some threads with each request, until it says that there are no more. */
export function CancelMatching({ filter, onClose }: { filter: ActiveFilter; onClose: () => void }) {
  const [found, setFound] = useState<Count | null>(null);
  const [cancelled, setCancelled] = useState(0);
  const [step, setStep] = useState<"asking" | "working" | "done">("asking");
  const [error, setError] = useState<unknown>(null);
  const stopped = useRef(new AbortController());
  const last = useRef<HTMLButtonElement>(null);
  const queries = useQueryClient();
  const { status, graph } = filter;
  useEffect(() => {
    const left = (stopped.current = new AbortController());
    get<Count>(`/understudy/runs/count?${new URLSearchParams(bodyOf({ status, graph }))}`, left.signal)
      .then(setFound)
      .catch((e) => left.signal.aborted || setError(e));
    return () => left.abort();
  }, [graph, status]);
  useEffect(() => {
    if (step !== "asking") last.current?.focus(); // the button that was pressed is gone
  }, [step]);

  const begin = async () => {
    setStep("working");
    try {
      for (let after: string | null | undefined; after !== null; ) {
        const body = { ...bodyOf(filter), until: found!.until, ...(after && { after }) };
        const page: { cancelled: number; next: string | null } = await post("/understudy/runs/cancel", body, stopped.current.signal);
        setCancelled((n) => n + page.cancelled);
        after = page.next;
      }
    } catch (e) {
      if (stopped.current.signal.aborted) return;
      setError(e);
    } finally {
      void readAgain(queries, ["recent"], ["runs"], ["threads"]);
    }
    setStep("done");
  };
  const those = `${found?.more ? "At least " : ""}${plural(found?.count ?? 0, `${status || "active"} run`)}${graph && ` of ${graph}`}`;
  const ended = (found?.count ?? 0) - cancelled;
  return (
    <Dialog title="Cancel all that match" onClose={onClose}>
      <div role="status">
        {step === "asking" && !error && <p>{found ? (found.count === 0 && !found.more ? "No run matches any more." : `${those} will be cancelled, also those that the page does not show.`) : "Counting…"}</p>}
        {step === "working" && <p>{`Cancelling: ${cancelled} of ${found!.count}`}</p>}
        {step === "done" && <p>{`${plural(cancelled, "run")} cancelled.${ended > 0 && !found?.more && !error ? ` ${ended} had ended meanwhile.` : ""}`}</p>}
      </div>
      {step === "working" && <progress aria-label="Cancelled" max={Math.max(1, found!.count)} value={cancelled} />}
      <Problem error={error} />
      <div className="buttons">
        {step === "asking" && (
          <button type="button" className="danger-fill" disabled={!found?.count && !found?.more} onClick={() => void begin()}>
            {found && !found.more ? `Cancel ${plural(found.count, "run")}` : "Cancel runs"}
          </button>
        )}
        <button ref={last} type="button" className="plain" onClick={onClose}>
          {step === "working" ? "Stop here" : step === "done" ? "Close" : "Keep them"}
        </button>
      </div>
    </Dialog>
  );
}
