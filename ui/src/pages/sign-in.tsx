import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { signIn, signInMethods, whose } from "../api/client";
import { draftsOf } from "../conversation/draft";

type Kind = "x-api-key" | "authorization";

/** Offers what the server accepts: a sign-in at a provider, or credentials, which are kept in memory and end with the page. */
export function SignIn({ onDone }: { onDone: () => void }) {
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
      {kinds.length > 0 && <Credentials kinds={kinds} onDone={onDone} />}
    </main>
  );
}

function Credentials({ kinds, onDone }: { kinds: Kind[]; onDone: () => void }) {
  const [kind, setKind] = useState<Kind>(kinds[0]!);
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
      <p className="quiet">It is sent to this server only, and forgotten when you close or reload the page.</p>
      <button type="submit" disabled={!secret.trim()}>
        Sign in
      </button>
    </form>
  );
}
