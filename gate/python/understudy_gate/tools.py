"""Tools of LangChain, for agents that are not in Python."""
from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from . import codec, threads


class Tools:
    """The tools of some specs. One that cannot be loaded does not affect the others: found says why."""

    def __init__(self, specs: list[str], find: Callable[[str], Any]) -> None:
        self._tools: dict[str, Any] = {}
        self.found: list[dict[str, Any]] = []
        for spec in specs:
            try:
                tool = find(spec)
                self.found.append({"spec": spec, **_described(tool)})
                self._tools[spec] = tool
            except BaseException as exc:  # also sys.exit in an import
                self.found.append({"spec": spec, "problem": {
                    "part": "tools", "type": type(exc).__name__, "message": str(exc)[:4096], "trace": "".join(traceback.format_exception(exc))[-32768:],
                }})

    async def call(self, call: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(call["spec"])
        if tool is None:  # a run keeps the tools that it began with
            return {"error": {"type": "KeyError", "message": f"config.yaml has no tool {call['spec']} any more", "trace": ""}}
        request = {"type": "tool_call", "name": tool.name, "args": call["args"], "id": call["id"]}
        config = {"configurable": call["configurable"], "metadata": dict(call["configurable"])}
        try:
            if _is_async(tool):
                message = await _alone(tool.ainvoke(request, config))
            else:
                message = await threads.call(tool.invoke, request, config)
            return _result(message)
        except (Exception, SystemExit) as exc:
            return {"error": {"type": type(exc).__name__, "message": str(exc)[:16384], "trace": "".join(traceback.format_exception(exc))[-32768:]}}


async def _alone(call: Coroutine[Any, Any, Any]) -> Any:
    """Awaits a call, which ends with this one. One that is cancelled by itself, as by a task that it waits for, has failed: its caller still waits."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    if task.cancelled():
        raise RuntimeError("the tool was cancelled by what it waited for")
    return task.result()


def _described(tool: Any) -> dict[str, Any]:
    from langchain_core.tools import BaseTool

    if not isinstance(tool, BaseTool):
        raise TypeError(f"it is a {type(tool).__name__}; put @tool of langchain_core.tools above the function, or name an instance of BaseTool")
    schema = tool.tool_call_schema
    if not isinstance(schema, dict):
        schema = schema.model_json_schema()
    if lacking := _lacking(tool, schema):
        raise TypeError(f"its argument {lacking!r} gets the state or the runtime of a graph in Python; remove it, or serve the agent itself in Python")
    return {"name": tool.name, "description": tool.description, "schema": schema, "direct": tool.return_direct}


def _lacking(tool: Any, schema: dict[str, Any]) -> str:
    """An argument that the model does not give, and this process cannot: "" is none. The id of the call is given."""
    if isinstance(tool.args_schema, dict):
        return ""  # all of it is for the model
    full = tool.get_input_schema()
    for name, field in getattr(full, "model_fields", {}).items():
        if (field.alias or name) in schema.get("properties", {}) or name in schema.get("properties", {}):
            continue
        about = repr(field.annotation) + repr(field.metadata)
        if "InjectedToolCallId" not in about and field.is_required():
            return name
    return ""


def _is_async(tool: Any) -> bool:
    from langchain_core.tools import BaseTool, StructuredTool, Tool

    if isinstance(tool, (StructuredTool, Tool)):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


def _result(message: Any) -> dict[str, Any]:
    from langchain_core.messages import ToolMessage

    if not isinstance(message, ToolMessage):
        raise TypeError(f"the tool returned a {type(message).__name__}, which only graphs in Python understand")
    out: dict[str, Any] = {"content": message.content, "failed": message.status == "error"}
    try:
        codec.dumps(out)
    except Exception:
        out["content"] = str(message.content)
    try:
        if message.artifact is not None:
            codec.dumps(message.artifact)
            out["artifact"] = message.artifact
    except Exception:
        pass  # it is for the program; what the model sees is complete
    return out
