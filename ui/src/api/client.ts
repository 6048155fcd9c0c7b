import { readEvents, type StreamEvent } from "./events";

/** Where the API is: next to the pages, also behind a prefix. */
export const apiURL = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** An answer other than success. The message says what the server says. */
export class APIError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** A server that does not answer. */
export class Silent extends APIError {
  constructor() {
    super(0, `The server at ${apiURL} does not answer. See that it runs; what you typed is kept.`);
  }
}

/** Why a request was refused: it had no credentials, or which the server does not accept. */
export type Refusal = "none" | "x-api-key" | "authorization";

/** Credentials are kept in memory, and end with the page. */
let credentials: Record<string, string> = {};
let onRefused: (refusal: Refusal) => void = () => {};

export function signIn(headers: Record<string, string>) {
  credentials = headers;
}

/** What the server reads beside the cookie of a session, which scripts cannot see: it proves that this page sends the request. */
function csrf(): string {
  return document.cookie.match(/(?:^|; )understudy_csrf=([^;]*)/)?.[1] ?? "";
}

/** Whether someone signed in at a provider, in this browser. */
export const hasSession = () => csrf() !== "" && Object.keys(credentials).length === 0;

/** The ways to sign in that the server offers. One that does not say it may accept either kind of credentials. */
export interface SignInMethods {
  api_key: boolean;
  token: boolean;
  providers: { name: string; login: string }[];
}

export async function signInMethods(): Promise<SignInMethods> {
  const response = await fetch(apiURL + "/auth/methods").catch(() => null);
  return response?.ok ? ((await response.json()) as SignInMethods) : { api_key: true, token: true, providers: [] };
}

/** Ends the session of this browser. */
export const signOut = () => request<null>("POST", "/auth/logout");

/** Differs between users, and does not show their credentials. */
export function credentialsKey(): string {
  let hash = 5381;
  for (const c of JSON.stringify(credentials) + csrf()) hash = (hash * 33 + c.charCodeAt(0)) >>> 0;
  return hash.toString(36);
}

/** Whose credentials these are, as far as the page can tell: the subject of a token, which outlives it, or else what differs between users. */
export function whose(): string {
  try {
    const { iss, sub } = JSON.parse(atob((credentials.authorization ?? "").split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/"))) as { iss?: string; sub?: string };
    if (sub) return `${iss ?? ""} ${sub}`;
  } catch {
    // no token, or not one that says who it is of
  }
  return credentialsKey();
}

/** Registers what happens when the server asks for credentials. */
export function whenRefused(then: (refusal: Refusal) => void) {
  onRefused = then;
}

export interface Options {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  opened?: (headers: Headers) => void; // called when a stream is open
  heard?: () => void; // called for whatever comes of it, heartbeats too
}

async function send(method: string, path: string, { body, headers, signal }: Options): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(apiURL + path, {
      method,
      headers: { ...credentials, ...(hasSession() ? { "x-csrf-token": csrf() } : {}), ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Silent();
  }
  if (response.ok) return response;
  if (response.status === 401) onRefused((Object.keys(credentials)[0] as Refusal | undefined) ?? "none");
  throw new APIError(response.status, await reason(response));
}

async function reason(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    if (typeof detail === "string") return detail;
    if (detail) return JSON.stringify(detail);
  } catch {
    // not JSON
  }
  return text.slice(0, 300) || `The server answered with status ${response.status}.`;
}

/** Sends a request and returns its answer; null when it has none. */
export async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  const text = await response.text();
  return (text === "" ? null : JSON.parse(text)) as T;
}

/** Sends a GET request and returns the bytes of its answer, for what is read elsewhere. */
export const getBytes = async (path: string, signal?: AbortSignal): Promise<ArrayBuffer> => (await send("GET", path, { signal })).arrayBuffer();

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, { signal });
export const post = <T>(path: string, body: unknown, signal?: AbortSignal) => request<T>("POST", path, { body, signal });

/** Opens a stream. It is open when the promise resolves; its events follow. */
export async function open(path: string, options: Options = {}): Promise<AsyncGenerator<StreamEvent>> {
  const response = await send("GET", path, { ...options, headers: { accept: "text/event-stream", ...options.headers } });
  if (!response.body) throw new APIError(0, "The browser cannot read streams.");
  options.opened?.(response.headers);
  return readEvents(response.body, options.heard);
}
