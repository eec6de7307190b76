"""Context parallelism by ring attention: keys and values go round, their gradients come back.

Each rank has s/c tokens of a sequence, so b·s/c·g/t·(d_k + d_v) elements of keys and values (latent attention hands the kernel keys and
values of every head, of two widths). Source: torch 2.13,
torch/distributed/tensor/experimental/_context_parallel/_attention.py. ``allgather`` fetches all keys and values at once,
``alltoall`` hands them to the next rank c-1 times; gradients of keys and values always go round, c times, in fp32. The
replicas' gradients of parameters are FSDP's: cp is part of its shard group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Attention, LatentAttention
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.dialects.torchtitan.tensor_parallel import checkpointed
from tokenwire.step.operation import Operation

_RING = "torch distributed/tensor/experimental/_context_parallel/_attention.py"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none where cp is 1."""
    if z.plan.cp == 1:
        return
    again = set(checkpointed(z, stage))
    mixers = [(z.arch.layers[i].mixer, i in again) for i in stage.layers]
    kinds = Counter(mixer for mixer, _ in mixers if isinstance(mixer, (Attention, LatentAttention)))
    for mixer, layers in kinds.items():
        rerun = sum(1 for other, twice in mixers if other == mixer and twice)
        yield from _rows(z, stage, mixer, layers, rerun)


def _rows(z: Sizes, stage: Stage, mixer: Attention | LatentAttention, layers: int, rerun: int) -> Iterator[Operation]:
    t, c, m, dtype = z.plan.training, z.plan.cp, z.plan.micro_batches, z.compute_dtype
    heads, keys, held_values = _heads(mixer)
    local = t.micro_batch * z.local_sequence * heads // z.plan.tp * (keys + held_values)
    widths = f"2·{keys}" if keys == held_values else f"({keys} + {held_values})"
    held = f"{t.micro_batch}·{t.sequence_length}/{c}·{heads}/{z.plan.tp}·{widths}"
    if z.config.context_parallel_rotate_method == "allgather":
        op, times, size, formula, values = "all_gather", 1, c * local, "c·b·s/c·g/t·(d_k + d_v)", f"{c}·{held}"
        why = "all keys and values are fetched at the first hop; each rank then takes what it needs"
    else:
        op, times, size, formula, values = "all_to_all", c - 1, local, "b·s/c·g/t·(d_k + d_v)", held
        why = "a ring shift: all of it goes to the next rank, c-1 times"
    for phase, count, source in (("forward", layers, "_templated_ring_attention"), ("backward", layers + rerun,
                                 "_templated_ring_attention_backward")):  # fmt: skip
        yield z.row(
            stage, op, "cp", phase, m * count * times, size, dtype, "cp", "keys and values", formula=formula, values=values,  # type: ignore[arg-type]
            source=f"{_RING} {source}", why=why, layers=layers,
        )  # fmt: skip
    yield z.row(
        stage, "all_to_all", "cp", "backward", m * layers * c, local, "fp32", "cp", "gradients of keys and values",
        formula="b·s/c·g/t·(d_k + d_v)", values=held, source=f"{_RING} _templated_ring_attention_backward", layers=layers,
        why="a ring shift: what each rank adds goes to the next rank, c times, until it is home; summed in fp32",
    )  # fmt: skip


def _heads(mixer: Attention | LatentAttention) -> tuple[int, int, int]:
    """Return the heads of keys and values, and the width of a key and of a value."""
    if isinstance(mixer, LatentAttention):
        return mixer.heads, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim, mixer.v_head_dim
    return mixer.kv_heads, mixer.head_dim, mixer.value_head_dim or mixer.head_dim
