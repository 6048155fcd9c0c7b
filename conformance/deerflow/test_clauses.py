"""Sentences of GATEWAY.md and HARNESS.md that no case of test_gateway.py holds."""
import hashlib
import json
import re
import time
import uuid

import pytest

from test_gateway import (OUT, PW, SERVER, admin, alice, bare, bob, body, call, frames, fresh_user, install, internal, last_run, new_thread, no_servers, own, put_file, said, say, skill_md,  # noqa: F401  fixtures
                          thread, upload, wait_for, zipped)

AUTH = "/api/v1/auth"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")


def test_documentation_is_public():
    assert [bare().get(p).status_code for p in ("/docs", "/redoc", "/openapi.json")] == [200] * 3
    assert bare().get("/health").json() == {"status": "healthy", "service": "deer-flow-gateway"}


def test_both_prefixes_and_times(alice, thread):
    say(alice, thread, "SAY x")
    a, b = (alice.get(f"{p}/threads/{thread}").json() for p in ("/api", "/api/langgraph"))
    assert a == b and STAMP.fullmatch(a["created_at"]) and STAMP.fullmatch(a["updated_at"])
    r = last_run(alice, thread)
    assert STAMP.fullmatch(r["created_at"]) and STAMP.fullmatch(r["updated_at"])
    for row in alice.get(f"/api/threads/{thread}/messages").json():
        assert STAMP.fullmatch(row["created_at"]), row["created_at"]
    alice.post("/api/memory/facts", json={"content": uuid.uuid4().hex})
    m = alice.get("/api/memory").json()
    assert m["lastUpdated"].endswith("Z") and m["facts"][-1]["createdAt"].endswith("Z")


def test_unknown_keys_are_ignored(alice, thread):
    assert alice.post("/api/threads", json={"nonsense": 1}).status_code == 200
    assert alice.post("/api/threads/search", json={"nonsense": 1, "select": ["x"], "sort_by": "nope", "sort_order": "nope"}).status_code == 200
    assert alice.put("/api/user-profile", json={"content": "x", "nonsense": 1}).status_code == 200
    assert alice.put(f"/api/threads/{thread}/goal", json={"objective": "x", "nonsense": 1}).status_code == 200


def test_gates_come_in_order(alice, bob, thread):
    # permission before ownership, ownership before body
    assert bob.post(f"/api/threads/{thread}/history", json={"limit": "x"}).status_code == 404
    assert bob.get(f"/api/threads/{thread}/messages", params={"limit": 0}).status_code == 404
    assert bob.put(f"/api/threads/{thread}/goal", json={}).status_code == 404
    assert alice.put("/api/mcp/config", json={"mcp_servers": 5}).status_code == 403
    assert alice.get("/api/threads/a.b/messages", params={"limit": 0}).status_code == 422
    assert alice.get("/api/threads/a.b").status_code == 422
    assert alice.delete("/api/threads/a.b").status_code == 404


