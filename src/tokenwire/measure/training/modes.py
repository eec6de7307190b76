"""Modes: the parallelisms that are run for real, each a plan of a framework and what is done besides.

``predicted`` says where the prediction comes from: ``table``, the step table alone; ``table+zero``, with the broadcasts of
ZeroRedundancyOptimizer; ``tensor``, the sums of tensor parallelism where sequences stay whole, which no dialect describes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenwire.errors import InputError, unknown
from tokenwire.model.architecture import Architecture
from tokenwire.plan import Plan, resolve
from tokenwire.plan.muon import uses_muon
from tokenwire.plan.plan import read_plan
from tokenwire.plan.training import TrainingConfig


@dataclass(frozen=True)
class Mode:
    """``values`` are the plan's, with N for the ranks and N/2 for half of them. ``pairs`` of ranks are needed where halves are."""

    name: str
    said: str
    values: Mapping[str, Any]
    predicted: Literal["table", "table+zero", "tensor"] = "table"
    zero: bool = False
    sequence_parallel: bool = True


def _titan(name: str, said: str, **values: Any) -> Mode:
    return Mode(name, said, {"dialect": "torchtitan", **values})


_PIPELINE = {"pipeline_parallel_first_stage_less_layers": 0, "pipeline_parallel_last_stage_less_layers": 0}
_LISTED = (
    Mode("ddp", "DistributedDataParallel", {"dialect": "ddp"}),
    Mode("ddp-small-buckets", "DistributedDataParallel, buckets of 0.05 MiB", {"dialect": "ddp", "bucket_cap_mb": 0.05}),
    Mode("zero1", "DistributedDataParallel and ZeroRedundancyOptimizer", {"dialect": "ddp"}, "table+zero", zero=True),
    _titan("fsdp2", "FSDP2, parameters gathered again in backward", fsdp_reshard_after_forward="always"),
    _titan("fsdp2-keep", "FSDP2, parameters kept after forward", fsdp_reshard_after_forward="never"),
    _titan("hsdp", "FSDP2 among halves of the ranks, replicated over the two", data_parallel_replicate_degree=2),
    dataclasses.replace(_titan("tp", "tensor parallelism", tp="N"), predicted="tensor", sequence_parallel=False),
    _titan("tp-sp", "tensor and sequence parallelism", tp="N"),
    _titan("pp-gpipe", "pipeline, GPipe", pp="N", pipeline_parallel_schedule="GPipe", **_PIPELINE),
    _titan("pp-1f1b", "pipeline, 1F1B", pp="N", pipeline_parallel_schedule="1F1B", **_PIPELINE),
    _titan("pp-interleaved", "pipeline, interleaved 1F1B, two stages a rank", pp="N", vpp=2,
           pipeline_parallel_schedule="Interleaved1F1B", **_PIPELINE),
    _titan("cp", "context parallelism, ring attention, keys and values gathered", cp="N"),
    _titan("cp-alltoall", "context parallelism, ring attention, keys and values handed on", cp="N",
           context_parallel_rotate_method="alltoall"),
    _titan("dp-tp", "FSDP2 kept after forward, with tensor and sequence parallelism", tp=2, fsdp_reshard_after_forward="never"),
    _titan("dp-pp", "FSDP2 with a pipeline of two, 1F1B", pp=2, pipeline_parallel_schedule="1F1B", **_PIPELINE),
    _titan("fsdp-tp", "FSDP2 with tensor and sequence parallelism", tp=2, fsdp_reshard_after_forward="always"),
)  # fmt: skip
MODES: dict[str, Mode] = {mode.name: mode for mode in _LISTED}


def mode_of(name: str) -> Mode:
    """Return a mode by name. Raises ``InputError`` with the names there are.

    >>> mode_of("ddp").said
    'DistributedDataParallel'
    """
    if name not in MODES:
        raise unknown("mode", name[:80], MODES)
    return MODES[name]


def plan_of(mode: Mode, training: TrainingConfig, arch: Architecture, ranks: int) -> Plan:
    """Return the checked plan of a mode on so many ranks. Raises ``InputError`` for what the plan refuses."""
    _element_wise(training)
    config = read_plan({key: ranks if value == "N" else value for key, value in mode.values.items()})
    return resolve(config, training, arch, ranks)


def own_mode(plan: Plan) -> Mode:
    """Return a plan of a journey as a mode. Raises ``InputError`` for a framework that is not run here."""
    dialect = plan.config.dialect
    _element_wise(plan.training)
    if dialect not in ("ddp", "torchtitan"):
        raise InputError(f"dialect = {dialect}", where="[plan]", rule="plans of ddp and torchtitan are run for real",
                         nearest="--mode ddp")  # fmt: skip
    if plan.cp > 1 and plan.pp > 1:
        raise InputError(f"cp = {plan.cp}", where="[plan]", rule="with a pipeline context parallelism is not run for real",
                         nearest="cp = 1")  # fmt: skip
    return Mode("plan", f"the journey's plan ({dialect})", {})


def _element_wise(training: TrainingConfig) -> None:
    if uses_muon(training):
        raise InputError(f'optimizer = "{training.optimizer}"', where="[training]", rule="plans are run for real with AdamW",
                         nearest='optimizer = "adamw"')  # fmt: skip
