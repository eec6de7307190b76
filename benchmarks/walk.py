"""How long a person waits: cold starts of the command line, as ratios to their limits.

    python benchmarks/walk.py [--repeat 5] [--text commedia.txt]

Each command runs in a process of its own, as a person starts it; the median of the runs is set against the limit. A
ratio below 1 holds the limit. The whole Commedia is timed where its text is: ``--text``, TOKENWIRE_SHARED, or ``shared``
beside the checkout.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS: list[tuple[str, list[str], float]] = [
    ("tokenwire --help", ["--help"], 0.3),
    ("tokenwire walk", ["walk"], 1.5),
]
"""What is timed, its arguments, and its limit in seconds on two cores."""


def commedia(asked: str | None) -> Path | None:
    """Return the text of the whole Commedia, where it is."""
    folder = Path(os.environ.get("TOKENWIRE_SHARED") or ROOT.parent / "shared")
    path = Path(asked) if asked else folder / "data" / "commedia" / "commedia.it.txt"
    return path if path.is_file() else None


def seconds(arguments: list[str], repeat: int) -> list[float]:
    """Return how long each run took."""
    out = []
    # As on a reader's machine, Python keeps compiled modules: the first run makes them and is not counted.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(repeat + 1):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tokenwire", *arguments], stdout=subprocess.DEVNULL, check=True, cwd=ROOT, env=environment
        )
        out.append(time.perf_counter() - start)
    return out[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--text", help="the whole Commedia")
    asked = parser.parse_args()
    whole = commedia(asked.text)
    timed = list(LIMITS)
    if whole is not None:
        timed.append(("tokenwire walk --text (whole Commedia)", ["walk", "--text", str(whole)], 5.0))
    print(f"{'command':42} {'median':>8} {'least':>8} {'limit':>8} {'ratio':>6}")
    for name, arguments, limit in timed:
        runs = seconds(arguments, asked.repeat)
        median = statistics.median(runs)
        print(f"{name:42} {median:6.2f} s {min(runs):6.2f} s {limit:6.2f} s {median / limit:6.2f}")
    if whole is None:
        print("the whole Commedia: its text is not here (--text)")


if __name__ == "__main__":
    main()
