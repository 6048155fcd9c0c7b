"""What the Gateway's clients of August 2026 need beyond test_gateway.py. Facts are those of bytedance/deer-flow at f1f4af99, read in its source."""
import json

import pytest

from test_gateway import OUT, admin, alice, bare, bob, body, call, frames, fresh_user, last_run, put_file, say, thread  # noqa: F401  fixtures

pytestmark = pytest.mark.harness


def write(name, content):
    return ("write_file", {"description": "w", "path": f"{OUT}/{name}", "content": content})


def present(*names):
    return ("present_files", {"filepaths": [f"{OUT}/{n}" for n in names]})


EMPTY = {"available": False, "version": 1, "files": [], "limits": {},
         "summary": {"created": 0, "modified": 0, "deleted": 0, "symlink_created": 0, "additions": 0, "deletions": 0, "truncated": False}}


def test_workspace_changes(alice, bob, thread):
    say(alice, thread, "hello")
    rid = last_run(alice, thread)["run_id"]
    url = f"/api/threads/{thread}/runs/{rid}/workspace-changes"
    assert alice.get(url).json() == EMPTY
    assert alice.get(f"/api/threads/{thread}/runs/nope/workspace-changes").json() == EMPTY
    assert bob.get(url).status_code == 404
    assert alice.get(url, params={"include_diff": "maybe"}).status_code == 422

    say(alice, thread, call([write("a.txt", "one\ntwo\n"), write("token.txt", "s3cret-value")], [present("a.txt", "token.txt")]))
    say(alice, thread, call([write("a.txt", "one\nthree\n")], [present("a.txt")]))
    edited, created = [r["run_id"] for r in alice.get(f"/api/threads/{thread}/runs").json()[:2]]
    url = f"/api/threads/{thread}/runs/{created}/workspace-changes"
    r = alice.get(url)
    d = r.json()
    assert d["available"] is True and d["version"] == 1 and "s3cret-value" not in r.text
    assert d["summary"] == {"created": 2, "modified": 0, "deleted": 0, "symlink_created": 0, "additions": 2, "deletions": 0, "truncated": False}
    assert d["limits"] == {"max_files": 200, "max_scanned_files": 2000, "max_file_bytes_for_diff": 262144, "max_total_diff_bytes": 1048576}
    a, secret = d["files"]
    assert set(a) == {"path", "root", "status", "binary", "sensitive", "size_before", "size_after", "sha256_before", "sha256_after", "diff", "diff_truncated", "diff_unavailable_reason",
                      "additions", "deletions", "symlink", "symlink_target_before", "symlink_target_after"}
    assert (a["path"], a["root"], a["status"], a["size_before"], a["size_after"]) == (f"{OUT}/a.txt", "outputs", "created", None, 8)
    assert (secret["sensitive"], secret["diff"], secret["diff_unavailable_reason"]) == (True, "", "sensitive")
    assert [f["diff"] for f in alice.get(url, params={"include_diff": "false"}).json()["files"]] == ["", ""]
    assert alice.get(url, params={"include_files": "false"}).json()["files"] == []

    f = alice.get(f"/api/threads/{thread}/runs/{edited}/workspace-changes").json()["files"]
    assert [x["diff"] for x in f] == [f"--- a{OUT}/a.txt\n+++ b{OUT}/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three"]

    rows = alice.get(f"/api/threads/{thread}/runs/{edited}/events", params={"event_types": "workspace_changes,run.delivery"}).json()
    assert [(x["event_type"], x["category"]) for x in rows] == [("workspace_changes", "workspace"), ("run.delivery", "outputs")]
    assert rows[0]["content"] == "1 file changed +1 -1" and rows[0]["metadata"]["workspace_changes"]["summary"]["modified"] == 1
    assert rows[1]["content"]["satisfied"] is True and rows[1]["content"]["paths"] == [f"{OUT}/a.txt"]
    feed = alice.get(f"/api/threads/{thread}/messages/page", params={"limit": 200}).json()["data"]
    assert {r["category"] for r in feed} == {"message"}


