import { useEffect, useRef, useState } from "react";

/** Copies a text. Without the clipboard of browsers, which pages have only over https and on their own machine, a selected field is copied as by hand. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // there is none, or the browser refuses
  }
  const before = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true;
  field.style.cssText = "position: fixed; top: 0; opacity: 0";
  (before?.closest("dialog") ?? document.body).append(field); // what is outside of an open dialog takes no focus
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (before instanceof HTMLElement) before.focus();
  }
}

/** The way to copy, and for some seconds how the last one ended, in words for a status; "" at rest. */
export function useCopy(): [(text: string) => void, "" | "Copied" | "Could not copy"] {
  const [said, say] = useState<"" | "Copied" | "Could not copy">("");
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const run = (text: string) =>
    void copy(text).then((ok) => {
      say(ok ? "Copied" : "Could not copy");
      clearTimeout(timer.current);
      timer.current = setTimeout(() => say(""), ok ? 1500 : 5000);
    });
  return [run, said];
}
