// The blocks of Markdown that is still written: only its end is read again, or a long answer would be read from its beginning for each frame.
import { Lexer, type Token, type TokensList } from "marked";

const options = { gfm: true, breaks: true };

/** How many blocks at the end may still become other ones by what follows. */
const open = 2;

/** Reads a text that grows. Texts that do not continue the last one are read as a whole. */
export class Blocks {
  private tokens: Token[] = [];
  private text = "";

  of(text: string): Token[] {
    if (text !== this.text) {
      const kept = text.startsWith(this.text) && !text.includes("\r") ? settled(this.tokens) : []; // a carriage return is not in the blocks
      const from = kept.reduce((n, t) => n + t.raw.length, 0);
      const rest = from > 0 ? new Lexer(options).lex(text.slice(from)) : [];
      const whole = from === 0 || defines(rest); // a definition is for links before it, too
      this.tokens = whole ? new Lexer(options).lex(text) : [...kept, ...rest];
      this.text = text;
    }
    return this.tokens;
  }
}

/** The blocks that stay as they are, whatever follows. */
function settled(tokens: Token[]): Token[] {
  if (defines(tokens)) return [];
  let end = tokens.length;
  for (let left = open; end > 0 && (left > 0 || !isClosed(tokens[end - 1]!)); end--) if (tokens[end - 1]!.type !== "space") left--;
  return tokens.slice(0, end);
}

/** Whether a block ends behind an empty line, which no later one is joined with. */
const isClosed = (t: Token) => t.type === "space" || t.type === "heading";

/** Whether there are definitions of links among blocks, or inside of them. */
const defines = (tokens: Token[]) => Object.keys((tokens as Partial<TokensList>).links ?? {}).length > 0;
