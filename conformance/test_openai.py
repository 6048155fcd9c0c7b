"""OpenAI's API at /v1, by the unchanged `openai` SDK. An addition of this project: LangGraph Server has no such API."""
import json
import uuid

import openai
import pytest

from helpers import BASE_URL

USER = "user"


@pytest.fixture
async def ai():
    async with openai.AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none", max_retries=2, timeout=30) as client:
        yield client


def said(text, role=USER):
    return {"role": role, "content": text}


def words(n):
    return " ".join(f"w{i}" for i in range(n))


def new_thread():
    return {"X-Thread-Id": str(uuid.uuid4())}


async def ask(ai, model, *messages, **more):
    """The answer as a whole."""
    return await ai.chat.completions.create(model=model, messages=list(messages), **more)


async def follow(ai, model, *messages, **more):
    """The answer of a stream: its texts, its reasons to finish, its usage and its interrupt."""
    texts, reasons, usage, interrupt, ids = [], [], None, None, set()
    stream = await ai.chat.completions.create(model=model, messages=list(messages), stream=True, stream_options={"include_usage": True}, **more)
    async for chunk in stream:
        ids.add(chunk.id)
        assert chunk.object == "chat.completion.chunk" and chunk.model == model
        interrupt = interrupt or (chunk.model_extra or {}).get("interrupt")
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert usage is None, "usage comes last"
            texts += [choice.delta.content] if choice.delta.content else []
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert len(ids) == 1
    return texts, reasons, usage, interrupt


async def test_models(ai):
    models = {m.id: m async for m in ai.models.list()}
    assert {"agent", "hitl", "tokens"} <= models.keys()
    assert (await ai.models.retrieve("agent")).id == "agent"
    assert models["agent"].object == "model" and models["agent"].created > 1_700_000_000


async def test_an_assistant_is_a_model(ai, client):
    assistant = await client.assistants.create("agent", name="by id", description="answers")
    model = await ai.models.retrieve(assistant["assistant_id"])
    assert (model.model_extra["name"], model.model_extra["description"]) == ("by id", "answers")
    assert (await ask(ai, model.id, said("say 2"))).choices[0].message.content == words(2)


@pytest.mark.parametrize("model", ["agent", "tokens", "parent"])
async def test_answers(ai, model):
    answer = await ask(ai, model, said("say 4"))
    assert answer.choices[0].message.content == words(4)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"}) == {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
    texts, reasons, usage, _ = await follow(ai, model, said("say 4"))
    assert "".join(texts) == words(4)
    assert len(texts) == (1 if model == "parent" else 4), "tokens of models in nodes of the root"
    assert reasons == ["stop"]
    assert usage == answer.usage


async def test_tools_of_the_graph_stay_inside(ai):
    question = said('call search {"q": "x"}')
    answer = await ask(ai, "agent", question)
    assert answer.choices[0].message.content == "tool said: Found 10 results for x"
    assert answer.choices[0].message.tool_calls is None
    assert answer.usage.completion_tokens == 1 + 7, "of both calls of the model"
    texts, reasons, usage, _ = await follow(ai, "agent", question)
    assert "".join(texts) == answer.choices[0].message.content
    assert usage == answer.usage and reasons == ["stop"]


async def test_a_summarizer_is_not_heard(ai):
    talk = [said("say 1"), said("a", "assistant"), said("say 1"), said("b", "assistant"), said("say 1"), said("c", "assistant"), said("say 5")]
    assert (await ask(ai, "summarizing", *talk)).choices[0].message.content == words(5)
    texts, *_ = await follow(ai, "summarizing", *talk)
    assert "".join(texts) == words(5)


async def test_without_a_thread_the_client_has_the_memory(ai):
    talk = [said("be brief", "system"), said("say 2"), said(words(2), "assistant"), said("say 3")]
    answer = await ask(ai, "agent", *talk)
    assert answer.usage.prompt_tokens == 4, "the model got all messages"


@pytest.mark.parametrize("whole", [True, False], ids=["sends_all", "sends_new"])
async def test_a_thread_has_the_memory(ai, client, whole):
    thread = new_thread()
    first = await ai.chat.completions.with_raw_response.create(model="agent", messages=[said("be brief", "system"), said("say 2")], extra_headers=thread)
    assert first.headers["x-thread-id"] == thread["X-Thread-Id"]
    before = [said("say 2"), said(words(2), "assistant")] if whole else []
    texts, _, usage, _ = await follow(ai, "agent", said("be long", "system"), *before, said("say 3"), metadata={"thread_id": thread["X-Thread-Id"]})
    assert "".join(texts) == words(3)
    assert usage.prompt_tokens == 4
    state = await client.threads.get_state(thread["X-Thread-Id"])
    assert [(m["type"], m["content"]) for m in state["values"]["messages"]] == [
        ("system", "be long"), ("human", "say 2"), ("ai", words(2)), ("human", "say 3"), ("ai", words(3))]


