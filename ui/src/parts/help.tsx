import { Dialog } from "./dialog";

const keys: [string, string][] = [
  ["Enter, Shift+Enter", "send; new line"],
  ["Esc", "stop the run; leave a field; close what is open"],
  ["n", "new thread"],
  ["e", "edit the last message that you sent"],
  ["/", "find"],
  ["g then t, a, r, g, s, c, u, v, l, h, o", "threads, approvals, runs, graphs, store, crons, usage, servers, logs, health, connect"],
  ["j, k or arrows", "next, previous checkpoint or span, in their lists"],
  ["Ctrl+K", "all commands: pages, threads, and what a page can do"],
  ["?", "this list"],
];

/** The keys of all pages. */
export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="keys">
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <div className="buttons">
        <button type="button" className="plain" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
