import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Square } from "lucide-react";
import { Link } from "wouter";
import { usePoll } from "../api/use-changes";
import { get, post } from "../api/client";
import { readAgain } from "../api/read-again";
import { isActive } from "../api/runs";
import { useOwn } from "../api/server";
import type { Run } from "../api/types";
import { CompareButton } from "../compare/chosen";
import { runRef } from "../compare/refs";
import { Age } from "../parts/age";
import { ID } from "../parts/copy";
import { CopyCall } from "../parts/copy-call";
import { duration } from "../parts/format";
import { JsonView } from "../parts/json";
import { Empty, Problem } from "../parts/problem";
import { Status } from "../parts/status";

/** The runs of a thread, newest first. */
export function RunList({ thread }: { thread: string }) {
  const queries = useQueryClient();
  const own = useOwn();
  const poll = usePoll(1_000);
  const path = `/threads/${thread}/runs?limit=100`;
  const runs = useQuery({
    queryKey: ["runs", thread],
    queryFn: ({ signal }) => get<Run[]>(path, signal),
    refetchInterval: (q) => (q.state.data?.some(isActive) ? poll : false),
  });
  const cancel = useMutation({
    mutationFn: (run: string) => post(`/threads/${thread}/runs/${run}/cancel?wait=true`, {}),
    onSettled: () => readAgain(queries, ["runs", thread]),
  });
  return (
    <>
      <div className="bar">
        <h2 className="grow">Runs</h2>
        <CopyCall of={{ method: "GET", path }} what="the runs" />
      </div>
      <Problem error={runs.error ?? cancel.error} />
      {runs.data?.length === 0 && <Empty>No runs yet.</Empty>}
      <ol className="runs">
        {runs.data?.map((r) => (
          <li key={r.run_id}>
            <Status of={r.status} text />
            <ID id={r.run_id} />
            {own && <Link href={`/r/${r.run_id}`}>timeline</Link>}
            <CompareButton of={runRef(thread, r.run_id)} />
            <span className="quiet numbers">{isActive(r) ? "" : duration(Date.parse(r.updated_at) - Date.parse(r.created_at))}</span>
            <Age of={r.created_at} />
            {isActive(r) && (
              <button type="button" className="plain" onClick={() => cancel.mutate(r.run_id)}>
                <Square size={12} aria-hidden /> Cancel
              </button>
            )}
            <Answered run={r} />
          </li>
        ))}
      </ol>
    </>
  );
}

/** Who answered the questions that a run continued from, and what. */
function Answered({ run }: { run: Run }) {
  const answer = run.kwargs?.command?.resume;
  if (answer === undefined || answer === null) return null;
  const who = run.kwargs?.config?.configurable?.langgraph_auth_user_id;
  return (
    <details className="answered">
      <summary className="quiet">{typeof who === "string" && who ? `Answered by ${who}` : "Answered by someone who did not sign in"}</summary>
      <JsonView value={answer} open={2} />
    </details>
  );
}
