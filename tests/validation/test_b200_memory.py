"""Peaks and what stands between steps, against measured runs; the rows that are left out here are in `python -m validation.memory`."""

from __future__ import annotations

from functools import cache

from validation.memory import predicted
from validation.run import DATA, Run
from validation.tables import b200_runs


@cache
def runs() -> tuple[Run, ...]:
    return b200_runs(DATA / "b200_megatron_runs.csv")


def test_peak_of_every_run_on_b200_is_within_a_tenth_of_a_percent() -> None:
    errors = {run.case: predicted(run).worst.peak / run.measured["peak_bytes"] - 1 for run in runs()}
    assert len(errors) == 29
    assert max(map(abs, errors.values())) < 1e-3, errors
    peers = [abs(run.measured["peer_peak_bytes"] / run.measured["peak_bytes"] - 1) for run in runs()]
    assert sum(map(abs, errors.values())) < sum(peers) / 10
