/** What has a meaning of its own, so that a person knows where they are. */
const parts = "main, section, aside, nav, article, form, li, dialog, [role], [tabindex]";

/**
 * Keeps the place of people without a mouse: when what has the focus is removed, as a question that was answered, the focus goes to the nearest part of the page
 * around it that is still there, instead of to the beginning of the page. Returns what ends it.
 */
export function keepFocus(): () => void {
  let path: HTMLElement[] = []; // from what had the focus last to the body
  const onFocus = (e: FocusEvent) => {
    path = [];
    for (let at = e.target as HTMLElement | null; at && at !== document.body; at = at.parentElement) path.push(at);
  };
  const onBlur = (e: FocusEvent) => {
    // Who presses on nothing leaves. What is removed blurs too, in some browsers, but is no longer connected when the observer looks.
    const left = e.target as HTMLElement;
    if (e.relatedTarget === null) queueMicrotask(() => left.isConnected && document.hasFocus() && path[0] === left && (path = []));
  };
  const observer = new MutationObserver(() => {
    if (path.length === 0 || path[0]!.isConnected) return;
    const around = path.find((e) => e.isConnected && e.matches(parts));
    path = [];
    if (document.activeElement && document.activeElement !== document.body) return;
    if (!around) return focusPage(); // another page
    if (around.tabIndex < 0 && !around.hasAttribute("tabindex")) around.tabIndex = -1;
    around.focus({ preventScroll: true });
  });
  document.addEventListener("focusin", onFocus);
  document.addEventListener("focusout", onBlur);
  observer.observe(document.body, { childList: true, subtree: true });
  return () => {
    document.removeEventListener("focusin", onFocus);
    document.removeEventListener("focusout", onBlur);
    observer.disconnect();
  };
}

/** Gives the focus to what the page is about: behind the lists of pages and threads, and outside of fields, where keys are shortcuts. */
export function focusPage() {
  const main = document.querySelector<HTMLElement>("main");
  if (!main) return;
  main.tabIndex = -1;
  main.focus();
}