def test_a_run_that_presents_none_of_its_outputs_is_an_error(alice, thread):
    v = say(alice, thread, call([write("lost.txt", "x")]))
    assert v["messages"][-1]["type"] == "ai"
    r = last_run(alice, thread)
    assert r["status"] == "error" and r["stop_reason"] is None
    said = alice.post(f"/api/threads/{thread}/runs/stream", json=body(call([write("lost.txt", "y")]), stream_mode=["values"])).text
    assert "event: error" not in said and "event: end" in said
    say(alice, thread, call([present("lost.txt")]))
    assert last_run(alice, thread)["status"] == "success"


def test_events_of_subagents(alice, thread):
    task = ("task", {"description": "look", "prompt": call([("ls", {"description": "d", "path": "/mnt/user-data/workspace"})]), "subagent_type": "general-purpose"})
    say(alice, thread, call([task]), context={"subagent_enabled": True})
    say(alice, thread, "and then")
    rid = alice.get(f"/api/threads/{thread}/runs").json()[1]["run_id"]
    url = f"/api/threads/{thread}/runs/{rid}/events"
    rows = [r for r in alice.get(url).json() if r["category"] == "subagent"]
    assert [r["event_type"] for r in rows] == ["subagent.start"] + ["subagent.step"] * (len(rows) - 2) + ["subagent.end"]
    assert rows[0]["content"]["description"] == "look" and rows[-1]["content"]["status"] == "completed"
    steps = rows[1:-1]
    assert [s["content"]["kind"] for s in steps] == ["ai", "tool", "ai"]
    assert [s["metadata"]["message_index"] for s in steps] == [1, 2, 3]
    assert steps[0]["content"]["tool_calls"][0]["name"] == "ls" and steps[1]["content"]["tool_name"] == "ls"
    tid = rows[0]["metadata"]["task_id"]
    assert {r["content"]["task_id"] for r in rows} == {tid}

    one = alice.get(url, params={"task_id": tid, "limit": 2}).json()
    assert one == rows[:2]
    rest = alice.get(url, params={"task_id": tid, "after_seq": one[-1]["seq"]}).json()
    assert one + rest == rows
    assert alice.get(url, params={"task_id": "another"}).json() == []
    assert alice.get(url, params={"after_seq": 0}).status_code == 422


def test_console_shapes(alice, bob, thread):
    say(alice, thread, "count me")
    r = last_run(alice, thread)
    s = alice.get("/api/console/stats").json()
    assert set(s) == {"total_runs", "active_runs", "failed_runs", "total_threads", "total_agents", "total_tokens", "total_cost", "currency"}
    assert s["total_tokens"] > 0 and s["total_cost"] is None and s["currency"] is None
    one = alice.get("/api/console/runs", params={"limit": 1}).json()["runs"][0]
    assert set(one) == {"run_id", "thread_id", "thread_title", "assistant_id", "status", "model_name", "created_at", "updated_at", "duration_seconds", "total_tokens", "message_count",
                        "cost", "error"}
    assert (one["run_id"], one["thread_title"], one["total_tokens"], one["message_count"]) == (r["run_id"], "count me", r["total_tokens"], r["message_count"])
    assert r["run_id"] not in bob.get("/api/console/runs", params={"limit": 100}).text
    failed = alice.get("/api/console/runs", params={"status": "error", "limit": 100}).json()["runs"]
    assert {x["status"] for x in failed} <= {"error"}
    assert [alice.get("/api/console/runs", params=p).status_code for p in ({"limit": 101}, {"limit": 0}, {"offset": -1})] == [422] * 3

    u = alice.get("/api/console/usage").json()
    assert set(u) == {"days", "by_model", "total_tokens", "total_runs", "total_cost", "currency"} and len(u["days"]) == 14
    assert set(u["days"][-1]) == {"date", "total_tokens", "input_tokens", "output_tokens", "runs", "cost"}
    assert u["total_tokens"] == s["total_tokens"] == sum(d["total_tokens"] for d in u["days"]) == sum(m["tokens"] for m in u["by_model"].values())
    assert set(next(iter(u["by_model"].values()))) == {"tokens", "runs", "cost", "input_tokens", "cache_read_tokens"}
    ahead = alice.get("/api/console/usage", params={"days": 3, "tz_offset_minutes": 840}).json()
    behind = alice.get("/api/console/usage", params={"days": 3, "tz_offset_minutes": -840}).json()
    assert ahead["days"][-1]["date"] > behind["days"][-1]["date"] and ahead["total_runs"] == behind["total_runs"] == u["total_runs"]
    assert [alice.get("/api/console/usage", params=p).status_code for p in ({"days": 91}, {"tz_offset_minutes": 841})] == [422] * 2


