"""A2A at /a2a, by the unchanged `a2a-sdk`, in both versions of the protocol, and by hand what the SDK cannot say."""
import asyncio
import json
import uuid

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from helpers import BASE_URL, parse_sse, until

COMPLETED, FAILED, CANCELED = pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED
WORKING, ASKS = pb.TASK_STATE_WORKING, pb.TASK_STATE_INPUT_REQUIRED
LONG = 60


def words(n):
    return " ".join(f"w{i}" for i in range(n))


async def assistant(client, graph):
    # The one that the server made: other tests create assistants of the same graph at the same time.
    found = await client.assistants.search(graph_id=graph, metadata={"created_by": "system"}, limit=1)
    return found[0]["assistant_id"]


def text(*texts, **more):
    return pb.Message(role=pb.ROLE_USER, message_id=str(uuid.uuid4()), parts=[pb.Part(text=t) for t in texts], **more)


def data(value, **more):
    message = text(**more)
    message.parts.add().data.struct_value.update(value)
    return message


def said(parts):
    return "".join(p.text for p in parts)


class Agent:
    """One assistant, by the SDK."""

    def __init__(self, a2a, card):
        self.a2a, self.card = a2a, card

    async def events(self, message, **configuration):
        request = pb.SendMessageRequest(message=message, configuration=pb.SendMessageConfiguration(**configuration))
        async for event in self.a2a.send_message(request):
            yield event

    async def send(self, message, **configuration):
        """The task, and all that a stream said of it."""
        return await collect(self.events(message, **configuration))

    async def get(self, task, **more):
        return await self.a2a.get_task(pb.GetTaskRequest(id=task, **more))


async def collect(events):
    task, updates = None, []
    async for event in events:
        kind = event.WhichOneof("payload")
        if kind == "task":
            task = event.task
        elif kind == "status_update":
            updates.append(event.status_update)
            assert event.status_update.task_id == task.id and event.status_update.context_id == task.context_id
            task.status.CopyFrom(event.status_update.status)
        elif kind == "artifact_update":
            task.artifacts.append(event.artifact_update.artifact)
        else:
            raise AssertionError(kind)
    return task, updates


@pytest.fixture(params=["1.0", "0.3"])
async def agents(request, client):
    """A function that connects to the assistant of a graph."""
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=LONG) as http:
        async def connect(graph, streaming=True):
            card = parse_agent_card((await http.get(f"/.well-known/agent-card.json?assistant_id={await assistant(client, graph)}")).json())
            for other in [i for i in card.supported_interfaces if i.protocol_version != request.param]:
                card.supported_interfaces.remove(other)
            if not card.supported_interfaces:
                pytest.skip("the server does not offer this version")
            card.capabilities.streaming = streaming
            return Agent(ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card), card)
        yield connect


async def test_a_message_is_answered(agents):
    agent = await agents("agent", streaming=False)
    task, _ = await agent.send(text("say 3"))
    assert task.status.state == COMPLETED
    assert [said(a.parts) for a in task.artifacts] == [words(3)]
    assert [(m.role, said(m.parts)) for m in task.history] == [(pb.ROLE_USER, "say 3"), (pb.ROLE_AGENT, words(3))]
    again, _ = await agent.send(text("say 2", context_id=task.context_id))
    assert again.context_id == task.context_id and again.id != task.id
    assert [(said(m.parts), m.task_id) for m in again.history] == [("say 3", task.id), (words(3), task.id), ("say 2", again.id), (words(2), again.id)]
    got = await agent.get(task.id)
    assert got.status.state == COMPLETED and [said(m.parts) for m in got.history] == ["say 3", words(3)], "a task ends where it ended"
    assert [said(m.parts) for m in (await agent.get(again.id, history_length=1)).history] == [words(2)]


