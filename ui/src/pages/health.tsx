import { useMutation } from "@tanstack/react-query";
import { Stethoscope } from "lucide-react";
import { useEffect } from "react";
import { post } from "../api/client";
import { CopyCall } from "../parts/copy-call";
import { plural } from "../parts/format";
import { Problem } from "../parts/problem";
import { Status } from "../parts/status";

interface Finding {
  check: string;
  verdict: "ok" | "warning" | "problem";
  text: string;
  mend?: string;
  details?: string[];
}

const path = "/understudy/doctor";
const shapes = { ok: ["success", "ok"], warning: ["interrupted", "warning"], problem: ["error", "problem"] } as const;

/** What doctor finds on the server that answers: configuration, environment, database, Redis, Python, graphs. */
export default function Health() {
  const examine = useMutation({ mutationFn: () => post<{ findings: Finding[] }>(path, {}) });
  const { mutate } = examine;
  useEffect(() => mutate(), [mutate]);
  const findings = examine.data?.findings ?? [];
  const count = (verdict: Finding["verdict"]) => findings.filter((f) => f.verdict === verdict).length;
  const [problems, warnings] = [count("problem"), count("warning")];
  const order = { problem: 0, warning: 1, ok: 2 };
  const sorted = [...findings].sort((a, b) => order[a.verdict] - order[b.verdict]); // of equal ones, in the order of the checks
  return (
    <main className="page">
      <div className="bar">
        <h1>Health</h1>
        <button type="button" className="plain" disabled={examine.isPending} onClick={() => mutate()}>
          <Stethoscope size={14} aria-hidden /> {examine.isPending ? "Checking…" : "Check again"}
        </button>
        <CopyCall of={{ method: "POST", path, body: {} }} />
      </div>
      <p role="status" className="quiet">
        {examine.isPending
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
            {f.mend && <p className="mend">→ {f.mend}</p>}
          </li>
        ))}
      </ol>
    </main>
  );
}
