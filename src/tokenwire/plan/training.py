"""What is trained in a step: sequence length, batches, precision, optimizer."""

from __future__ import annotations

from typing import Literal

from tokenwire.config import Positive, Section


class TrainingConfig(Section):
    """The ``[training]`` section. ``global_batch`` counts sequences a step over all data-parallel ranks.

    ``muon`` updates the matrices of the layers on every rank, ``dist_muon`` shares them out (``plan.muon``); the rest is AdamW's.
    """

    sequence_length: Positive = 256
    global_batch: Positive = 16
    micro_batch: Positive = 2
    precision: Literal["bf16", "fp16", "fp32", "fp8"] = "bf16"
    optimizer: Literal["adamw", "adam", "sgd", "muon", "dist_muon"] = "adamw"
