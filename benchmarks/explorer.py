"""How long the explorer's pages take on the server: the built-in walk (limit 0.5 s) and 16,384 GPUs (limit 2 s).

Run: python benchmarks/explorer.py

First: the page of a journey that nothing has asked anything of yet, after one page of another journey has loaded the libraries.
Then: the page again, with another token, rank and row selected, so that nothing of the page itself is kept.
"""

from __future__ import annotations

import os
import time

# As the command line sets it: matrices here are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tokenwire.web.journeys import Journeys
from tokenwire.web.making import Pages
from tokenwire.web.rooms import ROOMS
from tokenwire.web.state import State

LIMITS = {"": 0.5, "405b": 2.0}


def seconds(pages: Pages, name: str, state: State) -> tuple[float, float]:
    """Return the seconds of a page, and those of the processors: on a busy machine only these mean anything."""
    start, busy = time.perf_counter(), time.process_time()
    made = pages.page(name, state, patience=120.0)
    assert not made.error, f"{name}: {made.error}"
    return time.perf_counter() - start, time.process_time() - busy


def main() -> None:
    warm = Pages(Journeys())
    for name in ROOMS:
        seconds(warm, name, State(set=("plan.tp=4", "plan.pp=1")))
    print(f"{'page':<12}{'journey':>8}{'first, s':>10}{'cpu, s':>8}{'then, s':>10}{'cpu, s':>8}{'limit, s':>10}{'cpu then/limit':>16}")
    for scale, limit in LIMITS.items():
        pages = Pages(Journeys())
        for name in ROOMS:
            first = seconds(pages, name, State(scale=scale))
            then = sorted(seconds(pages, name, State(scale=scale, token=20 + k, rank=1 + k, op=2 + k)) for k in range(3))[1]
            numbers = f"{first[0]:>10.3f}{first[1]:>8.3f}{then[0]:>10.3f}{then[1]:>8.3f}"
            print(f"{name:<12}{scale or 'walk':>8}{numbers}{limit:>10.1f}{then[1] / limit:>16.2f}")


if __name__ == "__main__":
    main()
