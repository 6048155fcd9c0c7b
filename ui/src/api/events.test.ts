import { expect, test } from "vitest";
import { EventParser } from "./events";

test("events arrive in any pieces", () => {
  const text = ": comment\r\nid: 1\r\nevent: a|b\r\ndata: {\"x\":\r\ndata: 1}\r\n\r\n\n\ndata:none\nretry: 5\n\nid: 2\n\ndata: cut";
  const whole = new EventParser().push(text);
  expect(whole).toEqual([{ id: "1", name: "a|b", data: '{"x":\n1}' }, { name: "message", data: "none" }]);
  for (let i = 0; i <= text.length; i++)
    for (let j = i; j <= text.length; j += 7) {
      const parser = new EventParser();
      expect([text.slice(0, i), text.slice(i, j), text.slice(j)].flatMap((piece) => parser.push(piece))).toEqual(whole);
    }
});
