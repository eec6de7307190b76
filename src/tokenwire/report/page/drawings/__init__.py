"""Drawings of the rooms as SVG (tokens as HTML): pure functions of facts, the same in the report, the book and elsewhere."""

from tokenwire.report.page.drawings.bars import bars, shares
from tokenwire.report.page.drawings.network import drawable, network
from tokenwire.report.page.drawings.packet import frame
from tokenwire.report.page.drawings.ranks import grid, matrix
from tokenwire.report.page.drawings.rounds import rounds
from tokenwire.report.page.drawings.schedule import Box, gantt
from tokenwire.report.page.drawings.words import bits, tokens

__all__ = [
    "Box", "bars", "bits", "drawable", "frame", "gantt", "grid", "matrix", "network", "rounds", "shares", "tokens",
]  # fmt: skip
