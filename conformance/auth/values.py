"""Handlers that show what they are asked about, or change it, as the token says: base64 of a JSON object."""
import base64
import json
import uuid

from langgraph_sdk import Auth

auth = Auth()


def embed(texts):
    return [[float(t.count("a")), float(t.count("b")), 1.0] for t in texts]


@auth.authenticate
async def authenticate(authorization: str | None):
    if not authorization:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    orders = json.loads(base64.urlsafe_b64decode(authorization.removeprefix("Bearer ")))
    return {"identity": orders["identity"], "orders": orders}


def form(value):
    """A value with the types that JSON does not have."""
    if isinstance(value, dict):
        return {k: form(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return {"tuple": [form(v) for v in value]}
    if isinstance(value, list):
        return [form(v) for v in value]
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if hasattr(value, "identity"):
        return {"user": value.identity}
    return value


@auth.on
async def on(ctx, value):
    orders, about = ctx.user["orders"], f"{ctx.resource}.{ctx.action}"
    if orders.get("show") == about:
        raise Auth.exceptions.HTTPException(status_code=403, detail=json.dumps(form(value)))
    if orders.get("refuse") == about:
        raise Auth.exceptions.HTTPException(status_code=orders["status"], detail="told to")
    if orders.get("change") == about:
        *path, last = orders["at"]
        for key in path:
            value = value[key]
        if isinstance(value.get(last), dict):
            value[last].update(orders["value"])
        else:
            value[last] = tuple(orders["value"]) if isinstance(orders["value"], list) else orders["value"]