async def test_a_stream_shows_the_answer_as_it_grows(agents):
    agent = await agents("tokens")
    task, updates = await agent.send(text("say 40"))
    assert task.status.state == COMPLETED and [said(a.parts) for a in task.artifacts] == [words(40)]
    texts = [said(u.status.message.parts) for u in updates if u.status.state == WORKING]
    assert texts[-1] == words(40) and all(b.startswith(a) and len(b) > len(a) for a, b in zip(texts, texts[1:]))
    assert 3 < len(texts) < 30 and sum(map(len, texts)) < 8 * len(words(40)), "in proportion to its length"
    assert updates[-1].status.state == COMPLETED


async def test_tools_are_shown(agents):
    agent = await agents("agent")
    _, updates = await agent.send(text('call search {"q":"cats"}'))
    results = [MessageToDict(p)["data"]["tool_results"] for u in updates for p in u.status.message.parts if p.HasField("data")]
    assert [[(r["name"], r["content"]) for r in one] for one in results] == [[("search", "Found 10 results for cats")]]
    assert said(updates[-2].status.message.parts) == "tool said: Found 10 results for cats"


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_question_is_answered_in_its_task(agents, streaming):
    agent = await agents("hitl", streaming)
    task, _ = await agent.send(text('call search {"q":"cats"}'))
    assert task.status.state == ASKS
    assert task.artifacts[-1].name == "Interrupt"
    asked = MessageToDict(task.artifacts[-1].parts[0])["data"]["value"]
    assert asked["action_requests"][0]["name"] == "search"
    same = {"task_id": task.id, "context_id": task.context_id}
    answered, _ = await agent.send(data({"decisions": [{"type": "approve"}]}, **same))
    assert answered.id == task.id and answered.status.state == COMPLETED
    got = await agent.get(task.id)
    assert got.status.state == COMPLETED and {m.task_id for m in got.history} == {task.id}
    with pytest.raises(UnsupportedOperationError):
        await agent.send(text("and now?", **same))


async def test_a_text_answers_a_question(agents):
    agent = await agents("pipeline", streaming=False)
    task, _ = await agent.send(data({"topic": "y"}))
    assert task.status.state == ASKS
    task, _ = await agent.send(text("fine", task_id=task.id))
    assert task.status.state == COMPLETED
    assert MessageToDict(task.artifacts[0].parts[0])["data"]["answer"] == "fine"


async def test_of_two_answers_one_is_taken(agents):
    agent = await agents("hitl", streaming=False)
    task, _ = await agent.send(text('call search {"q":"cats"}'))
    answers = await asyncio.gather(*(agent.send(text("approve", task_id=task.id)) for _ in range(4)), return_exceptions=True)
    refused = [a for a in answers if isinstance(a, UnsupportedOperationError)]
    assert len(refused) == 3, answers
    assert (await agent.get(task.id)).status.state == COMPLETED


async def test_a_message_in_the_context_leaves_the_question(agents):
    agent = await agents("hitl", streaming=False)
    task, _ = await agent.send(text('call search {"q":"cats"}'))
    other, _ = await agent.send(text("say 2", context_id=task.context_id))
    assert other.id != task.id and other.status.state == COMPLETED
    assert (await agent.get(task.id)).status.state == COMPLETED


async def test_files_and_data(agents):
    agent = await agents("agent", streaming=False)
    message = text("say 1")
    message.parts.add(raw=b"hello", media_type="image/png", filename="a.png")
    message.parts.add(url="https://example.com/y.pdf", media_type="application/pdf")
    task, _ = await agent.send(message)
    sent = task.history[0]
    assert [p.WhichOneof("content") for p in sent.parts] == ["text", "raw", "url"]
    assert (sent.parts[1].raw, sent.parts[1].media_type, sent.parts[1].filename) == (b"hello", "image/png", "a.png")
    task, _ = await agent.send(data({"messages": [{"role": "user", "content": "say 2"}]}))
    assert [said(m.parts) for m in task.history] == ["say 2", words(2)]


