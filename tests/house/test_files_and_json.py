"""Where a table goes to a file and facts are asked for as JSON, both come, of every verb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.collectives.test_cost import command

ASKED = [
    ["collective", "all_reduce"], ["collective", "all_reduce", "--topology", "dgx-h100-superpod"], ["traffic"], ["flows"],
    ["flows", "--late", "3=1 ms"], ["flows", "--over-time"], ["memory"], ["model"], ["plan"], ["step"], ["time"], ["tokens"],
    ["wire"], ["compare", "width"],
]  # fmt: skip


QUICK = ("collective", "plan", "wire")


@pytest.mark.parametrize(
    "asked", [pytest.param(one, id=" ".join(one), marks=() if one[0] in QUICK else pytest.mark.slow) for one in ASKED]
)
def test_both(asked: list[str], tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    ended = command(*asked, "--json", "--csv", str(file))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)
    assert "," in file.read_text().splitlines()[0]


def test_not_both_on_standard_output() -> None:
    ended = command("collective", "all_reduce", "--json", "--csv", "-")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "--csv FILE --json" in ended.stderr


def test_one_message_has_no_table(tmp_path: Path) -> None:
    ended = command("wire", "--bytes", "1KiB", "--csv", str(tmp_path / "table.csv"))
    assert ended.returncode == 1
    assert "--csv: is for the table of all sizes" in ended.stderr
