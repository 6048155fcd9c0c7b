import type { Message } from "../api/types";
import type { Changes, Overview, Part, Place } from "./comparison";
import type { Answer, Request } from "./worker";
import url from "./worker?worker&url";

/** The pages allow no text to become a script. This allows one address: that of the worker, which is a file of the pages. */
const policy = (window as { trustedTypes?: { createPolicy(name: string, rules: { createScriptURL: (text: string) => string }): { createScriptURL(text: string): unknown } } }).trustedTypes?.createPolicy("understudy-worker", {
  createScriptURL: (text) => {
    if (text !== url) throw new TypeError("not the worker");
    return text;
  },
});

type Asking = Request extends infer R ? (R extends Request ? Omit<R, "id"> : never) : never;

/** A comparison that a worker makes and keeps. Its methods are those of Comparison. close ends it, and what is asked then never settles. */
export class Beside {
  private readonly worker = new Worker((policy?.createScriptURL(url) ?? url) as string, { type: "module" });
  private readonly waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  private last = 0;

  constructor() {
    this.worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const asked = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      "error" in data ? asked?.reject(new Error(data.error)) : asked?.resolve(data.value as never);
    };
    this.worker.onerror = (e) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`The comparison failed: ${e.message || "its worker did not start"}`));
      this.waiting.clear();
    };
  }

  compare(a: Part, b: Part): Promise<Overview> {
    return this.ask({ ask: "compare", a, b });
  }

  places(n: number): Promise<Place[]> {
    return this.ask({ ask: "places", n });
  }

  equalAt(place: number, n: number): Promise<Message[]> {
    return this.ask({ ask: "equalAt", place, n });
  }

  changes(name: string, n: number): Promise<Changes> {
    return this.ask({ ask: "changes", name, n });
  }

  close() {
    this.worker.terminate();
    this.waiting.clear();
  }

  private ask<T>(what: Asking): Promise<T> {
    const id = ++this.last;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: never) => void, reject });
      this.worker.postMessage({ ...what, id });
    });
  }
}
