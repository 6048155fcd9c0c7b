import { flushSync } from "react-dom";

/** What gathering needs of the browser. */
export interface Screen {
  hidden: () => boolean;
  request: (draw: () => void) => number;
  cancel: (request: number) => void;
}

/** What is applied for a frame is drawn in it, and not in the next one. */
const screen: Screen = { hidden: () => document.hidden, request: (draw) => requestAnimationFrame(() => flushSync(draw)), cancel: (request) => cancelAnimationFrame(request) };

/**
 * Gathers what arrives until the next frame, so that the page is drawn once for all of it: tokens arrive several times as often, and each drawing lays out the whole
 * paragraph that they belong to. A tab that is hidden has no frames, and applies at once.
 */
export class Frames<T> {
  private list: T[] = [];
  private request: number | undefined;

  constructor(
    private apply: (list: T[]) => void,
    private on: Screen = screen,
  ) {}

  add(one: T) {
    this.list.push(one);
    if (this.on.hidden()) this.flush();
    else this.request ??= this.on.request(() => this.flush());
  }

  /** Applies what was gathered, before something that depends on it. */
  flush() {
    const list = this.list;
    this.drop();
    if (list.length > 0) this.apply(list);
  }

  drop() {
    if (this.request !== undefined) this.on.cancel(this.request);
    this.request = undefined;
    this.list = [];
  }
}
