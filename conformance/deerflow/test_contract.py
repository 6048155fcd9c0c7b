"""Answers to what clients send wrongly, oddly or through proxies. The real Gateway at f1f4af99 passes all of them; where it is at fault, the case says so and is `better`."""
import uuid

import pytest

from test_gateway import PW, admin, alice, bare, bob, body, fresh_user, internal, last_run, new_thread, say, thread, wait_for  # noqa: F401  fixtures

AUTH = "/api/v1/auth"
NONE = "11111111-2222-4333-8444-555555555555"  # the id of no run and no checkpoint


def problems(r):
    assert r.status_code == 422, r.text
    return [(p["type"], p["loc"]) for p in r.json()["detail"]]


# Bodies that are no JSON object, on every kind of route.
@pytest.mark.parametrize("content,kind,problem", [
    (b"", "application/json", ("missing", ["body"])), (b"null", "application/json", ("missing", ["body"])), (b"{", "application/json", ("json_invalid", ["body", 1])),
    (b"  ", "application/json", ("json_invalid", ["body", 2])), (b"[]", "application/json", ("model_attributes_type", ["body"])), (b'"x"', "application/json", ("model_attributes_type", ["body"])),
    (b"{}", "text/plain", ("model_attributes_type", ["body"])), (b"{}", None, ("model_attributes_type", ["body"])), (b"a=b", "application/x-www-form-urlencoded", ("model_attributes_type", ["body"]))])
def test_bodies_that_are_no_json_object(alice, admin, thread, content, kind, problem):
    headers = {"Content-Type": kind} if kind else {}
    for c, method, path in ((alice, "POST", "/api/threads"), (alice, "POST", "/api/threads/search"), (alice, "PATCH", f"/api/threads/{thread}"), (alice, "POST", f"/api/threads/{thread}/history"),
                            (alice, "POST", "/api/memory/facts"), (alice, "PUT", "/api/user-profile"), (admin, "PUT", "/api/mcp/config"), (alice, "POST", f"/api/threads/{thread}/runs/wait")):
        assert problems(c.request(method, path, content=content, headers=headers)) == [problem], (method, path)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json"])
def test_kinds_of_json(alice, kind):
    assert alice.post("/api/threads/search", content=b'{"limit":1}', headers={"Content-Type": kind}).status_code == 200


# Numbers and booleans of bodies: what is taken for one, and what is said of the rest.
@pytest.mark.parametrize("value,problem", [(5, None), ("5", None), (5.0, None), (True, None), (" 5 ", None), ("5.0", None), ("1_0", None), (None, "int_type"), ("x", "int_parsing"), ("", "int_parsing"),
                                           (1.5, "int_from_float"), ([], "int_type"), ({}, "int_type"), (0, "greater_than_equal"), (1001, "less_than_equal")])
def test_whole_numbers(alice, value, problem):
    r = alice.post("/api/threads/search", json={"limit": value})
    assert r.status_code == 200 if problem is None else problems(r) == [(problem, ["body", "limit"])], r.text


@pytest.mark.parametrize("value,problem", [("5", None), ("%205", None), ("%2B5", None), ("5.0", None), ("1_0", None), ("", "int_parsing"), ("x", "int_parsing"), ("1.5", "int_parsing"), ("0", "greater_than_equal"),
                                           ("201", "less_than_equal"), ("1&limit=300", "less_than_equal")])
def test_whole_numbers_of_queries(alice, thread, value, problem):
    for path in ("/messages", "/messages/page", f"/runs/{NONE}/messages"):
        r = alice.get(f"/api/threads/{thread}{path}?limit={value}")
        assert r.status_code == 200 if problem is None else problems(r) == [(problem, ["query", "limit"])], r.text


@pytest.mark.parametrize("value,problem", [(True, None), (1, None), (0.0, None), ("yes", None), ("OFF", None), (None, "bool_type"), (2, "bool_parsing"), ("maybe", "bool_parsing"), ("", "bool_parsing"), ([], "bool_type")])
def test_booleans(admin, value, problem):
    r = admin.put("/api/skills/demo-skill", json={"enabled": value})
    assert admin.put("/api/skills/demo-skill", json={"enabled": True}).status_code == 200
    assert r.status_code == 200 if problem is None else problems(r) == [(problem, ["body", "enabled"])], r.text