async def test_user_and_metadata_reach_the_run(ai, client):
    thread = new_thread()
    await ask(ai, "agent", said("say 1"), user="bob", metadata={"k": "v"}, extra_headers=thread)
    run = (await client.runs.list(thread["X-Thread-Id"]))[0]
    assert {"user": "bob", "k": "v"}.items() <= run["metadata"].items()
    assert run["kwargs"]["config"]["configurable"]["user_id"] == "bob"


@pytest.mark.parametrize("reply, answer", [
    ("approve", "Found 10 results for x"),
    (json.dumps({"decisions": [{"type": "edit", "edited_action": {"name": "search", "args": {"q": "y"}}}]}), "Found 10 results for y"),
    ("rather not", "rather not"),
], ids=["approve", "edit", "reject"])
async def test_a_question_is_answered_by_the_next_message(ai, reply, answer):
    thread = new_thread()
    talk = [said('call search {"q": "x"}')]
    texts, reasons, _, interrupt = await follow(ai, "hitl", *talk, extra_headers=thread)
    assert "search" in "".join(texts) and "`approve`" in "".join(texts)
    assert reasons == ["stop"]
    assert interrupt["thread_id"] == thread["X-Thread-Id"]
    assert interrupt["interrupts"][0]["value"]["action_requests"][0]["name"] == "search"
    talk += [said("".join(texts), "assistant"), said(reply)]
    done = await ask(ai, "hitl", *talk, extra_headers=thread)
    assert answer in done.choices[0].message.content


async def test_several_questions_are_asked_one_by_one(ai, client, thread):
    await client.runs.wait(thread, "branches", input={"asking": ["early", "late"]})
    state = await client.threads.get_state(thread)
    asked = [i["value"] for i in sorted(state["interrupts"], key=lambda i: i["id"])]
    answer = await ask(ai, "branches", said("one"), extra_headers={"X-Thread-Id": thread})
    assert answer.choices[0].message.content == asked[1]
    await ask(ai, "branches", said("two"), extra_headers={"X-Thread-Id": thread})
    trail = (await client.threads.get_state(thread))["values"]["trail"]
    assert {f"{asked[0][:-1]}=one", f"{asked[1][:-1]}=two", "joined"} <= set(trail)


async def test_an_answer_that_fails_does_not_block_the_thread(ai):
    thread = new_thread()
    await ask(ai, "hitl", said('call search {"q": "x"}'), extra_headers=thread)
    with pytest.raises(openai.InternalServerError):
        await ask(ai, "hitl", said('{"decisions": []}'), extra_headers=thread)
    assert (await ask(ai, "hitl", said("say 2"), extra_headers=thread)).choices[0].message.content == words(2)


async def test_a_question_without_a_thread_says_so(ai):
    answer = await ask(ai, "hitl", said('call search {"q": "x"}'))
    assert "no thread" in answer.choices[0].message.content
    assert answer.model_extra["interrupt"]["thread_id"] is None


async def test_a_failed_run(ai):
    with pytest.raises(openai.InternalServerError) as failed:
        await ask(ai, "failing", said("x"))
    assert failed.value.body["code"] == "run_failed" and failed.value.body["message"] == "ValueError: boom: node failed"
    with pytest.raises(openai.APIError, match="boom: node failed"):
        await follow(ai, "failing", said("x"))


async def test_a_graph_without_messages_says_so(ai):
    with pytest.raises(openai.InternalServerError, match="wrote no messages"):
        await ask(ai, "echo", said("x"))


async def test_a_failed_run_is_not_repeated(ai, client):
    thread = new_thread()
    with pytest.raises(openai.InternalServerError):
        await ask(ai, "failing", said("x"), extra_headers=thread)
    assert len(await client.runs.list(thread["X-Thread-Id"])) == 1


async def test_refusals(ai):
    with pytest.raises(openai.NotFoundError) as e:
        await ask(ai, "nope", said("x"))
    assert (e.value.code, e.value.param, e.value.type) == ("model_not_found", "model", "invalid_request_error")
    for more in ({"n": 2}, {"response_format": {"type": "json_object"}}, {"tools": [], "tool_choice": "required"}, {"metadata": {"thread_id": "x"}}):
        with pytest.raises(openai.BadRequestError) as e:
            await ask(ai, "agent", said("x"), **more)
        assert e.value.param
    with pytest.raises(openai.BadRequestError):
        await ask(ai, "agent")


