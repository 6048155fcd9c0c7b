#!/usr/bin/env python3
"""Sends odd requests to two servers and lists where their status codes differ.

  conformance/odd_requests.py REFERENCE SERVER [PATH…]

Both serve graphs/. The requests come from the OpenAPI description of the reference, LangGraph Server as a rule: each property of each body
and each query parameter, one at a time, is absent, null, empty, of a wrong type, or out of bounds, in a request that is valid otherwise.
PATH restricts the routes to those that contain one of them. Status codes of the same hundred are not compared, but for 4xx.

Each line is: method and path, what was odd, the status codes of the reference and of the server, and the beginning of both answers.
The exit code is 1 when there are differences.
"""
from __future__ import annotations

import json
import re
import sys
import uuid

import httpx

ODD = [None, "", "x", 0, -1, 1.5, True, False, [], ["x"], [None], {}, {"x": 1}, "00000000-0000-4000-8000-000000000000", 10**6]
# Long streams, and what acts on all that a server has.
SKIP = re.compile(r"/stream$|/stream/|/commands|^/internal|^/a2a|^/mcp|^/metrics|^/runs/cancel|^/docs|^/openapi|/prune$")


class Server:
    """A server and the ids of what was made on it for the requests."""

    def __init__(self, url):
        self.http = httpx.Client(base_url=url, timeout=60)

    def post(self, path, body):
        r = self.http.post(path, json=body)
        r.raise_for_status()
        return r.json()

    def fresh(self, path):
        """Fills the parameters of a path with new resources."""
        if "{thread_id}" in path:
            thread = self.post("/threads", {"metadata": {"graph_id": "echo"}})["thread_id"]
            if "checkpoint" in path or "{run_id}" in path or path.endswith(("/state", "/history")):
                run = self.post(f"/threads/{thread}/runs", {"assistant_id": "echo", "input": {"n": 1}})["run_id"]
                self.http.get(f"/threads/{thread}/runs/{run}/join")
                path = path.replace("{run_id}", run)
                if "{checkpoint_id}" in path:
                    path = path.replace("{checkpoint_id}", self.http.get(f"/threads/{thread}/state").json()["checkpoint"]["checkpoint_id"])
            path = path.replace("{thread_id}", thread)
        if "{assistant_id}" in path:
            path = path.replace("{assistant_id}", self.post("/assistants", {"graph_id": "echo"})["assistant_id"])
        if "{cron_id}" in path:
            path = path.replace("{cron_id}", self.post("/runs/crons", {"assistant_id": "echo", "schedule": "0 0 1 1 *", "input": {"n": 1}})["cron_id"])
        return path.replace("{namespace}", "thread").replace("{run_id}", str(uuid.uuid4()))

    def ask(self, method, path, **request):
        return self.http.request(method, self.fresh(path), **request)


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


def requests(spec, only):
    """Yields method, path, what is odd, and the request."""
    for path, methods in spec["paths"].items():
        if SKIP.search(path) or only and not any(part in path for part in only):
            continue
        for method, route in methods.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            schema = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            body = None
            if schema is not None:
                schema = resolve(spec, schema)
                body = valid(schema.get("required", []))
                if path.endswith(("/state", "/runs", "/wait", "/batch")):
                    body |= {"input": {"n": 1}} if "/runs" in path else {"values": {"n": 1}}
                yield method, path, "nothing", {"json": body}
                for name, inner in schema.get("properties", {}).items():
                    for odd in ODD:
                        yield method, path, f"{name}={json.dumps(odd)}", {"json": body | {name: odd}}
                    inner = resolve(spec, inner)
                    for deep in inner.get("properties", {}):
                        for odd in ODD:
                            yield method, path, f"{name}.{deep}={json.dumps(odd)}", {"json": body | {name: {deep: odd}}}
                for name in schema.get("required", []):
                    yield method, path, f"no {name}", {"json": {k: v for k, v in body.items() if k != name}}
                for odd in (None, [], "x", 0):
                    yield method, path, f"body={json.dumps(odd)}", {"json": odd}
            for parameter in route.get("parameters", []):
                parameter = resolve(spec, parameter)
                if parameter.get("in") == "query":
                    for odd in ("", "x", "0", "-1", "1.5", "true", "null", "[]"):
                        yield method, path, f"?{parameter['name']}={odd}", {"params": {parameter["name"]: odd}} | ({"json": body} if body is not None else {})
                elif parameter.get("in") == "path":
                    for odd in ("x", "00000000-0000-4000-8000-000000000000"):
                        yield method, path.replace("{" + parameter["name"] + "}", odd), f"path {parameter['name']}={odd}", {"json": body} if body is not None else {}


def kind(status):
    return status if 400 <= status < 500 else status // 100


def main():
    reference, server = map(Server, sys.argv[1:3])
    spec = reference.http.get("/openapi.json").json()
    asked = differ = 0
    for method, path, odd, request in requests(spec, sys.argv[3:]):
        try:
            a, b = (s.ask(method, path, **request) for s in (reference, server))
        except httpx.HTTPError as exc:
            print(f"{method.upper()} {path} {odd}: {exc!r}", flush=True)
            continue
        asked += 1
        if kind(a.status_code) != kind(b.status_code):
            differ += 1
            print(f"{method.upper()} {path} {odd}: {a.status_code} {b.status_code} | {a.text[:90]!r} | {b.text[:90]!r}", flush=True)
    print(f"{asked} requests, {differ} differences")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
