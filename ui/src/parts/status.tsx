import { Check, Circle, Clock, LoaderCircle, Pause, Square, X } from "lucide-react";

const shapes = {
  idle: [Check, "done"],
  success: [Check, "done"],
  busy: [LoaderCircle, "running"],
  running: [LoaderCircle, "running"],
  pending: [Circle, "pending"],
  interrupted: [Pause, "waiting"],
  waiting: [Pause, "waiting"],
  error: [X, "failed"],
  timeout: [Clock, "failed"],
  stopped: [Square, "quiet"],
  cancelled: [Square, "quiet"],
} as const;

const words: Record<string, string> = { idle: "done", busy: "running", waiting: "waits for an answer" };

/** A status by shape and color. word is shown in place of its own. */
export function Status({ of, text = false, word = words[of] ?? of }: { of: string; text?: boolean; word?: string }) {
  const [Shape, tone] = shapes[of as keyof typeof shapes] ?? [Circle, "quiet"];
  return (
    <span className={`status ${tone}`} title={word}>
      <Shape size={14} aria-hidden />
      <span className={text ? "" : "hidden"}>{word}</span>
    </span>
  );
}