def test_parts_that_are_switched_off(alice, bob, admin, thread):
    anybody = bare()
    for p in ("oauth/github", "callback/github"):
        r = anybody.get(f"/api/v1/auth/{p}", follow_redirects=False)
        assert (r.status_code, r.json()) == (404, {"detail": "SSO authentication is not enabled"})
    assert anybody.post("/api/webhooks/github", json={}).status_code == 404
    assert alice.get(f"/api/threads/{thread}/mcp-tasks").json() == []
    assert alice.get(f"/api/threads/{thread}/mcp-tasks", params={"limit": 101}).status_code == 422
    for r in (alice.get(f"/api/threads/{thread}/mcp-tasks/x"), alice.post(f"/api/threads/{thread}/mcp-tasks/x/cancel")):
        assert (r.status_code, r.json()) == (404, {"detail": "MCP task not found"})
    assert bob.get(f"/api/threads/{thread}/mcp-tasks").json() == {"detail": f"Thread {thread} not found"}
    r = alice.post(f"/api/threads/{thread}/browser/navigate", json={"url": "http://example.com"})
    assert (r.status_code, r.json()) == (404, {"detail": "Browser automation is not enabled"})
    assert bob.post(f"/api/threads/{thread}/browser/navigate", json={"url": "http://example.com"}).json() == {"detail": f"Thread {thread} not found"}
    assert alice.get("/api/integrations/lark/status").json()["installed"] is False
    assert alice.post("/api/integrations/lark/install").json() == {"detail": "Admin privileges required to install integrations."}
    assert admin.post("/api/integrations/lark/install").status_code == 404
    assert alice.post("/api/integrations/lark/auth/start", json={}).status_code == 404
    disabled = (400, {"detail": "Channel connections are disabled"})
    for r in (alice.post("/api/channels/slack/connect"), alice.delete("/api/channels/connections/x"), admin.post("/api/channels/slack/runtime-config", json={"values": {}}),
              admin.delete("/api/channels/slack/runtime-config")):
        assert (r.status_code, r.json()) == disabled
    assert alice.delete("/api/channels/slack/runtime-config").json() == {"detail": "Admin privileges required to manage channel runtime credentials."}
    assert alice.post("/api/channels/slack/restart").json() == {"detail": "Admin privileges required to manage channel runtime workers."}


def test_slashes_behind_paths_are_redirected(alice):
    for path, to in (("/api/models/", "/api/models"), ("/api/skills/?a=1", "/api/skills?a=1"), ("/api/threads/search/", "/api/threads/search"), ("/api/channels", "/api/channels/")):
        r = alice.get(path, follow_redirects=False)
        assert r.status_code == 307 and r.headers["location"].endswith(to) and "//" not in r.headers["location"].removeprefix("http://"), path
    assert bare().get("/api/models/", follow_redirects=False).status_code == 401
    assert bare().post("/api/models/", follow_redirects=False).status_code == 403


