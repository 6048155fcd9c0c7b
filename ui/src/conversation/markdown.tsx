import type { Token, Tokens } from "marked";
import { Fragment, memo, useMemo, useState, type ReactNode } from "react";
import { CopyButton } from "../parts/copy";
import { Blocks } from "./blocks";

/**
 * Draws Markdown as elements: no text of a message ever becomes HTML, so none can execute. HTML in it is shown as text, and pictures of other
 * servers are links, because their server would learn that the message was read.
 */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const [growing] = useState(() => new Blocks());
  const blocks = useMemo(() => growing.of(text), [growing, text]);
  return (
    <div className="markdown">
      {blocks.map((token, i) => (
        <Block key={i} raw={token.raw} token={token} />
      ))}
    </div>
  );
});

/** A block of a text that is still written is drawn again only if it changed. */
const Block = memo(
  function Block({ token }: { token: Token; raw: string }) {
    return <>{draw(token)}</>;
  },
  (before, after) => before.raw === after.raw,
);

const drawAll = (tokens: Token[] | undefined): ReactNode => (tokens ?? []).map((t, i) => <Fragment key={i}>{draw(t)}</Fragment>);

function draw(token: Token): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const H = `h${Math.min(token.depth + 2, 6)}` as "h3";
      return <H>{drawAll(token.tokens)}</H>;
    }
    case "paragraph":
      return <p>{drawAll(token.tokens)}</p>;
    case "text":
      return token.tokens ? drawAll(token.tokens) : decode(token.text);
    case "escape":
      return decode(token.text);
    case "strong":
      return <strong>{drawAll(token.tokens)}</strong>;
    case "em":
      return <em>{drawAll(token.tokens)}</em>;
    case "del":
      return <del>{drawAll(token.tokens)}</del>;
    case "codespan":
      return <code>{decode(token.text)}</code>;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "code":
      return <Code language={(token as Tokens.Code).lang} text={token.text} />;
    case "blockquote":
      return <blockquote>{drawAll(token.tokens)}</blockquote>;
    case "list": {
      const list = token as Tokens.List;
      const items = list.items.map((item, i) => (
        <li key={i}>
          {item.task && <input type="checkbox" checked={item.checked ?? false} readOnly aria-label={item.checked ? "done" : "to do"} />}
          {drawAll(item.tokens.filter((t) => t.type !== "checkbox"))}
        </li>
      ));
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "link":
      return <Link href={token.href}>{drawAll(token.tokens)}</Link>;
    case "image":
      return isInline(token.href) ? <img src={token.href} alt={token.text} /> : <Link href={token.href}>{`picture: ${token.text || token.href}`}</Link>;
    default:
      return token.raw; // HTML, and what later versions of marked know
  }
}

function Table({ table }: { table: Tokens.Table }) {
  const align = (i: number) => ({ textAlign: table.align[i] ?? undefined }) as const;
  return (
    <div className="scrolls" tabIndex={0} role="region" aria-label="table">
      <table>
        <thead>
          <tr>
            {table.header.map((cell, i) => (
              <th key={i} style={align(i)}>
                {drawAll(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, r) => (
            <tr key={r}>
              {row.map((cell, i) => (
                <td key={i} style={align(i)}>
                  {drawAll(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Code({ language, text }: { language?: string; text: string }) {
  return (
    <figure className="code">
      <figcaption>
        <span>{language || "text"}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}

function Link({ href, children }: { href: string; children: ReactNode }) {
  if (!/^(https?:|mailto:)/i.test(href)) return <span title={href}>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}

export const isInline = (href: string) => /^data:image\/(png|jpeg|gif|webp);base64,/i.test(href);

const named: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

/** marked escapes the text of some tokens for HTML. */
const decode = (text: string) => text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => named[name]!);
