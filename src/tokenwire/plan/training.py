"""What is trained in a step: sequence length, batches, precision, optimizer."""

from __future__ import annotations

from typing import Literal

from tokenwire.config import Positive, Section


class TrainingConfig(Section):
    """The ``[training]`` section. ``global_batch`` counts sequences a step over all data-parallel ranks."""

    sequence_length: Positive = 256
    global_batch: Positive = 16
    micro_batch: Positive = 2
    precision: Literal["bf16", "fp16", "fp32", "fp8"] = "bf16"
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
