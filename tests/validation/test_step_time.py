"""Timed runs that a setting was not fitted to are within the targets; every row is predicted or named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from validation.calibrate import Fitted, fit, wanted
from validation.cases import TABLES, Case, cases
from validation.run import DATA, Run


@cache
def said() -> tuple[list[Case], list[tuple[str, Run, str]]]:
    return cases()


@cache
def fitted(name: str) -> Fitted:
    return fit(next(one for one in wanted() if one.name == name), said()[0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("b200-megatron", 0.05), ("a100-llm-foundry", 0.08), ("h100-llm-foundry", 0.08), ("a100-megatron-2021", 0.08)])
def test_runs_that_were_left_out_are_within_their_targets(name: str, most: float) -> None:
    assert fitted(name).error < most


def test_every_row_is_predicted_or_named() -> None:
    found, unsaid = said()
    rows = sum(sum(1 for _ in (DATA / file).open()) - 1 for _, file in TABLES.values())
    # Narayanan 5, Korthikanti 2 (two runs each), MPT 124, torchtitan 11, B200 29, Bridge 167
    assert rows == 338
    assert len(found) + len(unsaid) == rows + 2
    assert all(why for _, _, why in unsaid)


def test_the_readme_has_the_errors_of_the_pages(root: Path) -> None:
    readme = " ".join((root / "README.md").read_text("utf-8").split())
    page, memory = ((root / "docs" / name).read_text("utf-8") for name in ("validation.md", "validation-memory.md"))
    rows = {cells[0]: cells[1:] for line in page.splitlines() if line.startswith("| ") and len(cells := line.strip("| ").split(" | ")) == 7}
    left_out = [rows[name] for name in ("model", "release", "machine")]
    for (_, mean, *_), words in zip(left_out, ("{} with the whole model", "{} with the whole release", "{} with the whole GPU"), strict=True):
        assert words.format(mean.replace("%", " %")) in readme
    unfitted = [float(row[-1].rstrip("%")) for row in left_out]
    assert f"with nothing fitted {min(unfitted):.0f} to {max(unfitted):.0f} %" in readme
    total, mean = re.search(r"^\| all \| (\d+) \| ([\d.]+)%", page, re.M).groups()  # type: ignore[union-attr]
    assert f"all {total} published runs is {mean} %" in readme
    sound = re.search(r"Misses: \d+ of (\d+) golden", memory).group(1)  # type: ignore[union-attr]
    allocated, peak = (round(float(found), 2) for found in re.findall(r"^\| median error .* \| ([\d.]+)% \|", memory, re.M))
    assert f"{sound} runs of Megatron: median error {allocated:.2f} % of what is allocated between steps, {peak:.2f} % of the peak" in readme