@pytest.mark.parametrize("path,payload,problem", [
    ("POST /api/threads", {"metadata": None}, ("dict_type", ["body", "metadata"])), ("POST /api/threads", {"thread_id": "x" * 65}, ("string_too_long", ["body", "thread_id"])),
    ("POST /api/threads/search", {"metadata": None}, ("dict_type", ["body", "metadata"])), ("PATCH /api/threads/T", {"metadata": None}, ("dict_type", ["body", "metadata"])),
    ("PUT /api/user-profile", {"content": None}, ("string_type", ["body", "content"])), ("POST /api/memory/facts", {"content": "x", "confidence": None}, ("float_type", ["body", "confidence"])),
    ("POST /api/memory/facts", {"content": "x", "category": None}, ("string_type", ["body", "category"])), ("POST /api/memory/import", {"facts": [{"id": "x"}]}, ("missing", ["body", "facts", 0, "content"])),
    ("POST /api/threads/T/suggestions", {"messages": [{"role": "user"}]}, ("missing", ["body", "messages", 0, "content"])), ("POST /api/input-polish", {"text": "x", "locale": 5}, ("string_type", ["body", "locale"])),
    ("POST /api/threads/T/compact", {"agent_name": "x" * 129}, ("string_too_long", ["body", "agent_name"])), ("POST /api/agents", {"name": "a", "reasoning_effort": "nope"}, ("literal_error", ["body", "reasoning_effort"])),
    ("POST /api/agents", {"name": "a", "model_settings": {"nope": 1}}, ("extra_forbidden", ["body", "model_settings", "nope"])),
    ("POST /api/agents", {"name": "a", "model_settings": {"temperature": "x"}}, ("float_parsing", ["body", "model_settings", "temperature"])),
    ("POST /api/assistants/search", {"limit": "x"}, ("int_parsing", ["body", "limit"])), ("PUT /api/threads/T/artifacts/mnt/user-data/outputs/a", {"content": "", "expected_sha256": "x"}, ("string_pattern_mismatch", ["body", "expected_sha256"])),
    ("POST /api/threads/T/runs/wait", {"input": 5}, ("dict_type", ["body", "input"])), ("POST /api/runs/wait", {"config": {"configurable": {"thread_id": "a b"}}}, ("value_error", ["body"])),
    ("POST /api/runs/wait", {"config": {"configurable": {"thread_id": 5}}}, ("value_error", ["body"])), ("POST /api/threads/T/runs/wait", {"if_not_exists": "nope"}, ("unsupported_run_option", ["body", "if_not_exists"]))])
def test_fields(alice, thread, path, payload, problem):
    method, path = path.split()
    assert problems(alice.request(method, path.replace("/T", f"/{thread}", 1) if "/T" in path else path, json=payload)) == [problem]


@pytest.mark.parametrize("metadata,text", [({"a b": 1}, "'a b' (unsafe key)"), ({"": 1}, "'' (unsafe key)"), ({"k": [1]}, "'k' (unsupported value type list)"), ({"k": {}}, "'k' (unsupported value type dict)"),
                                           ({"k": 10 ** 30}, "'k' (unsupported value type int)"), ({"a.b": 1, "k": []}, "'a.b' (unsafe key), 'k' (unsupported value type list)")])
def test_filters_of_threads(alice, metadata, text):
    r = alice.post("/api/threads/search", json={"metadata": metadata})
    assert problems(r) == [("value_error", ["body", "metadata"])] and r.json()["detail"][0]["msg"] == f"Value error, Invalid metadata filter entries: {text}"


