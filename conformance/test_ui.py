"""Components of graphs (`ui` of langgraph.json): the tags that load them, their assets, and the messages that show them."""
import html
import json
import os
import time

import httpx
import pytest
from langgraph_sdk import get_client

BASE_URL = os.environ.get("BASE_URL", "http://127.0.0.1:2024")
pytestmark = pytest.mark.deployment("ui/langgraph.json")


@pytest.fixture(scope="module")
def api():
    with httpx.Client(base_url=BASE_URL, timeout=30) as client:
        deadline = time.monotonic() + 90  # LangGraph Server bundles beside its start, with what it gets from npm
        while client.post("/ui/weather", json={"name": "weather"}).status_code == 404 and time.monotonic() < deadline:
            time.sleep(0.5)
        yield client


def tags(graph: str, variable: str, name: str, style: bool) -> str:
    quoted = html.escape(json.dumps(name))
    script = f"""<script src="/ui/{graph}/entrypoint.js" onload='__LGUI_{variable}.render({quoted}, "{{{{shadowRootId}}}}")'></script>"""
    return script + (f'\n<link rel="stylesheet" href="/ui/{graph}/entrypoint.css" />' if style else "")


def test_tags(api):
    r = api.post("/ui/weather", json={"name": "weather"})
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/html")
    assert r.text == tags("weather", "weather", "weather", style=True)


def test_tags_of_other_names(api):
    assert api.post("/ui/my%20weather", json={"name": "any"}).text == tags("my%20weather", "my_weather", "any", style=False)


def test_names_cannot_break_out(api):
    name = """"><script>alert(1)</script>'&\\"""
    assert api.post("/ui/weather", json={"name": name}).text == tags("weather", "weather", name, style=True)


def test_assets(api):
    script = api.get("/ui/weather/entrypoint.js")
    assert script.status_code == 200 and script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "__LGUI_weather" in script.text and 'Symbol.for("LGUI_REQUIRE")' in script.text and "degrees" in script.text
    style = api.get("/ui/weather/entrypoint.css")
    assert style.status_code == 200 and style.headers["content-type"] == "text/css; charset=utf-8"
    assert ".weather" in style.text


def test_assets_are_not_sent_again(api):
    tag = api.get("/ui/weather/entrypoint.js").headers["etag"]
    again = api.get("/ui/weather/entrypoint.js", headers={"if-none-match": tag})
    assert again.status_code == 304 and not again.content and again.headers["etag"] == tag
    assert api.head("/ui/weather/entrypoint.js").headers["etag"] == tag


@pytest.mark.parametrize("graph", ["plain", "none", "broken"])
def test_none(api, graph):
    r = api.post(f"/ui/{graph}", json={"name": "weather"})
    assert (r.status_code, r.text) == (404, f"UI not found for graph '{graph}'")
    assert api.get(f"/ui/{graph}/entrypoint.js").status_code == 404


@pytest.mark.parametrize("path", ["weather/none.js", "weather/..%2f..%2flanggraph.json", "weather/..%2f..%2fcomponents.tsx", "weather/", "..%2fweather/entrypoint.js"])
def test_nothing_but_assets(api, path):
    assert api.get(f"/ui/{path}", follow_redirects=True).status_code == 404


@pytest.mark.parametrize("body", [b"", b"x", b"{"])
def test_no_json(api, body):
    r = api.post("/ui/weather", content=body, headers={"content-type": "application/json"})
    assert (r.status_code, r.json()) == (422, {"detail": "Invalid JSON in request body"})


def test_pages_of_other_origins_may_ask(api):
    r = api.post("/ui/weather", json={"name": "weather"}, headers={"origin": "http://elsewhere.example"})
    assert r.status_code == 200 and r.headers["access-control-allow-origin"] in ("*", "http://elsewhere.example")


async def test_messages():
    client = get_client(url=BASE_URL)
    thread = await client.threads.create()
    body = {"messages": [{"role": "user", "content": "Oslo"}]}
    custom, values = [], {}
    async for part in client.runs.stream(thread["thread_id"], "weather", input=body, stream_mode=["custom", "values", "updates"]):
        if part.event == "custom":
            custom.append(part.data)
        if part.event == "values":
            values = part.data
    assert [(m["type"], m.get("name"), m.get("props")) for m in custom] == [
        ("ui", "weather", {"city": "Oslo"}), ("ui", "weather", {"degrees": 21}), ("ui", "spinner", {}), ("remove-ui", None, None)]
    answer = values["messages"][-1]
    assert [(m["name"], m["props"], m["metadata"]["message_id"]) for m in values["ui"]] == [("weather", {"city": "Oslo", "degrees": 21}, answer["id"])]
    state = await client.threads.get_state(thread["thread_id"])
    assert state["values"]["ui"] == values["ui"]
