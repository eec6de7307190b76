"""Pages whose numbers are computed when the book is built.

A page of the book may have
    ```tokenwire [from="text"] [to="text"]     commands, a line each: run, and shown with what they print
    ```python [hidden]                         a program: run in the page's names, and shown with what it prints
    ```toml                                    a journey file, where its first line is ``# name.toml``
    {{ expression }}                           a value, in the page's names
``from`` and ``to`` cut what is printed to the lines between the first that has one text and the next that has the other.
Whatever fails, or a cut that finds nothing, stops the building.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^(?P<in> *)```(?P<language>[\w-]+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=in)```[ ]*$", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_OPTION = re.compile(r'(\w+)(?:="([^"]*)")?')


class Failed(Exception):
    """A block or a value of a page that does not work."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, options, text, and how far it is indented."""

    language: str
    options: dict[str, str]
    body: str
    indent: str = ""


@dataclass
class Page:
    """A page that is being printed: its name (for errors), the folder that its commands run in, its names."""

    name: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)


def blocks(markdown: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page.

    >>> next(blocks('```tokenwire to="x"\\ntext\\n```\\n'))
    Block(language='tokenwire', options={'to': 'x'}, body='text\\n', indent='')
    """
    for match in FENCE.finditer(markdown):
        yield _block(match)


def _block(match: re.Match[str]) -> Block:
    indent = match["in"]
    body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
    return Block(match["language"], dict(_OPTION.findall(match["info"])), body, indent)


def printed(markdown: str, page: Page) -> str:
    """Return the page with its blocks run and its values put in. Raises ``Failed`` naming the page and what does not work."""
    out, at = [], 0
    for match in FENCE.finditer(markdown):
        out.append(values(markdown[at : match.start()], page))
        block = _block(match)
        said = _RUN.get(block.language, _as_it_is)(block, page)
        out.append("".join(f"{block.indent}{line}" if line.strip() else line for line in said.splitlines(keepends=True)) if said else "")
        at = match.end()
    return "".join([*out, values(markdown[at:], page)])


def values(text: str, page: Page) -> str:
    """Return a text with each ``{{ expression }}`` as its value: whole numbers with commas, others to four figures.

    >>> values("{{ 12345 }} {{ 28337.2 }} {{ 0.98765 }} {{ 'x' }}", Page("page.md", Path()))
    '12,345 28,340 0.9877 x'
    """

    def value(match: re.Match[str]) -> str:
        try:
            found = eval(match[1].strip(), page.names)  # the book's own pages
        except Exception as error:
            raise Failed(f"{page.name}: {{{{{match[1]}}}}}: {type(error).__name__}: {error}") from error
        return _number(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else str(found)

    return _VALUE.sub(value, text)


def _number(found: float) -> str:
    if isinstance(found, float):
        # Four figures, and no power of ten where digits are as short.
        found = float(f"{found:.4g}")
        return f"{found:,.0f}" if 1e4 <= abs(found) < 1e15 else f"{found:g}"
    return f"{found:,}"


def command(arguments: str, folder: Path) -> tuple[int, str]:
    """Return exit status and output (errors with it) of a command line of tokenwire, run in a folder, in this process."""
    from tokenwire.cli import main

    # Bytes below the text, as standard output has them: tables are written there.
    said = io.BytesIO()
    out, before, argv = io.TextIOWrapper(said, "utf-8", write_through=True), Path.cwd(), sys.argv
    status = 0
    try:
        os.chdir(folder)
        sys.argv = ["tokenwire", *shlex.split(arguments)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        os.chdir(before)
        sys.argv = argv
    return status, said.getvalue().decode()


def _commands(block: Block, page: Page) -> str:
    shown = []
    for line in block.body.strip().splitlines():
        status, said = command(line, page.folder)
        if status != int(block.options.get("status", "0")):
            raise Failed(f"{page.name}: tokenwire {line}: status {status}\n{said}")
        shown.append(f"$ {_folded(f'tokenwire {line}')}\n{_cut(said, block.options, f'{page.name}: tokenwire {line}')}")
    return "```console\n" + "\n".join(shown) + "\n```"


def _folded(line: str, width: int = 78) -> str:
    """Return a long command over several lines, as a shell takes it.

    >>> print(_folded("tokenwire plan --set plan.tp=4", 20))
    tokenwire plan \\
      --set plan.tp=4
    """
    if len(line) <= width:
        return line
    out = [""]
    # An option stays with its value.
    for part in re.split(r" (?=--)", line):
        if out[-1] and len(out[-1]) + len(part) + 3 > width:
            out.append(f"  {part}")
        else:
            out[-1] = f"{out[-1]} {part}".strip() if len(out) == 1 else f"{out[-1]} {part}"
    return " \\\n".join(out)


def _cut(said: str, options: dict[str, str], where: str) -> str:
    lines = [line.rstrip() for line in said.strip("\n").splitlines()]
    first, last = 0, len(lines)
    if "from" in options:
        first = next((k for k, line in enumerate(lines) if options["from"] in line), -1)
    if "to" in options:
        last = next((k + 1 for k, line in enumerate(lines) if k >= first and options["to"] in line), -1)
    if first < 0 or last < 0:
        raise Failed(f"{where}: nothing printed has {options}")
    kept = lines[first:last]
    return "\n".join([*(["…"] if first else []), *kept, *(["…"] if last < len(lines) else [])])


def _program(block: Block, page: Page) -> str:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(block.body, page.name, "exec"), page.names)  # the book's own pages
    except Exception as error:
        raise Failed(f"{page.name}: {block.body.splitlines()[0]}…: {type(error).__name__}: {error}") from error
    if "hidden" in block.options:
        return ""
    said = f"\n\n```text\n{out.getvalue().rstrip()}\n```" if out.getvalue().strip() else ""
    return f"```python\n{block.body.rstrip()}\n```{said}"


def _file(block: Block, page: Page) -> str:
    named = re.match(r"# ([\w-]+\.toml)\n", block.body)
    if named:
        (page.folder / named[1]).write_text(block.body, "utf-8")
    return _as_it_is(block, page)


def _as_it_is(block: Block, _page: Page) -> str:
    return f"```{block.language}\n{block.body.rstrip()}\n```"


_RUN: dict[str, Callable[[Block, Page], str]] = {"tokenwire": _commands, "python": _program, "toml": _file}
