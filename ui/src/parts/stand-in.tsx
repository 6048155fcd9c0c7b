import { Bot } from "lucide-react";

/** Says that another assistant answers than the one of the thread. */
export function StandIn({ name }: { name: string }) {
  return (
    <p className="notice" role="status">
      <Bot size={14} aria-hidden /> The assistant of this thread was deleted, or you may not use it: {name} answers.
    </p>
  );
}
