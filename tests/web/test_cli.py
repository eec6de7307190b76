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
        ({"port": 0}, "--port 0: must be 1 to 65535"), ({"port": 70000}, "nearest that works: 65535"), ({"host": "0.0.0.0"}, "must be one address"),
        ({"sets": ["plan.tq=4"]}, "unknown key 'tq'"), ({"file": "/nothing/here.toml"}, "no such file"), ({"file": "-"}, "needs a file"),
        ({"host": "no.such.name.invalid"}, "cannot be listened on"),
    ],
)  # fmt: skip
def test_a_wrong_start_is_one_line(options: dict, said: str) -> None:
    with pytest.raises(InputError) as wrong:
        serve(**options)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="something else has it"):
            serve(port=taken.getsockname()[1])


def test_help_is_quick_and_has_an_example() -> None:
    ran = subprocess.run([sys.executable, "-m", "tokenwire", "explore", "--help"], capture_output=True, text=True, check=True)
    assert "tokenwire explore --set plan.tp=4" in ran.stdout
