import { useQueryClient } from "@tanstack/react-query";
import { Bot, CalendarClock, ChartColumn, Database, Hourglass, Keyboard, ListChecks, LogOut, MessagesSquare, Network, Plug, ScrollText, Server as ServerIcon, Stethoscope, WifiOff } from "lucide-react";
import { lazy, Suspense, useCallback, useEffect, useMemo, useState, type ReactNode } from "react";
import { Link, Route, Router, Switch, useLocation } from "wouter";
import { useDoctor, useOwn } from "./api/server";
import { useChanges, useDown } from "./api/use-changes";
import { APIError, apiURL, get, hasSession, signOut, whenRefused, type Refusal } from "./api/client";
import { Chosen } from "./compare/chosen";
import { Approvals } from "./pages/approvals";
import { draftsOf, dropDrafts, hideDrafts } from "./conversation/draft";
import { Crons } from "./pages/crons";
import { GraphPage } from "./pages/graph-page";
import { Home } from "./pages/home";
import { Runs } from "./pages/runs";
import { SignIn } from "./pages/sign-in";
import { Commands } from "./parts/commands";
import { copyTimesInUTC } from "./parts/copied-times";
import { Elsewhere } from "./parts/elsewhere";
import { Help } from "./parts/help";
import { focusPage, keepFocus } from "./parts/keep-focus";
import { StorePage } from "./pages/store";
import { ThreadPage } from "./pages/thread-page";
import { Sidebar } from "./threads/sidebar";
import { asks, useThreads } from "./threads/threads";

const AllThreads = lazy(() => import("./pages/all-threads"));
const RunPage = lazy(() => import("./run/run-page"));
const TryPage = lazy(() => import("./compare/try-page"));
const ComparePage = lazy(() => import("./compare/compare-page"));
const UsagePage = lazy(() => import("./pages/usage"));
const ServersPage = lazy(() => import("./pages/servers"));
const LogsPage = lazy(() => import("./pages/logs"));
const HealthPage = lazy(() => import("./pages/health"));
const ConnectPage = lazy(() => import("./pages/connect"));

const base = new URL(document.baseURI).pathname.replace(/\/$/, "");

