import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { APIError } from "./api/client";
import { App } from "./app";
import "./styles.css";

/** A server that does not answer is soon named: what is read again when it is back does not need many tries. */
const noAnswer = (error: Error) => error instanceof APIError && error.status === 0;

const queries = new QueryClient({
  defaultOptions: {
    // A server on this machine answers without a network, so a browser that reports none says nothing.
    queries: { networkMode: "always", retry: (failures, error) => failures < (noAnswer(error) ? 1 : 3) && !(error instanceof APIError && error.status >= 400 && error.status < 500), retryDelay: (failures, error) => (noAnswer(error) ? 500 : 1_000 * 2 ** failures) },
    mutations: { networkMode: "always" },
  },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
