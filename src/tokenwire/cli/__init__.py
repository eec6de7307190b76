"""What people type: one module a verb, no logic. ``main`` turns every failure into one line and an exit status.

A verb's module has one function named like the module (``def step(...)``), typed for typer, and imports the rooms
inside that function, so that ``tokenwire --help`` stays instant.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from tokenwire import __version__
from tokenwire.errors import InputError

VERBS: dict[str, str] = {
    "walk": "The whole journey: a verse of Dante to bits on the wire.",
    "text": "Words: read a text, choose a canto, count.",
    "tokens": "Tokens: tokenize, pack, batch.",
    "model": "Vectors: layers, tensors, parameters, FLOPs.",
    "plan": "Who holds what: rank grid, groups, shards.",
    "step": "What is said: every collective of one training step.",
    "collective": "How it is said: one collective, its transfers and time.",
    "traffic": "Who talks to whom: bytes by rank, group, link and tier.",
    "flows": "Who is in whose way: link loads, sharing, failures.",
    "wire": "Bits: messages to packets to frames to line code.",
    "time": "When it is said: how long a step takes, and why.",
    "memory": "What stands in a GPU's memory, and whether it fits.",
    "needs": "What the network must offer, and why.",
    "compare": "Design choices side by side: tokenizer, width, parallelism.",
    "report": "The whole journey as one page to mail, print or keep.",
    "measure": "Train for real across hosts, count, and compare.",
    "explore": "The journey in a browser, a page a room.",
    "dryrun": "Run the real framework without accelerators and compare.",
    "export": "Write traffic in formats of other tools.",
}
"""Verbs in the order of the walk, with the line that ``--help`` shows. Each is the module of that name."""

_MODULES = {"import": "import_"}


class _LazyVerbs(TyperGroup):
    """Loads a verb's module when that verb is run, not before."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verb in VERBS if _exists(verb)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS or not _exists(cmd_name):
            return None
        if not _asked_for(cmd_name):
            return typer.main.get_command(_listed(cmd_name))
        module = import_module(f"tokenwire.cli.{_MODULES.get(cmd_name, cmd_name)}")
        verb = getattr(module, "app", None)
        if verb is None:
            verb = typer.Typer(rich_markup_mode=None, add_completion=False)
            verb.command(cmd_name, help=None)(getattr(module, _MODULES.get(cmd_name, cmd_name)))
        command = typer.main.get_command(verb)
        command.name = cmd_name
        return command


def _exists(verb: str) -> bool:
    return os.path.exists(os.path.join(os.path.dirname(__file__), f"{_MODULES.get(verb, verb)}.py"))


def _asked_for(verb: str) -> bool:
    return verb in sys.argv[1:] or "_TOKENWIRE_COMPLETE" in os.environ or "pytest" in sys.modules


def _listed(verb: str) -> typer.Typer:
    # A stand-in with the verb's name and line, so that the list of verbs needs no import of any of them.
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(verb, help=VERBS[verb])(lambda: None)
    return app


app = typer.Typer(
    cls=_LazyVerbs, name="tokenwire", add_completion=True, no_args_is_help=True, rich_markup_mode=None,
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: tokenwire walk",
)  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        print(f"tokenwire {__version__}")
        raise typer.Exit


@app.callback()
def tokenwire(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Follow language-model training from words to bits on the wire."""


WHOLE = "TOKENWIRE_TRACEBACK"
"""The variable with which faults of the program itself are shown with their traceback."""


def main() -> None:
    """Run the command line; every failure is one line on standard error and an exit status."""
    # Matrices here are small: starting a thread a core costs more than it gives, above all on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?"
    try:
        app()
        sys.stdout.flush()
    except InputError as error:
        _end(str(error), 1)
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except SystemExit as ended:
        # typer turns an interrupt into this status without a word.
        if ended.code == 130:
            _end("interrupted", 130)
        raise
    except BrokenPipeError:
        _end("the output was closed before everything was written", 1)
    except OSError as error:
        _end(f"the output could not be written ({error.strerror or error})", 1)
    except RecursionError:
        _end("the input is nested too deeply", 1)
    except MemoryError:
        _end("not enough memory for this input", 1)
    except Exception as error:
        if os.environ.get(WHOLE):
            raise
        _end(f"a fault of tokenwire itself, please report it: {type(error).__name__}: {_first(error)} ({WHOLE}=1 shows where)", 1)


def _first(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:200]


def _end(line: str, status: int) -> None:
    try:
        print(f"tokenwire: {line}", file=sys.stderr, flush=True)
        # What is still buffered for a closed pipe must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    sys.exit(status)