# Accounts.
@pytest.mark.parametrize("email,reason", [("x", "An email address must have an @-sign."), ("", "An email address must have an @-sign."), ("@example.com", "There must be something before the @-sign."),
                                          ("a@", "There must be something after the @-sign."), ("a@localhost", "The part after the @-sign is not valid. It should have a period."),
                                          ("a b@example.com", "The email address contains invalid characters before the @-sign: SPACE."), ("a@@example.com", "The part after the @-sign contains invalid characters: '@'."),
                                          ("a..b@example.com", "An email address cannot have two periods in a row."), ("a@example.test", "The part after the @-sign is a special-use or reserved name that cannot be used with email."),
                                          ("a@[127.0.0.1]", "A bracketed IP address after the @-sign is not allowed here.")])
def test_email_addresses(email, reason):
    r = bare().post(f"{AUTH}/register", json={"email": email})
    assert problems(r) == [("value_error", ["body", "email"]), ("missing", ["body", "password"])]
    assert r.json()["detail"][0]["msg"] == f"value is not a valid email address: {reason}" and r.json()["detail"][0]["ctx"] == {"reason": reason}


def test_email_addresses_that_are_read(admin):
    name = uuid.uuid4().hex[:10]
    r = bare().post(f"{AUTH}/register", json={"email": f"Some Body <UP-{name}@Example.COM>", "password": PW, "remember_me": 0})
    assert (r.status_code, r.json()["email"]) == (201, f"up-{name}@example.com")
    assert not [c for c in r.headers.get_list("set-cookie") if "max-age" in c.lower()]
    assert bare().post(f"{AUTH}/login/local", data={"username": f"UP-{name}@example.com", "password": PW}).status_code == 200


@pytest.mark.parametrize("password,problem,msg", [("é" * 7, "string_too_short", "String should have at least 8 characters"), ("AdminIstrator", "value_error", "Value error, Password is too common; choose a stronger password.")])
def test_passwords(alice, password, problem, msg):
    for r, key in ((bare().post(f"{AUTH}/register", json={"email": "a@example.com", "password": password}), "password"),
                   (alice.post(f"{AUTH}/change-password", json={"current_password": "x", "new_password": password}), "new_password")):
        assert problems(r) == [(problem, ["body", key])] and r.json()["detail"][0]["msg"] == msg


def test_forms(admin):
    given = {"username": "nobody@example.com", "password": PW}
    for data, want in (({}, [("missing", ["body", "username"]), ("missing", ["body", "password"])]), ({"username": "", "password": ""}, [("missing", ["body", "username"]), ("missing", ["body", "password"])]),
                       (given | {"grant_type": "other"}, [("string_pattern_mismatch", ["body", "grant_type"])]), (given | {"remember_me": "maybe"}, [("bool_parsing", ["body", "remember_me"])])):
        assert problems(bare().post(f"{AUTH}/login/local", data=data)) == want
    own = fresh_user("forms")
    for more in ({"remember_me": ""}, {"grant_type": ""}, {"grant_type": "password"}):
        assert bare().post(f"{AUTH}/login/local", data={"username": own.me["email"], "password": PW} | more).status_code == 200


def test_an_address_that_another_has(admin):
    own = fresh_user("other")
    r = own.post(f"{AUTH}/change-password", json={"current_password": PW, "new_password": PW + "x", "new_email": "admin@example.com"})
    assert (r.status_code, r.json()["detail"]) == (400, {"code": "email_already_exists", "message": "Email already in use"})


# What a proxy in front says, and where a page is from.
@pytest.mark.parametrize("headers,same", [
    ({"Origin": "http://chat.example"}, True), ({"Origin": "http://CHAT.example:80"}, True), ({"Origin": "https://chat.example"}, False), ({"Origin": "http://chat.example:81"}, False),
    ({"Origin": "https://chat.example", "X-Forwarded-Proto": "https"}, True), ({"Origin": "https://chat.example", "X-Forwarded-Proto": "https, http"}, True),
    ({"Origin": "http://chat.example", "X-Forwarded-Proto": "https"}, False), ({"Origin": "https://a.example", "Forwarded": 'for=1.1.1.1;proto=https;host="a.example"'}, True),
    ({"Origin": "http://a.example:8080", "X-Forwarded-Host": "a.example", "X-Forwarded-Port": "8080"}, True), ({"Origin": "HTTP://LOCALHOST:3000"}, True), ({"Origin": "https://localhost:3000"}, False),
    ({"Origin": "http://u@localhost:3000"}, False), ({"Origin": "http://localhost:3000/"}, True), ({"Origin": "null"}, False), ({"Origin": "ftp://chat.example"}, False), ({"Origin": "http://chat.example:99999"}, False)])
