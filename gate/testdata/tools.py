"""Tools as people write them for config.yaml of DeerFlow."""
import asyncio
import os
import time
from pathlib import Path

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel


@tool
def weather(city: str, days: int = 1) -> str:
    """Says what the weather is like."""
    return f"sunny in {city} for {days} days"


@tool
async def ask(question: str, config: RunnableConfig) -> dict:
    """Answers a question."""
    await asyncio.sleep(0)
    return {"question": question, "thread": config["configurable"]["thread_id"]}


@tool(response_format="content_and_artifact")
def chart(title: str) -> tuple[str, dict]:
    """Draws."""
    return f"drew {title}", {"points": [1, 2]}


@tool
def broken(kind: str) -> str:
    """Fails."""
    if kind == "exit":
        raise SystemExit(3)
    if kind == "stop":
        raise StopIteration
    raise ValueError(f"no {kind} here")


@tool
async def forever(mark: str) -> str:
    """Never answers."""
    Path(mark).write_text("began")
    try:
        await asyncio.sleep(3600)
    finally:
        Path(mark).write_text("cancelled")
    return ""


@tool
async def abandoned(text: str) -> str:
    """Waits for a task that is cancelled."""
    task = asyncio.create_task(asyncio.sleep(3600))
    task.cancel()
    await task
    return text


@tool
def slow(mark: str) -> str:
    """Blocks a thread until the file is gone."""
    Path(mark).write_text("began")
    while os.path.exists(mark):
        time.sleep(0.01)
    return "done"


@tool
def die(text: str) -> str:
    """Ends the process."""
    os._exit(9)


class Args(BaseModel):
    a: int


class Double(BaseTool):
    name: str = "double"
    description: str = "Doubles."
    args_schema: type[BaseModel] = Args
    return_direct: bool = True

    def _run(self, a: int) -> int:
        return 2 * a


double = Double()


def plain(text: str) -> str:
    return text


async def _remote(**arguments: str) -> str:
    return f"remote {arguments}"


remote = StructuredTool(  # as packages for MCP make them
    name="remote", description="Is elsewhere.", coroutine=_remote,
    args_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
