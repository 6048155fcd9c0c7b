import { Link } from "wouter";
import { useDoctor } from "../api/server";
import { Problem } from "../parts/problem";

/** That the end of a run cannot be saved, and what a person can do about it. why is what the server says. */
export function Unsaved({ why }: { why: string }) {
  const doctor = useDoctor();
  return (
    <Problem error={why}>
      <p>
        Free space on the disk of the server, or make its database reachable again. Then the run ends by itself, and nothing is lost.
        {doctor && (
          <>
            {" "}
            <Link href="/health">Health</Link> shows what is wrong.
          </>
        )}
      </p>
    </Problem>
  );
}
