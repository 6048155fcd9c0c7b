import { expect, it } from "vitest";
import { parseMetadata } from "./metadata";

it.each([
  ["", {}],
  ["owner=ada", { owner: "ada" }],
  ['  owner=ada level=3  done=true id="3" ', { owner: "ada", level: 3, done: true, id: "3" }],
  ['team="blue green" x=a=b', { team: "blue green", x: "a=b" }],
  ['{"owner": {"$eq": "ada"}}', { owner: { $eq: "ada" } }],
])("reads %s", (text, want) => expect(parseMetadata(text)).toEqual(want));

it.each(["owner", "=ada", "owner=ada team", "{owner"])("refuses %s", (text) => expect(() => parseMetadata(text)).toThrow());
