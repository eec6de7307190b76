"""Corrections of golden rows: data/megatron_golden_corrections.jsonl, a line each with its source.

A line holds for the rows whose case and variant match its patterns (``*`` matches anything); of lines that give GPUs the first holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from validation.run import DATA

FILE = "megatron_golden_corrections.jsonl"


@dataclass(frozen=True)
class Corrections:
    """What is corrected of a row.

    ``excluded``: why it is another run than its arguments describe. ``arguments``: those that the case had when the row was recorded
    (None: it did not have it yet). ``environment``: variables that the case sets. ``gpus``: where the row gives none, with the measured
    values that the number was inferred from (``inferred``).
    """

    excluded: str = ""
    arguments: Mapping[str, Any] | None = None
    environment: Mapping[str, str] | None = None
    gpus: int | None = None
    inferred: tuple[str, ...] = ()

    def corrected(self, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the arguments that a row was measured with, and in words where they are not those of its case.

        >>> Corrections(arguments={"fp16": None, "bf16": True}).corrected({"fp16": True})
        ({'bf16': True}, ('without fp16, as when it was recorded', 'bf16 = True, as when it was recorded'))
        """
        changed = self.arguments or {}
        then = {name: value for name, value in {**args, **changed}.items() if value is not None}
        words = (f"without {name}" if value is None else f"{name} = {value}" for name, value in changed.items())
        return then, tuple(f"{word}, as when it was recorded" for word in words)


@cache
def _lines() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, (DATA / FILE).read_text("utf-8").splitlines()))


def corrections(case: str, variant: str) -> Corrections:
    """Return what is corrected of the row of a case and variant.

    >>> corrections("gpt3_15b_8t_release", "dev_dgx_h100").gpus, corrections("a_case", "a_variant")
    (256, Corrections(excluded='', arguments=None, environment=None, gpus=None, inferred=()))
    """
    found: dict[str, Any] = {}
    for line in _lines():
        if fnmatchcase(case, line["case"]) and fnmatchcase(variant, line["variant"]):
            if "gpus" in line and "gpus" not in found:
                found["inferred"] = tuple(line["inferred_from"])
            for name in ("excluded", "arguments", "environment", "gpus"):
                if name in line:
                    found.setdefault(name, line[name])
    return Corrections(**found)
