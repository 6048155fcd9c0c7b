import { useState } from "react";
import { signIn } from "../api/client";

/** Asks for the credentials of the API. They are kept in memory and end with the page. */
export function SignIn({ onDone }: { onDone: () => void }) {
  const [kind, setKind] = useState<"x-api-key" | "authorization">("x-api-key");
  const [secret, setSecret] = useState("");
  return (
    <main className="home">
      <h1>This server asks for credentials</h1>
      <form
        className="fields"
        onSubmit={(e) => {
          e.preventDefault();
          signIn(kind === "x-api-key" ? { "x-api-key": secret.trim() } : { authorization: `Bearer ${secret.trim()}` });
          onDone();
        }}
      >
        <label>
          <span>Kind</span>
          <select value={kind} onChange={(e) => setKind(e.target.value as typeof kind)}>
            <option value="x-api-key">API key</option>
            <option value="authorization">Bearer token</option>
          </select>
        </label>
        <label>
          <span>{kind === "x-api-key" ? "API key" : "Token"}</span>
          <input type="password" autoComplete="off" autoFocus value={secret} onChange={(e) => setSecret(e.target.value)} />
        </label>
        <p className="quiet">It is sent to this server only, and forgotten when you close or reload the page.</p>
        <button type="submit" disabled={!secret.trim()}>
          Sign in
        </button>
      </form>
    </main>
  );
}
