"""What the pages say is so: the example file is read, the commands of the README are there."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.house.running import run
from tokenwire.cli import VERBS, _exists


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def test_the_example_journey_is_read(root: Path, tmp_path: Path) -> None:
    from tokenwire.journey import Journey

    file = tmp_path / "walk.toml"
    for block in _blocks(root / "docs" / "journey-file.md", "toml"):
        file.write_text(block, "utf-8")
        journey, said = Journey.read(file), tomllib.loads(block)
        for section, values in said.items():
            read = getattr(journey.config, section).model_dump(exclude_unset=True)
            assert {key: list(read[key]) if isinstance(read[key], tuple) else read[key] for key in values} == values
        assert journey.plan().world == 8


def test_the_verbs_of_the_readme_are_there(root: Path) -> None:
    page = (root / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(listed) <= set(VERBS)
    assert [verb for verb in listed if not _exists(verb)] == []


def test_the_python_of_the_readme_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = _blocks(root / "README.md", "python")
    exec(compile(block, "README.md", "exec"), {})  # the reader's own program
    assert "bandwidth a NIC needs" in capsys.readouterr().out


def test_the_commands_of_the_readme_run(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Nel mezzo del cammin di nostra vita\n" * 40, "utf-8")
    commands = [line.split("#")[0].strip() for block in _blocks(root / "README.md", "sh") for line in block.splitlines()]
    ours = [command.split()[1:] for command in commands if command.startswith("tokenwire ")]
    assert len(ours) >= 4
    for arguments in ours:
        if arguments[0] != "explore":  # it serves until it is interrupted
            ended = run(arguments, folder=tmp_path)
            assert ended.returncode == 0, (arguments, ended.stderr.decode())


def test_the_explorer_of_the_readme_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    child = subprocess.Popen(
        [sys.executable, "-m", "tokenwire", "explore", "--port", port], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        said = child.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address is not None, said
        with urllib.request.urlopen(address.group(), timeout=60) as answer:
            assert answer.status == 200
        child.send_signal(signal.SIGINT)
        _, complaints = child.communicate(timeout=60)
        assert "Traceback" not in complaints
        assert child.returncode in (0, 130)
    finally:
        child.kill()
