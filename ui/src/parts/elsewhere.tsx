import { Link } from "wouter";

/** A page of what this program records, in front of a server that does not. */
export function Elsewhere({ title }: { title: string }) {
  return (
    <main className="page">
      <h1>{title}</h1>
      <div className="empty">
        <p>This page shows what understudy records while it executes runs. A LangGraph Server behind a proxy keeps no such record.</p>
        <p>
          <Link href="/runs">The runs</Link>, and the state at each step of a thread, are there.
        </p>
      </div>
    </main>
  );
}
