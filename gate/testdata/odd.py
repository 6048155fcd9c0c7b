"""Handlers that misbehave in the ways that handlers do."""
import asyncio
import os
import subprocess
import sys
import threading
import time

from langgraph_sdk import Auth

auth = Auth()
hanging = threading.Event()


class Person:
    def __init__(self, identity):
        self.identity, self.permissions, self.org = identity, ["p"], "acme"

    def secret(self):
        return self.identity.upper()


@auth.authenticate
def authenticate(authorization: str | None, headers: dict[bytes, bytes], path, query_params, scope, path_params, other=3):
    what = (authorization or "").removeprefix("Bearer ")
    if what == "block":
        time.sleep(3600)
    if what == "late":
        time.sleep(1.8)
    if what == "exit":
        sys.exit(3)
    if what == "die":
        os._exit(7)
    if what == "print":
        print("x" * 100_000)
        sys.stderr.write("to stderr\n")
    if what == "fork":
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    if what == "object":
        return Person("ann")
    if what == "set":
        return {"identity": "ann", "things": {1}, "n": 2**70, "when": __import__("datetime").date(2024, 1, 2)}
    if what == "unserializable":
        return {"identity": "ann", "thing": object(), "kept": 1}
    if what == "uuid":
        return {"identity": __import__("uuid").UUID(int=7)}
    if what == "generator":
        return (x for x in "ab")
    if what == "empty":
        return ""
    if what == "half":
        return "ann\ud800"
    if what == "status":
        raise Auth.exceptions.HTTPException(status_code=401, detail="no", headers={"WWW-Authenticate": "Bearer", "X-Bad\r\n": "a", "X-Worse": "a\r\nb: c"})
    if what == "echo":
        return {"identity": "ann", "headers": {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items()}, "path": path, "q": dict(query_params),
                "raw": scope["raw_path"].decode(), "params": path_params, "client": scope["client"], "type": scope["type"]}
    return what or "anonymous"


@auth.on.threads.create
async def create(ctx, value):
    do = value.get("do")
    if do == "hang":
        await asyncio.sleep(3600)
    if do == "late":
        await asyncio.sleep(1.8)
    if do in ("swallow", "refuse"):  # what takes too long ends as everything else that fails
        try:
            await asyncio.sleep(3600)
        except BaseException:
            if do == "refuse":
                raise Auth.exceptions.HTTPException(status_code=401, detail="no")
            return None
    if do == "spin":
        time.sleep(3600)
    if do == "garbage":
        return object()
    if do == "filter":
        return {"a": object()}
    if do == "nan":
        return {"$or": [{"owner": "me"}, {"level": float("nan")}]}
    if do == "write":
        value["x"] = object()
        return None
    if do == "teapot":
        raise Auth.exceptions.HTTPException(status_code=418, detail={"a": 1})
    if do == "ok":
        raise Auth.exceptions.HTTPException(status_code=200, detail="fine")
    if do == "exit":
        sys.exit(1)
    if do == "types":
        value["seen"] = [type(value["thread_id"]).__name__, type(ctx.user).__name__, ctx.permissions, ctx.user["identity"]]
        return True
    if do == "org":
        value["org"], value["secret"] = ctx.user.org, ctx.user.secret()
        return True
    if do == "odd":
        value["odd"] = type(ctx.user["thing"]).__name__
        return True
    if do == "flat":
        return {"owner": "me", "level": "1"}
    if do == "operators":
        return {"$or": [{"owner": "me"}, {"level": 1}]}
    if do == "unknown operator":
        return {"owner": {"$ne": "me"}}
    if do == "remove":
        del value["big"]
        value["added"] = {"n": (1, 2)}
        return {}
    return None


@auth.on.threads.create_run
async def create_run(ctx, value):
    configurable = value["kwargs"]["config"]["configurable"]
    user = configurable["langgraph_auth_user"]
    value["seen"] = [user.identity, list(configurable)[-3:], configurable["langgraph_auth_user_id"], configurable["langgraph_auth_permissions"]]
    configurable["team"] = user.display_name
    if configurable.get("do") == "forge":
        configurable["langgraph_auth_user"] = {"identity": "eve"}


@auth.on.crons.create
async def schedule(ctx, value):
    value["metadata"]["owner"] = value["user_id"]


@auth.on.store
async def store(ctx, value):
    value["seen"] = type(value["namespace"]).__name__
    value["namespace"] = (ctx.user.identity, *(value["namespace"] or ()))
