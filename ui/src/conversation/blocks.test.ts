import { Lexer } from "marked";
import { expect, test } from "vitest";
import { Blocks } from "./blocks";

const whole = (text: string) => new Lexer({ gfm: true, breaks: true }).lex(text);

const pieces = [
  "words ", "and more", "\n", "\n\n", "\n\n\n", "- item\n", "- ", "1. one\n", "2", ". two\n", "3) x\n", "  - nested\n", "    code\n", "\tcode\n", "```js\n", "```\n", "~~~\n", "`", "**", "_", "# head\n", "#", "---\n", "===\n",
  "> quote\n", ">", "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "<div>\n", "</div>\n", "<!-- ", "-->\n", "[a][1]", "[1]: https://x.y\n", "[b](https://x.y)", "\\", "&amp;", "  \n", " ", "* * *\n", "- [ ] to do\n", "\r\n",
];

/** Random numbers that are the same each time. */
function random(seed: number) {
  return (n: number) => {
    seed = (seed * 1_664_525 + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
}

test("a text that grows has the blocks of the whole text", () => {
  for (let seed = 0; seed < 150; seed++) {
    const pick = random(seed);
    const blocks = new Blocks();
    let text = "";
    for (let n = 0; n < 40; n++) {
      const piece = pieces[pick(pieces.length)]!;
      if (piece === "\r\n" && seed % 4) continue; // such texts are read as a whole
      text += piece;
      expect(JSON.stringify(blocks.of(text)), JSON.stringify(text)).toBe(JSON.stringify(whole(text)));
    }
  }
});

test("a text that is replaced is read as a whole", () => {
  const blocks = new Blocks();
  for (const text of ["a\n\nb\n\nc\n\nd\n\n", "a\n\nb", "", "other\n\nwords\n\nhere\n\nx", "other\n\nwords\n\nhere\n\nx\n\ny"]) expect([...blocks.of(text)]).toEqual([...whole(text)]);
});

test("what is read again does not grow with the text", () => {
  const lex = Lexer.prototype.lex;
  let read = 0;
  Lexer.prototype.lex = function (src) {
    read += src.length;
    return lex.call(this, src);
  };
  try {
    const blocks = new Blocks();
    let text = "";
    const most: number[] = [];
    for (let n = 0; n < 200; n++) {
      read = 0;
      for (const part of ["A paragraph ", `**${n}** `, "of words\n\n", "- one\n- two\n\n", "```\ncode\n```\n\n"]) blocks.of((text += part));
      most.push(read);
    }
    expect(most[199]).toBeLessThan(2 * most[20]!);
  } finally {
    Lexer.prototype.lex = lex;
  }
});
