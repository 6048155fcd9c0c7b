"""Delta channels keep only what was written to them; their value is folded again whenever it is read. What records conversations needs the
whole list with each checkpoint, and the loop has it at hand when it makes one: it is kept beside the values for the saver to send."""
from __future__ import annotations

import functools
from typing import Any

try:
    from langgraph.channels.delta import DeltaChannel
except ImportError:  # langgraph before delta channels
    DeltaChannel = None  # type: ignore[assignment,misc]


class Values(dict):
    """The values of a checkpoint. `folded` holds those of delta channels."""

    folded: dict[str, list]

    def copy(self) -> Values:
        same = Values(self)
        same.folded = self.folded
        return same


def install() -> None:
    """Has LangGraph make checkpoints whose values carry them. Where its insides differ, nothing is folded, and conversations of such
    channels are read from their checkpoints."""
    if DeltaChannel is None:
        return
    try:
        from langgraph.pregel import _loop, main
        wrapped = _folding(_loop.create_checkpoint)
        _loop.create_checkpoint = wrapped
        main.create_checkpoint = wrapped
    except (ImportError, AttributeError):
        pass


def _folding(create):
    @functools.wraps(create)
    def create_checkpoint(checkpoint: Any, channels: Any, *args: Any, **kwargs: Any) -> Any:
        made = create(checkpoint, channels, *args, **kwargs)
        if channels is None:
            # A checkpoint like the one before: so are its values.
            folded = getattr(checkpoint["channel_values"], "folded", None)
        else:
            folded = {
                name: list(channel.value)
                for name, channel in channels.items()
                if isinstance(channel, DeltaChannel) and isinstance(channel.value, list) and name in made["channel_versions"]
            }
        if folded:
            values = Values(made["channel_values"])
            values.folded = folded
            made["channel_values"] = values
        return made

    return create_checkpoint


def folded(values: Any) -> dict[str, list]:
    return getattr(values, "folded", None) or {}