def test_accounts(admin, alice):
    me = fresh_user("acc")
    assert set(me.me) == {"id", "email", "system_role", "needs_setup", "oauth_provider"} and me.me["system_role"] == "user" and me.me["oauth_provider"] is None
    r = bare().post(f"{AUTH}/register", json={"email": f"r-{uuid.uuid4().hex[:8]}@example.com", "password": PW, "system_role": "admin"})
    assert r.json()["system_role"] == "user"
    r = bare().post(f"{AUTH}/register", json={"email": me.me["email"], "password": PW})
    assert (r.status_code, r.json()) == (400, {"detail": {"code": "email_already_exists", "message": "Email already registered"}})
    r = bare().post(f"{AUTH}/login/local", data={"username": me.me["email"], "password": "wrong-wrong"})
    assert (r.status_code, r.json()) == (401, {"detail": {"code": "invalid_credentials", "message": "Incorrect email or password"}})
    r = bare().post(f"{AUTH}/login/local", data={"username": me.me["email"], "password": PW})
    assert r.json() == {"expires_in": 604800, "needs_setup": False}
    assert set(r.cookies) == {"access_token", "csrf_token", "deerflow_session_persistent"}
    assert "max-age=604800" in r.headers["set-cookie"].lower()
    r = bare().post(f"{AUTH}/login/local", data={"username": me.me["email"], "password": PW, "remember_me": "false"})
    assert "max-age" not in r.headers["set-cookie"].lower() and r.cookies["deerflow_session_persistent"] == "0"
    assert bare().get(f"{AUTH}/setup-status").json() == {"needs_setup": False, "registration_enabled": True}
    r = bare().post(f"{AUTH}/initialize", json={"email": "z@example.com", "password": PW})
    assert (r.status_code, r.json()["detail"]["code"]) == (409, "system_already_initialized")
    r = me.post(f"{AUTH}/change-password", json={"current_password": "not-this-one", "new_password": PW + "1"})
    assert (r.status_code, r.json()["detail"]["code"]) == (400, "invalid_credentials")
    other = bare()
    other.post(f"{AUTH}/login/local", data={"username": me.me["email"], "password": PW})
    new = f"new-{uuid.uuid4().hex[:8]}@example.com"
    r = me.post(f"{AUTH}/change-password", json={"current_password": PW, "new_password": PW + "1", "new_email": new})
    assert r.status_code == 200 and "message" in r.json()
    assert me.get(f"{AUTH}/me").json()["email"] == new
    assert other.get(f"{AUTH}/me").json()["detail"]["code"] == "token_invalid"
    r = me.post(f"{AUTH}/logout")
    assert r.json() == {"message": "Successfully logged out"}
    assert me.get(f"{AUTH}/me").json()["detail"]["code"] == "not_authenticated"


def test_owner_of_any_text(internal):
    """An id of a channel's user that is no plain name gets folders of its own; the same each time."""
    for owner in ("ou_1:x/..", "../../etc", "a b", "Ünï"):
        h = {"X-DeerFlow-Owner-User-Id": owner.encode()}
        r = internal.post("/api/threads", json={}, headers=h)
        assert r.status_code == 200, r.text
        t = r.json()["thread_id"]
        assert upload(internal, t, ("a.txt", b"x")).status_code == 404  # without the owner it is another user
        r = internal.post(f"/api/threads/{t}/uploads", files=[("files", ("a.txt", b"x"))], headers=h)
        assert r.status_code == 200, r.text
        assert internal.get(f"/api/threads/{t}/uploads/list", headers=h).json()["count"] == 1
        safe = re.sub(rb"[^A-Za-z0-9_-]", b"-", owner.encode()).decode() + "-" + hashlib.sha256(owner.encode()).hexdigest()[:16]
        assert internal.get(f"/api/threads/{t}", headers={"X-DeerFlow-Owner-User-Id": safe}).status_code == 200, safe


def test_who_the_internal_caller_is(internal):
    assert internal.get(f"{AUTH}/me").json() == {"id": "default", "email": "", "system_role": "user", "needs_setup": False, "oauth_provider": None}  # the real one: 500


def test_search_by_status(alice):
    t = new_thread(alice, metadata={"tag": "st" + uuid.uuid4().hex})
    say(alice, t, "SAY x")
    rows = alice.post("/api/threads/search", json={"status": "idle", "limit": 5}).json()
    assert t in [r["thread_id"] for r in rows] and set(rows[0]) == {"thread_id", "status", "created_at", "updated_at", "metadata", "values", "interrupts"}
    assert t not in [r["thread_id"] for r in alice.post("/api/threads/search", json={"status": "busy", "limit": 50}).json()]
    assert alice.post("/api/threads/search", json={"status": "nonsense"}).json() == []


