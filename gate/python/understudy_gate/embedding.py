"""The function or model of store.index.embed."""
from __future__ import annotations

from typing import Any

from . import threads


class Embedding:
    """Raises TypeError for something that makes no vectors."""

    def __init__(self, value: Any) -> None:
        self._document = self._query = None
        if callable(getattr(value, "aembed_documents", None)):
            self._document = value.aembed_documents
            if callable(one := getattr(value, "aembed_query", None)):
                self._query = one
        elif callable(getattr(value, "embed_documents", None)):
            self._document = value.embed_documents
        elif callable(value):
            self._document = value
        else:
            raise TypeError(f"it is a {type(value).__name__}; store.index.embed has to name a function list[str] -> list[list[float]], or Embeddings of LangChain")

    async def __call__(self, texts: list[str], query: bool) -> list[list[float]]:
        if query and self._query is not None:
            return [_vector(await self._query(text)) for text in texts]
        vectors = await threads.call(self._document, texts)
        if len(vectors) != len(texts):
            raise ValueError(f"embed returned {len(vectors)} vectors for {len(texts)} texts")
        return [_vector(v) for v in vectors]


def _vector(v: Any) -> list[float]:
    return [float(x) for x in v]


def by_name(name: str) -> Any:
    """provider:model, by LangChain."""
    try:
        from langchain.embeddings import init_embeddings
    except ImportError:
        raise ImportError(f"store.index.embed {name!r} is made by LangChain; install it with its provider: pip install langchain langchain-{name.partition(':')[0]}") from None
    return init_embeddings(name)
