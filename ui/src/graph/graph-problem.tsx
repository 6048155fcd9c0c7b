import { Link } from "wouter";
import { APIError } from "../api/client";
import { useDoctor } from "../api/server";
import { Problem } from "../parts/problem";

/** Why a graph cannot be described: mostly because it does not import, of which Health has the place and what to do. */
export function GraphProblem({ error }: { error: unknown }) {
  const doctor = useDoctor();
  return (
    <Problem error={error}>
      {doctor && error instanceof APIError && error.status === 422 && (
        <>
          . <Link href="/health">Health</Link> says where, and what to do.
        </>
      )}
    </Problem>
  );
}
