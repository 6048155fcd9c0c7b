import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";

/** Something went wrong: what, and what to do. */
export function Problem({ error, children }: { error: unknown; children?: ReactNode }) {
  if (!error) return null;
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