async def test_a_failing_task(agents):
    agent = await agents("failing")
    task, updates = await agent.send(data({"kind": "value"}))
    assert task.status.state == FAILED and "ValueError" in said(task.status.message.parts)
    assert len(updates) == 1 and (await agent.get(task.id)).status.state == FAILED


async def test_cancel(agents):
    agent = await agents("ticker", streaming=False)
    task, _ = await agent.send(data({"steps": 100}), return_immediately=True)
    assert task.status.state not in (COMPLETED, FAILED, CANCELED)
    canceled = await agent.a2a.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert canceled.status.state == CANCELED and (await agent.get(task.id)).status.state == CANCELED
    with pytest.raises(TaskNotCancelableError):
        await agent.a2a.cancel_task(pb.CancelTaskRequest(id=task.id))


async def test_a_client_that_leaves_can_subscribe_again(agents):
    agent = await agents("ticker")
    stream = agent.events(data({"steps": 10_000, "delay": 0.1}))
    task = (await anext(stream)).task
    await stream.aclose()
    again = agent.a2a.subscribe(pb.SubscribeToTaskRequest(id=task.id))
    first = (await anext(again)).task
    assert first.id == task.id and first.status.state in (pb.TASK_STATE_SUBMITTED, WORKING)
    await agent.a2a.cancel_task(pb.CancelTaskRequest(id=task.id))
    rest = [event.status_update.status.state async for event in again]
    assert rest == [CANCELED]


async def test_subscribing_shows_the_text_so_far(agents):
    agent = await agents("tokens")
    stream = agent.events(text("say 400"))
    task = (await anext(stream)).task
    try:
        seen, updates = await collect(agent.a2a.subscribe(pb.SubscribeToTaskRequest(id=task.id)))
    except UnsupportedOperationError:  # on a busy machine the task may have ended by now
        return
    finally:
        await stream.aclose()
    assert seen.status.state == COMPLETED and said(updates[-2].status.message.parts) == words(400)


async def test_unknown_tasks(agents):
    agent, other = await agents("agent", streaming=False), await agents("tokens", streaming=False)
    task, _ = await agent.send(text("say 1"))
    for unknown in (f"{uuid.uuid4()}:{uuid.uuid4()}", "nope", "x" * 100_000):
        with pytest.raises(TaskNotFoundError):
            await agent.get(unknown)
        with pytest.raises(TaskNotFoundError):
            await agent.send(text("hi", task_id=unknown))
    for ask in (other.get(task.id), other.a2a.cancel_task(pb.CancelTaskRequest(id=task.id)), other.send(text("hi", task_id=task.id))):
        with pytest.raises(TaskNotFoundError):
            await ask


@pytest.fixture
async def receiver():
    """What gets push notifications: (its address, a queue of the head and the body of each)."""
    got = asyncio.Queue()

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        got.put_nowait((head, json.loads(await reader.readexactly(int(head.split("content-length:")[1].split()[0])))))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/push", got


async def notified(got):
    """The next notification: its head, the task and its state."""
    head, body = await asyncio.wait_for(got.get(), 60)
    task = body.get("task", body)
    return head, task["id"], task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


async def test_push_notifications_of_a_message(agents, receiver, client):
    url, got = receiver
    agent = await agents("hitl", streaming=False)
    assert agent.card.capabilities.push_notifications
    config = pb.TaskPushNotificationConfig(url=url, token="secret", authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="abc"))
    task, _ = await agent.send(text('call search {"q":"cats"}'), return_immediately=True, task_push_notification_config=config)
    head, named, state = await notified(got)
    assert (named, state) == (task.id, "input-required")
    assert head.startswith("post /push ") and "x-a2a-notification-token: secret\r\n" in head and "authorization: bearer abc\r\n" in head
    assert "secret" not in json.dumps(await client.runs.list(task.context_id)), "runs do not show it"
    await agent.send(text("approve", task_id=task.id))
    assert (await notified(got))[1:] == (task.id, "completed"), "the run that continues the task notifies too"


