"""What context parallelism says around attention and state spaces: what passes from rank to rank along the sequence.

Each rank has s/c tokens; g/t KV heads of size d a tensor-parallel rank. Keys and values go round in a ring (a message a hop; in
the backward they go round with their gradients beside them, which arrive a hop later), or are gathered, or heads change hands
for tokens; a state space exchanges heads for tokens whatever attention does. Rules: TransformerEngine 2.18 (its kernels need
an accelerator; its Python runs without them: tests/step/test_megatron_context_source.py), pytorch/attention/
dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P, AttnFuncWithCPAndKVAllGather,
AttnFuncWithCPAndQKVOA2A), which Megatron-Core calls: keys, values and their gradients are in the dtype of activations,
whatever sums them. Up to 2.14 a2a+p2p exchanged the output once more in the backward. megatron-core 0.16.1, ssm/mamba_context_parallel.py (MambaContextParallel).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenwire.model.architecture import Attention, LatentAttention, StateSpace
from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.recompute import recomputed_attention_layers, recomputed_layers
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_TE = "TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py"
_SPACE = "megatron-core ssm/mamba_context_parallel.py MambaContextParallel"


@dataclass(frozen=True)
class _Widths:
    """Elements a token on one tensor-parallel rank: queries, keys, values, output; and its heads where they have sinks."""

    q: int
    k: int
    v: int
    o: int
    sinks: int = 0


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage for the ``cp_comm_type`` of each layer, and those of its state spaces."""
    if sizes.plan.cp == 1:
        return
    layers = _attention_layers(sizes, stage.layers)
    again = _attention_layers(sizes, recomputed_attention_layers(sizes, stage))
    for (kind, widths), count in layers.items():
        yield from _with_those_again(_BY_TYPE[kind](sizes, stage, widths, count), count, again[kind, widths])
    spaces = Counter(m for m in (sizes.arch.layers[index].mixer for index in stage.layers) if isinstance(m, StateSpace))
    run_again = Counter(sizes.arch.layers[index].mixer for index in recomputed_layers(sizes, stage))
    for mixer, count in spaces.items():
        yield from _with_those_again(_state_space(sizes, stage, mixer, count), count, run_again[mixer])


def _with_those_again(rows: Iterator[Operation], layers: int, again: int) -> Iterator[Operation]:
    for row in rows:
        yield row
        if row.phase == "forward" and again:
            yield row._replace(phase="backward", count=row.count // layers * again, what=f"{row.what}, recomputed", layers=again)


def _attention_layers(z: Sizes, layers: Iterable[int]) -> Counter[tuple[str, _Widths]]:
    sized = ((index, _widths(z, index)) for index in layers)
    return Counter((z.config.cp_comm_of(index), widths) for index, widths in sized if widths)


def _widths(z: Sizes, index: int) -> _Widths | None:
    mixer, t = z.arch.layers[index].mixer, z.plan.tp
    if isinstance(mixer, Attention):
        heads, kv, d = mixer.heads // t, max(mixer.kv_heads // t, 1), mixer.head_dim
        d_v = mixer.value_head_dim or d
        return _Widths(heads * d, kv * d, kv * d_v, heads * d_v, heads if mixer.sinks else 0)
    if isinstance(mixer, LatentAttention):
        heads, d = mixer.heads // t, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
        return _Widths(heads * d, heads * d, heads * mixer.v_head_dim, heads * mixer.v_head_dim)
    return None


def _ring(z: Sizes, stage: Stage, w: _Widths, layers: int, group: str = "cp") -> Iterator[Operation]:
    c, m, both = z.plan.group_size(group), z.plan.micro_batches, w.k + w.v
    behind = "gradients travel with what they are of, a hop behind, until they are home"
    parts: tuple[tuple[Phase, int, int, str, str], ...] = (
        ("forward", c - 1, 1, "keys and values", "each rank's queries meet every other rank's keys and values"),
        ("backward", 1, 1, "keys and values again", "the backward meets them once more; there are no gradients yet"),
        ("backward", c - 2, 2, "keys and values and their gradients", behind),
        ("backward", 1, 1, "gradients of keys and values", "the last hop brings them home"),
    )
    for phase, hops, times, what, why in parts:
        for op in _SEND_RECV:
            yield z.row(
                stage.index, op, group, phase, hops * layers * m, times * z.tokens * both, what,
                formula=("2·" if times == 2 else "") + "b·s/c·(k + v)", values=f"{'2·' if times == 2 else ''}{z.tokens:,}·{both:,}",
                source=f"{_TE} AttnFuncWithCPAndKVP2P", why=why, parallelism="cp", layers=layers, peer=stage.index,
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
    m = z.plan.micro_batches
    parts: tuple[tuple[Phase, str, int], ...] = (
        ("forward", "queries", w.q), ("forward", "keys", w.k), ("forward", "values", w.v), ("forward", "output", w.o),
        ("backward", "output gradient", w.o), ("backward", "query gradients", w.q), ("backward", "key gradients", w.k),
        ("backward", "value gradients", w.v),
    )  # fmt: skip
    for phase, what, width in parts:
        yield _exchange(z, stage, group, phase, layers, what, width, f"{_TE} AttnFuncWithCPAndQKVOA2A")
    if w.sinks:
        yield z.row(
            stage.index, "all_gather", group, "backward", layers * m, w.sinks, "gradients of sinks", formula="a/t", values=str(w.sinks),
            dtype="fp32", source=f"{_TE} flash_attn_a2a_communicate_softmax_offset", parallelism="cp", layers=layers,
            why="a rank saw the sinks of its heads only",
        )  # fmt: skip


def _exchange(z: Sizes, stage: Stage, group: str, phase: Phase, layers: int, what: str, width: int, source: str) -> Operation:
    return z.row(
        stage.index, "all_to_all", group, phase, layers * z.plan.micro_batches, z.tokens * width, what, formula="b·s/c·width",
        values=f"{z.tokens:,}·{width:,}", source=source, parallelism="cp", layers=layers,
        why="ranks change a part of the sequence with all heads for the whole sequence with a part of the heads",
    )  # fmt: skip


def _hierarchical(z: Sizes, stage: Stage, w: _Widths, layers: int) -> Iterator[Operation]:
    # Heads change hands in the inner group, then the keys and values of those that came go round the outer one.
    yield from _all_to_all(z, stage, w, layers, "cp_a2a")
    yield from _ring(z, stage, w, layers, "cp_p2p")


def _state_space(z: Sizes, stage: Stage, mixer: StateSpace, layers: int) -> Iterator[Operation]:
    t, c = z.plan.tp, z.plan.cp
    groups = mixer.groups // t
    # The state of a group that ranks share goes to each of them.
    state = groups * mixer.state_size * max(c // groups, 1)
    inner = mixer.inner_size // t
    parts = (("gate", inner), ("input", inner), ("B", state), ("C", state), ("time steps", mixer.heads // t))
    for what, width in parts:
        yield _exchange(z, stage, "cp", "forward", layers, f"state space {what}", width, f"{_SPACE}.pre_conv_ssm")
    for phase, what in (("forward", "output"), ("backward", "output gradient")):
        yield _exchange(z, stage, "cp", "forward" if phase == "forward" else "backward", layers, f"state space {what}", inner,
                        f"{_SPACE}.post_conv_ssm")  # fmt: skip
    for what, width in parts:
        yield _exchange(z, stage, "cp", "backward", layers, f"state space {what} gradient", width, f"{_SPACE}.pre_conv_ssm")


_BY_TYPE = {"p2p": _ring, "all_gather": _gather, "a2a": _all_to_all, "a2a+p2p": _hierarchical}
