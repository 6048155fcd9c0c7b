"""Event streaming on two servers with one Postgres and one Redis, of which one is killed while its sockets are open."""
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import uuid

import httpx
import pytest
from moving import BINARY, GRAPHS, clean_environment, wait_ready
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import databases

# One server is killed, and at make test-all one more each time, at any moment of a run.
ROUNDS = 8 if os.environ.get("UNDERSTUDY_TEST_ALL") else 1
SEED = int(os.environ.get("SEED", "1"))
CHANNELS = ["values", "updates", "messages", "lifecycle", "tasks", "checkpoints"]


class Server:
    def __init__(self, name, flags, log):
        command = [BINARY, "serve", "--config", GRAPHS / "langgraph.json", *([] if "--port" in flags else ["--port", "0"]), "--python", sys.executable, "--workers", "1", "--lease", "3s", *flags]
        self.log = open(log / f"{name}.log", "ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=clean_environment(), start_new_session=True)
        line = self.process.stdout.readline()
        self.url = re.fullmatch(r"understudy listening on (\S+)\n", line)[1]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        wait_ready(self.process, self.url)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(60)
        self.log.close()


@pytest.fixture(scope="module")
def flags():
    if databases.initdb() is None or not shutil.which("redis-server"):
        pytest.fail("there is no Postgres or no Redis; on Debian: apt-get install postgresql redis-server")
    with databases.postgres() as new, databases.redis() as redis:
        yield ["--database-url", new(), "--redis-url", redis]


class Client:
    """Reads the events of a thread, and resumes after the last one on another server when its own is gone."""

    def __init__(self, tid, transport, enough=20):
        self.tid, self.transport, self.enough, self.events, self.resumed = tid, transport, enough, [], 0

    @property
    def last(self):
        return self.events[-1]["seq"] if self.events else 0

    def ended(self):
        return any(e["method"] == "lifecycle" and not e["params"]["namespace"] and e["params"]["data"]["event"] in ("completed", "failed", "interrupted")
                   for e in self.events)

    async def read(self, urls, seen: asyncio.Event):
        for url in [*urls, *urls, *urls]:
            with contextlib.suppress(ConnectionClosed, OSError, httpx.HTTPError):
                await (self.sse(url, seen) if self.transport == "sse" else self.socket(url, seen))
            if self.ended():
                return
            self.resumed += 1
        raise AssertionError("the run did not end")

    def take(self, message, seen):
        assert message["type"] == "event", message
        self.events.append(message)
        if sum(e["method"] == "messages" for e in self.events) > self.enough:
            seen.set()
        return self.ended()

    async def sse(self, url, seen):
        async with httpx.AsyncClient(timeout=60) as http:
            body = {"channels": CHANNELS, **({"since": self.last} if self.events else {})}
            async with http.stream("POST", f"{url}/threads/{self.tid}/stream/events", json=body) as r:
                async for line in r.aiter_lines():
                    if line.startswith("data: ") and self.take(json.loads(line[6:]), seen):
                        return

    async def socket(self, url, seen):
        async with connect(f"{url.replace('http', 'ws', 1)}/threads/{self.tid}/stream/events", max_size=None) as ws:
            await ws.send(json.dumps({"id": 1, "method": "subscription.reconnect", "params": {"channels": CHANNELS, "since": self.last}}))
            async for message in ws:
                message = json.loads(message)
                if message.get("id") == 1:
                    assert message["type"] == "success", message
                elif self.take(message, seen):
                    return


def test_a_server_is_killed_with_open_streams(flags, tmp_path):
    """Whichever server executes the run, and whichever is killed: each client has every event once, as one has who reads the whole thread afterwards."""

    async def go(a, b, victim, enough):
        tid = str(uuid.uuid4())
        clients = [Client(tid, transport, enough) for transport in ("sse", "websocket") for _ in (a, b)]
        seen = [asyncio.Event() for _ in clients]
        readers = [asyncio.create_task(c.read([a.url, b.url] if i % 2 == 0 else [b.url, a.url], seen[i])) for i, c in enumerate(clients)]
        async with httpx.AsyncClient(timeout=60) as http:
            start = {"id": 1, "method": "run.start", "params": {"assistant_id": "tokens", "input": {"messages": [{"role": "user", "content": "say 1500"}]}}}
            assert (await http.post(f"{a.url}/threads/{tid}/commands", json=start)).json()["type"] == "success"
            await asyncio.wait_for(asyncio.gather(*(s.wait() for s in seen)), 30)
            victim.kill()
            left = b if victim is a else a
            await asyncio.wait_for(asyncio.gather(*readers), 60)
            whole = Client(tid, "sse")
            await asyncio.wait_for(whole.read([left.url], asyncio.Event()), 30)
        said = "".join(e["params"]["data"]["delta"]["text"] for e in whole.events
                       if e["method"] == "messages" and e["params"]["data"]["event"] == "content-block-delta")
        assert said.endswith(" ".join(f"w{i}" for i in range(1500)))
        assert sum(c.resumed for c in clients) >= 2, "some were connected to the server that was killed"
        for c in clients:
            assert [(e["seq"], e["event_id"]) for e in c.events] == [(e["seq"], e["event_id"]) for e in whole.events], c.transport
            assert c.events == whole.events

    chance = random.Random(SEED)
    servers = [Server("a", flags, tmp_path), Server("b", flags, tmp_path)]
    try:
        for n in range(ROUNDS):
            pair = servers[-2:]
            victim = pair[0] if n == 0 else chance.choice(pair)  # the first one most likely executes the run
            asyncio.run(go(*pair, victim, 20 if n == 0 else chance.randrange(1400)))
            if victim is pair[0]:
                pair.reverse()
            servers = [s for s in servers if s not in pair] + pair[:1]
            if n + 1 < ROUNDS:
                servers.append(Server(f"c{n}", flags, tmp_path))
    finally:
        for s in servers:
            if s.process.poll() is None:
                s.kill(signal.SIGTERM)
