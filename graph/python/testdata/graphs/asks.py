"""A graph that runs coroutines when it is imported, as those that ask MCP servers for their tools do."""
import asyncio

from graphs import Items, line


async def ask(name):
    await asyncio.sleep(0)
    return name


def by_hand():
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(ask("by hand"))
    finally:
        loop.close()


tools = [asyncio.run(ask("at once")), by_hand()]


async def use(state):
    return {"items": [*tools, await ask("in the node")]}


graph = line(Items, ("use", use)).compile()