def test_agents_are_assistants(admin, bob):
    own = fresh_user("agents")
    assert own.post("/api/agents", json={"name": "Kind-One", "description": "d"}).status_code == 201
    found = own.post("/api/assistants/search", json={}).json()
    assert [(a["assistant_id"], a["graph_id"], a["name"]) for a in found] == [("lead_agent", "lead_agent", "lead_agent"), ("kind-one", "lead_agent", "kind-one")]
    assert own.get("/api/assistants/kind-one").json() == found[1] and found[1]["description"] == "d"
    assert own.get("/api/assistants/kind-one/graph").json() == {"graph_id": "lead_agent", "nodes": [], "edges": []}
    for c, name in ((own, "none"), (own, "a%2Fb"), (bob, "kind-one")):
        for part in ("", "/graph", "/schemas"):
            assert c.get(f"/api/assistants/{name}{part}").status_code == 404
    assert [a["assistant_id"] for a in bob.post("/api/assistants/search", json={}).json()] == ["lead_agent"]


def test_download_is_a_boolean(alice, thread):
    put_file(alice, thread, "a.txt", "x")
    url = f"/api/threads/{thread}/artifacts{OUT}/a.txt"
    for given, how in (("true", "attachment"), ("1", "attachment"), ("yes", "attachment"), ("on", "attachment"), ("false", "inline"), ("0", "inline"), ("no", "inline"), ("off", "inline")):
        assert alice.get(url, params={"download": given}).headers["content-disposition"].startswith(how), given
    assert alice.get(url, params={"download": "maybe"}).status_code == 422


# A page of another origin: what a browser lets it send depends on these headers.
@pytest.mark.parametrize("path", ["/api/v1/auth/login/local", "/api/threads/search", "/api/langgraph/threads/search", "/threads/search"])
def test_origins(path):
    nobody = bare()
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, x-csrf-token"}
    r = nobody.request("OPTIONS", path, headers={"Origin": "http://localhost:3000", **asked})
    assert (r.status_code, r.headers["access-control-allow-origin"], r.headers["access-control-allow-credentials"]) == (200, "http://localhost:3000", "true")
    assert {"content-type", "x-csrf-token"} <= {h.strip().lower() for h in r.headers["access-control-allow-headers"].split(",")}
    for origin in ("http://evil.example", "http://localhost:3001", "https://localhost:3000", "null"):
        r = nobody.request("OPTIONS", path, headers={"Origin": origin, **asked})
        assert "access-control-allow-origin" not in r.headers and r.status_code >= 400, origin
        assert "access-control-allow-origin" not in nobody.post(path, headers={"Origin": origin}).headers, origin


def test_pages_of_an_allowed_origin_see_the_run(alice, thread):
    r = alice.post(f"/api/threads/{thread}/runs/stream", json=body("SAY hi"), headers={"Origin": "http://localhost:3000"})
    assert "content-location" in r.headers["access-control-expose-headers"].lower() and r.headers["access-control-allow-credentials"] == "true"


# The web UI's own server passes requests on: Host is the Gateway's then, X-Forwarded-Host the one that the browser sees. No page of another origin can send it.
@pytest.mark.parametrize("forwarded, status", [({}, 403), ({"X-Forwarded-Host": "chat.example:3000"}, 401), ({"X-Forwarded-Host": "chat.example:3000, inner"}, 401),
                                               ({"X-Forwarded-Host": "chat.example"}, 403), ({"X-Forwarded-Host": "other.example"}, 403)])
def test_sign_in_through_the_server_of_the_web_ui(forwarded, status):
    r = bare().post("/api/v1/auth/login/local", data={"username": "nobody@example.com", "password": "wrong"}, headers={"Origin": "http://chat.example:3000", **forwarded})
    assert r.status_code == status, r.text