def test_state_while_a_run_works(alice, thread):
    put_file(alice, thread, "e.txt", "one")
    rid = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 100")).json()["run_id"]
    r = alice.post(f"/api/threads/{thread}/state", json={"values": {"title": "x"}})
    assert (r.status_code, r.json()) == (409, {"detail": "Thread has a run in flight. Update state after the run finishes."})
    assert alice.post(f"/api/threads/{thread}/compact", json={}).status_code == 409
    r = alice.put(f"/api/threads/{thread}/artifacts{OUT}/e.txt", json={"content": "x", "expected_sha256": hashlib.sha256(b"one").hexdigest()})
    assert r.status_code == 409
    assert alice.post(f"/api/threads/{thread}/runs/{rid}/cancel", params={"wait": 1, "action": "rollback"}).status_code == 204
    assert alice.get(f"/api/threads/{thread}/runs/{rid}").json()["status"] == "error"
    f = frames(alice.get(f"/api/threads/{thread}/runs/{rid}/stream").text)
    assert f[-1]["event"] == "end"


def test_cancel_and_stream(alice, thread):
    rid = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 200", stream_mode=["messages-tuple"])).json()["run_id"]
    wait_for(lambda: alice.get(f"/api/threads/{thread}/runs/{rid}").json()["status"] == "running")
    f = frames(alice.post(f"/api/threads/{thread}/runs/{rid}/stream", params={"action": "interrupt", "wait": 0}).text)
    assert f[-1]["event"] == "end" and alice.get(f"/api/threads/{thread}/runs/{rid}").json()["status"] == "interrupted"
    rid = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 200", stream_mode=["messages-tuple"])).json()["run_id"]
    wait_for(lambda: alice.get(f"/api/threads/{thread}/runs/{rid}").json()["status"] == "running")
    r = alice.post(f"/api/threads/{thread}/runs/{rid}/stream", params={"action": "interrupt", "wait": 1})
    assert r.status_code in (200, 204), r.text


def test_client_that_leaves(alice, thread):
    for how, status in (("cancel", "interrupted"), (None, "interrupted"), ("continue", "success")):
        b = body("SLOW 40") | {"on_disconnect": how}
        if how is None:
            del b["on_disconnect"]
        with alice.stream("POST", f"/api/threads/{thread}/runs/stream", json=b) as r:
            rid = r.headers["content-location"].rsplit("/", 1)[1]
            next(r.iter_lines())
        assert wait_for(lambda: (s := alice.get(f"/api/threads/{thread}/runs/{rid}").json()["status"]) in ("interrupted", "success") and s) == status, how


def test_a_run_that_fails_still_answers_with_values(alice, thread):
    r = alice.post(f"/api/threads/{thread}/runs/wait", json=body("FAILMODEL"))
    assert r.status_code == 200 and r.json()["messages"]
    assert last_run(alice, thread)["status"] == "error"
    assert alice.get(f"/api/threads/{thread}").json()["status"] in ("error", "idle")


def test_names_of_agents(alice, thread):
    r = alice.post(f"/api/threads/{thread}/runs/wait", json=body("SAY x", assistant_id="a b"))
    assert r.status_code == 422, r.text
    alice.post("/api/agents", json={"name": "my-own", "soul": "s"})
    r = alice.post(f"/api/threads/{thread}/runs/wait", json=body("SAY x", assistant_id="My_Own"))
    assert r.status_code == 200
    rid = last_run(alice, thread)["run_id"]
    [row] = alice.get(f"/api/threads/{thread}/runs/{rid}/events", params={"event_types": "run.start"}).json()
    assert row["metadata"]["agent_name"] == "my-own"


def test_context_wins_over_configurable(alice, thread):
    r = alice.post(f"/api/threads/{thread}/runs/wait", json=body("SAY x", config={"configurable": {"model_name": "second-model"}}))
    assert r.json()["messages"][-1]["response_metadata"]["model_name"] in ("fake-1", "fake-2")
    b = body("SAY x", config={"configurable": {"model_name": "second-model"}, "context": {"model_name": "fake-model"}})
    r = alice.post(f"/api/threads/{thread}/runs/wait", json=b)
    assert r.json()["messages"][-1]["response_metadata"]["model_name"] == "fake-1"


