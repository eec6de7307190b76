"""Compiled code runs from a package that cannot be written, for a user without a home."""

from pathlib import Path
from typing import Any

import numba
import pytest

from tokenwire.compiled import compiled


def double(x: int) -> int:
    return 2 * x


def test_without_a_place_for_compiled_code_it_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = numba.njit

    def nowhere(function: Any = None, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'double': no locator available")
        return kept(function, **options)

    monkeypatch.setattr("tokenwire.compiled.njit", nowhere)
    assert compiled(double)(21) == 42


def test_rooms_compile_by_it() -> None:
    rooms = Path(__file__).parents[2] / "src" / "tokenwire"
    assert [path.name for path in rooms.rglob("*.py") if "njit" in path.read_text()] == ["compiled.py"]
