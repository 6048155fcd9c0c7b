import { useQuery } from "@tanstack/react-query";
import { Stethoscope } from "lucide-react";
import { post } from "../api/client";
import { CopyCall } from "../parts/copy-call";
import { plural } from "../parts/format";
import { Problem } from "../parts/problem";
import { Status } from "../parts/status";

interface Finding {
  check: string;
  verdict: "ok" | "warning" | "problem";
  text: string;
  fix?: string;
  details?: string[];
}

const path = "/understudy/doctor";
const shapes = { ok: ["success", "ok"], warning: ["interrupted", "warning"], problem: ["error", "problem"] } as const;

/** What doctor finds on the server that answers: configuration, environment, database, Redis, Python, graphs. */
export default function Health() {
  // A check costs the server some work: it begins with the page, or when asked for, and ends with the page. What the last one found stays meanwhile.
  const examine = useQuery({
    queryKey: ["doctor"],
    queryFn: ({ signal }) => post<{ findings: Finding[] }>(path, {}, signal),
    staleTime: 60_000,
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });
  const findings = examine.data?.findings ?? [];
  const count = (verdict: Finding["verdict"]) => findings.filter((f) => f.verdict === verdict).length;
  const [problems, warnings] = [count("problem"), count("warning")];
  const order = { problem: 0, warning: 1, ok: 2 };
  const sorted = [...findings].sort((a, b) => order[a.verdict] - order[b.verdict]); // of equal ones, in the order of the checks
  return (
    <main className="page">
      <div className="bar wrap">
        <h1>Health</h1>
        <CopyCall of={{ method: "POST", path, body: {} }} />
        <button type="button" className="plain" aria-disabled={examine.isFetching} onClick={() => !examine.isFetching && void examine.refetch()}>
          <Stethoscope size={14} aria-hidden /> {examine.isFetching ? "Checking…" : "Check again"}
        </button>
      </div>
      <p role="status" className="quiet">
        {examine.isFetching
          ? "The server that answers checks itself. It may take some seconds."
          : examine.isSuccess && (problems + warnings === 0 ? "All is well." : `${plural(problems, "problem")}, ${plural(warnings, "warning")}.`)}
      </p>
      <Problem error={examine.error} />
      <ol className="findings">
        {sorted.map((f, i) => (
          <li key={i} className={`card is-${f.verdict}`} data-check={f.check}>
            <div className="bar">
              <Status of={shapes[f.verdict][0]} text word={shapes[f.verdict][1]} />
              <b>{f.check}</b>
              <span className="grow finding">{f.text}</span>
            </div>
            {f.details && <pre className="stack">{f.details.join("\n")}</pre>}
            {f.fix && <p className="fix">→ {f.fix}</p>}
          </li>
        ))}
      </ol>
    </main>
  );
}
