"""Event streaming of one server that is killed and started again: it has not written the last events that it has shown."""
from __future__ import annotations

import contextlib
import json
import os
import threading
import uuid

import httpx
import pytest
from databases import free_port
from test_two_servers import Server

CHANNELS = ["values", "updates", "messages", "lifecycle", "tasks", "checkpoints"]
WORDS = 1500


class Reader(threading.Thread):
    """Reads the events of a thread until the run or the server ends."""

    def __init__(self, url: str, tid: str, since: int | None = None, enough: int | None = None):
        super().__init__(daemon=True)
        self.url, self.tid, self.since, self.enough = url, tid, since, enough
        self.events, self.gaps, self.seen = [], [], threading.Event()
        self.start()

    def run(self) -> None:
        body = {"channels": CHANNELS} | ({} if self.since is None else {"since": self.since})
        with contextlib.suppress(httpx.HTTPError), httpx.stream("POST", f"{self.url}/threads/{self.tid}/stream/events", json=body, timeout=60) as r:
            for line in r.iter_lines():
                if not line.startswith("data: "):
                    continue
                e = json.loads(line[6:])
                (self.events if e["type"] == "event" else self.gaps).append(e)
                if len(self.events) == self.enough:
                    self.seen.set()
                if e["type"] == "event" and e["method"] == "lifecycle" and not e["params"]["namespace"] and e["params"]["data"]["event"] == "completed":
                    return

    def whole(self) -> list[dict]:
        self.join(60)
        assert not self.is_alive(), f"no end after {len(self.events)} events"
        return self.events


@pytest.mark.parametrize("enough", [400, 2, 30, 1000] if os.environ.get("UNDERSTUDY_TEST_ALL") else [400])
def test_what_is_shown_after_a_kill_is_not_taken_for_what_was_lost(tmp_path, enough):
    """A client that resumes by seq, and one that replays everything and drops what it knows by event_id, each see the second attempt whole."""
    flags = ["--data", tmp_path / "data", "--port", str(free_port())]
    server = Server("a", flags, tmp_path)
    try:
        tid = str(uuid.uuid4())
        live = Reader(server.url, tid, enough=enough)
        start = {"id": 1, "method": "run.start", "params": {"assistant_id": "tokens", "input": {"messages": [{"role": "user", "content": f"say {WORDS}"}]}}}
        assert httpx.post(f"{server.url}/threads/{tid}/commands", json=start, timeout=30).json()["type"] == "success"
        assert live.seen.wait(30)
        server.kill()
        seen = live.whole()
        server = Server("b", flags, tmp_path)
        resumed = Reader(server.url, tid, since=seen[-1]["seq"])
        whole = Reader(server.url, tid).whole()
        resumed.whole()
    finally:
        server.kill()

    known = {e["event_id"]: e for e in seen}
    for e in whole:
        assert known.get(e["event_id"], e) == e, "an id that was another event's"
    assert len({e["seq"] for e in [*seen, *whole]}) == len(known.keys() | {e["event_id"] for e in whole}), "a seq that was another event's"
    lost = known.keys() - {e["event_id"] for e in whole}
    assert [e["error"] for e in resumed.gaps] == (["resume_gap"] if lost else [])
    assert resumed.events == [e for e in whole if e["seq"] > seen[-1]["seq"]]
    deltas = [e["params"]["data"]["delta"]["text"] for e in resumed.events if e["method"] == "messages" and e["params"]["data"]["event"] == "content-block-delta"]
    assert "".join(deltas) == " ".join(f"w{i}" for i in range(WORDS))
