"""The command line as a whole: help for every verb, quick to start, quiet in a closed pipe, 130 for Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.running import run
from tokenwire import __version__
from tokenwire.cli import VERBS, _exists, main

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
    assert child.stdin is not None
    child.stdin.write(b"parola\n" * 40_000)  # more than a pipe holds: when this is written, the text is being read
    child.stdin.flush()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.decode().strip() == "tokenwire: interrupted"


def test_a_fault_of_the_program_is_one_line_to_a_user(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def faulty() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("tokenwire.cli.app", faulty)
    with pytest.raises(ZeroDivisionError):
        main()
    monkeypatch.delenv("TOKENWIRE_TRACEBACK")
    monkeypatch.setattr("os.dup2", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "tokenwire: a fault of tokenwire itself, please report it: ZeroDivisionError: division by zero (TOKENWIRE_TRACEBACK=1 shows where)\n"
    )


def test_a_terminal_of_few_signs_loses_signs_and_nothing_else() -> None:
    told = run(["text"], PYTHONIOENCODING="ascii")
    assert (told.returncode, told.stderr) == (0, b"")
    assert b"words" in told.stdout
    told = run(["tokens", "--json"], PYTHONIOENCODING="latin-1")
    assert json.loads(told.stdout.decode("latin-1")) == json.loads(run(["tokens", "--json"]).stdout)
    assert run(["tokens", "--csv", "-"], PYTHONIOENCODING="ascii").stdout == run(["tokens", "--csv", "-"]).stdout


def test_colour_is_absent_in_a_pipe(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tokenwire", "text"], cwd=tmp_path, capture_output=True, check=True,
        env={key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")},
    ).stdout  # fmt: skip
    assert b"\x1b" not in shown
    assert max(map(len, shown.decode().splitlines())) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        ["step", "--explain", "all"],
        ["step", "--why", "18"],
        ["collective", "all_reduce", "--ranks", "1024", "--topology", "ring", "--chunks", "4"],
        ["collective", "all_reduce", "--ranks", "12", "--topology", "torus3d"],
        ["collective", "broadcast", "--ranks", "5", "--transfers"],
    ],
    ids=" ".join,
)
def test_derivations_fit_into_80_columns(arguments: list[str]) -> None:
    shown = run(arguments).stdout.decode().splitlines()
    assert shown
    # A word that is longer than a line, as a path may be, stays whole.
    assert [line for line in shown if len(line) > 80 and " " in line.strip()] == []


@pytest.mark.parametrize("arguments", [["step", "--csv", "pipe"], ["step", "--parquet", "pipe"], ["tokens", "--save", "pipe"]])
def test_a_pipe_is_written_and_stays_one(arguments: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    assert run(arguments, folder=tmp_path).returncode == 0
    assert reader.communicate(timeout=20)[0]
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert run(["step", "--csv", "link.csv"], folder=tmp_path).returncode == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("stage,")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["step", "--csv", "/dev/full"], ["step", "--parquet", "/dev/full"], ["tokens", "--save", "/dev/full"]])
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    ended = run(arguments)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert b"No space left" in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_standard_output_on_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tokenwire", "step", "--json"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr
    assert b"No space left" in ended.stderr