def test_origins_of_sign_ins(headers, same):
    if headers["Origin"].endswith("/"):
        same = False  # an origin has no path
    r = bare().post(f"{AUTH}/logout", headers={"Host": "chat.example"} | headers)
    assert (r.status_code, r.json()) == ((200, {"message": "Successfully logged out"}) if same else (403, {"detail": "Cross-site auth request denied."}))


def attributes(r):
    """By cookie: its attributes, without values and dates."""
    out = {}
    for line in r.headers.get_list("set-cookie"):
        name, *parts = [p.strip().lower() for p in line.split(";")]
        out[name.split("=")[0]] = {p for p in parts if not p.startswith("expires") and not p.startswith("max-age")}
    return out


@pytest.mark.parametrize("headers,secure", [({}, set()), ({"X-Forwarded-Proto": "https"}, {"secure"}), ({"X-Forwarded-Proto": "HTTPS"}, {"secure"}), ({"Forwarded": "proto=https"}, {"secure"})])
def test_cookies_of_a_session(admin, headers, secure):
    own = fresh_user("cookies")
    want = {"access_token": {"httponly", "path=/", "samesite=lax"} | secure, "csrf_token": {"path=/", "samesite=strict"} | secure, "deerflow_session_persistent": {"path=/", "samesite=lax"} | secure}
    r = bare().post(f"{AUTH}/login/local", data={"username": own.me["email"], "password": PW}, headers=headers)
    got = attributes(r)
    assert {k: v - {"httponly"} if k == "deerflow_session_persistent" else v for k, v in got.items()} == want
    out = attributes(bare().post(f"{AUTH}/logout", headers=headers))
    assert {k: v - {"httponly"} for k, v in out.items()} == {k: v - {"httponly"} for k, v in want.items()}


# Other methods, and slashes.
@pytest.mark.parametrize("method,path", [("POST", "/api/memory"), ("PUT", "/api/memory"), ("GET", "/api/memory/facts"), ("DELETE", "/api/mcp/config"), ("GET", "/api/threads"), ("PUT", "/api/threads/T"), ("PATCH", "/api/threads/T/state"),
                                         ("GET", "/api/threads/T/runs/wait"), ("DELETE", "/api/threads/T/messages/page"), ("POST", "/api/models"), ("DELETE", "/api/channels/"), ("GET", f"{AUTH}/change-password")])
def test_other_methods(alice, bob, thread, method, path):
    if path.endswith("/runs/wait"):
        pytest.skip("a run named wait")
    r = alice.request(method, path.replace("T", thread))
    assert (r.status_code, r.json()) == (405, {"detail": "Method Not Allowed"}) and method not in r.headers["allow"].split(", ")
    assert bare().request(method, path.replace("T", thread)).status_code == (401 if method == "GET" else 403)


def test_other_methods_of_public_paths():
    for path in ("login/local", "register", "logout", "initialize"):
        r = bare().get(f"{AUTH}/{path}")
        assert (r.status_code, r.headers["allow"]) == (405, "POST")
    for path, to in (("setup-status/", "setup-status"), ("providers/", "providers")):
        r = bare().get(f"{AUTH}/{path}", follow_redirects=False)
        assert r.status_code == 307 and r.headers["location"].endswith(f"{AUTH}/{to}")


def test_slashes_behind_nothing(alice):
    for path in ("/api/", "/api/v1/auth/", "/api/nothing/"):
        assert alice.get(path, follow_redirects=False).status_code == 404


