"""What context parallelism says around attention: keys and values that pass from rank to rank.

Each rank has s/c tokens; g/t KV heads of size d a tensor-parallel rank. Rules: TransformerEngine, transformer_engine/
pytorch/attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P, AttnFuncWithCPAndKVAllGather,
AttnFuncWithCPAndQKVOA2A), which Megatron-Core calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tokenwire.model.architecture import Attention, LatentAttention
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.recompute import recomputed_attention_layers
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_TE = "TransformerEngine context_parallel.py"


@dataclass(frozen=True)
class _Widths:
    """Elements a token on one tensor-parallel rank: queries, keys, values, output."""

    q: int
    k: int
    v: int
    o: int


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage for the plan's ``cp_comm_type``."""
    if sizes.plan.cp == 1:
        return
    layers = Counter(w for w in (_widths(sizes, index) for index in stage.layers) if w)
    again = Counter(w for w in (_widths(sizes, index) for index in recomputed_attention_layers(sizes, stage)) if w)
    for widths, count in layers.items():
        for row in _BY_TYPE[sizes.config.cp_comm_type](sizes, stage, widths, count):
            yield row
            if row.phase == "forward" and again[widths]:
                times = row.count // count * again[widths]
                yield Operation(**{**vars(row), "phase": "backward", "count": times, "what": f"{row.what}, recomputed",
                                   "layers": again[widths]})  # fmt: skip


def _widths(z: Sizes, index: int) -> _Widths | None:
    mixer, t = z.arch.layers[index].mixer, z.plan.tp
    if isinstance(mixer, Attention):
        heads, kv, d = mixer.heads // t, max(mixer.kv_heads // t, 1), mixer.head_dim
        d_v = mixer.value_head_dim or d
        return _Widths(heads * d, kv * d, kv * d_v, heads * d_v)
    if isinstance(mixer, LatentAttention):
        heads, d = mixer.heads // t, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        return _Widths(heads * d, heads * d, heads * mixer.v_head_dim, heads * mixer.v_head_dim)
    return None


def _ring(z: Sizes, stage: Stage, w: _Widths, layers: int, group: str = "cp") -> Iterator[Operation]:
    c, m = z.plan.group_size(group), z.plan.micro_batches
    elements = z.tokens * (w.k + w.v)
    source = f"{_TE} AttnFuncWithCPAndKVP2P"
    parts: tuple[tuple[Phase, int, str, str], ...] = (
        ("forward", c - 1, "keys and values", "each rank's queries meet every other rank's keys and values"),
        ("backward", c - 1, "keys and values again", "the backward meets them once more"),
        ("backward", c - 1, "gradients of keys and values", "they travel with the ring until they are home"),
    )
    for phase, hops, what, why in parts:
        for op in _SEND_RECV:
            yield z.row(
                stage.index, op, group, phase, hops * layers * m, elements, what, formula="b·s/c·2·g/t·d",
                values=f"{z.tokens:,}·{w.k + w.v:,}", source=source, why=why, parallelism="cp", layers=layers,
                peer=stage.index,
            )  # fmt: skip


_SEND_RECV: tuple[Op, Op] = ("send", "recv")


def _gather(z: Sizes, stage: Stage, w: _Widths, layers: int) -> Iterator[Operation]:
    c, m, source = z.plan.cp, z.plan.micro_batches, f"{_TE} AttnFuncWithCPAndKVAllGather"
    rows: tuple[tuple[Op, Phase, str, str], ...] = (
        ("all_gather", "forward", "", "every rank's queries meet the keys and values of the whole sequence"),
        ("all_gather", "backward", " again", "they were not kept"),
        ("reduce_scatter", "backward", " gradients", "every rank has a part of the gradient of all keys and values"),
    )
    for op, phase, suffix, why in rows:
        for name, width in (("keys", w.k), ("values", w.v)):
            yield z.row(
                stage.index, op, "cp", phase, layers * m, z.tokens * c * width, f"{name}{suffix}", formula="b·s·g/t·d",
                values=f"{z.tokens * c:,}·{width:,}", source=source, why=why, parallelism="cp", layers=layers,
            )  # fmt: skip


def _all_to_all(z: Sizes, stage: Stage, w: _Widths, layers: int, group: str = "cp") -> Iterator[Operation]:
    m, source = z.plan.micro_batches, f"{_TE} AttnFuncWithCPAndQKVOA2A"
    parts: tuple[tuple[Phase, str, int], ...] = (
        ("forward", "queries", w.q), ("forward", "keys", w.k), ("forward", "values", w.v), ("forward", "output", w.o),
        ("backward", "output gradient", w.o), ("backward", "query gradients", w.q), ("backward", "key gradients", w.k),
        ("backward", "value gradients", w.v),
    )  # fmt: skip
    for phase, what, width in parts:
        yield z.row(
            stage.index, "all_to_all", group, phase, layers * m, z.tokens * width, what, formula="b·s/c·a/t·d",
            values=f"{z.tokens:,}·{width:,}", source=source, parallelism="cp", layers=layers,
            why="ranks change a part of the sequence with all heads for the whole sequence with a part of the heads",
        )  # fmt: skip


def _hierarchical(z: Sizes, stage: Stage, w: _Widths, layers: int) -> Iterator[Operation]:
    # Heads change hands in the inner group, then keys and values go round the outer one.
    yield from _all_to_all(z, stage, w, layers, "cp_a2a")
    yield z.row(
        stage.index, "all_to_all", "cp_a2a", "backward", layers * z.plan.micro_batches, z.tokens * w.o, "output again",
        formula="b·s/c·a/t·d", values=f"{z.tokens:,}·{w.o:,}", source=f"{_TE} AttnFuncWithCPAndKVP2P.backward",
        parallelism="cp", layers=layers, why="only its own part of the sequence was kept of the output",
    )  # fmt: skip
    yield from _ring(z, stage, w, layers, "cp_p2p")


_BY_TYPE = {"p2p": _ring, "all_gather": _gather, "a2a": _all_to_all, "a2a+p2p": _hierarchical}
