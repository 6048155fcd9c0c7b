import { useEffect, useRef, useState, type ReactNode, type RefObject } from "react";
import { onArrows } from "./arrows";

interface Props {
  label: string; // of the button
  menu: string; // of what it opens
  icon: ReactNode;
  className?: string; // of the button
  button?: RefObject<HTMLButtonElement | null>;
  children: (close: () => void) => ReactNode; // items, with the role menuitem
}

/** A button that opens a menu. Arrows move in it; Escape, or leaving it, closes it. */
export function Menu({ label, menu, icon, className = "icon", button, children }: Props) {
  const [open, setOpen] = useState(false);
  const own = useRef<HTMLButtonElement>(null);
  const opener = button ?? own;
  const items = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (open) items.current?.querySelector("button")?.focus();
  }, [open]);
  const close = () => {
    setOpen(false);
    opener.current?.focus();
  };
  return (
    <span className="with-menu" onBlur={(e) => !e.currentTarget.contains(e.relatedTarget) && setOpen(false)}>
      <button ref={opener} type="button" className={className} aria-haspopup="menu" aria-label={label} title={label} aria-expanded={open} onClick={() => setOpen(!open)}>
        {icon}
      </button>
      {open && (
        <div className="menu" ref={items} role="menu" aria-label={menu} onKeyDown={(e) => (e.key === "Escape" ? (e.stopPropagation(), close()) : onArrows(e))}>
          {children(close)}
        </div>
      )}
    </span>
  );
}