# Threads that do not exist: what reads and what writes.
def test_writes_to_an_unknown_thread(alice):
    u = f"unknown-{uuid.uuid4().hex[:8]}"
    gone = (404, {"detail": f"Thread {u} not found"})
    for method, path, payload in (("POST", "/runs", body("SAY x")), ("POST", "/runs/wait", body("SAY x")), ("POST", "/runs/stream", body("SAY x")), ("DELETE", f"/runs/{NONE}/feedback", None), ("DELETE", f"/runs/{NONE}/feedback/x", None),
                                  ("PUT", f"/runs/{NONE}/feedback", {"rating": 1}), ("POST", f"/runs/{NONE}/feedback", {"rating": 1}), ("DELETE", "/uploads/x.txt", None), ("POST", f"/runs/{NONE}/cancel", None),
                                  ("PUT", "/artifacts/mnt/user-data/outputs/a", {"content": "", "expected_sha256": "0" * 64}), ("POST", "/compact", {}), ("POST", "/branches", {"message_id": "x"})):
        r = alice.request(method, f"/api/threads/{u}{path}", json=payload) if payload is not None else alice.request(method, f"/api/threads/{u}{path}")
        assert (r.status_code, r.json()) == gone, (method, path)
    assert alice.get(f"/api/threads/{u}").status_code == 404
    assert alice.post(f"/api/threads/{u}/history", json={}).json() == []
    assert alice.delete(f"/api/threads/{u}/goal").json() == {"goal": None}


@pytest.mark.harness
def test_turns_and_checkpoints_that_do_not_exist(alice, bob, thread):
    say(alice, thread, "SAY x")
    t = f"/api/threads/{thread}"
    rid = last_run(alice, thread)["run_id"]
    for r, want in ((alice.post(f"{t}/branches", json={"message_id": "nope"}), (409, "This turn can no longer be branched from.")),
                    (alice.post(f"{t}/runs/regenerate/prepare", json={"message_id": "nope"}), (404, "Message nope not found")),
                    (alice.post(f"{t}/runs/edit-regenerate/prepare", json={"human_message_id": "nope", "replacement_text": "x"}), (409, "Only the latest completed user turn can be edited")),
                    (alice.post(f"{t}/runs/edit-regenerate/prepare", json={"human_message_id": "nope", "replacement_text": " "}), (409, "Edited message cannot be empty")),
                    (alice.post(f"{t}/state", json={"values": {"title": "x"}, "checkpoint_id": "nope"}), (404, "Checkpoint nope not found")),
                    (alice.post(f"{t}/state", json={"values": {"title": "x"}, "checkpoint_id": NONE}), (404, f"Checkpoint {NONE} not found")),
                    (alice.post(f"{t}/state", json={"values": {"title": "x"}, "checkpoint_id": ""}), (404, "Checkpoint not found")),
                    (alice.post(f"{t}/runs/wait", json=body("SAY x", checkpoint_id="nope")), (404, "Checkpoint nope not found")),
                    (alice.post(f"{t}/runs/wait", json=body("SAY x", checkpoint={"checkpoint_id": NONE})), (404, f"Checkpoint {NONE} not found")),
                    (alice.post(f"{t}/runs/wait", json=body("SAY x", checkpoint={"checkpoint_id": NONE, "thread_id": "other"})), (400, "checkpoint thread_id does not match request thread_id")),
                    (alice.put(f"{t}/goal", json={"objective": "  "}), (422, "Goal objective must not be empty.")),
                    (alice.post(f"{t}/runs/{rid}/stream", params={"action": "rollback"}), (409, f"Run {rid} is not cancellable (status: success)"))):
        assert (r.status_code, r.json()["detail"]) == want
    assert problems(alice.post(f"{t}/runs/{rid}/stream", params={"action": "", "wait": "x"})) == [("literal_error", ["query", "action"]), ("int_parsing", ["query", "wait"])]
    # Another user's run looks like one that does not exist.
    other = new_thread(bob)
    assert bob.put(f"/api/threads/{other}/runs/{rid}/feedback", json={"rating": 1}).json() == {"detail": f"Run {rid} not found"}


