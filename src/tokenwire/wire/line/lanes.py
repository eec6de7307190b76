"""From bytes on the wire to bits and symbols on the lanes of a cable.

Symbols: B bytes on the wire (frames, preamble and gap), t transcoding (257/256: four 64b/66b blocks of 64 data bits
share one header bit), f the code's rate inverted (544/514: Reed-Solomon over 10-bit symbols), w lanes, m bits a symbol.

bits = 8·B·t·f;   bits a lane = bits / w;   symbols a lane = bits / (w·m)

Alignment markers cost nothing more: they take the place of idle bytes of the gap.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Annotated, Any

from pydantic import Field

from tokenwire.config import Positive, Rate, Section, read_section
from tokenwire.errors import unknown
from tokenwire.figures import Figure
from tokenwire.units import format_rate

Ratio = Annotated[tuple[int, int], Field()]


class Line(Section):
    """A physical line, as in ``catalog/lines.toml``; ``rate`` is in bytes/s."""

    title: str
    rate: Rate
    lanes: Positive
    bits_per_symbol: Positive
    transcoding: Ratio
    fec: Ratio = (1, 1)
    source: str

    @property
    def expansion(self) -> Fraction:
        """Return bits on the line for each bit of data, transcoding times code.

        >>> LINES()["400gbase-r4"].expansion                     # 257/256 · 544/514 = 1.0625
        Fraction(17, 16)
        """
        return Fraction(*self.transcoding) * Fraction(*self.fec)

    @property
    def lane_bits_per_second(self) -> float:
        """Return the bits a second on one lane.

        >>> LINES()["400gbase-r4"].lane_bits_per_second, LINES()["400gbase-r8"].lane_bits_per_second
        (106250000000.0, 53125000000.0)
        """
        return float(self.rate * 8 * self.expansion / self.lanes)

    @property
    def symbols_per_second(self) -> float:
        """Return the symbols a second (baud) on one lane.

        >>> LINES()["100gbase-r4"].symbols_per_second, LINES()["ndr"].symbols_per_second
        (25781250000.0, 53125000000.0)
        """
        return self.lane_bits_per_second / self.bits_per_symbol


@cache
def LINES() -> dict[str, Line]:  # noqa: N802  (a table that is read when first asked for)
    """Return the lines that are known, by name."""
    text = (resources.files("tokenwire.wire") / "catalog" / "lines.toml").read_text("utf-8")
    return {
        name: read_section(Line, values, where=f"[{name}]") for name, values in tomllib.loads(text).items()
    }


@dataclass(frozen=True)
class Lane:
    """What a number of wire bytes is on the lanes of a line. ``seconds`` is the time it takes to pass one point."""

    line: str
    wire_bytes: int
    bits: int
    bits_per_lane: int
    symbols_per_lane: int
    seconds: float
    figures: tuple[Figure, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {**vars(self), "figures": [figure.as_dict() for figure in self.figures]}


def on_the_lane(wire_bytes: int, line: str = "400gbase-r4") -> Lane:
    """Return bits, symbols and time of ``wire_bytes`` on a line, each rounded up, with the derivation.

    Raises ``InputError`` for an unknown line.

    >>> lane = on_the_lane(4178)                    # 4178·8 = 33,424; ·257/256·544/514 = 35,513
    >>> lane.bits, lane.bits_per_lane, lane.symbols_per_lane, round(lane.seconds * 1e9, 2)
    (35513, 8879, 4440, 83.56)
    """
    lines = LINES()
    if line not in lines:
        raise unknown("line", line, lines)
    found = lines[line]
    data = wire_bytes * 8
    exact = data * found.expansion
    bits, per_lane = math.ceil(exact), math.ceil(exact / found.lanes)
    symbols = math.ceil(exact / found.lanes / found.bits_per_symbol)
    t, f = found.transcoding, found.fec
    seconds = wire_bytes / found.rate
    coded = f"{data:,}·{t[0]}/{t[1]}" + (f"·{f[0]}/{f[1]}" if f != (1, 1) else "")
    figures = (
        Figure("data bits", data, "bits", "8·B", f"8·{wire_bytes:,}", found.source),
        Figure("bits on the line", bits, "bits", "8·B·t·f", coded, found.source),
        Figure("bits on each lane", per_lane, "bits", "8·B·t·f / w", f"{bits:,} / {found.lanes}", found.source),
        Figure("symbols on each lane", symbols, "symbols", "8·B·t·f / (w·m)", f"{bits:,} / ({found.lanes}·{found.bits_per_symbol})", found.source),
        Figure("time on the line", seconds, "s", "B / rate", f"{wire_bytes:,} B / {format_rate(found.rate)}", found.source),
    )  # fmt: skip
    return Lane(line, wire_bytes, bits, per_lane, symbols, seconds, figures)
