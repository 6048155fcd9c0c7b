"""Handlers that tests make fail: what they do is in the file that UNDERSTUDY_TEST_MODE names."""
import asyncio
import base64
import json
import os

from langgraph_sdk import Encryption
from langgraph_sdk.encryption.types import DecryptResult

encryption = Encryption()
KEY = 0x5A
CALLS = os.environ.get("UNDERSTUDY_TEST_CALLS")


def mode():
    try:
        with open(os.environ["UNDERSTUDY_TEST_MODE"]) as f:
            return f.read().strip()
    except (KeyError, OSError):
        return ""


def note(what, ctx):
    if CALLS:
        with open(CALLS, "a") as f:
            f.write(f"{what} {json.dumps(ctx.metadata, sort_keys=True)}\n")


async def misbehave():
    if mode() == "raise":
        raise RuntimeError("the key service is down")
    if mode() == "slow":
        await asyncio.sleep(60)
    if mode() == "die":
        os._exit(7)


@encryption.encrypt.blob
async def encrypt_blob(ctx, blob):
    note("encrypt", ctx)
    await misbehave()
    if mode() == "plain":
        return blob
    if mode() == "text":
        return "text"
    return json.dumps(ctx.metadata, sort_keys=True).encode() + b"|" + bytes(b ^ KEY for b in blob)


@encryption.decrypt.blob
async def decrypt_blob(ctx, blob):
    note("decrypt", ctx)
    await misbehave()
    said, _, sealed = blob.partition(b"|")
    old = said.endswith(b"!")
    if json.loads(said.rstrip(b"!")) != ctx.metadata:
        raise ValueError("another context")
    if mode() == "refuse b" and ctx.metadata.get("tenant") == "b":
        raise PermissionError("the key of tenant b was withdrawn")
    if ctx.metadata.get("tenant") == "b":
        if mode() == "hang b":
            await asyncio.sleep(60)
        if mode() == "exit b":
            raise SystemExit(7)
        if mode() == "cancel b":
            raise asyncio.CancelledError
        if mode() == "die b":
            os._exit(7)
    plain = bytes(b ^ KEY for b in sealed)
    if mode() == "wrong":
        return bytes(len(plain))
    if mode() == "rotate" and not old:
        return DecryptResult(plain, said + b"!|" + sealed)
    return plain


PLAIN = {"owner", "plain"}


@encryption.encrypt.json
async def encrypt_json(ctx, data):
    note("encrypt.json", ctx)
    await misbehave()
    if mode() == "drops":
        return {}
    return {k: v if k in PLAIN or v is None else "E:" + base64.b64encode(json.dumps(v).encode()).decode() for k, v in data.items()}


@encryption.decrypt.json
async def decrypt_json(ctx, data):
    return {k: json.loads(base64.b64decode(v[2:])) if isinstance(v, str) and v.startswith("E:") else v for k, v in data.items()}


@encryption.context
async def context(user, ctx):
    await misbehave()
    identity = getattr(user, "identity", "") if user.is_authenticated else ""
    return {**ctx.metadata, "tenant": identity} if identity else ctx.metadata


only_json = Encryption()
only_json.encrypt.json(encrypt_json)
only_json.decrypt.json(decrypt_json)

lists_keys = Encryption()


@lists_keys.encrypt.json
async def encrypt_listed(ctx, data):
    return {k: "E:" if k == "email" else v for k, v in data.items()}


lists_keys.decrypt.json(decrypt_json)

half = Encryption()
half.encrypt.blob(encrypt_blob)

empty = Encryption()
number = 7
