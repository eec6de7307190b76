"""In which container image a golden row was recorded: by its channel (``lts`` or ``dev``) and the day it was recorded.

The day (``recorded``) is that of the commit in which the row's file got its memory values (NVIDIA/Megatron-LM, history of
tests/functional_tests); the images of each channel are in data/megatron_images.csv. A row without a day has the image of a fallback.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from validation.run import DATA

FILE = "megatron_images.csv"
FIFTH_STEPS = (6, 11, 21, 41)
"""How many steps of a run of 25, 50, 100 and 200 were recorded while every fifth one was, until October 2025."""


@dataclass(frozen=True)
class Image:
    """Versions of torch and Transformer Engine, and whether its FlashAttention has a deterministic backward."""

    torch: str
    transformer_engine: str
    deterministic_flash: bool


@cache
def _images() -> tuple[tuple[str, str, Image], ...]:
    with (DATA / FILE).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        (
            row["channel"],
            row["since"],
            Image(row["torch"], row["transformer_engine"], row["deterministic_flash"] == "1"),
        )
        for row in rows
    )


def image(row: Mapping[str, Any]) -> Image:
    """Return the image of a row of golden values (``variant``, ``recorded``; without a day ``iterations``).

    >>> image({"variant": "lts_dgx_a100", "recorded": "2025-10-21"}).deterministic_flash
    False
    >>> image({"variant": "dev_dgx_gb200", "recorded": "2026-05-07"}).torch
    '2.12'
    """
    channel = "lts" if str(row.get("variant") or "").startswith("lts") else "dev"
    day = str(row.get("recorded") or _assumed_day(row))
    return [found for name, since, found in _images() if name == channel and since <= day][-1]


def _assumed_day(row: Mapping[str, Any]) -> str:
    """Return a day for a row without one: before November 2025 while every fifth step was recorded, else after."""
    return "2025-10-01" if row.get("iterations") in FIFTH_STEPS else "2026-05-07"