def test_what_is_the_servers_is_dropped(alice, bob, thread):
    ctx = {"is_internal": True, "user_id": bob.me["id"], "user_role": "admin", "channel_user_id": "x", "authz_attributes": {"a": 1}, "oauth_provider": "x", "disable_clarification": True, "github_token": "ghs_secret"}
    say(alice, thread, "SAY remember", context=ctx)
    r = alice.get(f"/api/threads/{thread}/runs").text
    for word in ("ghs_secret", "is_internal", "authz_attributes", "channel_user_id", "oauth_provider"):
        assert word not in r, word
    rid = last_run(alice, thread)["run_id"]
    rows = alice.get(f"/api/threads/{thread}/runs/{rid}/events").json()
    assert "ghs_secret" not in json.dumps(rows) and bob.me["id"] not in json.dumps(rows)


def test_recursion_limit_is_clamped(alice, thread):
    for limit in (100000, "x", None, 0, -5, 1.5, True):
        r = alice.post(f"/api/threads/{thread}/runs/wait", json=body("SAY x", config={"recursion_limit": limit}))
        assert r.status_code == 200 and said(r.json()["messages"][-1]) == "x", (limit, r.text)


def test_join_of_unknown(alice, thread):
    for p in ("join", "stream"):
        r = alice.get(f"/api/threads/{thread}/runs/nope/{p}")
        assert (r.status_code, r.json()) == (404, {"detail": "Run nope not found"})


def test_last_event_ids(alice, thread):
    rid = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 10", stream_mode=["messages-tuple"])).json()["run_id"]
    whole = frames(alice.get(f"/api/threads/{thread}/runs/{rid}/stream").text)
    for given in ("-1", "nonsense", "0-0", "1-1-1", "99999999999999-0"):
        f = frames(alice.get(f"/api/threads/{thread}/runs/{rid}/stream", headers={"Last-Event-ID": given}).text)
        assert f[-1]["event"] == "end", given
    assert frames(alice.get(f"/api/threads/{thread}/runs/{rid}/stream", headers={"Last-Event-ID": "-1"}).text) == whole


def test_branch_copies_files_of_the_last_turn(alice, thread):
    v = say(alice, thread, "SAY one")
    first = v["messages"][-1]["id"]
    upload(alice, thread, ("u.txt", b"up"))
    v = put_file(alice, thread, "b.txt", "file")
    b = alice.post(f"/api/threads/{thread}/branches", json={"message_id": v["messages"][-1]["id"]}).json()
    assert set(b) == {"thread_id", "parent_thread_id", "parent_checkpoint_id", "branched_from_message_id", "workspace_clone_mode", "history_seed_mode"}
    assert alice.get(f"/api/threads/{b['thread_id']}/artifacts{OUT}/b.txt").text == "file"
    assert alice.get(f"/api/threads/{b['thread_id']}/uploads/list").json()["count"] == 1
    c = alice.post(f"/api/threads/{thread}/branches", json={"message_id": first}).json()
    assert alice.get(f"/api/threads/{c['thread_id']}/artifacts{OUT}/b.txt").status_code == 404
    assert b["workspace_clone_mode"] != c["workspace_clone_mode"]
    assert alice.post(f"/api/threads/{thread}/branches", json={"message_id": first, "title": "x" * 257}).status_code == 422


def test_goal_bounds(alice, thread):
    url = f"/api/threads/{thread}/goal"
    assert [alice.put(url, json={"objective": "x", "max_continuations": n}).status_code for n in (-1, 0, 8, 9)] == [422, 200, 200, 422]
    assert alice.put(url, json={"objective": "x" * 4001}).status_code == 422
    u = f"unknown-{uuid.uuid4().hex[:6]}"
    assert alice.put(f"/api/threads/{u}/goal", json={"objective": "x"}).status_code == 200 and alice.get(f"/api/threads/{u}").status_code == 200


