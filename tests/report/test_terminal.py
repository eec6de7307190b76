"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tokenwire.report import terminal


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.console.cache_clear()
    yield
    terminal.console.cache_clear()


def _printed(title: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    terminal.console().print(terminal.table([["1", "2"]], ["a", "b"], title=title))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_title_is_as_wide_as_the_terminal_not_as_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed("131,072 B by rocev2, MTU 4,096 B", capsys)[0] == "131,072 B by rocev2, MTU 4,096 B"


def test_a_title_that_is_wider_than_the_terminal_is_folded_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert _printed("one two three four five six seven eight nine", capsys)[:2] == ["one two three four five six seven eight", "nine"]
