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
        out += _backwards(_as_run([x for x in held if x.layer == index]))
    return out + _backwards(first)


def _as_run(layer: list[Tensor]) -> list[Tensor]:
    # Norms of queries and keys are registered after the attention's output product, and run before it.
    norms = [x for x in layer if x.name.endswith((".attention.q_norm.weight", ".attention.k_norm.weight"))]
    output = [x for x in layer if ".attention.output." in x.name]
    if not norms or not output or layer.index(output[0]) > layer.index(norms[0]):
        return layer
    rest = [x for x in layer if x not in output]
    after = rest.index(norms[-1]) + 1
    return [*rest[:after], *output, *rest[after:]]


def _backwards(tensors: list[Tensor]) -> list[Tensor]:
    modules: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        modules.setdefault(re.sub(r"\.(weight|bias)$", "", tensor.name), []).append(tensor)
    out: list[Tensor] = []
    for name, own in reversed(modules.items()):
        # torch's Linear gives its bias first; its norms give weight, then bias.
        out += own if "norm" in name else list(reversed(own))
    return out
