"""Counts of parameters, read off the list of tensors.

``total`` counts as Hugging Face's ``num_parameters`` does: every tensor once, a tied head not again, MTP layers not at
all (they stand in ``mtp``). ``active`` is what one token passes through: of E routed experts only the k chosen ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tokenwire.figures import Figure
from tokenwire.model.architecture import Architecture, Experts, Layer
from tokenwire.model.tensors import layer_tensors, tensors


@dataclass(frozen=True)
class ParameterCount:
    """Parameters, counted; ``embedding`` is the table of tokens, ``position`` that of learned positions.

    ``layers`` are the transformer or state-space layers; ``experts`` the routed experts in them; ``head`` is 0 where it
    is tied. ``total = embedding + position + layers + head + other``.
    """

    total: int
    active: int
    embedding: int
    position: int
    layers: int
    experts: int
    head: int
    other: int
    mtp: int

    def as_dict(self) -> dict[str, int]:
        """Return the counts for JSON."""
        return dict(self.__dict__)


@lru_cache(maxsize=64)
def parameters(arch: Architecture) -> ParameterCount:
    """Return the parameter counts of an architecture.

    >>> from tokenwire.model import preset
    >>> parameters(preset("gpt2")).total, parameters(preset("llama-3.1-405b")).total
    (124439808, 405853388800)
    """
    by_part = {"embedding": 0, "position": 0, "head": 0, "other": 0}
    for tensor in tensors(_without_layers(arch)):
        by_part[tensor.part if tensor.name in _OWN else "other"] += tensor.elements
    runs = layer_runs(arch)
    layers = sum(n * layer_parameters(arch, layer) for layer, n in runs)
    experts = sum(n * _routed(layer, arch) for layer, n in runs)
    idle = sum(n * _idle(layer, arch) for layer, n in runs)
    total = layers + sum(by_part.values())
    mtp = (
        sum(t.elements for t in tensors(_only_mtp(arch)) if t.layer is not None and t.layer >= 1)
        if arch.mtp_layers
        else 0
    )
    return ParameterCount(
        total, total - idle, by_part["embedding"], by_part["position"], layers, experts, by_part["head"],
        by_part["other"], mtp,
    )  # fmt: skip


_OWN = ("embedding.weight", "position.weight", "head.weight", "head.bias")


@lru_cache(maxsize=256)
def layer_parameters(arch: Architecture, layer: Layer) -> int:
    """Return the parameters of one layer of ``arch``."""
    return sum(tensor.elements for tensor in layer_tensors(arch, layer, 0))


def part_parameters(arch: Architecture, layer: Layer) -> dict[str, int]:
    """Return the parameters of one layer by part (``mixer``, ``feed_forward``, ``experts``, ``router``, ``norm`` ...)."""
    out: dict[str, int] = {}
    for tensor in layer_tensors(arch, layer, 0):
        out[tensor.part] = out.get(tensor.part, 0) + tensor.elements
    return out


def _without_layers(arch: Architecture) -> Architecture:
    from dataclasses import replace

    return replace(arch, layers=(), mtp_layers=0)


def _only_mtp(arch: Architecture) -> Architecture:
    from dataclasses import replace

    return replace(arch, layers=arch.layers[-1:])


def _routed(layer: Layer, arch: Architecture) -> int:
    return part_parameters(arch, layer).get("experts", 0) if isinstance(layer.feed_forward, Experts) else 0


def _idle(layer: Layer, arch: Architecture) -> int:
    experts = layer.feed_forward
    if not isinstance(experts, Experts):
        return 0
    each = sum(prod(t.shape[1:]) for t in layer_tensors(arch, layer, 0) if t.part == "experts")
    return each * (experts.count - min(experts.active, experts.count))


def parameter_figures(arch: Architecture) -> tuple[Figure, ...]:
    """Return the count with its derivation, part by part."""
    count, h, V = parameters(arch), arch.hidden_size, arch.vocabulary_size
    width = arch.embedding_size or h
    source = "tokenwire.model.tensors"
    runs = "+".join(f"{n}·{layer_parameters(arch, layer):,}" for layer, n in layer_runs(arch)[:6])
    if len(layer_runs(arch)) > 6:
        runs += "+..."
    out = [
        Figure("token embedding", count.embedding, "parameters", "V·h", f"{V:,}·{width:,}", source),
        Figure("learned positions", count.position, "parameters", "P·h", f"{arch.max_positions + arch.position_offset:,}·{h:,}", source),
        Figure("layers", count.layers, "parameters", "Σ layers", runs, source),
        Figure("norms and projections outside layers", count.other, "parameters", "", "", source),
        Figure("head", count.head, "parameters", "V·h", f"{V:,}·{width:,}" + (f"+{V:,}" if arch.head_bias else ""), source,
               because="tied: the head is the embedding" if arch.tied_embeddings else ""),
    ]  # fmt: skip
    return tuple(figure for figure in out if figure.value)


@lru_cache(maxsize=64)
def layer_runs(arch: Architecture) -> tuple[tuple[Layer, int], ...]:
    """Return the different layers with how many there are of each, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in arch.layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(counts.items())
