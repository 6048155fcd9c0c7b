import { useEffect, useRef, type ReactNode } from "react";

interface Props {
  title: string;
  onClose: () => void; // also by Escape
  children: ReactNode;
}

/** Asks something in front of the page. The focus is in it until it closes, and then where it was. */
export function Dialog({ title, onClose, children }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const dialog = element.current!;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-label={title} onCancel={(e) => (e.preventDefault(), onClose())}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
