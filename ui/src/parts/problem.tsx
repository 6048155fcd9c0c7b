import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { APIError } from "../api/client";
import { useDown } from "../api/use-changes";

/** Something went wrong: what, and what to do. That the server does not answer the page says once, not in each list. */
export function Problem({ error, children }: { error: unknown; children?: ReactNode }) {
  const down = useDown();
  if (!error || (down && error instanceof APIError && error.status === 0)) return null;
  return (
    <div className="problem" role="alert">
      <TriangleAlert size={16} aria-hidden />
      <div>
        {error instanceof Error ? error.message : String(error)}
        {children}
      </div>
    </div>
  );
}

/** A page or list with nothing in it, and what would bring something. */
export function Empty({ children }: { children: ReactNode }) {
  return <div className="empty">{children}</div>;
}