export function App() {
  const [refused, setRefused] = useState<Refusal | null>(null);
  const queries = useQueryClient();
  useState(() => hasSession() && hideDrafts()); // before a field shows one
  useEffect(() => {
    whenRefused(setRefused);
    return askWho();
  }, []);
  if (refused) {
    return (
      <SignIn
        refused={refused}
        onDone={() => {
          setRefused(null);
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

/** Asks whose session it is, whose drafts are shown then, until the server says so. This may renew the session as well; what is wrong with it other requests show. */
function askWho(): () => void {
  let timer = 0;
  const ask = () => {
    if (!hasSession()) return; // none, or someone gave credentials instead
    void get<{ identity?: string }>("/auth/session", AbortSignal.timeout(30_000)).then(
      ({ identity }) => {
        if (hasSession()) draftsOf(`session ${identity}`, true); // else someone signed in meanwhile
      },
      (error: unknown) => {
        if (!hasSession()) return;
        const status = error instanceof APIError ? error.status : 0;
        if (status === 404) draftsOf("anyone"); // the cookie is of another server, and this one knows no sessions
        else if (status !== 401) timer = window.setTimeout(ask, 2_000);
      },
    );
  };
  ask();
  return () => clearTimeout(timer);
}

function Shell() {
  const [location] = useLocation();
  const chats = location === "/" || location.startsWith("/t/");
  const [help, setHelp] = useState(false);
  const own = useOwn();
  const [commands, setCommands] = useState(false);
  const showHelp = useCallback(() => setHelp(true), []);
  const showCommands = useCallback(() => setCommands(true), []);
  const entries = useEntries(location);
  const pages = useMemo(() => [...entries.map(([href, label]) => [href, label] as const), ["/threads", "All threads"] as const, ["/try", "Try side by side"] as const], [entries]);
  useShortcuts(showHelp, showCommands);
  useChanges();
  useEffect(keepFocus, []);
  useEffect(copyTimesInUTC, []);
  return (
    <div className={chats ? "shell with-sidebar" : "shell"}>
      <Rail entries={entries} onHelp={showHelp} />
      {commands && <Commands pages={pages} onClose={() => setCommands(false)} />}
      {help && <Help onClose={() => setHelp(false)} />}
      {chats && <Sidebar />}
      <Switch>
        <Route path="/" component={Home} />
        <Route path="/t/:id">{({ id }) => <ThreadPage key={id} id={id} />}</Route>
        <Route path="/threads">
          <Suspense fallback={<main className="page" aria-busy />}>
            <AllThreads />
          </Suspense>
        </Route>
        <Route path="/approvals" component={Approvals} />
        <Route path="/graphs/:id?">{({ id }) => <GraphPage id={id} />}</Route>
        <Route path="/runs" component={Runs} />
        <Route path="/r/:id">
          {({ id }) => (
            <Recorded own={own} title="Run">
              <RunPage key={id} id={id} />
            </Recorded>
          )}
        </Route>
        <Route path="/compare">
          <Suspense fallback={<main className="page" aria-busy />}>
            <ComparePage />
          </Suspense>
        </Route>
        <Route path="/try">
          <Suspense fallback={<main className="page" aria-busy />}>
            <TryPage />
          </Suspense>
        </Route>
        {([["Usage", UsagePage], ["Servers", ServersPage], ["Logs", LogsPage], ["Health", HealthPage]] as const).map(([title, Page]) => (
          <Route key={title} path={`/${title.toLowerCase()}`}>
            <Recorded own={own} title={title}>
              <Page />
            </Recorded>
          </Route>
        ))}
        <Route path="/connect">
          <Suspense fallback={<main className="page" aria-busy />}>
            <ConnectPage />
          </Suspense>
        </Route>
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
      <Down />
    </div>
  );
}

/** That the server does not answer, on every page. */
function Down() {
  if (!useDown()) return null;
  return (
    <p className="down notice" role="alert">
      <WifiOff size={14} aria-hidden /> The server at {apiURL} does not answer. See that it runs: the page continues by itself, and what you typed is kept.
    </p>
  );
}

/** A page of what only this program records; own is undefined until it is known whether the server is one. */
function Recorded({ own, title, children }: { own: boolean | undefined; title: string; children: ReactNode }) {
  if (own === false) return <Elsewhere title={title} />;
  const reading = <main className="page" aria-busy />;
  return own ? <Suspense fallback={reading}>{children}</Suspense> : reading;
}

/** The pages: address, name, sign, and whether it is the current one. */
function useEntries(location: string) {
  const own = useOwn();
  const doctor = useDoctor();
  return useMemo(() => entriesOf(location, own, doctor), [location, own, doctor]);
}

function entriesOf(location: string, own: boolean | undefined, doctor: boolean | undefined) {
  return [
    ["/", "Threads", MessagesSquare, location === "/" || location === "/threads" || location.startsWith("/t/")],
    ["/approvals", "Approvals", Hourglass, location === "/approvals"],
    ["/runs", "Runs", ListChecks, location === "/runs" || location.startsWith("/r/")],
    ["/graphs", "Graphs", Network, location.startsWith("/graphs")],
    ["/store", "Store", Database, location === "/store"],
    ["/crons", "Crons", CalendarClock, location === "/crons"],
    ...(own === false
      ? []
      : ([
          ["/usage", "Usage", ChartColumn, location === "/usage"],
          ["/servers", "Servers", ServerIcon, location === "/servers"],
          ["/logs", "Logs", ScrollText, location === "/logs"],
        ] as const)),
    ...(own === false || doctor === false ? [] : ([["/health", "Health", Stethoscope, location === "/health"]] as const)),
    ["/connect", "Connect", Plug, location === "/connect"],
  ] as const;
}

function Rail({ entries, onHelp }: { entries: ReturnType<typeof entriesOf>; onHelp: () => void }) {
  const interrupted = useThreads({ status: "interrupted" });
  const waiting = interrupted.data?.pages[0]?.filter(asks).length ?? 0;
  return (
    <nav className="rail" aria-label="Pages">
      <a className="skip button" href="#page" onClick={(e) => (e.preventDefault(), focusPage())}>
        Skip to the page
      </a>
      <Bot size={20} aria-hidden className="logo" />
      {entries.map(([href, label, Shape, current]) => (
        <Link key={href} href={href} aria-label={label} title={label} aria-current={current ? "page" : undefined}>
          <Shape size={18} />
          {href === "/approvals" && waiting > 0 && <span className="badge">{waiting}{interrupted.hasNextPage && "+"}</span>}
        </Link>
      ))}
      <button type="button" className="icon last" aria-label="Keys" title="Keys (?)" onClick={onHelp}>
        <Keyboard size={18} />
      </button>
      {hasSession() && (
        <button className="icon" aria-label="Sign out" title="Sign out" onClick={() => (dropDrafts(), void signOut().finally(() => window.location.reload()))}>
          <LogOut size={18} />
        </button>
      )}
    </nav>
  );
}

/** Keys outside of fields and dialogs; parts/help.tsx lists them. */
function useShortcuts(onHelp: () => void, onCommands: () => void) {
  const [, navigate] = useLocation();
  useEffect(() => {
    let before = "";
    const pages: Record<string, string> = { t: "/", a: "/approvals", r: "/runs", g: "/graphs", s: "/store", c: "/crons", u: "/usage", v: "/servers", l: "/logs", h: "/health", o: "/connect" };
    const onKey = (e: KeyboardEvent) => {
      if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key.toLowerCase() === "k") {
        if (document.querySelector("dialog[open]")) return;
        e.preventDefault(); // the browser's own search
        onCommands();
        return;
      }
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as HTMLElement).closest("input, textarea, select, dialog")) return;
      if (e.key === "/") {
        e.preventDefault();
        document.querySelector<HTMLInputElement>('[data-key="/"]')?.focus();
      } else if (e.key === "?") onHelp();
      else if (e.key === "e") [...document.querySelectorAll<HTMLElement>('[data-key="e"]')].at(-1)?.click(), e.preventDefault();
      else if (e.key === "n") navigate("/");
      else if (before === "g" && pages[e.key]) {
        navigate(pages[e.key]!);
        requestAnimationFrame(() => document.activeElement === document.body && focusPage());
      }
      before = before === "g" ? "" : e.key;
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [navigate, onCommands, onHelp]);
}
