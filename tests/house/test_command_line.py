"""The command line as a whole: help for every verb, quick to start, quiet in a closed pipe, 130 for Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.running import run
from tokenwire import __version__
from tokenwire.cli import VERBS, _exists

HEAVY = ("numpy", "numba", "polars", "pydantic", "tokenizers", "rustworkx", "plotly", "torch", "tiktoken", "sentencepiece")
READY = [verb for verb in VERBS if _exists(verb)]


def test_help_lists_the_verbs_in_the_order_of_the_walk() -> None:
    shown = run(["--help"]).stdout.decode()
    places = [shown.index(f"\n  {verb} ") for verb in READY]
    assert places == sorted(places)
    assert all(VERBS[verb][:20] in shown for verb in READY)


@pytest.mark.parametrize("verb", READY)
def test_help_of_a_verb_shows_an_example(verb: str) -> None:
    shown = run([verb, "--help"])
    assert shown.returncode == 0
    text = shown.stdout.decode()
    assert f"tokenwire {verb}" in text.split("Example", 1)[1]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "light"),
    # To read a verb's options typer itself imports pydantic.
    [(["--help"], ()), (["--version"], ()), (["walk", "--help"], ("pydantic",)), (["compare", "--help"], ("pydantic",))],
)
def test_help_imports_nothing_heavy(arguments: list[str], light: tuple[str, ...]) -> None:
    code = (
        "import sys, json\nfrom tokenwire.cli import app\nsys.argv[1:] = json.loads(sys.argv[1])\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, text=True, check=True)
    assert set(json.loads(ended.stderr.splitlines()[-1])) <= set(light)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, tokenwire\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_version() -> None:
    assert run(["--version"]).stdout.decode() == f"tokenwire {__version__}\n"


def test_wrong_usage_is_status_2() -> None:
    assert run(["text", "--no-such-option"]).returncode == 2
    assert run(["no-such-verb"]).returncode == 2


def test_a_closed_pipe_is_one_line_or_silence() -> None:
    # The reader goes away at once, while there is much more to write than a pipe holds (64 KiB).
    words = "parola " * 200_000
    child = subprocess.Popen(
        [sys.executable, "-m", "tokenwire", "text", "-", "--show"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    child.stdin.write(words.encode())
    child.stdin.close()
    said = child.stderr.read().decode()
    assert child.wait(60) == 1
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 1


def test_ctrl_c_is_130_and_one_line() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tokenwire", "text", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    time.sleep(2)  # long enough to be waiting for its standard input
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.decode().strip() == "tokenwire: interrupted"


def test_colour_is_absent_in_a_pipe(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tokenwire", "text"], cwd=tmp_path, capture_output=True, check=True,
        env={key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")},
    ).stdout  # fmt: skip
    assert b"\x1b" not in shown
    assert max(map(len, shown.decode().splitlines())) <= 80
