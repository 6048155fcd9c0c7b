"""The handlers that isolation_world_test.go has in Go as owners: what a user creates belongs to the user, and to the members that its metadata lists."""
from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def authenticate(authorization: str | None):
    name = (authorization or "").removeprefix("Bearer ")
    if not name or name == authorization:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    return {"identity": name, "display_name": name, "is_authenticated": True, "token": f"TOKEN-of-{name}"}


@auth.on
async def own(ctx, value):
    if ctx.action in ("create", "update", "create_run"):
        value["metadata"] = {**(value.get("metadata") or {}), "owner": ctx.user.identity}
    return {"$or": [{"owner": ctx.user.identity}, {"members": {"$contains": ctx.user.identity}}]}


@auth.on.store
async def namespaces(ctx, value):
    value["namespace"] = (ctx.user.identity, *(value.get("namespace") or ()))
