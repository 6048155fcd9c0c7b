"""What handlers of `@auth.on` are asked about, and what counts of what they change; serve `auth/values.json`."""
import base64
import json
import uuid

import httpx
import pytest
from conftest import NO_SUCH
from helpers import BASE_URL

pytestmark = pytest.mark.deployment("auth/values.json")
ANY = object()


class Who:
    """Sends requests as a user of the test's own, with what the handlers have to do."""

    def __init__(self):
        self.identity = f"user-{uuid.uuid4()}"

    async def ask(self, method, path, body=None, **orders):
        token = base64.urlsafe_b64encode(json.dumps({"identity": self.identity, **orders}).encode()).decode()
        async with httpx.AsyncClient(base_url=BASE_URL, timeout=30, headers={"authorization": f"Bearer {token}"}) as http:
            return await http.request(method, path, **({} if body is None else {"json": body}))

    async def must(self, method, path, body=None, **orders):
        r = await self.ask(method, path, body, **orders)
        assert r.status_code < 300, r.text
        return r.json() if r.content else None

    async def shown(self, about, method, path, body=None):
        r = await self.ask(method, path, body, show=about)
        assert r.status_code == 403, r.text
        return json.loads(r.json()["detail"])


@pytest.fixture
def who():
    return Who()


@pytest.fixture
async def world(who):
    """A thread with a finished run, an assistant and a cron."""
    thread = (await who.must("POST", "/threads", {"metadata": {"m": 1}}))["thread_id"]
    assistant = (await who.must("POST", "/assistants", {"graph_id": "counter", "name": "mine", "metadata": {"x": 1}}))["assistant_id"]
    cron = (await who.must("POST", f"/threads/{thread}/runs/crons", {"assistant_id": "counter", "schedule": "0 0 1 1 *", "input": {"n": 1}}))["cron_id"]
    await who.must("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "counter", "input": {}})
    run = (await who.must("GET", f"/threads/{thread}/runs"))[0]["run_id"]
    return {"THREAD": thread, "ASSISTANT": assistant, "CRON": cron, "RUN": run}


def filled(value, world):
    text = json.dumps(value)
    for name, id in world.items():
        text = text.replace(name, id)
    return json.loads(text)


def u(id):
    return {"uuid": id}


CRON = {"assistant_id": "counter", "schedule": "0 0 1 1 *", "input": {"n": 1}}


@pytest.mark.parametrize("about, method, path, body, want", [
    ("threads.update", "PATCH", "/threads/THREAD", {"metadata": {"z": 1}}, {"thread_id": u("THREAD"), "metadata": {"z": 1}}),
    ("threads.update", "POST", "/threads/THREAD/runs/RUN/cancel?action=rollback", None, {"thread_id": u("THREAD"), "action": "rollback", "metadata": {"run_ids": [u("RUN")], "status": None}}),
    ("threads.update", "POST", "/runs/cancel", {"status": "all"}, {"thread_id": None, "action": "interrupt", "metadata": {"run_ids": None, "status": "all"}}),
    ("threads.delete", "DELETE", "/threads/THREAD", None, {"thread_id": u("THREAD")}),
    ("threads.delete", "DELETE", "/threads/THREAD/runs/RUN", None, {"thread_id": u("THREAD"), "run_id": u("RUN")}),
    ("threads.delete", "POST", "/threads/prune", {"thread_ids": ["THREAD"]}, {"thread_ids": ["THREAD"]}),
    ("threads.search", "POST", "/threads/search", {"metadata": {"a": 1}, "status": "idle", "limit": 3, "offset": 1}, {"metadata": {"a": 1}, "values": {}, "status": "idle", "limit": 3, "offset": 1}),
    ("assistants.update", "POST", "/assistants/ASSISTANT/latest", {"version": 1}, {"assistant_id": u("ASSISTANT"), "version": 1}),
    ("assistants.update", "PATCH", "/assistants/ASSISTANT", {"name": "k"}, {"assistant_id": u("ASSISTANT"), "graph_id": None, "name": "k", "metadata": {}, "config": {}, "context": None}),
    ("crons.update", "PATCH", "/runs/crons/CRON", {"schedule": "0 0 2 2 *", "enabled": False}, {
        "cron_id": "CRON", "schedule": "0 0 2 2 *", "enabled": False, "end_time": None, "on_run_completed": None, "payload": ANY}),
    ("store.put", "PUT", "/store/items", {"namespace": ["a", "b"], "key": "k", "value": {"t": 1}}, {"namespace": {"tuple": ["a", "b"]}, "key": "k", "value": {"t": 1}, "index": None, "ttl": None}),
    ("store.put", "PUT", "/store/items", {"namespace": ["a"], "key": "k", "value": {}, "index": ["u"], "ttl": 5}, {"namespace": {"tuple": ["a"]}, "key": "k", "value": {}, "index": ["u"], "ttl": 5}),
    ("store.get", "GET", "/store/items?namespace=a.b&key=k", None, {"namespace": {"tuple": ["a", "b"]}, "key": "k", "refresh_ttl": None}),
    ("store.get", "GET", "/store/items?namespace=a&key=k&refresh_ttl=false", None, {"namespace": {"tuple": ["a"]}, "key": "k", "refresh_ttl": False}),
    ("store.delete", "DELETE", "/store/items", {"namespace": ["a"], "key": "k"}, {"namespace": {"tuple": ["a"]}, "key": "k"}),
    ("store.search", "POST", "/store/items/search", {"namespace_prefix": ["a"], "query": "x", "filter": {"z": 1}, "limit": 3, "offset": 1, "refresh_ttl": True}, {
        "namespace": {"tuple": ["a"]}, "filter": {"z": 1}, "limit": 3, "offset": 1, "query": "x", "refresh_ttl": True}),
    ("store.list_namespaces", "POST", "/store/namespaces", {}, {"namespace": None, "suffix": None, "max_depth": None, "limit": 100, "offset": 0}),
    ("store.list_namespaces", "POST", "/store/namespaces", {"prefix": ["a"], "suffix": ["b"], "max_depth": 3, "limit": 0}, {
        "namespace": {"tuple": ["a"]}, "suffix": {"tuple": ["b"]}, "max_depth": 3, "limit": 0, "offset": 0}),
])
async def test_what_a_handler_is_asked_about(who, world, about, method, path, body, want):
    got = await who.shown(about, method, filled(path, world), filled(body, world))
    want = {k: got.get(k) if v is ANY else filled(v, world) for k, v in want.items()}
    assert got == want


async def test_a_new_assistant(who):
    got = await who.shown("assistants.create", "POST", "/assistants", {"graph_id": "counter", "metadata": {"a": 1}})
    got.pop("if_exists", None)
    assert set(got.pop("assistant_id")) == {"uuid"}
    assert got == {"graph_id": "counter", "name": "Untitled", "metadata": {"a": 1}, "config": {}, "context": None}


async def test_a_new_cron(who, world):
    for path, thread in (("/runs/crons", None), (f"/threads/{world['THREAD']}/runs/crons", u(world["THREAD"]))):
        got = await who.shown("crons.create", "POST", path, {**CRON, "metadata": {"q": 1}, "end_time": "2099-01-01T00:00:00Z"})
        cron = got["cron_id"]["uuid"]
        assert got["payload"]["config"] == {"configurable": {"cron_id": cron}}
        assert (got["payload"]["assistant_id"], got["payload"]["input"]) == ("counter", {"n": 1})
        assert {k: v for k, v in got.items() if k not in ("cron_id", "payload")} == {
            "thread_id": thread, "user_id": who.identity, "schedule": "0 0 1 1 *", "metadata": {"q": 1}, "end_time": "2099-01-01T00:00:00Z"}


async def test_a_cron_does_not_show_its_user(who, world):
    made = await who.must("POST", "/runs/crons", CRON)
    assert made["payload"]["config"] == {"configurable": {"cron_id": made["cron_id"]}}
    found = await who.must("POST", "/runs/crons/search", {"thread_id": world["THREAD"]})
    assert [c["payload"]["config"] for c in found] == [{"configurable": {"cron_id": world["CRON"]}}]
    assert {made["user_id"], found[0]["user_id"]} == {who.identity}
    await who.must("DELETE", f"/runs/crons/{made['cron_id']}")


@pytest.mark.parametrize("stateless", [False, True])
async def test_a_new_run(who, world, stateless):
    path = "/runs/wait" if stateless else f"/threads/{world['THREAD']}/runs/wait"
    counter = next(a["assistant_id"] for a in await who.must("POST", "/assistants/search", {"graph_id": "counter", "metadata": {"created_by": "system"}}))
    for named, id in (("counter", counter), (world["ASSISTANT"], world["ASSISTANT"])):
        got = await who.shown("threads.create_run", "POST", path, {
            "assistant_id": named, "input": {"n": 1}, "metadata": {"m": 1}, "config": {"tags": ["t"], "configurable": {"k": 1}}, "interrupt_before": ["node"], "stream_mode": ["values"]})
        kwargs = got.pop("kwargs")
        assert set(got.pop("run_id")) == {"uuid"}
        assert got == {
            "assistant_id": u(id), "thread_id": None if stateless else u(world["THREAD"]), "metadata": {"m": 1}, "status": "pending", "multitask_strategy": "enqueue",
            "prevent_insert_if_inflight": False, "if_not_exists": "create" if stateless else "reject", "after_seconds": 0}
        configurable = kwargs["config"].pop("configurable")
        assert {k: configurable[k] for k in ("k", "langgraph_auth_user", "langgraph_auth_user_id", "langgraph_auth_permissions")} == {
            "k": 1, "langgraph_auth_user": {"user": who.identity}, "langgraph_auth_user_id": who.identity, "langgraph_auth_permissions": []}
        kwargs.pop("context")
        assert kwargs == {
            "input": {"n": 1}, "command": None, "config": {"tags": ["t"]}, "stream_mode": ["values"], "interrupt_before": ["node"], "interrupt_after": None, "webhook": None, "feedback_keys": None,
            "subgraphs": False, "resumable": False, "temporary": stateless, "durability": "async", "checkpoint_during": True}


async def test_what_a_handler_does_to_an_item(who):
    space = who.identity

    async def put(key, text, **orders):
        r = await who.ask("PUT", "/store/items", {"namespace": [space, "n"], "key": key, "value": {"text": text, "other": "aaa"}}, **orders)
        return r.status_code

    def change(about, path, value):
        return {"change": about, "at": [path], "value": value}
    assert await put("one", "aaa") == await put("two", "bbb") == 204
    assert await put("three", "aaa", **change("store.put", "index", False)) == await put("four", "bbb", **change("store.put", "index", ["other"])) == 204
    assert await put("five", "bbb", **change("store.put", "key", "six")) == await put("seven", "bbb", **change("store.put", "namespace", [space, "other"])) == 204
    assert await put("bad", "bbb", **change("store.put", "namespace", [])) == 400

    async def found(orders=None, **more):
        items = (await who.must("POST", "/store/items/search", {"namespace_prefix": [space, "n"], "query": "aaa", **more}, **(orders or {})))["items"]
        return {i["key"] for i in items if i["score"] is not None and i["score"] > 0.9}
    assert await found() == {"one", "four"}
    assert len(await found(change("store.search", "limit", 1))) == 1
    assert len(await found(change("store.search", "offset", 1))) == 1
    assert await found(change("store.search", "query", "bbb")) == {"two", "six"}
    assert await found(change("store.search", "filter", {"text": "bbb"})) == {"four"}
    assert await found(change("store.search", "namespace", [space, "other"]), query="bbb") == {"seven"}

    async def spaces(orders=None, **more):
        return (await who.must("POST", "/store/namespaces", {"prefix": [space], **more}, **(orders or {})))["namespaces"]
    assert await spaces() == [[space, "n"], [space, "other"]]
    assert await spaces(change("store.list_namespaces", "suffix", ["n"])) == [[space, "n"]]
    assert await spaces(change("store.list_namespaces", "max_depth", 1)) == [[space]]
    assert await spaces(change("store.list_namespaces", "limit", 1)) == [[space, "n"]]
    assert await spaces(change("store.list_namespaces", "offset", 1)) == [[space, "other"]]

    async def get(orders):
        return (await who.must("GET", f"/store/items?namespace={space}.n&key=one", **orders))["key"]
    assert await get(change("store.get", "key", "two")) == "two"
    assert await get(change("store.get", "refresh_ttl", False)) == "one"
    assert (await who.ask("DELETE", "/store/items", {"namespace": [space, "n"], "key": "one"}, **change("store.delete", "key", "two"))).status_code == 204
    assert await found(query="bbb") == {"six"}


async def test_labels_of_namespaces_are_looked_at_first(who):
    for method, path, body in (
        ("GET", "/store/items?namespace=a..b&key=k", None), ("PUT", "/store/items", {"namespace": ["a", ""], "key": "k", "value": {}}), ("DELETE", "/store/items", {"namespace": ["a.b"], "key": "k"}),
        ("POST", "/store/items/search", {"namespace_prefix": [""]}), ("POST", "/store/namespaces", {"prefix": ["a.b"]}), ("POST", "/store/namespaces", {"suffix": [""]}),
    ):
        for about in ("get", "put", "delete", "search", "list_namespaces"):
            assert (await who.ask(method, path, body, show=f"store.{about}")).status_code == 422, (method, path, body)


async def test_what_a_handler_writes_into_an_object_counts(who, world):
    def into(about, *path, **value):
        return {"change": about, "at": path, "value": value}
    thread, assistant, cron = world["THREAD"], world["ASSISTANT"], world["CRON"]
    assert (await who.must("POST", "/threads", {"metadata": {"z": 1}}, **into("threads.create", "metadata", a=1)))["metadata"] == {"z": 1, "a": 1}
    assert (await who.must("PATCH", f"/threads/{thread}", {"metadata": {"z": 1}}, **into("threads.update", "metadata", a=1)))["metadata"].items() >= {"m": 1, "z": 1, "a": 1}.items()
    assert (await who.must("POST", "/assistants", {"graph_id": "counter"}, **into("assistants.create", "config", recursion_limit=7)))["config"] == {"recursion_limit": 7}
    made = await who.must("PATCH", f"/assistants/{assistant}", {"metadata": {"z": 1}}, **into("assistants.update", "config", configurable={"x": 1}))
    assert (made["config"], made["context"], made["metadata"]) == ({"configurable": {"x": 1}}, {"x": 1}, {"x": 1, "z": 1})
    own = {"metadata": {"x": 1}}
    for path, none in (("/assistants/search", []), ("/assistants/count", 0)):
        assert await who.must("POST", path, own, **into("assistants.search", "metadata", x=str(uuid.uuid4()))) == none
    made = await who.must("POST", "/runs/crons", {**CRON, "metadata": {"c": 1}}, **into("crons.create", "payload", input={"n": 9}))
    assert made["payload"]["input"] == {"n": 9}
    assert (await who.must("PATCH", f"/runs/crons/{cron}", {"input": {"n": 2}}, **into("crons.update", "payload", input={"n": 7})))["payload"]["input"] == {"n": 7}
    for path, none in (("/runs/crons/search", []), ("/runs/crons/count", 0)):
        assert await who.must("POST", path, {"metadata": {"c": 1}})
        assert await who.must("POST", path, {"metadata": {"c": 1}}, **into("crons.search", "metadata", x=str(uuid.uuid4()))) == none
    run = await who.must("POST", f"/threads/{thread}/runs", {"assistant_id": "counter", "input": {"n": 1}}, **into("threads.create_run", "kwargs", input={"n": 5}, interrupt_before=["node"]))
    assert (run["kwargs"]["input"], run["kwargs"]["interrupt_before"]) == ({"n": 5}, ["node"])
    await who.must("DELETE", f"/runs/crons/{made['cron_id']}")


async def test_what_is_asked_first(who, world):
    """A run is asked about before its assistant, a cron before its thread."""
    r = await who.ask("POST", "/threads/" + world["THREAD"] + "/runs/crons", CRON, show="crons.create")
    assert r.status_code == 403
    r = await who.ask("POST", f"/threads/{NO_SUCH}/runs/crons", CRON, show="crons.create")
    assert r.status_code == 403


@pytest.mark.parametrize("about, status, want", [
    ("assistants.read", 401, "Failed to get assistant 'AGENT': told to"), ("assistants.read", 403, "Failed to get assistant 'AGENT': told to"),
    ("assistants.read", 404, "Assistant 'AGENT' not found"), ("assistants.read", 500, "Failed to get assistant 'AGENT': told to"),
    ("threads.create_run", 403, "Access denied to assistant or thread"), ("threads.create_run", 404, "Assistant 'AGENT' not found"),
    ("threads.create_run", 409, "Failed to create run: told to"), ("threads.create_run", 500, "Failed to create run: told to"),
])
async def test_a_handler_refuses_an_agent(who, about, status, want):
    agent = (await who.must("POST", "/assistants", {"graph_id": "chat"}))["assistant_id"]
    message = {"role": "user", "messageId": str(uuid.uuid4()), "parts": [{"kind": "text", "text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    r = await who.ask("POST", f"/a2a/{agent}", call, refuse=about, status=status)
    assert (r.status_code, r.json()["error"]) == (200, {"code": -32602, "message": want.replace("AGENT", agent)})
    if about == "assistants.read":
        r = await who.ask("GET", f"/.well-known/agent-card.json?assistant_id={agent}", refuse=about, status=status)
        assert (r.status_code, r.json()["error"]["message"]) == (400, want.replace("AGENT", agent))


async def test_a_handler_refuses_a_task(who):
    agent = (await who.must("POST", "/assistants", {"graph_id": "chat"}))["assistant_id"]
    message = {"role": "user", "messageId": str(uuid.uuid4()), "parts": [{"kind": "text", "text": "hi"}]}
    task = (await who.must("POST", f"/a2a/{agent}", {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}))["result"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task["id"], "contextId": task["contextId"]}}
    for status, code in ((401, -32603), (403, -32603), (404, -32001), (500, -32603)):
        r = await who.ask("POST", f"/a2a/{agent}", call, refuse="threads.read", status=status)
        assert (r.status_code, r.json()["error"]["code"]) == (200, code)


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_handler_refuses_a_command(who, world, status):
    command = {"id": 1, "method": "run.start", "params": {"assistant_id": "counter", "input": {"n": 1}}}
    path = f"/threads/{world['THREAD']}/commands"
    r = await who.ask("POST", path, command, refuse="threads.create_run", status=status)
    assert (r.status_code, r.json()) == (200, {"type": "error", "id": 1, "error": "unknown_error", "message": f"{status}: told to"})
    r = await who.ask("POST", path, command, refuse="threads.read", status=status)
    assert (r.status_code, r.json()["type"]) == (200, "success")


async def test_a_handler_names_the_assistant_of_a_cron(who, world):
    def change(about, value):
        return {"change": about, "at": ["payload", "assistant_id"], "value": value}
    made = await who.must("POST", "/runs/crons", CRON, **change("crons.create", "whoami"))
    own = await who.must("POST", "/runs/crons", CRON, **change("crons.create", world["ASSISTANT"]))
    plain = await who.must("POST", "/runs/crons", CRON)
    assert own["assistant_id"] == own["payload"]["assistant_id"] == world["ASSISTANT"]
    assert made["assistant_id"] == made["payload"]["assistant_id"] not in (plain["assistant_id"], world["ASSISTANT"])
    r = await who.ask("POST", "/runs/crons", CRON, **change("crons.create", "nothing"))
    assert (r.status_code, r.json()) == (404, {"detail": "Assistant 'nothing' not found"})
    patched = await who.must("PATCH", f"/runs/crons/{plain['cron_id']}", {"enabled": False}, **change("crons.update", "whoami"))
    assert patched["assistant_id"] == patched["payload"]["assistant_id"] == plain["assistant_id"]
    for cron in (made, own, plain):
        await who.must("DELETE", f"/runs/crons/{cron['cron_id']}")
