import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { signIn, signInMethods, whose, type Refusal } from "../api/client";
import { draftsOf } from "../conversation/draft";

type Kind = "x-api-key" | "authorization";

/** Offers what the server accepts: a sign-in at a provider, or credentials, which are kept in memory and end with the page. */
export function SignIn({ refused, onDone }: { refused: Refusal; onDone: () => void }) {
  const methods = useQuery({ queryKey: ["sign-in"], queryFn: signInMethods, staleTime: Infinity }).data;
  if (!methods) return <main className="home" aria-busy />;
  const kinds: Kind[] = [...(methods.api_key ? (["x-api-key"] as const) : []), ...(methods.token ? (["authorization"] as const) : [])];
  const here = location.pathname + location.search + location.hash;
  return (
    <main className="home">
      <h1>Sign in to this server</h1>
      {methods.providers.map((p) => (
        <p key={p.login}>
          <a className="button" href={`${p.login}?next=${encodeURIComponent(here)}`}>
            Sign in with {p.name}
          </a>
        </p>
      ))}
      {kinds.length > 0 && <Credentials kinds={kinds} refused={refused} onDone={onDone} />}
    </main>
  );
}

const wrong = {
  "x-api-key": "The server does not accept this key: it is unknown, has expired or was revoked. An administrator lists keys with “understudy keys list”.",
  authorization: "The server does not accept this token: it has expired, or is of another issuer or audience. The log of the server says why.",
};

function Credentials({ kinds, refused, onDone }: { kinds: Kind[]; refused: Refusal; onDone: () => void }) {
  const [kind, setKind] = useState<Kind>(kinds.find((k) => k === refused) ?? kinds[0]!);
  const [secret, setSecret] = useState("");
  const names = { "x-api-key": "API key", authorization: "Bearer token" };
  return (
    <form
      className="fields"
      onSubmit={(e) => {
        e.preventDefault();
        signIn(kind === "x-api-key" ? { "x-api-key": secret.trim() } : { authorization: `Bearer ${secret.trim()}` });
        draftsOf(whose());
        onDone();
      }}
    >
      {kinds.length > 1 && (
        <label>
          <span>Kind</span>
          <select value={kind} onChange={(e) => setKind(e.target.value as Kind)}>
            {kinds.map((k) => (
              <option key={k} value={k}>
                {names[k]}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>{kind === "x-api-key" ? "API key" : "Token"}</span>
        <input type="password" autoComplete="off" autoFocus value={secret} onChange={(e) => setSecret(e.target.value)} />
      </label>
      {refused !== "none" && <p className="wrong" role="alert">{wrong[refused]}</p>}
      {kind === "x-api-key" && refused === "none" && (
        <p className="quiet">
          <code>understudy keys create --name NAME</code> makes one, where the server runs.
        </p>
      )}
      <p className="quiet">It is sent to this server only, and forgotten when you close or reload the page.</p>
      <button type="submit" disabled={!secret.trim()}>
        Sign in
      </button>
    </form>
  );
}
