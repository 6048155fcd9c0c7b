import { Check, CodeXml } from "lucide-react";
import { useState } from "react";
import { apiURL } from "../api/client";
import { languages, snippet, type Call } from "../api/snippets";
import { Menu } from "./menu";

/** Copies a command or a program that asks the server for what is shown here. */
export function CopyCall({ of: call, what = "" }: { of: Call; what?: string }) {
  const [done, setDone] = useState(false);
  return (
    <span className="copy-call">
      <Menu label={`Copy ${what && `${what} `}as curl, Python or JavaScript`} menu="Copy as" icon={done ? <Check size={14} /> : <CodeXml size={14} />}>
        {(close) =>
          languages.map((language) => (
            <button
              key={language}
              type="button"
              role="menuitem"
              onClick={() => {
                close();
                void navigator.clipboard?.writeText(snippet(language, apiURL, call)).then(() => (setDone(true), setTimeout(() => setDone(false), 1500)));
              }}
            >
              {language}
            </button>
          ))
        }
      </Menu>
      <span role="status" className="hidden">
        {done && "Copied"}
      </span>
    </span>
  );
}
