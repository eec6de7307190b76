"""Which gradients travel together: torch's assignment of parameters to buckets, and the order in which gradients arrive.

Source: torch 2.13, torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size: parameters are added to the
open bucket until its bytes reach the limit; the first bucket has a limit of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenwire.model.architecture import Architecture, Tensor


def assigned(held: Iterable[Tensor], item_bytes: float, limits: tuple[int, int]) -> list[list[Tensor]]:
    """Return parameters in buckets, in the order given; ``limits`` are bytes of the first bucket and of the later ones.

    >>> sizes = [Tensor(name, "mixer", (elements,)) for name, elements in (("a", 3), ("b", 2), ("c", 9), ("d", 1))]
    >>> [[x.name for x in bucket] for bucket in assigned(sizes, 4, (16, 32))]
    [['a', 'b'], ['c'], ['d']]
    """
    out: list[list[Tensor]] = []
    bucket: list[Tensor] = []
    filled = 0.0
    for tensor in held:
        bucket.append(tensor)
        filled += tensor.elements * item_bytes
        if filled >= limits[min(len(out), 1)]:
            out.append(bucket)
            bucket, filled = [], 0.0
    return [*out, bucket] if bucket else out


def arrival_order(arch: Architecture, held: Iterable[Tensor]) -> list[Tensor]:
    """Return parameters in the order in which backward completes their gradients.

    Backward runs the forward from its end: head, final norm, layers from the last to the first, embedding; a product's bias
    comes before its weight, a norm's weight before its bias (as autograd's nodes give them).
    """
    held = list(held)
    last = [x for x in held if x.layer is None and x.part in ("final_norm", "head")]
    first = [x for x in held if x.layer is None and x.part not in ("final_norm", "head")]
    out = _backwards(last)
    for index in range(len(arch.layers) + arch.mtp_layers, -1, -1):
        out += _backwards([x for x in held if x.layer == index])
    return out + _backwards(first)


def running_order(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return parameters in the order in which the forward uses them: norms of queries and keys come before the output projection.

    >>> held = [Tensor(f"layers.0.attention.{name}.weight", "mixer", (2,)) for name in ("v", "output", "q_norm", "k_norm")]
    >>> [x.name.split(".")[3] for x in running_order(held)]
    ['v', 'q_norm', 'k_norm', 'output']
    """
    out: list[Tensor] = []
    for tensor in tensors:
        at = len(out)
        if ".q_norm." in tensor.name or ".k_norm." in tensor.name:
            output = f"{tensor.name.rsplit('.', 2)[0]}.output."
            at = next((i for i, x in enumerate(out) if x.name.startswith(output)), at)
        out.insert(at, tensor)
    return out


def _backwards(tensors: list[Tensor]) -> list[Tensor]:
    modules: dict[str, list[Tensor]] = {}
    for tensor in running_order(tensors):
        modules.setdefault(re.sub(r"\.(weight|bias)$", "", tensor.name), []).append(tensor)
    out: list[Tensor] = []
    for name, own in reversed(modules.items()):
        # torch's Linear gives its bias first; its norms give weight, then bias.
        out += own if "norm" in name else list(reversed(own))
    return out
