"""What an attacker with an account of their own tries: paths that climb out, forged sessions, bodies that no client sends."""
import base64
import concurrent.futures
import http.client
import json
import urllib.parse
import uuid

from test_gateway import PW, URL, admin, alice, bare, bob, new_thread, thread, upload  # noqa: F401  fixtures


def raw(c, method, path):
    """A request whose path no client library tidies up"""
    at = urllib.parse.urlparse(URL)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
    cookies = "; ".join(f"{k}={v}" for k, v in c.cookies.items())
    body = None if method in ("GET", "DELETE") else "{}"
    connection.request(method, path, body=body, headers={"Cookie": cookies, "X-CSRF-Token": c.cookies["csrf_token"], "Content-Type": "application/json"})
    r = connection.getresponse()
    try:
        return r.status, r.read()
    finally:
        connection.close()


def test_paths_do_not_climb_out(alice, bob, thread):
    assert upload(alice, thread, ("s.txt", b"SECRET")).status_code == 200
    own = new_thread(bob)
    upload(bob, own, ("x.txt", b"x"))
    climbing = [f"../../../{alice.me['id']}/threads/{thread}/user-data/uploads/s.txt", "..%2f..%2f..%2f..%2fconfig.yaml", "%2e%2e/%2e%2e/x", "%252e%252e%252fconfig.yaml",
                "..%5c..%5cconfig.yaml", "s.txt%00.md", ".upload-x.part", "/etc/passwd", "%2fetc%2fpasswd"]
    t = f"/api/threads/{own}"
    for method, base in (("GET", f"{t}/artifacts/mnt/user-data/uploads/"), ("GET", f"{t}/artifacts/"), ("PUT", f"{t}/artifacts/mnt/user-data/outputs/"), ("DELETE", f"{t}/uploads/"),
                         ("GET", "/api/agents/"), ("PUT", "/api/agents/"), ("DELETE", "/api/agents/"), ("GET", "/api/skills/"), ("GET", "/api/threads/"), ("DELETE", "/api/threads/"),
                         ("PATCH", "/api/memory/facts/"), ("GET", f"{t}/runs/"), ("GET", "/api/assistants/"), ("GET", "/api/models/")):
        for p in climbing:
            status, answer = raw(bob, method, base + p)
            assert status < 500 and not any(w in answer for w in (b"SECRET", b"root:", b"config_version")), (method, base + p, status, answer[:200])
    assert alice.get(f"/api/threads/{thread}/uploads/list").json()["count"] == 1
    assert alice.get(f"/api/threads/{thread}/artifacts/mnt/user-data/uploads/s.txt").content == b"SECRET"


def test_forged_sessions(alice, bob):
    head, claims, signature = alice.cookies["access_token"].split(".")
    other = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": bob.me["id"]}

    def part(o):
        return base64.urlsafe_b64encode(json.dumps(o).encode()).rstrip(b"=").decode()

    forged = [f"{part({'alg': alg, 'typ': 'JWT'})}.{part(other)}.{s}" for alg in ("none", "None", "HS256", "HS512", "RS256") for s in ("", signature)]
    for token in forged + [f"{head}.{claims}", f"{head}.{claims}.{signature}.", f"{head}.{claims}.{signature[:-2]}xx"]:
        c = bare()
        c.cookies["access_token"] = token
        r = c.get("/api/v1/auth/me")
        assert r.status_code == 401 and r.json()["detail"]["code"] == "token_invalid", token


def test_one_address_registers_once(admin):
    name = uuid.uuid4().hex[:10]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: bare().post("/api/v1/auth/register", json={"email": f"{'RaCe' if n % 2 else 'race'}-{name}@example.com", "password": PW}).status_code, range(4)))
    assert sorted(answers) == [201, 400, 400, 400]


def test_bodies_that_no_client_sends(bob):
    t = f"/api/threads/{new_thread(bob)}"
    bodies = [b"", b"null", b"[]", b"1", b"{", b'{"a":' + b"[" * 100_000, b"\xff\xfe", b'{"thread_id":"\\u0000"}', b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
              b'{"messages":[1,null,{}],"facts":[1],"input":{"messages":[null,1]},"values":{"messages":5},"limit":1e400,"content":"\\ud800","name":"a\\u0000b","objective":"\\u0000"}']
    for path in ("/api/threads", "/api/threads/search", f"{t}/state", f"{t}/history", f"{t}/branches", f"{t}/goal", f"{t}/compact", f"{t}/suggestions", "/api/input-polish", "/api/memory/facts",
                 "/api/memory/import", "/api/agents", "/api/user-profile", "/api/v1/auth/change-password", f"{t}/runs/wait", "/api/runs/wait", f"{t}/runs/regenerate/prepare",
                 f"{t}/runs/edit-regenerate/prepare", f"{t}/browser/navigate", "/api/v1/auth/register"):
        for content in bodies:
            for method in ("POST", "PUT"):
                r = bob.request(method, path, content=content, headers={"Content-Type": "application/json"})
                assert r.status_code < 500, (method, path, content[:60], r.text[:200])
