"""The handlers of encryption.path. They encrypt the data keys with which the server encrypts content, so that they are asked once per key and not once per value."""
from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

# What encrypts a key is noted in front of the result.
BLOB, JSON = b"b", b"j"
MEMBER = "understudy_data_key"
PROBE = "understudy-probe"


class Encryption:
    """Raises TypeError or ValueError for what cannot encrypt."""

    def __init__(self, value: Any) -> None:
        from langgraph_sdk import Encryption as Declared
        from langgraph_sdk.encryption.types import DecryptResult, EncryptionContext

        if not isinstance(value, Declared):
            raise TypeError(f"it is a {type(value).__name__}; encryption.path has to name an Encryption of langgraph_sdk")
        self._context_type, self._result_type = EncryptionContext, DecryptResult
        self._blob = value._blob_encryptor, value._blob_decryptor
        self._json = value.get_json_encryptor(), value.get_json_decryptor()
        self._context = value._context_handler
        for name, (encrypt, decrypt) in {"blob": self._blob, "json": self._json}.items():
            if (encrypt is None) != (decrypt is None):
                missing = "encrypt" if encrypt is None else "decrypt"
                raise ValueError(f"there is no @encryption.{missing}.{name}; write both, or neither")
        if self._blob[0] is None and self._json[0] is None:
            raise ValueError("it has no handlers; write @encryption.encrypt.blob and @encryption.decrypt.blob")

    def describe(self) -> dict[str, bool]:
        return {"json": self._json[0] is not None, "context": self._context is not None}

    def names(self) -> dict[str, Any]:
        """Its handlers as users write them."""
        pairs = {f"@encryption.{what}.{kind}": h for kind, both in (("blob", self._blob), ("json", self._json)) for what, h in zip(("encrypt", "decrypt"), both)}
        return {**pairs, "@encryption.context": self._context}

    def _ctx(self, model: str | None, field: str | None, metadata: dict[str, Any]) -> Any:
        return self._context_type(model=model, field=field, metadata=dict(metadata))

    async def wrap(self, metadata: dict[str, Any], key: bytes) -> bytes:
        ctx = self._ctx("data_key", "key", metadata)
        if self._blob[0] is not None:
            return BLOB + _bytes(await self._blob[0](ctx, key), "encrypt.blob")
        text = base64.b64encode(key).decode()
        sealed = await self._json[0](ctx, {MEMBER: text})
        if not isinstance(sealed, dict) or list(sealed) != [MEMBER]:
            raise ValueError("encrypt.json did not keep the keys of its input")
        form = json.dumps(sealed)
        if text in form:
            raise ValueError(f"encrypt.json leaves the member {MEMBER!r} readable; write @encryption.encrypt.blob and @encryption.decrypt.blob")
        return JSON + form.encode()

    async def unwrap(self, metadata: dict[str, Any], wrapped: bytes) -> tuple[bytes, bytes | None]:
        ctx = self._ctx("data_key", "key", metadata)
        kind, sealed = wrapped[:1], wrapped[1:]
        if kind == BLOB:
            if self._blob[1] is None:
                raise ValueError("the data key needs decrypt.blob")
            plain, again = self._result(await self._blob[1](ctx, sealed))
            return _bytes(plain, "decrypt.blob"), None if again is None else BLOB + _bytes(again, "decrypt.blob")
        if kind != JSON or self._json[1] is None:
            raise ValueError("the data key needs decrypt.json")
        plain, again = self._result(await self._json[1](ctx, json.loads(sealed)))
        if not isinstance(plain, dict) or not isinstance(plain.get(MEMBER), str):
            raise ValueError("decrypt.json did not return what encrypt.json got")
        return base64.b64decode(plain[MEMBER], validate=True), None if again is None else JSON + json.dumps(again).encode()

    def _result(self, result: Any) -> tuple[Any, Any]:
        if isinstance(result, self._result_type):
            return result.plaintext, result.replacement
        return result, None

    async def readable(self, metadata: dict[str, Any], names: list[str]) -> list[bool]:
        """Which names of threads' metadata encrypt.json leaves as they are."""
        if self._json[0] is None:
            return [True] * len(names)
        sealed = await self._json[0](self._ctx("thread", "metadata", metadata), {name: PROBE for name in names})
        if not isinstance(sealed, dict) or set(sealed) != set(names):
            raise ValueError("encrypt.json did not keep the keys of its input")
        return [sealed[name] == PROBE for name in names]

    async def context(self, user: Any, metadata: dict[str, Any]) -> dict[str, Any]:
        if self._context is None:
            return metadata
        result = await self._context(user, self._ctx(None, None, metadata))
        if not isinstance(result, dict):
            raise TypeError(f"the handler of @encryption.context returned a {type(result).__name__}, and no dict")
        return result

    async def answer(self, call: dict[str, Any], answer: dict[str, Any], user_of: Any) -> None:
        do = call["do"]
        if do == "wrap":
            answer["key"] = _text(await self.wrap(call["context"], base64.b64decode(call["key"])))
        elif do == "unwrap":
            answer["keys"] = await self._all(call["keys"], call.get("seconds"))
        elif do == "readable":
            answer["readable"] = await self.readable(call["context"], call["names"])
        else:
            user = user_of(call["actor"]) if call.get("actor") is not None else _nobody()
            answer["context"] = await self.context(user, call["context"])

    async def _all(self, items: list[dict[str, Any]], seconds: float | None) -> list[dict[str, Any]]:
        """Decrypts keys. One that fails, or takes longer, does not hold up the others."""
        tasks = [asyncio.ensure_future(self._one(item)) for item in items]
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()  # which changes nothing for those that are done
        return [{"error": "TimeoutError: no result in time"} if not task.done() else {"error": "CancelledError"} if task.cancelled() else task.result() for task in tasks]

    async def _one(self, item: dict[str, Any]) -> dict[str, Any]:
        try:
            key, again = await self.unwrap(item["context"], base64.b64decode(item["key"]))
        except (Exception, SystemExit, KeyboardInterrupt) as exc:
            return {"error": f"{type(exc).__name__}: {exc}"[:1024]}
        return {"key": _text(key)} if again is None else {"key": _text(key), "replacement": _text(again)}


def _nobody() -> Any:
    try:
        from starlette.authentication import UnauthenticatedUser
    except ImportError:
        from . import users

        return users.User({"identity": "", "is_authenticated": False, "display_name": ""}, [])
    return UnauthenticatedUser()


def _bytes(value: Any, handler: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{handler} returned a {type(value).__name__}, and no bytes")
    return bytes(value)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
