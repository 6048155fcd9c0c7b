"""Errors of the API beside an application with exception handlers; serve `app/errors.json`, `app/errors-auth-first.json` or `app/errors-bare.json`."""
import os

import httpx
import pytest
from conftest import NO_SUCH
from helpers import BASE_URL

HERE = os.environ.get("DEPLOYMENT", "")
pytestmark = pytest.mark.deployment(HERE if HERE.startswith("app/errors") else "app/errors.json")
BARE = HERE == "app/errors-bare.json"


@pytest.fixture
async def http():
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=30, headers={"authorization": "Bearer ann"}) as session:
        yield session


@pytest.mark.parametrize("method, path, body, status, problem", [
    ("GET", "/app/fails", None, 418, "of a route"),
    ("GET", "/threads/nonsense", None, 422, "Invalid thread ID: must be a UUID"),
    ("POST", "/runs/wait", {"assistant_id": NO_SUCH}, 404, "Thread or assistant not found."),
    ("GET", f"/threads/{NO_SUCH}", None, 404, f"Thread with ID {NO_SUCH} not found"),
    ("POST", "/threads", {"metadata": {"refuse": 403}}, 403, "told to"),
    ("POST", "/threads", {"metadata": {"refuse": 409}}, 409, "told to"),
    ("POST", "/threads", {"metadata": {"refuse": 503}}, 503, "told to"),
])
async def test_handlers_answer(http, method, path, body, status, problem):
    r = await http.request(method, path, json=body)
    assert r.status_code == status
    assert r.json() == ({"missing": path} if BARE and status == 404 else {"problem": problem})
    if problem == "told to":
        assert r.headers["x-told"] == "yes"


async def test_a_path_that_there_is_not(http):
    if HERE == "app/errors-auth-first.json":
        pytest.skip("LangGraph Server raises there")
    r = await http.get("/nowhere")
    assert (r.status_code, r.json()) == (404, {"missing": "/nowhere"} if BARE else {"problem": "Not Found"})


async def test_what_they_do_not_see(http):
    """Refusals of authenticate, and of schemas."""
    r = await http.get("/threads/nonsense", headers={"authorization": ""})
    assert (r.status_code, r.json()) == (401, {"detail": "Who are you?"})
    r = await http.post("/threads/search", json={"limit": "x"})
    assert r.status_code == 422 and set(r.json()) == {"detail"}


async def test_what_works(http):
    thread = (await http.post("/threads", json={})).json()["thread_id"]
    assert (await http.get(f"/threads/{thread}")).json()["thread_id"] == thread
    assert (await http.post(f"/threads/{thread}/runs/wait", json={"assistant_id": "echo", "input": {"n": 1}})).status_code == 200
    async with http.stream("POST", f"/threads/{thread}/runs/stream", json={"assistant_id": "echo", "input": {"n": 1}}) as r:
        assert r.status_code == 200 and "event: values" in (await r.aread()).decode()


@pytest.mark.skipif(BARE, reason="it has no middleware")
async def test_middleware_sees_who_sent_a_request(http):
    before = "ann" if HERE == "app/errors-auth-first.json" else "nobody"
    r = await http.post("/threads/search", json={})
    assert (r.status_code, r.headers["x-who"]) == (200, f"{before}, ann")
    assert (await http.get(f"/threads/{NO_SUCH}")).headers["x-who"] == f"{before}, ann"
    assert (await http.get("/ok")).headers["x-who"] == "nobody, nobody"
