"""Arguments that no journey file says: each with the words that tell why. A run that has one is counted and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenwire.errors import InputError

Sections = dict[str, dict[str, Any]]
"""The sections of a journey file, as TOML gives them."""


class Unrepresented(InputError):
    """A run that no journey file describes, with the argument that is the reason."""


REASONS = {
    "flextron": "a model whose widths change from step to step (Flextron)",
    "experimental-attention-variant": "attention that no journey file says",
    "export-kd-teacher-load": "distillation: a teacher stands beside the model",
    "use-torch-fsdp2": "torch's FSDP2 under Megatron, which the journey's torchtitan says with another layout",
    "img-h": "a model of images and text",
    "model-provider": "a model that a script of its own builds",
    "perform-rl-step": "reinforcement learning: inference and training share the memory",
    "fine-grained-activation-offloading": "activations moved to the host",
    "cuda-graph-impl": "CUDA graphs, whose private pools are not modelled here",
}
"""Argument: why a run that has it cannot be represented."""


def layer_wise(args: Mapping[str, Any]) -> bool:
    """Return whether whole tensors' states are shared out among the ranks, as Muon needs them."""
    return args.get("optimizer") == "muon" and "use-distributed-optimizer" in args


def reasons(args: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a run cannot be represented; empty where it can.

    >>> reasons({"img-h": 336})
    ('img-h: a model of images and text',)
    """
    return tuple(_found(args))


def _found(args: Mapping[str, Any]) -> Iterator[str]:
    for name, why in REASONS.items():
        if name in args:
            yield f"{name}: {why}"
    if args.get("optimizer") not in (None, "adam", "muon"):
        yield f"optimizer = {args['optimizer']}: its state is not counted here"
    if layer_wise(args) and "no-use-layer-wise-param-layout" not in args:
        yield "use-distributed-optimizer with muon: its layout of parameters by layer is not modelled here"
