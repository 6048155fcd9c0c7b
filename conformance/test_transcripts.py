"""Streams are those that LangGraph Server sent: the events of the recorded scenarios, in their order, apart from ids, times and what a
deployment says of itself."""
from __future__ import annotations

import inspect
import json
import pathlib
import re

import httpx
import pytest

import record
from helpers import BASE_URL, in_time_async

WIRE = pathlib.Path(__file__).parent / "wire"

# What a deployment, a tracer or a package says of itself.
ITS_OWN = {"ls_provider", "lc_versions", "langgraph_plan", "langgraph_host", "langgraph_version", "langgraph_api_version", "langgraph_auth_user_id", "langgraph_request_id",
           "user_id", "thread_id", "assistant_id"}

SCENARIOS = ["stream_values", "stream_updates", "stream_messages", "stream_messages_tuple", "stream_messages_tool", "stream_custom", "stream_tasks", "stream_checkpoints",
             "stream_debug", "stream_several", "stream_subgraphs", "stream_subgraphs_messages", "stream_hitl", "stream_interrupt_values", "stream_interrupt_updates",
             "stream_interrupt_before", "stream_interrupt_nested", "stream_error", "stream_resumable", "stream_thread", "run_failed", "multitask_reject",
             "run_stateless", "cancel_seen_by_stream"]


def events(text):
    """The events of all streams in a recording. Ids are numbered anew, by where they first stand."""
    known = {}

    def renumber(found):
        return known.setdefault(found[0], f"<{len(known)}>")

    # Where a number was masked, the mask is no JSON.
    return [(name, re.sub(r"<[a-z]+-\d+>", renumber, json.dumps(stripped(json.loads(re.sub(r":<[a-z]+>", ":0", data))), sort_keys=True)))
            for name, data in re.findall(r"^event: (.*)\ndata: (.*)$", text, re.M)]


def stripped(value):
    match value:
        case dict():
            return {k: stripped(v) for k, v in value.items() if k not in ITS_OWN}
        case list():
            return [stripped(v) for v in value]
    return value


@pytest.mark.parametrize("name", SCENARIOS)
async def test_stream_is_as_recorded(name):
    scenario = record.SCENARIOS[name]

    async def attempt(**delay):
        async with httpx.AsyncClient(base_url=BASE_URL, timeout=60) as http:
            recorder = record.Recorder(http, inspect.cleandoc(scenario.__doc__))
            await scenario(recorder, **delay)
        return "\n".join(recorder.parts)

    if recorded := inspect.signature(scenario).parameters.get("delay"):
        text = re.sub(r'("delay": ?)[\d.]+', rf"\g<1>{recorded.default}", await in_time_async(lambda delay: attempt(delay=delay)))
    else:
        text = await attempt()
    got, want = events(text), events((WIRE / f"{name}.http").read_text(encoding="utf-8"))
    assert [name for name, _ in got] == [name for name, _ in want]
    for (event, ours), (_, theirs) in zip(got, want):
        assert (event, json.loads(ours)) == (event, json.loads(theirs))
