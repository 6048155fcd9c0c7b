import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { APIError } from "./api/client";
import { App } from "./app";
import "./styles.css";

const queries = new QueryClient({
  defaultOptions: {
    // A server on this machine answers without a network, so a browser that reports none says nothing.
    queries: { networkMode: "always", retry: (failures, error) => failures < 3 && !(error instanceof APIError && error.status >= 400 && error.status < 500) },
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
