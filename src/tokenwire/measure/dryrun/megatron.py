"""One optimizer step of the real Megatron-Core on a fake process group, with every call that it makes recorded.

One process stands in for rank r of a world of any size; collectives return at once, everything else really runs: parallel
state, model, pipeline schedule, gradient buffers, optimizer. No accelerator is needed: what asks for "cuda" is answered on
the CPU. Attention itself and the normalisation are replaced by stand-ins (they say nothing on the wire; the kernels that
would do them need an accelerator), so context parallelism shows in everything but attention.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenwire.errors import InputError, MissingExtra
from tokenwire.model.architecture import Architecture, Attention, Experts, FeedForward, LatentAttention
from tokenwire.plan import Plan
from tokenwire.plan.megatron import MegatronPlan

if TYPE_CHECKING:
    import polars as pl


def record(arch: Architecture, plan: Plan, rank: int) -> pl.DataFrame:
    """Return the calls of one step by ``rank``: columns ``op, group, group_size, phase, count, elements, dtype, bytes``.

    ``group`` is the name in ``plan`` whose members are those of the real group. Raises ``InputError`` for a model that
    this dry run cannot build, ``MissingExtra`` without torch or megatron-core.
    """
    from tokenwire.measure.dryrun.megatron_calls import table

    return table(calls(arch, plan, rank), plan, rank)


def calls(arch: Architecture, plan: Plan, rank: int) -> list[Any]:
    """Return every call in order (``megatron_calls.Call``)."""
    config = plan.config
    if not isinstance(config, MegatronPlan):
        raise InputError(f"dialect = {config.dialect}", where="[plan]", rule="this dry run is of megatron")
    _possible(arch, plan.training.precision, config)
    try:
        import torch  # noqa: F401

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import megatron.core  # noqa: F401
    except ImportError:
        raise MissingExtra("a dry run of Megatron-Core", "measure") from None
    from tokenwire.measure.dryrun.megatron_step import run

    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        return run(arch, plan, rank)


def _possible(arch: Architecture, precision: str, config: MegatronPlan) -> None:
    if precision == "fp8":
        raise InputError("precision = fp8", where="[training]", rule="Transformer Engine's layers need an accelerator",
                         nearest='precision = "bf16"')  # fmt: skip
    for layer in arch.kinds:
        mixed = isinstance(layer.mixer, (Attention, LatentAttention)) and type(layer.mixer) is type(arch.layers[0].mixer)
        if not mixed or not isinstance(layer.feed_forward, (FeedForward, Experts)):
            raise InputError(f"model {arch.name}", rule="the dry run builds layers of one kind of attention with feed-forward; the mixers of "
                             "state spaces need Triton kernels")  # fmt: skip
    if config.mtp_use_repeated_layer:
        raise InputError("mtp_use_repeated_layer = true", where="[plan]", rule="the dry run is of megatron-core 0.16.1, which has no such option",
                         nearest="mtp_use_repeated_layer = false")  # fmt: skip
    if config.moe_token_dispatcher_type == "flex":
        raise InputError("moe_token_dispatcher_type = flex", where="[plan]", rule="DeepEP's kernels need an accelerator",
                         nearest='moe_token_dispatcher_type = "alltoall"')  # fmt: skip


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # Megatron logs and prints on standard output; a dry run's output is its table.
    import logging

    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        logging.disable(previous)
