"""Workers of instant messengers, as DeerFlow has them: a thread per chat, `runs.wait` or `runs.stream`, and the reply taken from the result.

The reply is the last text of the assistant after the last question of a person, so the last turn has to be whole and in order, whatever
was condensed before it. Tests that ask for the fixture `transcripts` need the overlay and are skipped where a server has none.
"""
import asyncio
import uuid

import httpx
import pytest
from conftest import NO_SUCH
from helpers import BASE_URL, until
from langgraph_sdk import get_client
from langgraph_sdk.errors import ConflictError

CSRF = "0123456789abcdef"


@pytest.fixture
async def worker():
    """The client of a worker: one for all chats, with headers that this server does not need."""
    yield get_client(url=BASE_URL, headers={"X-DeerFlow-Internal-Token": "secret", "X-CSRF-Token": CSRF, "Cookie": f"csrf_token={CSRF}"})


@pytest.fixture
async def transcripts(http):
    if (await http.get(f"/threads/{NO_SUCH}/state", params={"markers": "nonsense"})).status_code != 422:
        pytest.skip("this server has no transcripts")


def source(chat, **more):
    return {"channel_source": {"type": "im_channel", "provider": "slack", "chat_id": chat, **more}}


@pytest.fixture
async def chat(worker):
    """The id of a thread that belongs to a chat."""
    return (await worker.threads.create(metadata=source(f"C{uuid.uuid4().hex}")))["thread_id"]


def call(thread, content, **message):
    """The arguments of every run of a worker. (DeerFlow's own Gateway takes `config.configurable` beside it; LangGraph Server answers 400 then.)"""
    return {
        "input": {"messages": [{"role": "human", "content": content, **message}]},
        "config": {"recursion_limit": 100},
        "context": {"thinking_enabled": False, "is_plan_mode": False, "subagent_enabled": False, "thread_id": thread, "channel_name": "slack",
                    "user_id": "u1", "channel_user_id": "U1"},
        "multitask_strategy": "reject",
    }


def text(content):
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content if b.get("type") == "text")


def hidden(message):
    return bool((message.get("additional_kwargs") or {}).get("hide_from_ui"))


def last_turn(result):
    """What came after the last question that a person can see."""
    turn = []
    for message in reversed(result["messages"] if isinstance(result, dict) else result):
        if message["type"] == "human":
            if hidden(message):
                continue
            break
        turn.insert(0, message)
    return turn


def reply(result):
    return next((text(m["content"]) for m in reversed(last_turn(result)) if m["type"] == "ai" and text(m["content"])), "")


def words(n):
    return " ".join(f"w{i}" for i in range(n))


class Shown:
    """What a channel shows while a run goes on: text per message of the assistant, and at the end the reply of the last values."""

    def __init__(self):
        self.texts, self.values = {}, None

    def take(self, part):
        if part.event in ("messages", "messages-tuple"):
            chunk, _ = part.data
            if chunk["type"] in ("ai", "AIMessageChunk") and text(chunk["content"]):
                self.texts[chunk["id"]] = self.texts.get(chunk["id"], "") + text(chunk["content"])
        elif part.event == "values":
            self.values = part.data


async def stream(worker, graph, thread, content, **message):
    shown = Shown()
    async for part in worker.runs.stream(thread, graph, **call(thread, content, **message), stream_mode=["messages-tuple", "values"]):
        assert part.event != "error", part.data
        shown.take(part)
    return shown


# --- threads ---------------------------------------------------------------------------

async def test_a_thread_of_a_chat(worker):
    chat, thread = f"C{uuid.uuid4().hex}", str(uuid.uuid5(uuid.NAMESPACE_URL, uuid.uuid4().hex))
    made = await worker.threads.create(thread_id=thread, metadata=source(chat, topic_id="T1"))
    assert (made["thread_id"], made["metadata"]) == (thread, source(chat, topic_id="T1"))
    with pytest.raises(ConflictError):
        await worker.threads.create(thread_id=thread, metadata=source(chat, topic_id="T1"))
    assert (await worker.threads.get(thread))["metadata"] == source(chat, topic_id="T1")
    await worker.threads.update(thread, metadata={**source(chat, topic_id="T1", connection_id="c1"), "owner": "u1"})
    (found,) = await worker.threads.search(metadata={"channel_source": {"chat_id": chat}})
    assert found["metadata"] == {**source(chat, topic_id="T1", connection_id="c1"), "owner": "u1"}


# --- waiting ---------------------------------------------------------------------------

async def test_wait(worker, chat):
    for n in (2, 3):
        assert reply(await worker.runs.wait(chat, "agent", **call(chat, f"say {n}"))) == words(n)


async def test_wait_with_a_tool(worker, chat):
    result = await worker.runs.wait(chat, "agent", **call(chat, 'call search {"q": "cats"}'))
    assert [m["type"] for m in last_turn(result)] == ["ai", "tool", "ai"]
    assert last_turn(result)[0]["tool_calls"][0]["args"] == {"q": "cats"}
    assert reply(result) == "tool said: Found 10 results for cats"