async def test_push_notification_configurations(agents, receiver):
    url, got = receiver
    agent = await agents("ticker", streaming=False)
    task, _ = await agent.send(data({"steps": 1000, "delay": 0.1}), return_immediately=True)
    made = await agent.a2a.create_task_push_notification_config(pb.TaskPushNotificationConfig(task_id=task.id, id="one", url=url))
    assert (made.task_id, made.id, made.url) == (task.id, "one", url)
    await agent.a2a.create_task_push_notification_config(pb.TaskPushNotificationConfig(task_id=task.id, id="two", url=url + "/two"))
    await agent.a2a.create_task_push_notification_config(pb.TaskPushNotificationConfig(task_id=task.id, id="one", url=url, token="t"))
    of = {"task_id": task.id}
    listed = await agent.a2a.list_task_push_notification_configs(pb.ListTaskPushNotificationConfigsRequest(**of))
    assert [(c.id, c.url, c.token) for c in listed.configs] == [("two", url + "/two", ""), ("one", url, "t")]
    assert (await agent.a2a.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(id="two", **of))).url == url + "/two"
    await agent.a2a.delete_task_push_notification_config(pb.DeleteTaskPushNotificationConfigRequest(id="two", **of))
    with pytest.raises(InvalidParamsError):
        await agent.a2a.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(id="two", **of))
    with pytest.raises(TaskNotFoundError):
        await (await agents("echo", streaming=False)).a2a.create_task_push_notification_config(pb.TaskPushNotificationConfig(url=url, **of))
    await agent.a2a.cancel_task(pb.CancelTaskRequest(id=task.id))
    head, named, state = await notified(got)
    assert (named, state) == (task.id, "canceled") and head.startswith("post /push ") and "x-a2a-notification-token: t\r\n" in head


@pytest.mark.parametrize("url", ["nowhere", "http://", "", "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/"])
async def test_refused_addresses(http, client, url):
    a = await assistant(client, "agent")
    params = by_hand("say 1") | {"configuration": {"pushNotificationConfig": {"url": url}}}
    assert (await rpc(http, a, "message/send", params))["error"]["code"] == -32602
    task = (await rpc(http, a, "message/send", by_hand("say 1")))["result"]["id"]
    assert (await rpc(http, a, "tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": {"url": url}}))["error"]["code"] == -32602
    assert (await rpc(http, a, "tasks/pushNotificationConfig/list", {"id": task}))["result"] == []


async def test_bad_push_configurations(http, client):
    a = await assistant(client, "agent")
    good = {"url": "http://127.0.0.1:1/"}
    for config in (1, [], good | {"token": "a\r\nb: c"}, good | {"token": "x" * 5000}, good | {"authentication": {"credentials": "a\nb"}}, good | {"id": "ü"}):
        params = by_hand("say 1") | {"configuration": {"pushNotificationConfig": config}}
        assert (await rpc(http, a, "message/send", params))["error"]["code"] == -32602, config


async def rpc(http, a, method, params, **more):
    r = await http.post(f"/a2a/{a}", json={"jsonrpc": "2.0", "id": "1", "method": method, "params": params} | more)
    assert r.status_code == 200, r.text
    if r.headers["content-type"].startswith("text/event-stream"):
        [event] = parse_sse(r.text)
        return event.data
    return r.json()


def by_hand(words, **more):
    return {"message": {"role": "user", "messageId": str(uuid.uuid4()), "kind": "message", "parts": [{"kind": "text", "text": words}]} | more}


