import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { APIError } from "./api/client";
import { App } from "./app";
import "./styles.css";

const queries = new QueryClient({
  defaultOptions: { queries: { retry: (failures, error) => failures < 3 && !(error instanceof APIError && error.status >= 400 && error.status < 500) } },
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
