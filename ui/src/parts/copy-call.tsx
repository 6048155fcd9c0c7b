import { Check, CodeXml, X } from "lucide-react";
import { apiURL } from "../api/client";
import { languages, snippet, type Call } from "../api/snippets";
import { useCopy } from "./copied";
import { Menu } from "./menu";

/** Copies a command or a program that asks the server for what is shown here. */
export function CopyCall({ of: call, what = "" }: { of: Call; what?: string }) {
  const [copy, said] = useCopy();
  return (
    <span className="copy-call">
      <Menu label={`Copy ${what && `${what} `}as curl, Python or JavaScript`} menu="Copy as" icon={said === "" ? <CodeXml size={14} /> : said === "Copied" ? <Check size={14} /> : <X size={14} />}>
        {(close) =>
          languages.map((language) => (
            <button
              key={language}
              type="button"
              role="menuitem"
              onClick={() => {
                close();
                copy(snippet(language, apiURL, call));
              }}
            >
              {language}
            </button>
          ))
        }
      </Menu>
      <span role="status" className={said === "Could not copy" ? "quiet" : "hidden"}>
        {said}
      </span>
    </span>
  );
}
