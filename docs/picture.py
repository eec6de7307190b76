"""Draw the picture of the README: what ``tokenwire walk`` really prints, as SVG.

    python docs/picture.py [--scene tokens --scene step ...] [--out docs/walk.svg]

The walk runs in a process of its own with colours on; nothing is drawn that it did not print.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
SCENES = ("verse", "tokens", "vector", "step", "packet")
"""Scenes that make one picture of a size that a README bears."""


def printed(scenes: list[str]) -> str:
    """Return what the walk prints for these scenes on a terminal of 80 columns with colours."""
    asked = [part for scene in scenes for part in ("--scene", scene)]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    ended = subprocess.run(
        [sys.executable, "-m", "tokenwire", "walk", *asked], capture_output=True, check=True, text=True, env=environment
    )
    return ended.stdout


def main() -> None:
    """Write the picture and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", action="append", help="a scene (may be repeated)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "walk.svg")
    asked = parser.parse_args()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=80, file=nowhere, force_terminal=True)
        console.print(Text("$ tokenwire walk", style="bold"))
        console.print(Text.from_ansi(printed(asked.scene or list(SCENES))))
    # A fixed id keeps the file the same for the same output.
    svg = console.export_svg(title="tokenwire walk", theme=MONOKAI, unique_id="walk")
    # The reader's own monospaced font: a picture fetches nothing.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    asked.out.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")
    print(asked.out.relative_to(ROOT) if asked.out.is_relative_to(ROOT) else asked.out)


if __name__ == "__main__":
    main()
