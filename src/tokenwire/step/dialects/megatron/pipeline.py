"""What stages send to each other: activations forward, their gradients backward, a message a micro-batch and boundary.

A message is b·s/c·h elements, over t with sequence parallelism (each tensor-parallel rank sends its part). With v virtual
stages a micro-batch crosses p·v - 1 boundaries, and the last stage sends to the first between them. What comes after a stage
with multi-token prediction carries the output of its layers too. megatron-core 0.16.1,
pipeline_parallel/schedules.py (get_tensor_shapes, forward_backward_pipelining_without_interleaving,
forward_backward_pipelining_with_interleaving) and p2p_communication.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenwire.plan import Stage
from tokenwire.step.dialects.megatron.sizes import Sizes
from tokenwire.step.operation import Op, Operation, Phase

_SOURCE = "megatron-core pipeline_parallel/p2p_communication.py P2PCommunicator._communicate"
SHAPE_ELEMENTS = 3
"""Numbers in the message that announces a shape: s, b, h (int64)."""


def operations(sizes: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield sends and receives of a stage."""
    p, v, m, i = sizes.plan.pp, sizes.plan.vpp, sizes.plan.micro_batches, stage.index
    if p == 1:
        return
    onward, back = (i + 1) % p, (i - 1) % p
    # The last stage has no stage after its last virtual stage; the first none before its first.
    outgoing = m * (v - (i == p - 1))
    incoming = m * (v - (i == 0))
    # After the layers of multi-token prediction, all on the last virtual stage of a rank, messages are wider.
    further = next((stage.index for stage in sizes.plan.stages if stage.has_next_tokens), p)
    wide_out, wide_in = m * (further <= i < p - 1), m * (further < i)
    rows: tuple[tuple[Op, Phase, int, int, int, str], ...] = (
        ("recv", "forward", incoming, wide_in, back, "activations from the stage before"),
        ("send", "forward", outgoing, wide_out, onward, "activations to the stage after"),
        ("recv", "backward", outgoing, wide_out, onward, "gradients from the stage after"),
        ("send", "backward", incoming, wide_in, back, "gradients to the stage before"),
    )
    split = sizes.sequence_parallel
    formula = "b·s/(c·t)·h" if split else "b·s/c·h"
    elements = sizes.activation // (sizes.plan.tp if split else 1)
    why = "a stage needs the output of the layers before it, and the gradient of those after it"
    if v > 1:
        why += f"; with {v} virtual stages a micro-batch passes every rank {v} times"
    n = sizes.next_tokens + 1
    for op, phase, count, wide, peer, what in rows:
        yield sizes.row(i, op, "pp", phase, count - wide, elements, what, formula=formula, parallelism="pp", peer=peer,
                        source=_SOURCE, why=why)  # fmt: skip
        yield sizes.row(i, op, "pp", phase, wide, n * elements, f"{what}, with those for further tokens",
                        formula=f"{n}·{formula}", parallelism="pp", peer=peer, source=_SOURCE,
                        why=f"{why}; head and loss are on a later stage than multi-token prediction")  # fmt: skip
        if sizes.config.variable_seq_lengths or further < p - 1:
            yield sizes.row(
                i, op, "pp", phase, count, SHAPE_ELEMENTS, f"shape of {what}", formula="3", dtype="int64", peer=peer,
                parallelism="pp", source="megatron-core pipeline_parallel/p2p_communication.py "
                "P2PCommunicator._communicate_shapes", why="not all are of one length, so the shape is announced first",
            )  # fmt: skip
