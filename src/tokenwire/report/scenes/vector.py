"""The vector: the row of the embedding that the followed token is, its numbers and their bits, and its position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenwire.model import bfloat16_bits, bfloat16_values, embedding_row
from tokenwire.report.scenes.walk import Walk
from tokenwire.report.terminal import table
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    from tokenwire.journey import Journey

SHOWN = 8
"""Numbers of the row that are drawn with their bits."""


def facts(walk: Walk) -> dict[str, Any]:
    """Return the token's row at each scale: size of the table, who holds the row, its first numbers and bits."""
    place = walk.placement
    return {
        "token": walk.followed - walk.tokens_shown[0], "id": walk.token_id, "text": walk.token_text,
        "position": place.position, "sequence": place.sequence,
        "journeys": [
            # Models have different weights: the seed is the place in the row of models, 0 for the one that is walked.
            _row(name, journey, walk.token_id, place.position, seed)
            for seed, (name, journey) in enumerate(walk.journeys)
        ],
    }  # fmt: skip


def _row(name: str, journey: Journey, token_id: int, position: int, seed: int) -> dict[str, Any]:
    arch, plan = journey.model().architecture, journey.plan()
    row = embedding_row(arch, token_id, seed)
    bits = bfloat16_bits(row)
    held = plan.vocabulary_size // plan.tp
    return {
        "name": name, "vocabulary_size": arch.vocabulary_size, "hidden_size": arch.hidden_size,
        "table_elements": arch.vocabulary_size * arch.hidden_size, "table_bytes": arch.vocabulary_size * arch.hidden_size * 2,
        "row_bytes": arch.hidden_size * 2, "numbers": [float(x) for x in row[:SHOWN]],
        "bits": [f"{int(b):016b}" for b in bits[:SHOWN]], "bf16": [float(x) for x in bfloat16_values(bits[:SHOWN])],
        "norm": float(np.linalg.norm(row)), "positions": arch.positions,
        "position": _position(arch.positions, position, arch), "padded_rows": plan.vocabulary_size, "tp": plan.tp,
        "tensor_rank": token_id // held, "local_row": token_id % held,
    }  # fmt: skip


def _position(kind: str, position: int, arch: Any) -> dict[str, Any]:
    from tokenwire.model import learned_positions, rotary_angles, sinusoidal_positions

    where = np.array([position])
    if kind == "learned":
        if position >= arch.max_positions:
            return {"kind": kind, "numbers": []}
        return {"kind": kind, "numbers": [float(x) for x in learned_positions(arch, where)[0, :SHOWN]]}
    if kind == "sinusoidal":
        return {"kind": kind, "numbers": [float(x) for x in sinusoidal_positions(where, arch.hidden_size)[0, :SHOWN]]}
    if kind == "rotary":
        mixer = next((layer.mixer for layer in arch.layers if hasattr(layer.mixer, "head_dim")), None)
        size = getattr(mixer, "head_dim", 64)
        return {"kind": kind, "numbers": [float(x) for x in rotary_angles(where, size, arch.rope_theta)[0, :SHOWN]]}
    return {"kind": kind, "numbers": []}


POSITION = {
    "learned": "its position is a learned row that is added",
    "sinusoidal": "its position is a row of sines and cosines that is added",
    "rotary": "its position turns pairs of each query and key by these angles (radians)",
    "alibi": "its position only lowers the attention to tokens far away",
    "none": "its position is not told",
}
"""What a position does to a vector, by the kind of positions."""


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the row with its bits, and who holds it."""
    from rich.text import Text

    yield ""
    yield Text.assemble(
        "Token ", (str(facts["token"]), "bold"), " of the verse, ", (facts["text"], "bold"), ", has id ",
        (str(facts["id"]), "bold"), f"; it is at position {facts['position']:,} of sequence {facts['sequence']:,}.",
    )  # fmt: skip
    for row in facts["journeys"]:
        yield ""
        yield (
            f"{row['name']}: row {facts['id']:,} of a {row['vocabulary_size']:,} × {row['hidden_size']:,} table "
            f"({row['table_elements']:,} numbers, {format_bytes(row['table_bytes'])} in bf16); the row is "
            f"{row['hidden_size']:,}·2 B = {format_bytes(row['row_bytes'])}."
        )
        count = SHOWN if len(facts["journeys"]) == 1 else 3
        lines = [
            (index, f"{number:+.6f}", f"{b[0]} {b[1:9]} {b[9:]}", f"{value:+.6f}")
            for index, (number, b, value) in enumerate(zip(row["numbers"], row["bits"], row["bf16"], strict=True))
        ][:count]
        yield table(lines, ["i", "number", "sign exponent fraction (bf16)", "is"], right=["i", "number", "is"])
        shown = ", ".join(f"{number:+.4f}" for number in row["position"]["numbers"][:5])
        yield f"{row['positions'].capitalize()}: {POSITION[row['positions']]}{': ' + shown + ' …' if shown else '.'}"
        if row["tp"] > 1:
            yield (
                f"The table is cut by rows over {row['tp']} tensor ranks (padded to {row['padded_rows']:,}): tensor rank "
                f"{row['tensor_rank']} holds this row, as its row {row['local_row']:,}; the others bring zeros to the sum."
            )
