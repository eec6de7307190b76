"""The verb: what it says of a wrong start, in one line, before anything is served."""

import socket
import subprocess
import sys

import pytest

from tokenwire.errors import InputError
from tokenwire.web import serve


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": -1}, "--port -1: must be 0"), ({"port": 70000}, "nearest that works: 65535"), ({"host": "0.0.0.0"}, "must be one address"),
        ({"sets": ["plan.tq=4"]}, "unknown key 'tq'"), ({"file": "/nothing/here.toml"}, "no such file"), ({"file": "-"}, "needs a file"),
        ({"host": "no.such.name.invalid"}, "is no address"), ({"host": "999.1.1.1"}, "is no address"), ({"host": "198.51.100.1"}, "of this machine"),
        ({"host": "unix:///tmp/x"}, "is no address"), ({"host": "a" * 70 + ".example"}, "is no address"),
    ],
)  # fmt: skip
def test_a_wrong_start_is_one_line(options: dict, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError) as wrong:
        serve(**options)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert capfd.readouterr() == ("", "")


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="something else has it"):
            serve(port=taken.getsockname()[1])


def test_port_0_is_one_that_is_free_and_said() -> None:
    class Enough(Exception):
        pass

    def said(line: str) -> None:
        found.append(line)
        raise Enough

    found: list[str] = []
    with pytest.raises(Enough):
        serve(port=0, said=said)
    port = int(found[0].split("127.0.0.1:")[1].split("/")[0])
    assert 1024 <= port <= 65535


def test_help_is_quick_and_has_an_example() -> None:
    ran = subprocess.run([sys.executable, "-m", "tokenwire", "explore", "--help"], capture_output=True, text=True, check=True)
    assert "tokenwire explore --set plan.tp=4" in ran.stdout
