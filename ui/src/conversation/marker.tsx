import { FoldVertical } from "lucide-react";
import type { Condensed } from "../api/types";
import { Markdown } from "./markdown";

/** Where messages were condensed for the model. They are all above it; what the model has instead unfolds. */
export function Marker({ marker }: { marker: Condensed }) {
  const n = marker.replaced_count;
  return (
    <details className="marker" data-kind="marker">
      <summary>
        <FoldVertical size={14} aria-hidden />
        {n} {n === 1 ? "message" : "messages"} condensed
      </summary>
      <p className="quiet">The model sees this summary instead of the messages above.</p>
      <Markdown text={marker.summary || "No summary was kept."} />
    </details>
  );
}
