#!/usr/bin/env python3
"""Sends the same random sequences of requests to two servers and lists where their answers differ.

  conformance/sequences.py REFERENCE SERVER [--seed N] [--count N] [--length N] [--jobs N] [--trace]

Both serve graphs/. Each sequence works on threads, assistants, crons and items of its own: it creates, runs, answers interrupts, forks, writes states,
copies, searches and deletes, in an order that depends on the seed only. Runs, checkpoints and crons are named by their place in the order of their
creation, so both servers get the same request.

Compared are status codes and whole bodies, of streams all events. What servers are free to choose (ids, times, versions) is replaced by the number
of its first appearance in the sequence. Of refusals only the status counts. A sequence ends at its first difference, and where LangGraph Server's
in-memory storage fails or it resets a connection.

Differences that docs/differences.md lists are left out, each by a rule of sequence_rules.py. The others are printed when they are found.
Give LangGraph Server as many jobs as run here (langgraph dev --n-jobs-per-worker 10): with one, a sequence takes a minute.

The exit code is 1 when there are differences.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import sys

import httpx

from sequence_requests import Sequence
from sequence_rules import Facts, broken, difference, explained, joining, normal, trim


class Server:
    """One of the two, as one sequence sees it."""

    def __init__(self, url):
        self.http = httpx.Client(base_url=url, timeout=60)
        self.names = {}
        self.runs = {}         # thread -> run ids, in the order of creation
        self.checkpoints = {}  # thread -> root checkpoint ids, oldest first
        self.crons = []        # ids, in the order of creation
        self.facts = {}        # thread -> Facts

    def normal(self, value):
        return normal(value, lambda text: self.names.setdefault(text.replace("-", ""), f"#{len(self.names)}"))

    def ask(self, request):
        body = self.filled(request.body)
        r = self.http.request(request.method, self.filled(request.path), params=request.params, headers=request.headers, **({} if body is None else {"json": body}))
        if "event-stream" in r.headers.get("content-type", ""):
            return r.status_code, self.normal(events(r.text))
        try:
            answer = r.json()
        except ValueError:
            return r.status_code, r.text
        if request.creates_cron and r.status_code == 200:
            self.crons.append(answer["cron_id"])
        return r.status_code, answer

    def filled(self, value):
        """Replaces references like {run:THREAD:N}, {checkpoint:THREAD:N} and {cron::N}."""
        if isinstance(value, dict):
            return {k: self.filled(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.filled(v) for v in value]
        if isinstance(value, str):
            def one(m):
                known = {"run": self.runs.get(m[2]), "checkpoint": self.checkpoints.get(m[2]), "cron": self.crons}[m[1]] or []
                n = int(m[3])
                return known[n] if -len(known) <= n < len(known) else "00000000-0000-4000-8000-00000000dead"
            return re.sub(r"\{(run|checkpoint|cron):([0-9a-f-]*):(-?\d+)\}", one, value)
        return value

    def look(self, thread):
        """Learns the runs and checkpoints of a thread."""
        for _ in range(3):
            try:
                r = self.http.get(f"/threads/{thread}/runs", params={"limit": 100})
                break
            except httpx.TransportError:
                pass
        self.runs[thread] = [x["run_id"] for x in sorted(r.json(), key=lambda x: x["created_at"])] if r.status_code == 200 else []
        r = self.http.post(f"/threads/{thread}/history", json={"limit": 1000})
        history = r.json() if r.status_code == 200 else []
        self.checkpoints[thread] = [x["checkpoint"]["checkpoint_id"] for x in reversed(history)]
        facts = self.facts.setdefault(thread, Facts())
        r = self.http.get(f"/threads/{thread}")
        facts.graph = facts.newest = (r.json()["metadata"].get("graph_id") if r.status_code == 200 else None) or ""
        newest = history[0]["metadata"] if history else {}
        facts.newest = newest.get("graph_id") or facts.graph
        facts.joining = bool(history) and joining(history[0])


def events(text):
    out = []
    for block in re.split(r"\r?\n\r?\n", text):
        event = data = None
        for line in block.splitlines():
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:"):
                data = line[5:].strip()
        if event:
            try:
                data = json.loads(data) if data else data
            except ValueError:
                pass
            out.append([event, data])
    return out


class Comparison:
    """One sequence, sent to both."""

    def __init__(self, reference, server, seed, pool, trace):
        self.seed = seed
        self.sequence = Sequence(seed)
        self.both = [Server(reference), Server(server)]
        self.pool = pool  # of threads: both are asked at the same time
        self.trace = trace
        self.asked = 0

    def run(self, length):
        """Reports the first difference, or None."""
        for n in range(length):
            request = self.sequence.next()
            answers = [job.result() for job in [self.pool.submit(self.ask, server, request) for server in self.both]]
            self.asked += 1
            (a, x), (b, y) = answers
            if self.trace:
                print(f"{self.seed}/{n} {a} {b} {request}", flush=True)
            if a is None or broken(request, a, x):
                return None
            self.learn(request, answers)
            if found := self.compare(request, a, x, b, y):
                where, was, is_ = found
                more = f"\n    {str(x)[:200]} | {str(y)[:200]}" if a != b else ""
                return f"seed {self.seed} step {n}: {request}\n  {where}: {json.dumps(was)[:300]} | {json.dumps(is_)[:300]}{more}"
        return None

    def ask(self, server, request):
        """The answer, with the status None when the reference reset the connection."""
        try:
            return server.ask(request)
        except httpx.HTTPError as exc:
            return None if isinstance(exc, httpx.TransportError) and server is self.both[0] else 0, repr(exc)

    def learn(self, request, answers):
        t = request.thread
        if not t:
            return
        if request.background:  # until it is over
            for server, (status, run) in zip(self.both, answers):
                if status == 200:
                    server.http.get(f"/threads/{t}/runs/{run['run_id']}/join")
        for server in self.both:
            server.look(t)
        self.both[0].facts[t].learn(request, answers[0][0], grew=len(self.both[0].checkpoints[t]) > self.sequence.counts.get(t, (0, 0))[1])
        self.sequence.counts[t] = len(self.both[0].runs[t]), len(self.both[0].checkpoints[t])

    def compare(self, request, a, x, b, y):
        facts = self.both[0].facts
        if a == b and 400 <= a < 500 or explained(request, facts, a):
            return None
        if a != b:
            return "status", a, b
        x, y = trim(request, facts, x, y)
        if found := difference(self.both[0].normal(x), self.both[1].normal(y)):
            return found
        was, is_ = ([len(server.runs[request.thread]), len(server.checkpoints[request.thread])] if request.thread else None for server in self.both)
        return ("runs and checkpoints after it", was, is_) if was != is_ else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("reference")
    p.add_argument("server")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--length", type=int, default=60)
    p.add_argument("--trace", action="store_true", help="print each request with the two status codes")
    p.add_argument("--jobs", type=int, default=6, help="sequences at the same time")
    args = p.parse_args()
    asked = differ = 0
    with concurrent.futures.ThreadPoolExecutor(2 * args.jobs) as requests, concurrent.futures.ThreadPoolExecutor(args.jobs) as sequences:
        def one(seed):
            comparison = Comparison(args.reference, args.server, seed, requests, args.trace)
            found = comparison.run(args.length)
            if found:
                print(found, flush=True)
            return comparison.asked, bool(found)
        for requests_of_one, found in sequences.map(one, range(args.seed, args.seed + args.count)):
            asked += requests_of_one
            differ += found
    print(f"{asked} requests, {differ} of {args.count} sequences differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
