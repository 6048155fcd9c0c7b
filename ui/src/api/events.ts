/** One event of a stream (text/event-stream). */
export interface StreamEvent {
  id?: string;
  name: string;
  data: string;
}

/** Reads events from the body of a response. Comments, which keep connections open, are skipped; an event that the end cuts off is dropped. heard is called for whatever comes. */
export async function* readEvents(body: ReadableStream<Uint8Array>, heard = () => {}): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      yield* parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Splits text that arrives in arbitrary pieces into events. */
export class EventParser {
  private rest = "";
  private lines: string[] = [];

  push(text: string): StreamEvent[] {
    const found: StreamEvent[] = [];
    const parts = (this.rest + text).split("\n");
    this.rest = parts.pop()!;
    for (const part of parts) {
      const line = part.endsWith("\r") ? part.slice(0, -1) : part;
      if (line !== "") {
        this.lines.push(line);
        continue;
      }
      const event = toEvent(this.lines);
      this.lines = [];
      if (event) found.push(event);
    }
    return found;
  }
}

function toEvent(lines: string[]): StreamEvent | null {
  const event: StreamEvent = { name: "message", data: "" };
  const data: string[] = [];
  for (const line of lines) {
    const at = line.indexOf(":");
    if (at === 0) continue;
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") data.push(value);
  }
  if (data.length === 0) return null;
  event.data = data.join("\n");
  return event;
}
