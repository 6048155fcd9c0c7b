"""Idempotency-Key, an addition of this project: a request that is repeated creates nothing more. On a cluster each request goes to another server."""
import asyncio
import json
import uuid

import pytest


def headers(key=None):
    return {"Idempotency-Key": key or uuid.uuid4().hex}


async def test_a_repeated_thread(http):
    key = headers()
    body = {"metadata": {"n": 1}}
    all = await asyncio.gather(*[http.post("/threads", json=body, headers=key) for _ in range(10)])
    assert {r.status_code for r in all} == {200} and len({r.json()["thread_id"] for r in all}) == 1
    assert sum("idempotent-replayed" not in r.headers for r in all) == 1
    assert (await http.post("/threads", json={"metadata": {"n": 2}}, headers=key)).status_code == 422
    assert (await http.post("/threads", json=body, headers=headers())).json()["thread_id"] != all[0].json()["thread_id"]
    await http.delete(f"/threads/{all[0].json()['thread_id']}")
    assert (await http.post("/threads", json=body, headers=key)).status_code == 409


async def test_repeated_runs_of_a_thread(http, client, thread):
    key, body = headers(), {"assistant_id": "ticker", "input": {"steps": 5, "delay": 0.1}}
    path = f"/threads/{thread}/runs"
    background, again, waited = await asyncio.gather(http.post(path, json=body, headers=key), http.post(path, json=body, headers=key), http.post(f"{path}/wait", json=body, headers=key))
    assert background.json()["run_id"] == again.json()["run_id"]
    assert waited.json()["items"] == [f"t{n}" for n in range(5)]
    # A stream that comes late has the run's end.
    streamed = await http.post(f"{path}/stream", json=body, headers=key)
    assert streamed.status_code == 200 and background.json()["run_id"] in streamed.headers["content-location"]
    assert [r["run_id"] for r in await client.runs.list(thread)] == [background.json()["run_id"]]
    assert (await http.post(path, json=body | {"input": {"steps": 6}}, headers=key)).status_code == 422


async def test_a_stream_is_joined(http, thread):
    key, body = headers(), {"assistant_id": "ticker", "input": {"steps": 5, "delay": 0.1}, "stream_mode": "updates", "stream_resumable": True}

    async def events():
        r = await http.post(f"/threads/{thread}/runs/stream", json=body, headers=key)
        return [line for line in r.text.splitlines() if line.startswith("data: ")]

    first, second = await asyncio.gather(events(), events())
    assert first == second and len(first) == 7
    assert await events() == first, "also of a run that is over"


async def test_repeated_commands(http, client, thread):
    """Of event streaming, whose commands make runs too."""
    key = headers()
    command = {"id": 1, "method": "run.start", "params": {"assistant_id": "echo", "input": {"n": 1}}}
    path = f"/threads/{thread}/commands"
    all = await asyncio.gather(*[http.post(path, json=command, headers=key) for _ in range(5)])
    assert len({r.json()["result"]["run_id"] for r in all}) == 1
    assert sum("idempotent-replayed" not in r.headers for r in all) == 1
    assert len(await client.runs.list(thread)) == 1
    refused = (await http.post(path, json=command | {"id": 2}, headers=key)).json()
    assert refused["type"] == "error" and "Idempotency-Key" in refused["message"]
    assert (await http.post(path, json=command, headers=headers())).json()["result"]["run_id"] != all[0].json()["result"]["run_id"]


@pytest.mark.parametrize("path", ["/runs", "/runs/wait", "/runs/stream", "/runs/batch"])
async def test_a_stateless_run_is_not_executed_again(http, path):
    key, body = headers(), {"assistant_id": "echo", "input": {"n": 1}}
    sent = [body, body] if path == "/runs/batch" else body
    assert (await http.post(path, json=sent, headers=key)).status_code == 200
    async with asyncio.timeout(20):
        while (r := await http.post(path, json=sent, headers=key)).status_code != 409:
            assert r.status_code == 200
            await asyncio.sleep(0.05)
    assert "nothing of it is kept" in r.json()["detail"]


@pytest.mark.parametrize("key", ["x" * 256, "a\tb"])
async def test_bad_keys(http, key):
    r = await http.post("/threads", json={}, headers=headers(key))
    assert r.status_code == 422 and "1 to 255" in json.dumps(r.json())
