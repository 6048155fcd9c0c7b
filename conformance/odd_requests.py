#!/usr/bin/env python3
"""Sends odd requests to two servers and lists where their answers differ.

  conformance/odd_requests.py REFERENCE SERVER [PATH…]

Both serve graphs/. The requests come from the OpenAPI description of the reference, LangGraph Server as a rule: each property of each body
and each query parameter, one at a time, is absent, null, empty, of a wrong type, or out of bounds, in a request that is valid otherwise.
PATH restricts the routes to those that contain one of them.

Compared are the status codes (those of the same hundred count as one, but for 4xx), the error of a run that was waited for or streamed, and
the number of rows of a list that belongs to one thread.

Each line is: method and path, what was odd, the outcomes of the reference and of the server, and the beginning of both answers.
The exit code is 1 when there are differences.
"""
from __future__ import annotations

import concurrent.futures
import json
import re
import sys
import time
import uuid

import httpx

ODD = [None, "", "x", 0, -1, 1.5, True, False, [], ["x"], [None], {}, {"x": 1}, "00000000-0000-4000-8000-000000000000", 10**6]
ODD_QUERY = ["", "x", "0", "-1", "1.5", " 1 ", "1_0", "+1", "1000", "1001", "99999999999999999999", "true", "null", "[]", "00000000-0000-4000-8000-000000000000"]
# Streams that do not end, other protocols, and what acts on all that a server has.
SKIP = re.compile(r"\{thread_id\}/stream|/commands|^/internal|^/a2a|^/mcp|^/metrics|^/runs/cancel|^/docs|^/openapi|/prune$")
# Query parameters that the reference reads although its description omits them.
MORE_QUERY = {"get /threads/{thread_id}/history": ["limit", "before"], "get /threads/{thread_id}/runs": ["limit", "offset", "status", "select"],
              "get /threads/{thread_id}": ["include"]}
WORKERS = 6
# A request that waits for a delayed run gets no answer.
PATIENCE_SECONDS = 12


