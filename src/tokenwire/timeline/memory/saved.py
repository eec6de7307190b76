"""One tensor that autograd keeps for the backward."""

from __future__ import annotations

from dataclasses import dataclass

from tokenwire.timeline.memory.frame import Frame


@dataclass(frozen=True)
class Saved:
    """``size`` in bytes of one micro-batch; ``kind`` names the module that keeps it, for recomputation."""

    kind: str
    what: str
    size: int
    formula: str
    values: str
    source: str


def saved(frame: Frame, kind: str, what: str, formula: str, size: int, source: str, **more: int) -> Saved:
    """Return a saved tensor, with numbers put in its formula."""
    return Saved(kind, what, size, formula, frame.put_in(formula, more), source)


def product_input(frame: Frame, kind: str, what: str, formula: str, elements: int, source: str, **more: int) -> Saved:
    """Return the input of a product of Megatron, which is kept in fp8 where products run in it; ``formula`` is of its elements."""
    if frame.fp8 and frame.dialect == "megatron":
        return Saved(kind, what, elements, f"{formula}·1", frame.put_in(f"{formula}·1", more), "NVIDIA/TransformerEngine, pytorch/module/linear.py")
    return saved(frame, kind, what, f"{formula}·e", elements * frame.item, source, **more)