@pytest.mark.parametrize("method", ["tasks/list", "ListTasks"])
async def test_lists(http, client, method):
    a = await assistant(client, "agent")
    context = str(uuid.uuid4())
    ids = [(await rpc(http, a, "message/send", by_hand(f"say {n}", contextId=context)))["result"]["id"] for n in (1, 2, 3)]
    got = (await rpc(http, a, method, {"contextId": context}))["result"]
    assert [t["id"] for t in got["tasks"]] == ids[::-1] and (got["totalSize"], got["nextPageToken"]) == (3, "")
    assert [p["text"] for m in got["tasks"][0]["history"] for p in m["parts"]] == ["say 3", words(3)] and "artifacts" not in got["tasks"][0]
    first = (await rpc(http, a, method, {"contextId": context, "pageSize": 2, "includeArtifacts": True}))["result"]
    assert [t["id"] for t in first["tasks"]] == ids[:0:-1] and first["tasks"][0]["artifacts"][0]["parts"][0]["text"] == words(3)
    last = (await rpc(http, a, method, {"contextId": context, "pageSize": 2, "pageToken": first["nextPageToken"]}))["result"]
    assert [t["id"] for t in last["tasks"]] == ids[:1] and last["nextPageToken"] == ""
    assert (await rpc(http, a, method, {"contextId": context, "status": "TASK_STATE_FAILED"}))["result"]["tasks"] == []
    everywhere = (await rpc(http, a, method, {"pageSize": 3, "historyLength": 0}))["result"]
    assert set(ids) <= {t["id"] for t in everywhere["tasks"]} or everywhere["nextPageToken"]
    assert (await rpc(http, await assistant(client, "tokens"), method, {"contextId": context}))["result"]["totalSize"] == 0


async def test_histories_of_tasks_alone(http, client):
    a = await assistant(client, "agent")
    context = str(uuid.uuid4())
    for n in (1, 2):
        await rpc(http, a, "message/send", by_hand(f"say {n}", contextId=context))
    r = await http.post(f"/a2a/{a}", json={"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": by_hand("say 3", contextId=context)},
                        headers={"LangGraph-A2A-History-Scope": "task"})
    assert [p["text"] for m in r.json()["result"]["history"] for p in m["parts"]] == ["say 3", words(3)]


async def test_bad_requests(http, client):
    a = await assistant(client, "agent")
    for params in ([], "x", 1):
        assert (await rpc(http, a, "tasks/get", params))["error"]["code"] == -32602
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe"):
        for params in ({}, None, {"id": 1}, {"id": {}}):
            assert (await rpc(http, a, method, params))["error"]["code"] == -32602, (method, params)
    good = by_hand("x")["message"]
    for change, code in [({"parts": []}, -32602), ({"parts": None}, -32602), ({"parts": [1]}, -32005), ({"parts": "x"}, -32602), ({"contextId": 1}, -32602), ({"taskId": 1}, -32602), ({"parts": [{"kind": "video"}]}, -32005), ({"messageId": ""}, -32602),
                         ({"parts": [{"kind": "text"}]}, -32005), ({"parts": [{"kind": "file", "file": {}}]}, -32602), ({"parts": [{"kind": "data", "data": 1}]}, -32005),
                         ({"contextId": "x"}, -32602), ({"taskId": "x"}, -32001), ({"role": "wizard"}, -32602), ({"messageId": "x" * 5000}, -32602)]:
        for method in ("message/send", "message/stream", "SendMessage"):
            assert (await rpc(http, a, method, {"message": good | change}))["error"]["code"] == code, change
    for conf in (1, {"historyLength": -1}, {"historyLength": "x"}, {"historyLength": 0.5}):
        assert (await rpc(http, a, "message/send", {"message": good, "configuration": conf}))["error"]["code"] == -32602, conf
    for raw, code in [("{", -32700), ("[]", -32600), ("{}", -32600), ('{"jsonrpc":"2.0","id":[1],"method":"tasks/get"}', -32600), ('{"jsonrpc":"2.0","method":"tasks/get"}', -32602), ('{"jsonrpc":"2.0","id":1,"method":5}', -32601), ("[" * 1_000_000, -32700), ('{"a":' * 100_000, -32700),
                      ('{"jsonrpc":"2.0","id":1,"method":"nope"}', -32601), ('{"jsonrpc":"2.0","id":"' + "x" * 9000 + '","method":"tasks/get"}', -32600)]:
        r = await http.post(f"/a2a/{a}", content=raw)
        assert r.status_code == 200 and r.json()["error"]["code"] == code, raw[:50]
    deep = {"messages": []}
    for _ in range(1500):
        deep = {"a": deep}
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": good | {"parts": [{"kind": "data", "data": 0}]}}}).replace('"data": 0', '"data": ' + '{"a":' * 900 + "1" + "}" * 900)
    assert (await http.post(f"/a2a/{a}", content=raw)).json()["error"]["code"] == -32602
    assert (await http.post(f"/a2a/{a}", json={}, headers={"accept": "text/html"})).status_code == 400
    assert (await rpc(http, uuid.uuid4(), "message/send", by_hand("x")))["error"]["code"] == -32602
    assert (await rpc(http, await assistant(client, "pipeline"), "message/send", by_hand("x")))["error"]["message"].endswith("['topic', 'items', 'answer']")


