import type { KeyboardEvent } from "react";

/**
 * Moves the focus among the radios, tabs or items of a menu in an element, as these roles promise: by arrows, Home and End, and round at the ends. A radio or
 * tab is also chosen. Only the chosen one is reached by Tab: see reached.
 */
export function onArrows(e: KeyboardEvent<HTMLElement>) {
  const all = [...e.currentTarget.querySelectorAll<HTMLElement>('[role="radio"], [role="tab"], [role="menuitem"]')];
  const at = all.indexOf(document.activeElement as HTMLElement);
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
  if (to === undefined || at < 0) return;
  e.preventDefault();
  const next = all[(to + all.length) % all.length]!;
  next.focus();
  if (next.role !== "menuitem") next.click();
}

/** The tabIndex of a radio or tab. */
export const reached = (chosen: boolean) => (chosen ? 0 : -1);