async def test_leaving_ends_the_run(ai, client):
    thread = new_thread()
    stream = await ai.chat.completions.create(model="slow", messages=[said("x")], stream=True, extra_headers=thread)
    await anext(aiter(stream))
    await stream.close()
    run = (await client.runs.list(thread["X-Thread-Id"]))[0]
    await client.runs.join(thread["X-Thread-Id"], run["run_id"])
    assert (await client.runs.get(thread["X-Thread-Id"], run["run_id"]))["status"] == "interrupted"


# --- responses ---------------------------------------------------------------------------


async def test_responses_continue_and_branch(ai):
    first = await ai.responses.create(model="agent", input="say 2", instructions="be brief")
    assert (first.output_text, first.status, first.usage.input_tokens) == (words(2), "completed", 2)
    second = await ai.responses.create(model="agent", input="say 3", previous_response_id=first.id)
    assert (second.output_text, second.usage.input_tokens, second.previous_response_id) == (words(3), 4, first.id)
    branch = await ai.responses.create(model="agent", input="say 4", previous_response_id=first.id)
    assert (branch.output_text, branch.usage.input_tokens) == (words(4), 4)
    third = await ai.responses.create(model="agent", input="say 1", previous_response_id=second.id)
    assert third.usage.input_tokens == 6
    for response in (first, second, branch, third):
        stored = await ai.responses.retrieve(response.id)
        assert (stored.output_text, stored.status, stored.model) == (response.output_text, "completed", "agent")


@pytest.mark.parametrize("subgraphs", [True, False])
async def test_tokens_of_subgraphs(ai, subgraphs):
    """The answer of a model in a subgraph comes as tokens if the client asks for them, else as a whole."""
    texts, reasons, usage, _ = await follow(ai, "parent", said("say 8"), extra_body={"stream_subgraphs": subgraphs})
    assert ("".join(texts), reasons, usage.completion_tokens) == (words(8), ["stop"], 8)
    assert (len(texts) > 1) == subgraphs


async def test_streams_of_responses(ai):
    events = [e async for e in await ai.responses.create(model="agent", input='call search {"q": "x"}', stream=True)]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type.removeprefix("response.") for e in events]
    assert kinds == ["created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * 7, "output_text.done", "content_part.done",
                     "output_item.done", "completed"]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == events[-1].response.output_text
    # The SDK's own reader checks the order of the events.
    async with ai.responses.stream(model="agent", input="say 3") as stream:
        assert [e.snapshot async for e in stream if e.type == "response.output_text.delta"][-1] == words(3)
        assert (await stream.get_final_response()).usage.total_tokens == 4


async def test_conversations(ai):
    conversation = await ai.conversations.create(metadata={"k": "v"})
    for n in (1, 3):
        response = await ai.responses.create(model="agent", input=[said([{"type": "input_text", "text": "say 1"}])], conversation=conversation.id)
        assert (response.conversation.id, response.usage.input_tokens) == (conversation.id, n)
    assert (await ai.conversations.retrieve(conversation.id)).metadata.items() >= {"k": "v"}.items()
    assert (await ai.conversations.delete(conversation.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await ai.conversations.retrieve(conversation.id)


async def test_a_question_of_a_response(ai):
    asked = await ai.responses.create(model="hitl", input='call search {"q": "x"}')
    assert "`approve`" in asked.output_text
    assert (await ai.responses.retrieve(asked.id)).output_text == asked.output_text
    done = await ai.responses.create(model="hitl", input="approve", previous_response_id=asked.id)
    assert done.output_text == "tool said: Found 10 results for x"


async def test_responses_that_are_not_stored(ai):
    response = await ai.responses.create(model="agent", input="say 2", store=False)
    assert response.output_text == words(2)
    with pytest.raises(openai.NotFoundError):
        await ai.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as e:
        await ai.responses.create(model="agent", input="x", previous_response_id=response.id)
    assert e.value.code == "previous_response_not_found"


async def test_failed_responses(ai):
    with pytest.raises(openai.InternalServerError):
        await ai.responses.create(model="failing", input="x")
    events = [e async for e in await ai.responses.create(model="failing", input="x", stream=True)]
    assert events[-1].type == "response.failed" and "boom" in events[-1].response.error.message
    assert (await ai.responses.retrieve(events[-1].response.id)).status == "failed"
