"""The ranks of a plan in their nodes, and the bytes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.flows.heat_plot import colour
from tokenwire.report.page.drawings.ink import FAINT, INK, RULE, box, hue, svg, text
from tokenwire.units import format_bytes

CELL, GAP = 74, 6


def grid(plan: Mapping[str, Any], marked: Sequence[int] = ()) -> str:
    """Return GPUs node by node: colour is the pipeline stage, the letters are the place in each group. ``marked`` have a frame.

    ``plan`` has ``grid`` (rank, node, and a place on each axis), ``axes`` and ``gpus_per_node``, as the walk's scene of the plan.
    """
    axes = [axis for axis, size in plan["axes"] if size > 1]
    nodes: dict[int, list[Mapping[str, Any]]] = {}
    for cell in plan["grid"]:
        nodes.setdefault(cell["node"], []).append(cell)
    columns = min(8, max(map(len, nodes.values()), default=1))
    parts, y = [], 0.0
    for node, cells in nodes.items():
        rows = -(-len(cells) // columns)
        tall = 24 + rows * (CELL + GAP)
        parts += [box(1, y + 1, columns * (CELL + GAP) + GAP + 8, tall, edge=RULE, corner=6), text(10, y + 17, f"node {node}", fill=FAINT)]
        for number, cell in enumerate(cells):
            cx = 6 + GAP + number % columns * (CELL + GAP)
            cy = y + 24 + number // columns * (CELL + GAP)
            parts += _gpu(cell, axes, cx, cy, cell["rank"] in marked)
        y += tall + 8
    return svg(columns * (CELL + GAP) + 2 * GAP + 6, y, "ranks in their nodes; colour is the pipeline stage", parts)


def _gpu(cell: Mapping[str, Any], axes: Sequence[str], x: float, y: float, marked: bool) -> list[str]:
    where = [f"{axis} {cell[axis]}" for axis in axes]
    out = [box(x, y, CELL, CELL - 4, fill=hue(cell.get("pp", 0)), said=f"rank {cell['rank']}: {', '.join(where)}", corner=4)]
    if marked:
        out.append(box(x - 2, y - 2, CELL + 4, CELL, edge=INK, corner=6))
    out.append(text(x + CELL / 2, y + 20, f"rank {cell['rank']}", at="middle", fill="#ffffff", bold=True))
    out += [text(x + CELL / 2, y + 35 + 14 * k, said, at="middle", fill="#ffffff", size=11) for k, said in enumerate(where[:3])]
    return out


def matrix(sent: Sequence[Sequence[int]]) -> str:
    """Return bytes from GPU (row) to GPU (column) as a table of colours.

    >>> matrix([[0, 1000], [2000, 0]]).count("<rect")
    4
    """
    n, left, top = len(sent), 44, 30
    cell = min(72.0, 700 / max(n, 1))
    most = max((size for row in sent for size in row), default=0) or 1
    parts = [text(left, 12, "from GPU (row) to GPU (column), bytes a step", fill=FAINT)]
    for row, sizes in enumerate(sent):
        parts.append(text(left - 8, top + (row + 0.6) * cell, str(row), at="end"))
        parts.append(text(left + (row + 0.5) * cell, top - 4, str(row), at="middle"))
        for column, size in enumerate(sizes):
            share = (size / most) ** 0.4 if size else 0.0
            x, y = left + column * cell, top + row * cell
            said = f"{row} to {column}: {size:,} B"
            parts.append(box(x, y, cell - 2, cell - 2, fill=colour(share) if size else "none", edge=RULE, said=said))
            if size and cell > 40:
                parts.append(text(x + cell / 2 - 1, y + cell / 2 + 4, format_bytes(size).replace(" ", "\u202f"), at="middle", size=10.5,
                                  fill="#ffffff" if share > 0.7 else "#1d2330"))  # fmt: skip
    return svg(left + n * cell + 4, top + n * cell + 4, "bytes between GPUs in one step", parts)
