"""What a prediction of memory takes for given because neither plan nor software gives it: defaults that change its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan.megatron_defaults import VERSION, assumed
from tokenwire.timeline.memory.frame import Frame

DROPOUTS = ("attention_dropout", "hidden_dropout")


def assumptions(frame: Frame) -> Iterator[str]:
    """Yield each default that was taken, with its source and what to give instead."""
    yield from _dropout(frame)
    yield from assumed(frame.plan.config, frame.plan.training)


def _dropout(frame: Frame) -> Iterator[str]:
    left = [name for name in DROPOUTS if name not in frame.plan.config.model_fields_set and getattr(frame.software, name) is None]
    if not left:
        return
    values = ", ".join(f"{name} = {getattr(frame, name):g}" for name in left)
    if frame.dialect == "megatron":
        yield f"{values} ({VERSION}, TransformerConfig): give --set plan.{left[0]}=0 for a run without"
    else:
        yield f"{values}: {frame.dialect} has no such option, and the model is taken to have none; give --option {left[0]}=0.1 for one that has"
