"""A chat model without a model: its answers follow from what it is told, so the example runs without key and network.

It behaves like any LangChain chat model: it streams word by word, calls tools that are bound to it, and counts tokens.
"""
from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

WORDS = {"plus": "+", "minus": "-", "times": "*", "multiplied by": "*", "divided by": "/", "over": "/", "x": "*"}
SUM = re.compile(r"[-(]*\d+(?:\.\d+)?\)*(?:\s*[-+*/]\s*[-(]*\d+(?:\.\d+)?\)*)+")


class ScriptedModel(BaseChatModel):
    seconds_per_word: float = 0.03
    tools: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedModel:
        return self.model_copy(update={"tools": [tool.name for tool in tools]})

    def _reply(self, messages: list[BaseMessage]) -> list[AIMessageChunk]:
        """The whole reply, one chunk per word or a single tool call, and a last one that counts."""
        last = messages[-1]
        told = str(last.text)
        found = None if isinstance(last, ToolMessage) else SUM.search(as_digits(told))
        if found and "calculate" in self.tools:
            call = {"name": "calculate", "args": '{"expression": "%s"}' % found[0], "id": f"call_{len(messages)}", "index": 0}
            chunks = [AIMessageChunk(content="", tool_call_chunks=[call])]
        else:
            words = self._answer(last, told, messages).split(" ")
            chunks = [AIMessageChunk(content=word if i == 0 else " " + word) for i, word in enumerate(words)]
        used = sum(len(str(m.text).split()) for m in messages)
        usage = {"input_tokens": used, "output_tokens": len(chunks), "total_tokens": used + len(chunks)}
        return [*chunks, AIMessageChunk(content="", usage_metadata=usage, response_metadata={"model_name": "scripted"}, chunk_position="last")]

    def _answer(self, last: BaseMessage, told: str, messages: list[BaseMessage]) -> str:
        if isinstance(last, ToolMessage):
            return f"The answer is {told}."
        asked = [m for m in messages if m.type == "human"]
        if re.search(r"\b(hi|hello|hey|good (morning|evening))\b", told, re.I):
            return "Hello! I am a scripted model: no key, no network, no opinions. Ask me to calculate something, such as 6 times 7."
        if re.search(r"\b(before|earlier|remember|first)\b", told, re.I) and len(asked) > 1:
            return f'You asked me {len(asked) - 1} things so far. The first one was: "{asked[0].text}"'
        return f'You said: "{told}". I only know how to calculate; try "What is (3 + 4) * 6?" and watch the tool being called.'

    def _stream(self, messages, stop=None, run_manager=None, **kwargs) -> Iterator[ChatGenerationChunk]:
        for chunk in self._reply(messages):
            time.sleep(self.seconds_per_word)
            yield ChatGenerationChunk(message=chunk)

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._reply(messages):
            await asyncio.sleep(self.seconds_per_word)
            yield ChatGenerationChunk(message=chunk)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        first, *rest = self._reply(messages)
        whole = first
        for chunk in rest:
            whole += chunk
        message = AIMessage(content=whole.content, tool_calls=whole.tool_calls, usage_metadata=whole.usage_metadata,
                            response_metadata=whole.response_metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])


def as_digits(text: str) -> str:
    """`6 times 7` as `6 * 7`, where the word stands between numbers."""
    for word, sign in WORDS.items():
        text = re.sub(rf"(?<=[\d)])\s*\b{word}\b\s*(?=[-(\d])", f" {sign} ", text, flags=re.I)
    return text