# The server of the web UI compresses what it may, and then sends events when it has many: words appear at the end of the answer.
def test_streams_are_not_to_be_compressed_on_the_way(alice, thread):
    said = alice.post(f"/api/threads/{thread}/runs/stream", json=body("SAY hi"))
    again = alice.get(f"/api/threads/{thread}/runs/{last_run(alice, thread)['run_id']}/stream")
    for r in (said, again):
        assert {"no-cache", "no-transform"} <= set(r.headers["cache-control"].split(", "))


def test_start_of_a_run_says_how_the_agent_works(alice, thread):
    """agents/lead_agent/agent.py puts this into the metadata of each run, which its journal writes into the row of the start."""
    def started(**context):
        say(alice, thread, "SAY hi", **({"context": context} if context else {}))
        rid = last_run(alice, thread)["run_id"]
        [row] = alice.get(f"/api/threads/{thread}/runs/{rid}/events", params={"event_types": "run.start"}).json()
        assert row["content"] == {"chain": "lead_agent"} or row["content"]["chain"]
        keys = ["agent_name", "model_name", "thinking_enabled", "reasoning_effort", "is_plan_mode", "subagent_enabled", "tool_groups", "available_skills"]
        assert set(keys) <= set(row["metadata"]), row["metadata"]
        return [row["metadata"][k] for k in keys]

    first = alice.get("/api/models").json()["models"][0]
    assert started() == ["default", first["name"], first["supports_thinking"], None, False, False, None, None]
    assert started(is_plan_mode=True, subagent_enabled=True, thinking_enabled=False)[2:6] == [False, None, True, True]
    assert started(model_name="second-model")[1] == "second-model"
    name = "start-" + thread[-8:].lower().replace("_", "-").strip("-")
    alice.post("/api/agents", json={"name": name, "model": "second-model", "tool_groups": ["file:read"], "skills": [], "soul": "s"})
    got = started(agent_name=name)
    assert (got[0], got[1], got[6], got[7]) == (name, "second-model", ["file:read"], [])


def test_context_usage(alice, thread):
    usage = lambda: alice.get(f"/api/threads/{thread}/token-usage").json()["context_usage"]
    assert usage() == {"token_count": 0, "max_context_tokens": 100000, "percentage": 0}
    say(alice, thread, "x" * 4000)
    long = usage()
    assert 1000 < long["token_count"] < 1100 and long["percentage"] == round(long["token_count"] / 1000, 1)
    say(alice, thread, "SAY d", context={"model_name": "second-model"})
    other = usage()
    assert other["token_count"] > long["token_count"] and (other["max_context_tokens"], other["percentage"]) == (None, None)
    for n in range(6):  # the summarizer keeps four messages
        say(alice, thread, f"SAY {n}")
    last = usage()
    assert last["token_count"] < 500 and last["max_context_tokens"] == 100000


def test_upload_says_what_was_not_converted(alice, thread):
    """The real Gateway says nothing; its clients show the message."""
    files = [("files", ("broken.pdf", b"\x00\xff no document")), ("files", ("old.doc", b"x")), ("files", ("a.txt", b"x"))]
    d = alice.post(f"/api/threads/{thread}/uploads", files=files).json()
    assert d["success"] and len(d["files"]) == 3 and d["message"].startswith("Successfully uploaded 3 file(s); broken.pdf was not converted to Markdown: ")
    assert d["message"].endswith('; old.doc was not converted to Markdown: documents of type ".doc" cannot be converted')