def test_feedback_twice_by_post(alice, thread):
    say(alice, thread, "SAY x")
    url = f"/api/threads/{thread}/runs/{last_run(alice, thread)['run_id']}/feedback"
    a, b = alice.post(url, json={"rating": 1}), alice.post(url, json={"rating": -1, "comment": "c"})
    assert (a.status_code, b.status_code) in ((200, 200), (200, 409))
    assert len(alice.get(url).json()) == 1
    fid = alice.get(url).json()[0]["feedback_id"]
    say(alice, thread, "SAY y")
    second = last_run(alice, thread)["run_id"]
    r = alice.delete(f"/api/threads/{thread}/runs/{second}/feedback/{fid}")
    assert (r.status_code, r.json()) == (404, {"detail": f"Feedback {fid} not found in run {second}"})


def test_upload_targets(alice, thread):
    say(alice, thread, call([("bash", {"description": "d", "command": "cd /mnt/user-data/uploads && ln -s /mnt/user-data/outputs/x.txt link.txt && mkdir folder.txt && echo one > a.txt && ln a.txt /mnt/user-data/workspace/second.txt"})]))
    r = upload(alice, thread, ("link.txt", b"x"), ("folder.txt", b"x"), ("a.txt", b"new"), ("fine.txt", b"x"))
    d = r.json()
    assert r.status_code == 200 and d["success"] is False and sorted(f if isinstance(f, str) else f["filename"] for f in d["skipped_files"]) == ["a.txt", "folder.txt", "link.txt"], d
    assert [f["filename"] for f in d["files"]] == ["fine.txt"]
    assert [f["filename"] for f in alice.get(f"/api/threads/{thread}/uploads/list").json()["files"]] == ["a.txt", "fine.txt"]


def test_uploads_of_unknown_threads(alice):
    u = f"up-{uuid.uuid4().hex[:8]}"
    r = upload(alice, u, ("a.txt", b"x"))
    assert r.status_code == 200 and alice.get(f"/api/threads/{u}/uploads/list").json()["count"] == 1
    assert "/users/" not in r.text and r.json()["files"][0]["path"].startswith("/mnt/")


def test_artifact_headers(alice, thread):
    upload(alice, thread, ("t.txt", b"0123456789"), ("x.xml", b"<a/>"), ("m.mhtml", b"x"), ("b.dat", b"\x00\x01"), ("u.weird", b"text"))
    base = f"/api/threads/{thread}/artifacts/mnt/user-data/uploads"
    r = alice.get(f"{base}/t.txt")
    assert r.headers["etag"] and r.headers["last-modified"] and r.headers["accept-ranges"] == "bytes" and r.headers["x-content-type-options"] == "nosniff" and "sandbox" in r.headers["content-security-policy"]
    assert alice.get(f"{base}/t.txt", headers={"If-None-Match": r.headers["etag"]}).status_code == 304
    for n in ("x.xml", "m.mhtml"):
        assert alice.get(f"{base}/{n}").headers["content-disposition"].startswith("attachment")
    assert alice.get(f"{base}/u.weird").headers["content-type"].startswith("text/plain") and not alice.get(f"{base}/b.dat").headers["content-type"].startswith("text/")
    assert alice.get(f"/api/threads/{thread}/artifacts//mnt/user-data/uploads/t.txt").status_code == 200
    assert alice.get(f"{base}/").status_code in (400, 404)
    r = alice.get(f"/api/threads/{thread}/artifacts/mnt/user-data/uploads")
    assert r.status_code == 400 and r.json()["detail"].startswith("Path is not a file"), r.text
    r = alice.get(f"{base}/none")
    assert r.json()["detail"].startswith("Artifact not found")


def test_artifact_writes(alice, thread):
    put_file(alice, thread, "e.txt", "one")
    sha = hashlib.sha256(b"one").hexdigest()
    url = f"/api/threads/{thread}/artifacts{OUT}"
    assert alice.put(f"{url}/e.txt", json={"content": "x" * (2 << 20) + "y", "expected_sha256": sha}).status_code == 413
    say(alice, thread, call([("bash", {"description": "d", "command": f"printf '\\000\\001' > {OUT}/b.bin; ln -s e.txt {OUT}/l.txt; cp {OUT}/e.txt {OUT}/a.skill"})], [("present_files", {"filepaths": [f"{OUT}/b.bin"]})]))
    for n in ("b.bin", "l.txt", "a.skill"):
        r = alice.put(f"{url}/{n}", json={"content": "x", "expected_sha256": sha})
        assert r.status_code == 415, (n, r.status_code, r.text)
    assert alice.get(f"{url}/e.txt").text == "one"