async def test_files_and_blocks_come_back_as_they_were_sent(worker, chat):
    files = [{"filename": "a b.pdf", "size": 12, "path": "/mnt/user-data/uploads/a b.pdf", "status": "uploaded"}]
    blocks = [{"type": "text", "text": "say 4"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    result = await worker.runs.wait(chat, "agent", **call(chat, blocks, additional_kwargs={"files": files}))
    question, _ = result["messages"]
    assert (question["content"], question["additional_kwargs"]) == (blocks, {"files": files})
    assert reply(result) == words(4)


async def test_a_hidden_message_does_not_end_the_turn(worker, chat):
    given = call(chat, "say 2")
    given["input"]["messages"].append({"role": "human", "content": "say 3", "additional_kwargs": {"hide_from_ui": True}})
    result = await worker.runs.wait(chat, "agent", **given)
    assert hidden(result["messages"][1]) and reply(result) == words(3)


async def test_a_busy_chat(worker, chat):
    run = await worker.runs.create(chat, "slow", **call(chat, "say 1"))
    for again in (lambda: worker.runs.create(chat, "slow", **call(chat, "say 2")), lambda: worker.runs.wait(chat, "slow", **call(chat, "say 2")),
                  lambda: stream(worker, "slow", chat, "say 2")):
        # The SDK makes a ConflictError of it in some calls; workers look at the text as well.
        with pytest.raises((ConflictError, httpx.HTTPStatusError)) as refused:
            await again()
        assert refused.value.response.status_code == 409 and "already running a task" in str(refused.value) + "".join(getattr(refused.value, "__notes__", []))
    await worker.runs.cancel(chat, run["run_id"], wait=True)

    async def free():
        return (await worker.threads.get(chat))["status"] != "busy"
    await until(free)
    assert reply(await worker.runs.wait(chat, "agent", **call(chat, "say 2"))) == words(2)


async def test_create_and_forget(worker, chat):
    run = await worker.runs.create(chat, "agent", **call(chat, "say 3"))
    assert reply(await worker.runs.join(chat, run["run_id"])) == words(3)
    assert (await worker.runs.get(chat, run["run_id"]))["status"] == "success"


async def test_many_chats_at_once(worker):
    async def talk(n):
        thread = (await worker.threads.create(metadata=source(f"C{n}")))["thread_id"]
        return [reply(await worker.runs.wait(thread, "agent", **call(thread, f"say {turn}"))) for turn in (n, n + 1)]
    assert await asyncio.gather(*map(talk, range(1, 7))) == [[words(n), words(n + 1)] for n in range(1, 7)]


# --- streaming -------------------------------------------------------------------------

async def test_stream(worker, chat):
    for n in (30, 3):
        shown = await stream(worker, "agent", chat, f"say {n}")
        assert list(shown.texts.values()) == [words(n)]
        assert reply(shown.values) == words(n)
        assert list(shown.texts) == [shown.values["messages"][-1]["id"]], "the id under which it came is the one under which it stays"


async def test_stream_with_a_tool(worker, chat):
    shown = await stream(worker, "agent", chat, 'call search {"q": "dogs"}')
    assert list(shown.texts.values()) == [reply(shown.values)] == ["tool said: Found 10 results for dogs"]


# --- after summarization ---------------------------------------------------------------

TURNS = ["say 1", "say 2", "say 3", "say 4", 'call search {"q": "cats"}', "say 5", "say 6", 'call search {"q": "dogs"}', "say 7"]


def answer(question):
    verb, n, *_ = question.split()
    return words(int(n)) if verb == "say" else f"tool said: Found 10 results for {question.split(chr(34))[3]}"


async def test_the_last_answer_after_summarization(worker, chat):
    """Right with and without an overlay: the last turn stays as the graph has it, even where its question was condensed while it went on."""
    for question in TURNS:
        assert reply(await worker.runs.wait(chat, "summarizing", **call(chat, question))) == answer(question)


async def test_the_last_answer_of_a_stream_after_summarization(worker, chat):
    for question in TURNS:
        assert reply((await stream(worker, "summarizing", chat, question)).values) == answer(question)


async def test_a_stream_shows_answers_only(worker, chat, transcripts):
    """The words of the summarizer reach nobody's chat."""
    for question in TURNS:
        assert list((await stream(worker, "summarizing", chat, question)).texts.values()) == [answer(question)]


async def test_results_hold_the_whole_chat(worker, chat, transcripts):
    def said(result):
        return [(m["type"], m["content"]) for m in result["messages"] if m["type"] in ("human", "ai") and m["content"]]

    expected = []
    for i, question in enumerate(TURNS):
        expected += [("human", question), ("ai", answer(question))]
        result = await worker.runs.wait(chat, "summarizing", **call(chat, question)) if i % 2 else (await stream(worker, "summarizing", chat, question)).values
        assert said(result) == expected
        assert {m["type"] for m in last_turn(result)} <= {"ai", "tool", "system"}
    markers = [m for m in result["messages"] if m["type"] == "system"]
    assert markers and all("summary_marker" in m["additional_kwargs"] for m in markers)
    assert said(await worker.runs.join(chat, (await worker.runs.list(chat, limit=1))[0]["run_id"])) == expected
