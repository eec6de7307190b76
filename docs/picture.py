"""Draw the picture of the README: the built-in walk on one sheet, from the verse to the packet, as SVG.

    python docs/picture.py [--out docs/walk.svg]

The drawings are those of the report and the book, and every figure is computed here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from press.names import dante, drawing, percent, scene

from tokenwire.report.rooms.time import timed
from tokenwire.units import format_bytes, format_seconds

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1000, 944
COLOURS = ("#d9e2f7", "#fbeecb", "#d8eedb", "#ecdffb")
STYLE = (
    "svg{--tw-ink:#1d2330;--tw-faint:#5c6474;--tw-rule:#c9ced8;--tw-paper:#fff}"
    ".h{font:600 14px sans-serif;fill:#1d2330}.s{font:12px sans-serif;fill:#5c6474}"
    ".t{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#1d2330}.i{font:10px ui-monospace,Menlo,Consolas,monospace;fill:#5c6474}"
)


def placed(svg: str, x: float, y: float, width: float) -> str:
    """Return a drawing at a place of the sheet, as wide as wanted."""
    shape = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if shape is None:
        raise ValueError("a drawing says its size in its viewBox")
    height = width * float(shape[2]) / float(shape[1])
    opening, _, rest = svg.partition(">")
    bare = re.sub(r' (?:style|width|height|role)="[^"]*"', "", opening)
    return f'{bare.replace("<svg ", f"<svg x={chr(34)}{x:g}{chr(34)} ", 1)} y="{y:g}" width="{width:g}" height="{height:g}">{rest}'


def headed(x: float, y: float, title: str, says: str) -> str:
    """Return the heading of a part and the line below it."""
    return f'<text class="h" x="{x:g}" y="{y:g}">{escape(title)}</text><text class="s" x="{x:g}" y="{y + 17:g}">{escape(says)}</text>'


def verses(x: float, y: float) -> Iterator[str]:
    """Yield the tokens of the verses with their ids, a line a verse; the one that is followed has a frame."""
    followed, at, line = scene("vector")["id"], x, 0
    for k, token in enumerate(scene("tokens")["tokens"]):
        shown = token["text"]
        wide = 8.5 * max(len(shown), len(str(token["id"])) * 0.75) + 6
        frame = ' stroke="#d6432f" stroke-width="2"' if token["id"] == followed else ""
        yield f'<rect x="{at:g}" y="{y + 42 * line:g}" width="{wide:g}" height="36" rx="3" fill="{COLOURS[k % 4]}"{frame}/>'
        yield f'<text class="t" x="{at + 3:g}" y="{y + 42 * line + 16:g}">{escape(shown)}</text>'
        yield f'<text class="i" x="{at + 3:g}" y="{y + 42 * line + 30:g}">{token["id"]}</text>'
        at += wide + 3
        if "↵" in shown:
            at, line = x, line + 1


def sheet() -> Iterator[str]:
    """Yield the sheet."""
    tokens, vector, totals, packet = dante().tokens(), scene("vector"), dante().traffic().totals, scene("packet")
    step, row = timed(dante()), scene("vector")["journeys"][0]
    plan = dante().plan()
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">'
    yield f'<title>The opening of the Inferno on its way to the wire</title><style>{STYLE}</style>'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff" stroke="#c9ced8"/>'
    yield headed(24, 32, "1 · A verse is cut into tokens", f"{tokens.tokens:,} of them in the canto, {tokens.fertility:.3g} a word; below each its id")
    yield from verses(24, 60)
    yield headed(500, 32, f"2 · Each is a row of {row['hidden_size']} numbers", f"{vector['text']}, id {vector['id']}: {format_bytes(row['row_bytes'])}; its first numbers, bit by bit")
    yield placed(drawing("vector"), 500, 52, 440)
    yield headed(24, 290, f"3 · {plan.world} GPUs work on it", "framed: those that see the token; colour: its stage")
    yield placed(drawing("plan"), 24, 318, 338)
    inside = totals["nvlink_bytes"] / totals["sent_bytes"]
    yield headed(424, 290, f"4 · They send each other {format_bytes(totals['sent_bytes'])} in one step", f"{percent(inside)} stays inside the nodes; wide, warm lines carry much")
    yield placed(drawing("links"), 424, 318, 552)
    yield headed(24, 604, f"5 · The step takes {format_seconds(step.step_seconds)}", f"{percent(step.exposed_communication_seconds / step.step_seconds)} of it waiting for what is said")
    yield placed(drawing("time"), 24, 626, WIDTH - 48)
    lane = packet["lane"]
    yield headed(24, 816, f"6 · One packet of {packet['framing']['packets']} carries the token to the next stage", f"its layers, with the byte at which each begins; {format_seconds(lane['seconds'])} on the fibre")
    yield placed(drawing("packet"), 24, 842, WIDTH - 48)
    yield "</svg>"


def main() -> None:
    """Write the picture and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "walk.svg")
    asked = parser.parse_args()
    asked.out.write_text("\n".join(sheet()) + "\n", "utf-8")
    print(asked.out.relative_to(ROOT) if asked.out.is_relative_to(ROOT) else asked.out)


if __name__ == "__main__":
    main()