def test_an_owner_header_picks_the_files(internal, alice, bob, thread):
    upload(alice, thread, ("mine.txt", b"of alice"))
    h = {"X-DeerFlow-Owner-User-Id": alice.me["id"]}
    assert internal.get(f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/mine.txt", headers=h).text == "of alice"
    assert internal.get(f"/api/threads/{thread}/uploads/list", headers=h).json()["count"] == 1
    word = uuid.uuid4().hex
    alice.post("/api/memory/facts", json={"content": word})
    assert word in internal.get("/api/memory", headers=h).text and word not in internal.get("/api/memory", headers={"X-DeerFlow-Owner-User-Id": bob.me["id"]}).text


def test_skills_reload_and_install_answers(admin, alice):
    assert admin.post("/api/skills/reload").json()["scope"] == "process" and alice.post("/api/skills/reload").status_code == 403
    r = alice.get("/api/skills/custom")
    assert r.status_code == 200, r.text
    t, name = new_thread(admin), "hist-" + uuid.uuid4().hex[:6]
    install(admin, t, zipped({f"{name}/SKILL.md": skill_md(name)}), f"{name}.skill")
    url = f"/api/skills/custom/{name}"
    assert admin.post(url + "/rollback", json={"history_index": 7}).status_code == 400
    assert admin.post(url + "/rollback", json={}).status_code == 400
    r = admin.put(url, json={"content": skill_md(name, text="EVILSKILL")})
    assert r.status_code == 400, r.text
    d = admin.put("/api/skills/" + name, json={"enabled": False}).json()
    assert d["enabled"] is False
    assert admin.delete(url).json() == {"success": True}
    assert admin.get(url + "/history").json()["history"][-1]["action"] == "human_delete"


def test_memory_rest(own):
    w = uuid.uuid4().hex
    own.post("/api/memory/facts", json={"content": w})
    r = own.post("/api/memory/facts", json={"content": f" {w} "})
    assert (r.status_code, r.json()) == (409, {"detail": "A fact with the same content already exists."})
    r = own.post("/api/memory/facts", json={"content": " "})
    assert r.json() == {"detail": "Memory fact content cannot be empty."}
    c = own.get("/api/memory/config").json()
    assert {"enabled", "storage_path", "debounce_seconds", "max_facts", "fact_confidence_threshold", "injection_enabled", "max_injection_tokens", "mode", "shutdown_flush_timeout_seconds", "manager_class",
            "backend_config"} <= set(c)
    f = own.get("/api/memory").json()["facts"][0]
    assert re.fullmatch(r"fact_[0-9a-f]{8}", f["id"]) and f["category"] == "context" and f["confidence"] == 0.5 and None not in f.values()
    assert own.patch(f"/api/memory/facts/{f['id']}", json={"content": ""}).status_code == 422
    assert own.patch(f"/api/memory/facts/{f['id']}", json={"confidence": 2}).status_code == 422
    for bad in ({"facts": "x"}, {"user": 5}, {"facts": [{"content": "a", "confidence": "x", "id": "i"}]}):
        assert own.post("/api/memory/import", json=bad).status_code == 422, bad
    assert len(own.get("/api/memory").json()["facts"]) == 1


def test_suggestions_of_broken_models(alice, thread):
    url = f"/api/threads/{thread}/suggestions"
    assert alice.post(url, json={"messages": [{"role": "user", "content": "FAILMODEL"}], "n": 5}).status_code == 200
    assert alice.post(url, json={"messages": [{"role": "user", "content": "x"}], "n": 6}).status_code == 422
    assert len(alice.post(url, json={"messages": [{"role": "user", "content": "x"}], "n": 5}).json()["suggestions"]) == 3
    r = alice.post("/api/input-polish", json={"text": "x" * 100_001})
    assert r.status_code == 400, r.status_code


def test_mcp_secrets(admin, no_servers):
    http = {"enabled": False, "type": "http", "url": "http://127.0.0.1:9/mcp", "oauth": {"enabled": True, "token_url": "http://127.0.0.1:9/t", "grant_type": "refresh_token", "client_id": "id", "client_secret": "s1", "refresh_token": "s2"},
            "api_key": "extra-secret", "password": "extra-secret", "timeout": 5}
    r = admin.put("/api/mcp/config", json={"mcp_servers": {"b": http}})
    assert r.status_code == 200 and "extra-secret" not in r.text and "s2" not in json.dumps(r.json()["mcp_servers"]["b"]["oauth"])
    got = admin.get("/api/mcp/config").json()["mcp_servers"]["b"]
    assert got["oauth"]["refresh_token"] is None and got["api_key"] == "***" and got["timeout"] == 5
    r = admin.put("/api/mcp/config", json={"mcp_servers": {"n": {**SERVER, "env": {"K": "***"}}}})
    assert r.status_code == 400, r.text  # the real one keeps the mask as the value
    for status, list_ in ((400, ({"args": ["-e", "x"]}, {"args": ["--eval=x"]}, {"env": {"PYTHONPATH": "/x"}}, {"env": {"LD_PRELOAD": "/x"}}, {"command": "python3"})),
                          (422, ({"type": "nonsense"}, {"args": "x"}, {"env": {"A": 5}}))):  # the real one takes any type
        for bad in list_:
            assert admin.put("/api/mcp/config", json={"mcp_servers": {"x": {**SERVER, **bad}}}).status_code == status, bad


def test_agents_disabled_names(own):
    assert own.get("/api/agents/check", params={"name": "a_b"}).status_code == 422
    assert own.post("/api/agents", json={"name": "X", "soul": ""}).json()["name"] == "x"
    assert own.put("/api/agents/x", json={"model": "nope"}).status_code == 422


def test_token_usage_of_active_runs(alice, thread):
    rid = alice.post(f"/api/threads/{thread}/runs", json=body("SLOW 60")).json()["run_id"]
    u = alice.get(f"/api/threads/{thread}/token-usage", params={"include_active": "true"})
    assert u.status_code == 200 and set(u.json()) == {"thread_id", "total_tokens", "total_input_tokens", "total_output_tokens", "total_runs", "by_model", "by_caller", "context_usage"}
    alice.post(f"/api/threads/{thread}/runs/{rid}/cancel", params={"wait": 1})


@pytest.mark.harness
def test_token_usage_while_the_run_goes_on(alice, thread):
    """What the run has used so far counts only when it is asked for."""
    rid = alice.post(f"/api/threads/{thread}/runs", json=body(call([("bash", {"description": "d", "command": "sleep 20"})]))).json()["run_id"]

    def used(active):
        return alice.get(f"/api/threads/{thread}/token-usage", params={"include_active": active}).json()

    assert wait_for(lambda: used("true")["total_tokens"] > 0)
    u = used("true")
    assert u["total_runs"] == 1 and u["by_caller"]["lead_agent"] == u["total_tokens"] == u["total_input_tokens"] + u["total_output_tokens"]
    u = used("false")
    assert u["total_runs"] == 0 and u["total_tokens"] == 0
    alice.post(f"/api/threads/{thread}/runs/{rid}/cancel", params={"wait": 1})


@pytest.mark.harness
@pytest.mark.beyond
def test_instructions_are_not_said(alice, thread):
    """Agents write system messages into the state, such as DeerFlow's reminders, also in place of what a person said: they are in no feed, and not counted."""
    say(alice, thread, "SAY one")
    first = alice.get(f"/api/threads/{thread}/messages").json()[0]["content"]["id"]
    note = {"type": "system", "id": first, "content": "a reminder", "additional_kwargs": {"hide_from_ui": True}}
    assert alice.post(f"/api/threads/{thread}/state", json={"values": {"messages": [note, {"type": "system", "id": "s2", "content": "another"}]}}).status_code == 200
    rid = last_run(alice, thread)["run_id"]
    for url in ("messages", f"runs/{rid}/messages", "messages/page"):
        rows = alice.get(f"/api/threads/{thread}/{url}").json()
        rows = rows if isinstance(rows, list) else rows["data"]
        assert [r["content"]["type"] for r in rows] == ["ai"], url


def test_slashes_behind_artifacts(alice, thread):
    put_file(alice, thread, "a.txt", "text")
    for path, status in (("outputs/a.txt/", 200), ("outputs/none.txt/", 404), ("outputs/", 400), ("outputs//", 400), ("none/", 404)):
        r = alice.get(f"/api/threads/{thread}/artifacts/mnt/user-data/{path}", follow_redirects=False)
        assert r.status_code == status, (path, r.status_code, r.text)


def test_deleted_threads_leave_nothing(alice, bob):
    t = new_thread(alice)
    say(alice, t, "SAY secret words")
    rid = last_run(alice, t)["run_id"]
    alice.put(f"/api/threads/{t}/runs/{rid}/feedback", json={"rating": 1})
    alice.delete(f"/api/threads/{t}")
    for c in (alice, bob):
        assert c.get(f"/api/threads/{t}/runs").json() == [] and c.get(f"/api/threads/{t}/messages").json() == []
        assert c.get(f"/api/threads/{t}/runs/{rid}/events").json() == [] and c.get(f"/api/threads/{t}/token-usage").json()["total_tokens"] == 0
        assert c.get(f"/api/threads/{t}/runs/{rid}").status_code == 404 and c.get(f"/api/threads/{t}/runs/{rid}/stream").status_code == 404
        assert c.get(f"/api/runs/{rid}/messages").status_code == 404
        assert c.get(f"/api/threads/{t}/runs/{rid}/feedback/stats").json()["total"] == 0
    assert bob.post("/api/threads", json={"thread_id": t}).status_code == 200
    assert bob.get(f"/api/threads/{t}/messages").json() == []


def test_feedback_on_answers_whose_run_is_not_there(alice, bob, thread):
    """Answers that a branch has from its parent, and those of a run that was deleted, are shown, so they can be rated. Imported answers are such, too."""
    v = say(alice, thread, "SAY first")
    rid = last_run(alice, thread)["run_id"]
    branch = alice.post(f"/api/threads/{thread}/branches", json={"message_id": v["messages"][-1]["id"]}).json()["thread_id"]
    [row] = [r for r in alice.get(f"/api/threads/{branch}/messages/page").json()["data"] if r["event_type"] == "llm.ai.response"]
    url = f"/api/threads/{branch}/runs/{row['run_id']}/feedback"
    assert bob.put(url, json={"rating": 1}).status_code == 404
    f = alice.put(url, json={"rating": -1, "comment": "here"})
    assert f.status_code == 200, f.text
    shown = lambda t: [r["feedback"] for r in alice.get(f"/api/threads/{t}/messages/page").json()["data"]][-1]
    assert shown(branch) == {"feedback_id": f.json()["feedback_id"], "rating": -1, "comment": "here"} and shown(thread) is None
    assert alice.get(url).json() == [f.json()] and alice.get(url + "/stats").json()["negative"] == 1
    say(alice, thread, "SAY second")
    assert alice.delete(f"/threads/{thread}/runs/{rid}").status_code == 204
    url = f"/api/threads/{thread}/runs/{rid}/feedback"
    assert alice.put(url, json={"rating": 1}).status_code == 200
    assert [r["feedback"]["rating"] for r in alice.get(f"/api/threads/{thread}/messages/page").json()["data"] if r["feedback"]] == [1]
    assert alice.delete(url).json() == {"success": True} and alice.delete(url).status_code == 404
    other = new_thread(alice)
    assert alice.put(f"/api/threads/{other}/runs/{rid}/feedback", json={"rating": 1}).status_code == 404
