"""A collective round by round: who sends which piece to whom."""

from __future__ import annotations

from math import cos, pi, sin

from tokenwire.collectives import transfers
from tokenwire.report.page.drawings.ink import FAINT, arrow, disc, hue, svg, text

MOST_RANKS, MOST_ROUNDS = 8, 8
_ACROSS = 184.0


def rounds(op: str, algorithm: str, n: int, size_bytes: int = 1 << 20) -> str:
    """Return the first rounds of a collective among ``n`` ranks (at most 8): arrows are transfers, colours are pieces.

    A solid arrow adds to what is there, a thin one puts a finished piece in its place.

    >>> rounds("all_reduce", "ring", 4).count(">round ")
    6
    """
    moved = transfers(op, algorithm, min(n, MOST_RANKS), size_bytes)
    n = min(n, MOST_RANKS)
    last = min(int(moved["step"].max(initial=-1)) + 1, MOST_ROUNDS)
    columns = min(4, max(last, 1))
    # Of many ranks the discs are smaller and stand further out, so that arrows between neighbours keep some length.
    radius, disc_radius = (52.0, 12.0) if n <= 5 else (64.0, 9.0)
    parts: list[str] = []
    for step in range(last):
        cx, cy = (step % columns + 0.5) * _ACROSS, (step // columns + 0.5) * _ACROSS + 8
        parts.append(text(cx, cy - radius - 18, f"round {step + 1}", at="middle", fill=FAINT))
        places = [(cx + radius * sin(2 * pi * k / n), cy - radius * cos(2 * pi * k / n)) for k in range(n)]
        for one in moved[moved["step"] == step]:
            (ax, ay), (bx, by) = places[one["src"]], places[one["dst"]]
            ux, uy = bx - ax, by - ay
            long = (ux * ux + uy * uy) ** 0.5 or 1.0
            trim, side = (disc_radius + 3) / long, 3.0
            sx, sy = -uy / long * side, ux / long * side
            said = f"{one['src']} to {one['dst']}: piece {one['chunk']}, {int(one['bytes']):,} B, {'added' if one['adds'] else 'kept'}"
            parts.append(arrow(ax + ux * trim + sx, ay + uy * trim + sy, bx - ux * trim + sx, by - uy * trim + sy,
                               colour=hue(int(one["chunk"])), wide=3 if one["adds"] else 1.6, said=said))  # fmt: skip
        for k, (x, y) in enumerate(places):
            parts += [disc(x, y, disc_radius, fill="var(--tw-faint,#5c6474)"), text(x, y + 4, str(k), at="middle", size=11, fill="var(--tw-paper,#ffffff)")]
    rows = -(-last // columns)
    return svg(columns * _ACROSS, rows * _ACROSS + 8, f"{op} by {algorithm} among {n} ranks, round by round", parts)
