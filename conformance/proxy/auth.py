"""Who calls, and what is theirs: `Authorization: Bearer NAME` is NAME, and threads belong to whoever made them."""
from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def authenticate(headers: dict) -> Auth.types.MinimalUserDict:
    word = (headers.get(b"authorization") or b"").decode()
    scheme, _, name = word.partition(" ")
    if scheme != "Bearer" or name not in ("alice", "bob"):
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    return {"identity": name}


@auth.on.threads
async def of_their_owner(ctx: Auth.types.AuthContext, value: dict):
    mine = {"owner": ctx.user.identity}
    value.setdefault("metadata", {}).update(mine)
    return mine


@auth.on.assistants
async def of_everybody(ctx: Auth.types.AuthContext, value: dict):
    return True
