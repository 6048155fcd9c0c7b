import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { get } from "../api/client";
import type { Json } from "../api/types";
import { Markdown } from "./markdown";
import { Result } from "./tool-result";

interface Step {
  seq: number;
  content: { task_id?: string; text?: string; tool_name?: string; kind?: string; tool_calls?: { name: string; args: Json }[] };
}

interface Page {
  data: Step[];
  has_more: boolean;
}

/** How often steps are read of a task that runs, in ms. */
const every = 1_000;

/** The steps of all tasks of a run, or of a thread. Each reading continues behind the last step that is known: a long task has thousands. */
function useSteps(thread: string, run: string | undefined, running: boolean): Step[] {
  const path = `/threads/${thread}${run ? `/runs/${run}` : ""}/events?event_types=subagent.step&limit=1000`;
  const { data, refetch } = useQuery({
    queryKey: ["steps", path],
    refetchInterval: running ? every : false,
    structuralSharing: false, // what is known stays as it is
    queryFn: async ({ client, queryKey, signal }) => {
      let steps = client.getQueryData<Step[]>(queryKey) ?? [];
      for (let more = true; more; ) {
        const page = await get<Page>(`${path}&after_seq=${steps.at(-1)?.seq ?? 0}`, signal);
        if (page.data.length > 0) steps = [...steps, ...page.data];
        more = page.has_more;
      }
      return steps;
    },
  });
  useEffect(() => {
    if (!running) void refetch(); // what came between the last reading and the end
  }, [refetch, running]);
  return data ?? [];
}

/** What a subagent of DeerFlow's agent said and did, as the log of its thread has it. */
export function Steps({ thread, call, run, running }: { thread: string; call: string; run?: string; running: boolean }) {
  const steps = useSteps(thread, run, running).filter((s) => s.content.task_id === call);
  if (steps.length === 0) return null;
  return (
    <section className="nested" aria-label="In task">
      {steps.map(({ seq, content }) => (
        <div key={seq} className={`message ${content.kind === "tool" ? "tool" : "ai"}`}>
          {content.kind === "tool" ? <Result text={content.text ?? ""} /> : <Markdown text={content.text ?? ""} />}
          {content.tool_calls?.map((c, i) => (
            <code key={i} className="brief">
              {c.name} {JSON.stringify(c.args)}
            </code>
          ))}
        </div>
      ))}
    </section>
  );
}