# What is written into a thread without runs is there, and nothing waits to be executed.
@pytest.mark.harness
@pytest.mark.parametrize("node", [None, "nothing"])
def test_state_of_a_new_thread(alice, thread, node):
    t = f"/api/threads/{thread}"
    as_node = {"as_node": node} if node else {}
    s = alice.post(f"{t}/state", json={"values": {"title": "Täglich"}} | as_node).json()
    assert (s["values"]["title"], s["next"], s["tasks"]) == ("Täglich", [], []) and s["checkpoint_id"]
    assert alice.put(f"{t}/goal", json={"objective": "win  it"}).json()["goal"]["objective"] == "win it"
    s = alice.get(f"{t}/state").json()
    assert (s["values"]["title"], s["values"]["goal"]["objective"], s["next"]) == ("Täglich", "win it", [])
    row = next(r for r in alice.post("/api/threads/search", json={"limit": 10}).json() if r["thread_id"] == thread)
    assert (row["status"], row["values"]) == ("idle", {"title": "Täglich"})
    assert [m["content"] if isinstance(m["content"], str) else m["content"][0]["text"] for m in say(alice, thread, "SAY yes")["messages"] if m["type"] in ("human", "ai")] == ["SAY yes", "yes"]
    assert alice.get(f"{t}/state").json()["values"]["title"] == "Täglich"


def test_forms_that_end_in_the_middle(alice, thread):
    url = f"/api/threads/{thread}/uploads"
    for content, kind, want in ((b"x", "multipart/form-data", (400, "Missing boundary in multipart.")), (b"x", "multipart/form-data; boundary=b", (400, "There was an error parsing the body"))):
        r = alice.post(url, content=content, headers={"Content-Type": kind})
        assert (r.status_code, r.json()["detail"]) == want
    cut = b'--b\r\nContent-Disposition: form-data; name="files"; filename="cut.txt"\r\n\r\nabc'
    assert alice.post(url, content=cut, headers={"Content-Type": "multipart/form-data; boundary=b"}).status_code in (400, 422)
    assert alice.get(f"{url}/list").json() == {"files": [], "count": 0}