async def test_large_parts(http, client):
    a = await assistant(client, "agent")
    large = "x" * 8_000_000
    message = by_hand("say 1")
    message["message"]["parts"].append({"kind": "file", "file": {"bytes": large, "mimeType": "image/png"}})
    task = (await rpc(http, a, "message/send", message | {"configuration": {"historyLength": 0}}))["result"]
    assert task["status"]["state"] == "completed" and "history" not in task
    got = (await rpc(http, a, "tasks/get", {"id": task["id"]}))["result"]
    assert got["history"][0]["parts"][1]["file"]["bytes"] == large


async def test_streams_have_what_both_versions_read(http, client):
    a = await assistant(client, "agent")
    r = await http.post(f"/a2a/{a}", json={"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "say 2"}]}}})
    assert r.headers["content-type"].startswith("text/event-stream")
    results = [e.data["result"] for e in parse_sse(r.text)]
    assert results[0]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert all(x["kind"] in x["kind"] and (x.get("statusUpdate") or x["artifactUpdate"])["taskId"] == x["taskId"] for x in results[1:])
    assert results[-1]["final"] is True and results[-1]["status"] == results[-1]["statusUpdate"]["status"]


async def test_a_waiting_task_is_shown_as_such_at_once(http, client):
    """A client that polls never sees a task with a question as one that has ended."""
    a = await assistant(client, "hitl")
    task = (await rpc(http, a, "message/send", by_hand('call search {"q":"x"}') | {"configuration": {"blocking": False}}))["result"]
    states = []

    async def asks():
        states.append((await rpc(http, a, "tasks/get", {"id": task["id"]}))["result"]["status"]["state"])
        return states[-1] not in ("submitted", "working")
    await until(asks, timeout=30, every=0)
    assert states[-1] == "input-required"


async def test_cards(http, client):
    a = await assistant(client, "agent")
    assert (await http.get("/.well-known/agent-card.json")).status_code == 400
    for path in ("/a2a/agent", "/.well-known/agent-card.json?assistant_id=agent"):
        r = await http.get(path)
        assert r.status_code == 400 and r.json()["error"] == {"code": -32602, "message": "Failed to get assistant 'agent': Invalid assistant ID: must be a UUID"}
    assert (await rpc(http, "agent", "message/send", by_hand("x")))["error"]["message"] == "Invalid assistant ID: must be a UUID"
    for path in (f"/a2a/{a}/.well-known/agent.json", f"/a2a/{a}/.well-known/agent-card.json", f"/api/langgraph/a2a/{a}"):
        card = (await http.get(path)).json()
        assert card["capabilities"]["streaming"] is True and card["skills"][0]["metadata"]["inputSchema"]["supportsA2A"] is True
    assert card["url"].endswith(f"/api/langgraph/a2a/{a}")
    assert (await http.delete(f"/a2a/{a}")).status_code == 405