class Server:
    """A server and the ids of what was made on it for the requests."""

    def __init__(self, url):
        self.http = httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_connections=2 * WORKERS))

    def request(self, method, path, **request):
        """Sends a request, again when the server closed the connection while it was sent, as LangGraph Server does after some errors."""
        for _ in range(3):
            try:
                with self.http.stream(method, path, **request) as r:
                    return self.read(r)
            except httpx.TimeoutException:
                raise
            except httpx.TransportError as exc:
                broken = exc
        raise broken

    def read(self, r):
        """Reads an answer. Heartbeats of a stream do not prolong the patience."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        body = b""
        for chunk in r.iter_bytes():
            body += chunk
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("the stream does not end")
        return httpx.Response(r.status_code, headers={"content-type": r.headers.get("content-type", "")}, content=body, request=r.request)

    def post(self, path, body):
        r = self.request("POST", path, json=body)
        r.raise_for_status()
        return r.json()

    def fresh(self, path):
        """Fills the parameters of a path with new resources."""
        if "{thread_id}" in path:
            thread = self.post("/threads", {"metadata": {"graph_id": "echo"}})["thread_id"]
            if "{run_id}" in path:
                run = self.post(f"/threads/{thread}/runs", {"assistant_id": "echo", "input": {"n": 1}})["run_id"]
                self.request("GET", f"/threads/{thread}/runs/{run}/join")
                path = path.replace("{run_id}", run)
            elif "checkpoint" in path or path.endswith(("/state", "/history")):
                for n in (1, 2):
                    checkpoint = self.post(f"/threads/{thread}/state", {"values": {"n": n}})["checkpoint"]["checkpoint_id"]
                path = path.replace("{checkpoint_id}", checkpoint)
            path = path.replace("{thread_id}", thread)
        if "{assistant_id}" in path:
            path = path.replace("{assistant_id}", self.post("/assistants", {"graph_id": "echo"})["assistant_id"])
        if "{cron_id}" in path:
            path = path.replace("{cron_id}", self.post("/runs/crons", {"assistant_id": "echo", "schedule": "0 0 1 1 *", "input": {"n": 1}})["cron_id"])
        return path.replace("{namespace}", "thread").replace("{run_id}", str(uuid.uuid4()))

    def ask(self, method, path, **request):
        """Returns the outcome, and the beginning of the answer."""
        try:
            r = self.request(method, self.fresh(path), **request)
        except httpx.TimeoutException:
            return "none", ""
        except httpx.HTTPError as exc:
            return "broken", repr(exc)
        return outcome(path, r), r.text[:100]


def outcome(path, r):
    if 400 <= r.status_code < 500:
        return str(r.status_code)
    said = str(r.status_code // 100)
    if r.status_code != 200:
        return said
    if "event: error" in r.text:
        data = re.search(r"event: error\r?\ndata: (.*)", r.text)
        return f"{said} {json.loads(data[1]).get('error')}"
    if "text/event-stream" in r.headers.get("content-type", ""):
        return said
    body = r.json()
    if isinstance(body, dict) and "__error__" in body:
        return f"{said} {body['__error__'].get('error')}"
    if isinstance(body, list) and "{thread_id}" in path:
        return f"{said} {len(body)} rows"
    return said


def resolve(spec, schema):
    while "$ref" in schema:
        schema = json.loads(json.dumps(_at(spec, schema["$ref"])))
    if "allOf" in schema:
        merged = {"properties": {}, "required": []}
        for part in schema["allOf"]:
            part = resolve(spec, part)
            merged["properties"] |= part.get("properties", {})
            merged["required"] += part.get("required", [])
        merged["properties"] |= schema.get("properties", {})
        return merged
    return schema


def _at(spec, ref):
    for part in ref.removeprefix("#/").split("/"):
        spec = spec[part]
    return spec


VALID = {"assistant_id": "echo", "graph_id": "echo", "schedule": "0 0 1 1 *", "version": 1, "namespace": ["odd"], "key": "k", "value": {"v": 1},
         "namespace_prefix": ["odd"], "thread_id": None, "run_id": None, "checkpoint": {"checkpoint_ns": ""}, "values": {"n": 1}}


def valid(required):
    return {name: VALID[name] for name in required if VALID.get(name) is not None}


def bodies(spec, path, schema):
    """Yields what is odd, and the body."""
    schema = resolve(spec, schema)
    if schema.get("type") == "array":  # of a batch
        first = None
        for odd, body in bodies(spec, path, schema["items"]):
            first = first or body
            yield odd, [body]
        yield "the second", [first, None]
        yield from ((f"body={json.dumps(odd)}", odd) for odd in (None, [], {}, "x", 0))
        return
    body = valid(schema.get("required", []))
    if path.endswith(("/state", "/runs", "/wait", "/stream", "/batch", "/crons")):
        body |= {"input": {"n": 1}} if "/runs" in path else {"values": {"n": 1}}
    if path == "/store/items/search":  # without a prefix LangGraph Server answers 500
        body["namespace_prefix"] = VALID["namespace_prefix"]
    yield "nothing", body
    for name, inner in schema.get("properties", {}).items():
        inner = resolve(spec, inner)
        options = [inner, *(resolve(spec, o) for k in ("anyOf", "oneOf") for o in inner.get(k, []))]
        for odd in ODD:
            yield f"{name}={json.dumps(odd)}", body | {name: odd}
        for deep in {d: None for o in options for d in o.get("properties", {})}:
            for odd in ODD:
                yield f"{name}.{deep}={json.dumps(odd)}", body | {name: {deep: odd}}
        for value in {v: None for o in options for v in o.get("enum", []) if isinstance(v, str)}:
            yield f"{name}={json.dumps(value)}", body | {name: value}
    for name in schema.get("required", []):
        yield f"no {name}", {k: v for k, v in body.items() if k != name}
    yield from ((f"body={json.dumps(odd)}", odd) for odd in (None, [], "x", 0))


def requests(spec, only):
    """Yields method, path, what is odd, and the request."""
    for path, methods in spec["paths"].items():
        for method, route in methods.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            if SKIP.search(path) or only and not any(part in path for part in only):
                continue
            schema = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            body = None
            if schema is not None:
                for odd, asked in bodies(spec, path, schema):
                    body = asked if odd == "nothing" else body
                    yield method, path, odd, {"json": asked}
            plain = {"json": body} if body is not None else {}
            if schema is None:
                yield method, path, "nothing", {}
            parameters = [resolve(spec, p) for p in route.get("parameters", [])]
            names = [p["name"] for p in parameters if p.get("in") == "query"]
            for name in dict.fromkeys(names + MORE_QUERY.get(f"{method} {path}", [])):
                for odd in ODD_QUERY:
                    yield method, path, f"?{name}={odd}", {"params": {name: odd}} | plain
            for name in re.findall(r"\{(\w+)\}", path):
                for odd in ("x", "00000000-0000-4000-8000-000000000000"):
                    yield method, path.replace("{" + name + "}", odd), f"path {name}={odd}", plain


def main():
    reference, server = map(Server, sys.argv[1:3])
    spec = reference.http.get("/openapi.json").json()

    def compare(case):
        method, path, odd, request = case
        return case, [s.ask(method, path, **request) for s in (reference, server)]

    asked = differ = 0
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for (method, path, odd, _), ((a, there), (b, here)) in pool.map(compare, requests(spec, sys.argv[3:])):
            asked += 1
            if a != b:
                differ += 1
                print(f"{method.upper()} {path} {odd}: {a} {b} | {there!r} | {here!r}", flush=True)
    print(f"{asked} requests, {differ} differences")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