def test_ranges_of_nothing(alice, thread):
    assert alice.post(f"/api/threads/{thread}/uploads", files=[("files", ("a.txt", b"hello")), ("files", ("empty.txt", b""))]).status_code == 200
    for name, ranges in (("a.txt", ("bytes=-0", "bytes=5-", "bytes=9-10")), ("empty.txt", ("bytes=0-", "bytes=-3", "bytes=-0"))):
        for given in ranges:
            assert alice.get(f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/{name}", headers={"Range": given}).status_code == 416, (name, given)


def test_the_description_has_the_routes():
    paths = bare().get("/openapi.json").json()["paths"]
    for path, methods in (("/api/threads", {"post"}), ("/api/threads/{thread_id}/messages/page", {"get"}), ("/api/skills/{name}", {"get", "put"}), ("/api/v1/auth/login/local", {"post"}),
                          ("/api/threads/{thread_id}/artifacts/{path}", {"get", "put"})):
        assert methods <= set(paths[path]), path
    assert "requestBody" in paths["/api/threads"]["post"]
    assert any("multipart" in kind for kind in paths["/api/threads/{thread_id}/uploads"]["post"]["requestBody"]["content"])
    assert any("urlencoded" in kind for kind in paths["/api/v1/auth/login/local"]["post"]["requestBody"]["content"])


@pytest.mark.harness
def test_a_channel_that_names_an_owner_takes_a_thread_over(internal, alice, bob, admin):
    key = f"chat-{uuid.uuid4().hex}"
    assert internal.post("/api/threads", json={"thread_id": key, "metadata": {"channel_source": {"type": "im_channel"}}}).status_code == 200
    assert internal.post(f"/api/threads/{key}/uploads", files=[("files", ("a.txt", b"hello"))]).status_code == 200
    say(internal, key, "SAY before")
    assert alice.post("/api/threads", json={"thread_id": key}).status_code in (404, 409)
    for c in (alice, bob):  # twice: of the channel's own, and of another user's
        h = {"X-DeerFlow-Owner-User-Id": c.me["id"]}
        assert internal.get(f"/api/threads/{key}", headers=h).status_code == 404
        r = internal.post("/api/threads", json={"thread_id": key, "metadata": {"ignored": True}}, headers=h)
        assert (r.status_code, r.json()["thread_id"]) == (200, key)
        assert r.json()["metadata"]["channel_source"] == {"type": "im_channel"} and "ignored" not in r.json()["metadata"]
        assert "before" in c.get(f"/api/threads/{key}/messages").text
        assert c.get(f"/api/threads/{key}/artifacts/mnt/user-data/uploads/a.txt").text == "hello"
        assert key in [t["thread_id"] for t in c.post("/api/threads/search", json={}).json()]
        assert internal.get(f"/api/threads/{key}").status_code == 404
    assert alice.get(f"/api/threads/{key}").status_code == 404
    assert alice.get(f"/api/threads/{key}/messages").status_code == 404
    assert alice.get(f"/api/threads/{key}/artifacts/mnt/user-data/uploads/a.txt").status_code == 404
    assert alice.post("/api/threads", json={"thread_id": key}, headers={"X-DeerFlow-Owner-User-Id": alice.me["id"]}).status_code in (404, 409)
    say(bob, key, "SAY after")


def test_versions_of_artifacts(alice, thread):
    assert alice.post(f"/api/threads/{thread}/uploads", files=[("files", ("a.txt", b"hello"))]).status_code == 200
    url = f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/a.txt"
    r = alice.get(url)
    tag, modified = r.headers["ETag"], r.headers["Last-Modified"]
    for given in (tag, "*", f"W/{tag}", f'"x", {tag}'):
        r = alice.get(url, headers={"If-None-Match": given})
        assert (r.status_code, r.content) == (304, b""), given
    assert alice.get(url, headers={"If-None-Match": '"x"'}).status_code == 200
    for given, want in ((tag, b"el"), (modified, b"el"), ('"x"', b"hello"), ("Thu, 01 Jan 1970 00:00:00 GMT", b"hello")):
        assert alice.get(url, headers={"If-Range": given, "Range": "bytes=1-2"}).content == want, given
    for given, want in (("bytes=1-99999999999999999999", b"ello"), ("bytes=-99999999999999999999", b"hello"), ("BYTES=1-2", b"el"), ("bytes=0-0,2-3", b"hello")):
        assert alice.get(url, headers={"Range": given}).content == want, given
    r = alice.head(url, headers={"Range": "bytes=1-2"})
    assert (r.status_code, r.headers["Content-Range"], r.content) == (206, "bytes 1-2/5", b"")


@pytest.mark.parametrize("given,text", [("bytes=x", "Range header: range must be requested"), ("bytes=", "Range header: range must be requested"), ("items=0-1", "Only support bytes range"), ("bytes", "Malformed range header."),
                                        ("bytes=4-2", "Range header: start must be less than end")])
def test_ranges_that_cannot_be_read(alice, thread, given, text):
    assert alice.post(f"/api/threads/{thread}/uploads", files=[("files", ("a.txt", b"hello"))]).status_code == 200
    r = alice.get(f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/a.txt", headers={"Range": given})
    assert r.status_code == 400 and text in r.text


@pytest.mark.harness
def test_the_configuration_of_a_run_is_what_was_sent(alice, thread):
    say(alice, thread, "SAY hi")
    assert last_run(alice, thread)["kwargs"]["config"] is None
    given = {"recursion_limit": 50, "tags": ["x"], "configurable": {"foo": 1}}
    say(alice, thread, "SAY hi", config=given)
    x = last_run(alice, thread)
    assert x["kwargs"]["config"] == given and x["metadata"] == {}


@pytest.mark.harness
def test_rows_of_answers_say_what_they_used(alice, thread):
    say(alice, thread, "SAY hi")
    rows = {x["event_type"]: x["metadata"] for x in alice.get(f"/api/threads/{thread}/messages/page").json()["data"]}
    used = rows["llm.ai.response"]["usage"]
    assert {k: used[k] for k in ("input_tokens", "output_tokens", "total_tokens")} == {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11} and "usage" not in rows["llm.human.input"]
    made = rows["llm.ai.response"]
    assert made["llm_call_index"] == 1 and isinstance(made["latency_ms"], int) and made["latency_ms"] >= 0 and not {"llm_call_index", "latency_ms"} & set(rows["llm.human.input"])


def again(c, t, kind, **which):
    """What the web UI sends to let the last turn run again"""
    r = c.post(f"/api/threads/{t}/runs/{kind}/prepare", json=which)
    assert r.status_code == 200, r.text
    return {"assistant_id": "lead_agent", **{k: r.json()[k] for k in ("input", "checkpoint", "metadata")}, "on_disconnect": "continue"}


def shown(c, t):
    """The messages of a thread, by their text, and the id of the last of each kind"""
    rows = [x["content"] for x in c.get(f"/api/threads/{t}/messages/page").json()["data"]]
    texts = [x["content"] if isinstance(x["content"], str) else x["content"][0]["text"] for x in rows]
    return texts, {x["type"]: x["id"] for x in rows}


@pytest.mark.harness
def test_a_title_stays_when_a_turn_runs_again(alice, thread):
    say(alice, thread, "SAY one")
    say(alice, thread, "SAY two")
    alice.post(f"/api/threads/{thread}/state", json={"values": {"title": "Renamed"}})
    assert alice.post(f"/api/threads/{thread}/runs/wait", json=again(alice, thread, "regenerate", message_id=shown(alice, thread)[1]["ai"])).json()["title"] == "Renamed"
    edit = again(alice, thread, "edit-regenerate", human_message_id=shown(alice, thread)[1]["human"], replacement_text="SAY three")
    assert alice.post(f"/api/threads/{thread}/runs/wait", json=edit).json()["title"] == "Renamed" == alice.get(f"/api/threads/{thread}").json()["values"]["title"]
    assert shown(alice, thread)[0] == ["SAY one", "one", "SAY three", "three"]


@pytest.mark.harness
def test_an_edit_that_does_not_succeed_leaves_the_turn_as_it_was(alice, thread):
    say(alice, thread, "SAY one")
    say(alice, thread, "SAY two")
    before = shown(alice, thread)
    state = lambda: [m["id"] for m in alice.get(f"/api/threads/{thread}/state").json()["values"]["messages"]]
    had = state()
    edit = lambda text: again(alice, thread, "edit-regenerate", human_message_id=before[1]["human"], replacement_text=text)
    alice.post(f"/api/threads/{thread}/runs/wait", json=edit("FAILMODEL"))
    assert last_run(alice, thread)["status"] == "error" and shown(alice, thread) == before and state() == had
    run = alice.post(f"/api/threads/{thread}/runs", json=edit("SLOW 400")).json()["run_id"]
    wait_for(lambda: "SLOW 400" in shown(alice, thread)[0], 20)
    alice.post(f"/api/threads/{thread}/runs/{run}/cancel?wait=1&action=interrupt")
    assert last_run(alice, thread)["status"] == "interrupted" and shown(alice, thread) == before and state() == had
    assert alice.get(f"/api/threads/{thread}").json()["status"] == "idle"
    say(alice, thread, "SAY three")
    assert shown(alice, thread)[0] == before[0] + ["SAY three", "three"]


@pytest.mark.harness
def test_what_cannot_be_edited(alice, thread):
    say(alice, thread, "SAY one")
    path, which = f"/api/threads/{thread}/runs/edit-regenerate/prepare", {"human_message_id": shown(alice, thread)[1]["human"]}
    r = alice.post(path, json={**which, "replacement_text": " SAY one "})
    assert (r.status_code, r.json()) == (409, {"detail": "Edited message is unchanged"})
    alice.put(f"/api/threads/{thread}/goal", json={"objective": "all"})
    r = alice.post(path, json={**which, "replacement_text": "SAY two"})
    assert (r.status_code, r.json()) == (409, {"detail": "Cannot edit while a goal is active"})
    alice.delete(f"/api/threads/{thread}/goal")
    say(alice, thread, "FAILMODEL")
    r = alice.post(path, json={"human_message_id": shown(alice, thread)[1]["human"], "replacement_text": "SAY two"})
    assert r.status_code == 409, r.text
