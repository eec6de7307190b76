"""What a plan cannot cut of models that are described by their tensors, and what of a model a plan leaves unpredicted."""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.model.architecture import Architecture, LatentAttention, TokenMixer
from tokenwire.plan.rules import Broken, Choice


def uncut(choice: Choice, arch: Architecture) -> Iterator[Broken]:
    """Yield the rules for layers whose cut over ranks no framework here shows, so that nothing of it is guessed."""
    c = choice.config
    if c.pp > 1 and arch.between_layers:
        yield Broken("plan", "pp", f"layers of several stages need {arch.between_layers}: what a pipeline of it sends is not predicted",
                     values=(1,))  # fmt: skip
    if choice.training.precision == "fp8" and any(layer.weights for layer in arch.kinds):
        yield Broken("training", "precision", f"which tensors of {arch.family} are cast to fp8 is not predicted", values=("bf16",))
    for key, size in (("tp", c.tp), ("cp", c.cp)):
        if size > 1 and (what := next(_whole(arch, key, size), None)):
            yield Broken("plan", key, what, values=(1,))


def _whole(arch: Architecture, key: str, size: int) -> Iterator[str]:
    over = {"tp": "tensor parallelism", "cp": "context parallelism"}[key]
    for layer in arch.kinds:
        mixers = [part for part in (layer.mixer, layer.feed_forward) if isinstance(part, TokenMixer)]
        for mixer in mixers:
            # A matrix in place of a part puts out all it has: Megatron gathers it (gpt/heterogeneous/heterogeneous_layer_specs.py).
            if key == "cp" or mixer.kind == "linear":
                yield f"{over} of a layer of {mixer.kind} is not predicted"
            elif mixer.heads % size:
                yield f"tp must divide the {mixer.heads:,} {'channels' if mixer.kind == 'short convolution' else 'heads'} of {mixer.kind}"
        if layer.extra is not None:
            yield f"{over} of the tensors that only {arch.family} has is not predicted"
        if isinstance(layer.mixer, LatentAttention) and layer.mixer.indexer is not None:
            # megatron/core/transformer/experimental_attention_variant/dsa.py: indexer whole on each rank, scores summed for its loss.
            yield f"{over} of attention to indexed tokens is not predicted"
    if arch.extra:
        yield f"{over} of the tensors that only {arch.family} has is not predicted"


def unpredicted(arch: Architecture) -> tuple[str, ...]:
    """Return the notes on what of a model is not counted, or counts as something else."""
    return tuple(f"{one.field}: {one.what}" for one in arch.left_out)
