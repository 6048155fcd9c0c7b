import { inUTC } from "./format";

/** A selection as text in which times are exact, in UTC; null: there are none in it. */
function exactly(selection: Selection): string | null {
  const range = selection.getRangeAt(0);
  const around = range.commonAncestorContainer;
  const element = around instanceof Element ? around : around.parentElement;
  const inside = element?.closest("time[datetime]");
  if (inside) return inUTC(inside.getAttribute("datetime")!);
  if (!element || ![...element.querySelectorAll("time[datetime]")].some((time) => range.intersectsNode(time))) return null;
  // Lines break as on the page only in what is drawn, so a copy is drawn outside of the visible page.
  const copy = document.createElement("div");
  copy.className = "hidden";
  copy.style.whiteSpace = "pre-line";
  copy.append(range.cloneContents());
  for (const time of copy.querySelectorAll("time[datetime]")) time.textContent = inUTC(time.getAttribute("datetime")!);
  document.body.append(copy);
  const text = copy.innerText;
  copy.remove();
  return text;
}

/** Has ages such as "5 m" copied as the times that they stand for, in UTC: what is pasted elsewhere is read later. Returns what ends it. */
export function copyTimesInUTC(): () => void {
  const onCopy = (e: ClipboardEvent) => {
    const selection = document.getSelection();
    if (!selection || selection.isCollapsed || (e.target as Element | null)?.closest?.("input, textarea")) return;
    const text = exactly(selection);
    if (text === null) return;
    e.clipboardData?.setData("text/plain", text);
    e.preventDefault();
  };
  document.addEventListener("copy", onCopy);
  return () => document.removeEventListener("copy", onCopy);
}