def test_feedback_keys(alice, bob, admin):
    """LangGraph's routes on the same server: what is given at the addresses of a run is the feedback that the web UI shows."""
    thread = alice.post("/threads", json={}).json()["thread_id"]
    asked = {**body("SAY hi"), "feedback_keys": ["helpful", "tone"]}
    said = frames(alice.post(f"/threads/{thread}/runs/stream", json=asked).text)
    assert [f["event"] for f in said].count("feedback") == 1 and said[-1]["event"] == "feedback" and "id" not in said[-1]
    addresses = json.loads(said[-1]["data"])
    assert list(addresses) == ["helpful", "tone"] and all(a.startswith(str(alice.base_url)) for a in addresses.values())
    run = last_run(alice, thread)["run_id"]

    def shown():
        return [m["feedback"] for m in alice.get(f"/api/threads/{thread}/messages").json() if m.get("feedback")]

    assert shown() == []
    nobody = bare()  # the address is enough
    r = nobody.post(addresses["helpful"], json={"score": 1, "comment": "good", "value": "yes", "unknown": 1})
    assert r.status_code == 200, r.text
    first = r.json()
    assert (first["run_id"], first["thread_id"], first["rating"], first["comment"]) == (run, thread, 1, "good")
    assert first["scores"] == {"helpful": {"score": 1, "value": "yes", "comment": "good"}}
    assert nobody.post(addresses["tone"], json={"score": False}).json()["scores"] == {**first["scores"], "tone": {"score": False}}
    rated = {"feedback_id": first["feedback_id"], "rating": -1, "comment": "good"}
    assert shown() == [rated]
    [row] = alice.get(f"/api/threads/{thread}/runs/{run}/feedback").json()
    assert (row["feedback_id"], row["rating"], list(row["scores"])) == (first["feedback_id"], -1, ["helpful", "tone"])
    assert alice.get(f"/threads/{thread}/runs/{run}/feedback").json() == [row]
    assert alice.get(f"/api/threads/{thread}/runs/{run}/feedback/stats").json() == {"run_id": run, "total": 1, "positive": 0, "negative": 1}
    # The web UI rates the same.
    assert alice.put(f"/api/threads/{thread}/runs/{run}/feedback", json={"rating": 1}).json()["feedback_id"] == first["feedback_id"]
    assert list(alice.get(f"/threads/{thread}/runs/{run}/feedback").json()[0]["scores"]) == ["helpful", "tone"]
    # Others have neither the feedback nor addresses for it.
    for c in (bob, admin):
        assert c.get(f"/threads/{thread}/runs/{run}/feedback").status_code == 404
    assert nobody.get(f"/threads/{thread}/runs/{run}/feedback").status_code == 401
    address = addresses["tone"]
    for wrong in (address[:-4], address[:-1] + ("A" if address[-1] != "A" else "B"), address.rsplit("/", 1)[0] + "/x", address + ".x"):
        assert nobody.post(wrong, json={"score": 1}).status_code == 404, wrong
    for wrong in ({}, {"score": "1"}, {"score": None}, {"score": 1, "comment": 2}, [], {"score": {}}):
        assert nobody.post(address, json=wrong).status_code == 422, wrong
    assert nobody.post(address, content=b"{").status_code in (400, 422)
    assert nobody.post(address, json={"score": 1, "value": "x" * (257 << 10)}).status_code == 413
    assert nobody.post(address, json={"score": float(10**300)}).status_code == 200
    # As on LangGraph Server the result of a wait has them, that of a failed or joined run that is over has none.
    waited = alice.post(f"/threads/{thread}/runs/wait", json=asked).json()
    assert list(waited["__feedback__"]) == ["helpful", "tone"] and waited["messages"]
    run = last_run(alice, thread)["run_id"]
    assert "__feedback__" not in alice.get(f"/threads/{thread}/runs/{run}/join").json()
    assert "feedback" not in alice.get(f"/threads/{thread}/runs/{run}/stream").text
    gone = alice.post("/runs/wait", json=asked).json()
    assert "__feedback__" not in gone and gone["messages"]  # its thread is deleted
    assert alice.post(f"/threads/{thread}/runs", json={**asked, "feedback_keys": ["k"] * 101}).status_code == 422
    assert alice.delete(f"/api/threads/{thread}").status_code == 200
    assert nobody.post(waited["__feedback__"]["tone"], json={"score": 1}).status_code == 404
