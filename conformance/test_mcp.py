"""/mcp by the unchanged `mcp` client of Python: progress, cancelled calls, questions and changed tools, which LangGraph Server's has not."""
import asyncio
import uuid

import anyio
import httpx
import mcp
import mcp_types as types
import pytest

from helpers import BASE_URL

URL = f"{BASE_URL}/mcp"


def connect(**more):
    return mcp.Client(URL, read_timeout_seconds=30, **more)


async def threads_of(client, tag):
    """The threads with a run of ticker that has a tag; other tests call ticker too."""
    found = []
    for t in await client.threads.search(metadata={"graph_id": "ticker"}, limit=1000, sort_by="created_at", sort_order="desc"):
        try:
            runs = await client.runs.list(t["thread_id"])
        except httpx.HTTPStatusError as e:  # it was deleted meanwhile
            assert e.response.status_code == 404
            continue
        if any((r["kwargs"]["input"] or {}).get("tag") == tag for r in runs):
            found.append(t["thread_id"])
    return found


async def until(condition, seconds=20):
    """Waits until a condition of another process holds."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
        return found


async def test_tools_and_results():
    async with connect() as server:
        tools, cursor = {}, None
        while True:
            page = await server.list_tools(cursor=cursor)
            tools |= {tool.name: tool for tool in page.tools}
            if not (cursor := page.next_cursor):
                break
        assert tools["echo"].output_schema["type"] == "object"
        result = await server.call_tool("echo", {"n": 1})
        assert not result.is_error and result.structured_content["n"] == 2 and "'n': 2" in result.content[0].text
        failed = await server.call_tool("failing", {"kind": "value"})
        assert failed.is_error and [c.text for c in failed.content] == ["ValueError"] and failed.meta["message"] == "boom: node failed"
        with pytest.raises(mcp.MCPError, match="Unknown tool: nope"):
            await server.call_tool("nope")


async def test_progress(client):
    seen = []

    async def progress(n, total, message):
        seen.append((n, message))

    async with connect() as server:
        result = await server.call_tool("ticker", {"steps": 3, "delay": 0.1}, progress_callback=progress)
        assert result.structured_content["items"] == ["t0", "t1", "t2"]
        assert seen == [(1, "tick"), (2, "tick"), (3, "tick"), (4, "finish")]
        seen.clear()
        await server.call_tool("pipeline", {"topic": "a"}, progress_callback=progress)
        # What a node writes to the stream `custom` is progress too.
        assert [m.replace(" ", "") for _, m in seen] == ['{"progress":"planning"}', "plan", "work", "work", "work"]


async def test_nothing_of_a_call_is_kept(client):
    tag = str(uuid.uuid4())

    async def progress(*_):
        pass

    async with connect(elicitation_callback=refuse) as server:
        await server.call_tool("ticker", {"steps": 1, "delay": 0.01, "tag": tag})
        await server.call_tool("ticker", {"steps": 1, "delay": 0.01, "tag": tag}, progress_callback=progress)
    assert not await client.threads.search(values={"tag": tag})


async def refuse(context, params):
    return types.ElicitResult(action="decline")


@pytest.mark.parametrize("progress", [None, "progress"])
async def test_a_cancelled_call_ends_its_run(client, progress):
    """The run has a thread that ends with it, also when another server takes the notification."""
    async def report(*_):
        pass

    tag = str(uuid.uuid4())

    async def begun():
        return await threads_of(client, tag)

    async def gone():
        return not await begun()

    async with connect() as server:
        call = asyncio.create_task(server.call_tool("ticker", {"steps": 1000, "delay": 0.05, "tag": tag}, progress_callback=report if progress else None))
        await until(begun)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        await until(gone)
        assert (await server.call_tool("echo", {"n": 1})).structured_content["n"] == 2


async def test_a_client_that_leaves_ends_its_run(client):
    tag = str(uuid.uuid4())

    async def begun():
        return await threads_of(client, tag)

    async def gone():
        return not await begun()

    async def leave():
        async with connect() as server:
            await server.call_tool("ticker", {"steps": 1000, "delay": 0.05, "tag": tag})

    task = asyncio.create_task(leave())
    await until(begun)
    task.cancel()
    ended = False
    try:
        await task
    except* (asyncio.CancelledError, anyio.BrokenResourceError):  # an answer may find the client's own streams closed, which it reports in a group
        ended = True
    assert ended

    await until(gone)


async def test_an_interrupt_is_an_elicitation():
    asked = []

    async def answer(context, params):
        asked.append(params)
        return types.ElicitResult(action="accept", content={"answer": '{"ok": [1, 2]}'})

    async with connect(elicitation_callback=answer) as server:
        result = await server.call_tool("pipeline", {"topic": "a"})
    assert not result.is_error and result.structured_content["answer"] == {"ok": [1, 2]}
    assert [p.message for p in asked] == ["ok?"] and list(asked[0].requested_schema["properties"]) == ["answer"]


async def test_several_questions_are_asked_one_after_the_other():
    asked = []

    async def answer(context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "to " + params.message})

    async with connect(elicitation_callback=answer) as server:
        result = await server.call_tool("branches", {"asking": ["early", "last"]})
    assert sorted(asked) == ["early?", "last?"]
    assert "to early?" in result.content[0].text and "to last?" in result.content[0].text


@pytest.mark.parametrize("content, said", [({"decision": "approve"}, "Found 10 results"), ({"decision": "reject", "message": "ok"}, "ok")])
async def test_calls_of_tools_are_approved_in_a_form(content, said):
    async def answer(context, params):
        assert params.requested_schema["properties"]["decision"]["enum"] == ["approve", "reject"]
        return types.ElicitResult(action="accept", content=content)

    async with connect(elicitation_callback=answer) as server:
        result = await server.call_tool("hitl", {"messages": 'call search {"q":"cats"}'})
    assert said in result.structured_content["messages"][-1]["content"]


async def test_a_declined_question_is_an_error(client):
    async with connect(elicitation_callback=refuse) as server:
        result = await server.call_tool("pipeline", {"topic": "declined"})
        assert result.is_error and result.content[0].text == "The question was not answered"
        # A refusal of a tool is an answer too, which the model of the graph sees.
        result = await server.call_tool("hitl", {"messages": 'call search {"q":"cats"}'})
        assert not result.is_error and "The user declined." in result.structured_content["messages"][-1]["content"]
    assert not await client.threads.search(values={"topic": "declined"})


async def test_without_elicitation_the_question_is_in_the_values():
    async with connect() as server:
        result = await server.call_tool("pipeline", {"topic": "a"})
    assert result.structured_content["__interrupt__"][0]["value"]["question"] == "ok?"


async def test_changed_assistants_are_announced(client):
    changed = asyncio.Event()

    async def hear(message):
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with connect(message_handler=hear) as server:
        assert server.server_capabilities.tools.list_changed
        await asyncio.sleep(0.3)  # the client opens its stream by itself, and says nothing of it
        changed.clear()
        made = await client.assistants.create("echo", name="announced " + uuid.uuid4().hex)
        await asyncio.wait_for(changed.wait(), 15)
        changed.clear()
        await client.assistants.delete(made["assistant_id"])
        await asyncio.wait_for(changed.wait(), 15)
