import { useQueryClient } from "@tanstack/react-query";
import { Bot, CalendarClock, ChartColumn, Database, Hourglass, ListChecks, LogOut, MessagesSquare, Network, ScrollText, Server as ServerIcon } from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { Link, Route, Router, Switch, useLocation } from "wouter";
import { useChanges } from "./api/use-changes";
import { get, hasSession, signOut, whenRefused } from "./api/client";
import { Chosen } from "./compare/chosen";
import { Approvals } from "./pages/approvals";
import { Crons } from "./pages/crons";
import { GraphPage } from "./pages/graph-page";
import { Home } from "./pages/home";
import { Runs } from "./pages/runs";
import { SignIn } from "./pages/sign-in";
import { StorePage } from "./pages/store";
import { ThreadPage } from "./pages/thread-page";
import { Sidebar } from "./threads/sidebar";
import { useThreads } from "./threads/threads";

const RunPage = lazy(() => import("./run/run-page"));
const ComparePage = lazy(() => import("./compare/compare-page"));
const UsagePage = lazy(() => import("./pages/usage"));
const ServersPage = lazy(() => import("./pages/servers"));
const LogsPage = lazy(() => import("./pages/logs"));

const base = new URL(document.baseURI).pathname.replace(/\/$/, "");

export function App() {
  const [refused, setRefused] = useState(false);
  const queries = useQueryClient();
  useEffect(() => {
    whenRefused(() => setRefused(true));
    if (hasSession()) void get("/auth/session").catch(() => {}); // it may renew the session; what is wrong with it other requests show
  }, []);
  if (refused) {
    return (
      <SignIn
        onDone={() => {
          setRefused(false);
          void queries.resetQueries();
        }}
      />
    );
  }
  return (
    <Router base={base}>
      <Shell />
    </Router>
  );
}

function Shell() {
  const [location] = useLocation();
  const chats = location === "/" || location.startsWith("/t/");
  useShortcuts();
  useChanges();
  return (
    <div className={chats ? "shell with-sidebar" : "shell"}>
      <a className="skip button" href="#page" onClick={skipToPage}>
        Skip to the page
      </a>
      <Rail />
      {chats && <Sidebar />}
      <Switch>
        <Route path="/" component={Home} />
        <Route path="/t/:id">{({ id }) => <ThreadPage key={id} id={id} />}</Route>
        <Route path="/approvals" component={Approvals} />
        <Route path="/graphs/:id?">{({ id }) => <GraphPage id={id} />}</Route>
        <Route path="/runs" component={Runs} />
        <Route path="/r/:id">
          {({ id }) => (
            <Suspense fallback={<main className="page" aria-busy />}>
              <RunPage key={id} id={id} />
            </Suspense>
          )}
        </Route>
        {([["/compare", ComparePage], ["/usage", UsagePage], ["/servers", ServersPage], ["/logs", LogsPage]] as const).map(([path, Page]) => (
          <Route key={path} path={path}>
            <Suspense fallback={<main className="page" aria-busy />}>
              <Page />
            </Suspense>
          </Route>
        ))}
        <Route path="/store" component={StorePage} />
        <Route path="/crons" component={Crons} />
        <Route>
          <main className="page">
            <h1>There is no such page</h1>
            <Link href="/">Talk to a graph</Link>
          </main>
        </Route>
      </Switch>
      <Chosen />
    </div>
  );
}

/** For people without a mouse: the first thing that Tab finds leads past the lists of pages and threads. */
function skipToPage(e: React.MouseEvent) {
  e.preventDefault();
  const main = document.querySelector<HTMLElement>("main");
  if (!main) return;
  main.tabIndex = -1;
  main.focus();
}

function Rail() {
  const [location] = useLocation();
  const waiting = useThreads({ status: "interrupted" }).data?.pages[0]?.length ?? 0;
  const entries = [
    ["/", "Threads", MessagesSquare, location === "/" || location.startsWith("/t/")],
    ["/approvals", "Approvals", Hourglass, location === "/approvals"],
    ["/runs", "Runs", ListChecks, location === "/runs" || location.startsWith("/r/")],
    ["/graphs", "Graphs", Network, location.startsWith("/graphs")],
    ["/store", "Store", Database, location === "/store"],
    ["/crons", "Crons", CalendarClock, location === "/crons"],
    ["/usage", "Usage", ChartColumn, location === "/usage"],
    ["/servers", "Servers", ServerIcon, location === "/servers"],
    ["/logs", "Logs", ScrollText, location === "/logs"],
  ] as const;
  return (
    <nav className="rail" aria-label="Pages">
      <Bot size={20} aria-hidden className="logo" />
      {entries.map(([href, label, Shape, current]) => (
        <Link key={href} href={href} aria-label={label} title={label} aria-current={current ? "page" : undefined}>
          <Shape size={18} />
          {href === "/approvals" && waiting > 0 && <span className="badge">{waiting >= 50 ? "50+" : waiting}</span>}
        </Link>
      ))}
      {hasSession() && (
        <button className="icon" aria-label="Sign out" title="Sign out" onClick={() => void signOut().finally(() => window.location.reload())}>
          <LogOut size={18} />
        </button>
      )}
    </nav>
  );
}

/** Keys outside of fields: / finds, n begins a thread, g then t, a, r, g, s, c, u, v or l goes to a page. */
function useShortcuts() {
  const [, navigate] = useLocation();
  useEffect(() => {
    let before = "";
    const pages: Record<string, string> = { t: "/", a: "/approvals", r: "/runs", g: "/graphs", s: "/store", c: "/crons", u: "/usage", v: "/servers", l: "/logs" };
    const onKey = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as HTMLElement).closest("input, textarea, select")) return;
      if (e.key === "/") {
        e.preventDefault();
        document.querySelector<HTMLInputElement>('[data-key="/"]')?.focus();
      } else if (e.key === "n") navigate("/");
      else if (before === "g" && pages[e.key]) navigate(pages[e.key]!);
      before = before === "g" ? "" : e.key;
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [navigate]);
}
