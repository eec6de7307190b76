"""``pipeline_model_parallel_layout``: what stands on each stage, said layer by layer.

Written as a text, a letter a layer and a stroke between stages ("Ettt|tt|tt|ttL"), with multiplication ("Et*3|(tt|)*2,ttL") and
commas that mean nothing; or as a list of lists of names. Stages are in the order in which a micro-batch meets them: the
first ``pp`` are the first virtual stage of each rank, and so on. Rules: megatron-core 0.16.1, transformer/
pipeline_parallel_layer_layout.py, PipelineParallelLayerLayout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LETTERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
"""What each letter of a layout stands for."""
MOST_LAYERS = 100_000

_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))


@dataclass(frozen=True)
class Row:
    """One virtual stage: its names in order."""

    names: tuple[str, ...]

    def count(self, name: str) -> int:
        """Return how often a name stands in it."""
        return self.names.count(name)


def rows(layout: str | tuple[tuple[str, ...], ...]) -> tuple[Row, ...]:
    """Return the virtual stages of a layout. Raises ``ValueError`` with the rule for one that cannot be read.

    >>> [row.names for row in rows("Et*2|L")]
    [('embedding', 'decoder', 'decoder'), ('loss',)]
    """
    if not isinstance(layout, str):
        return tuple(Row(tuple(_name(name) for name in row)) for row in layout)
    text = layout.replace(",", "")
    for pattern in _REPEATED:
        if sum(len(found[1]) * int(found[2][:9]) for found in pattern.finditer(text)) > MOST_LAYERS:
            raise ValueError(f"has more than {MOST_LAYERS:,} layers")
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    unknown = next((letter for letter in text if letter not in LETTERS and letter != "|"), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is none of its letters, which are E, t, m, L and |")
    return tuple(Row(tuple(LETTERS[letter] for letter in stage)) for stage in text.split("|"))


def _name(name: str) -> str:
    known = name.strip().lower()
    if known not in LETTERS.values():
        raise ValueError(f"{name!r} is none of its names, which are {', '.join(LETTERS.values())}")
    return known


def broken_rules(stages: tuple[Row, ...], pp: int, vpp: int, layers: int, next_tokens: int) -> Iterator[str]:
    """Yield each rule that a layout breaks, in words (PipelineParallelLayerLayout.validate_layer_layout)."""
    if len(stages) % pp:
        yield f"pp = {pp} must divide its {len(stages)} stages"
        return
    if vpp not in (1, len(stages) // pp):
        yield f"its {len(stages)} stages are {len(stages) // pp} a rank of pp = {pp}, not vpp = {vpp}"
    flat = [name for row in stages for name in row.names]
    if flat[:1] != ["embedding"] or flat[-1:] != ["loss"]:
        yield "must begin with the embedding (E) and end with the loss (L)"
    for name in ("embedding", "loss"):
        if flat.count(name) != 1:
            yield f"must have the {name} once, not {flat.count(name)} times"
    if flat.count("decoder") != layers:
        yield f"has {flat.count('decoder')} layers (t), and the model has {layers}"
    yield from _next_token_rules(stages, flat, pp, next_tokens)


def _next_token_rules(stages: tuple[Row, ...], flat: list[str], pp: int, next_tokens: int) -> Iterator[str]:
    if flat.count("mtp") != next_tokens:
        yield f"has {flat.count('mtp')} layers of multi-token prediction (m), and mtp_num_layers is {next_tokens}"
    if "mtp" not in flat:
        return
    if "decoder" in flat[flat.index("mtp") :]:
        yield "layers of multi-token prediction (m) stand after all others"
    holding = [i for i, row in enumerate(stages) if row.count("mtp")]
    if len(holding) > 1:
        yield "all layers of multi-token prediction (m) must be on the same stage"
    if any(i < len(stages) - pp for i in holding):
        yield "layers of multi-token prediction (m) must be on the last virtual stage of their rank"


def even(layers: int, stages: int, next_tokens: int) -> str:
    """Return a layout with the layers dealt as evenly as they can be, more to the first.

    >>> even(7, 3, 0)
    'Et*3|tt|ttL'
    """
    each, more = divmod(layers, stages)
    parts = ["t" if n == 1 else f"t*{n}" if n > 2 else "t" * n for n in (each + (i < more) for i in range(stages))]
    parts[0] = "E" + parts[0]
    parts[-1] += "m" * next_tokens + "L"
    return "|".join(parts)
