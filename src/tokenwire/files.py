"""Reading and writing files that belong to others: with limits, clear errors, and nothing half-written."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tokenwire.errors import InputError
from tokenwire.units import format_bytes


def open_to_read(path: str | Path, *, what: str) -> IO[bytes]:
    """Return the open file at ``path`` (``-`` is standard input); ``what`` names its kind in the error.

    Raises ``InputError`` for a file that is not there, a folder, and what may not be read.
    """
    try:
        return sys.stdin.buffer if str(path) == "-" else open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r}", rule="no such file") from None
    except IsADirectoryError:
        raise InputError(f"{what} {str(path)!r}", rule="is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{what} {str(path)!r}", rule=f"cannot be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_limited(path: str | Path, *, limit: int, what: str) -> bytes:
    """Return the bytes of ``path`` (``-`` is standard input), refusing more than ``limit`` bytes.

    ``what`` names the kind of file in the error ("journey file", "tokenizer").
    """
    file = open_to_read(path, what=what)
    try:
        data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{what} {str(path)!r}", rule=f"cannot be read ({_reason(error)})") from None
    finally:
        if file is not sys.stdin.buffer:
            file.close()
    if len(data) > limit:
        raise InputError(f"{what} {str(path)!r}", rule=f"is larger than the limit of {format_bytes(limit)}")
    return data


@contextmanager
def whole_or_nothing(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` and rename it to ``path`` once the block ends without an error.

    A link is followed; a device or a pipe is written as it is, for a file must not take its place.
    """
    what = f"output file {str(path)!r}"
    if str(path) == "-":
        raise InputError(what, rule="goes to a file, not to standard output", nearest="./-")
    try:
        opened = _straight(Path(path)) if _is_special(Path(path)) else _renamed(Path(os.path.realpath(path)))
    except (OSError, ValueError) as error:
        raise InputError(what, rule=f"cannot be written ({_reason(error)})") from None
    try:
        with opened as file:
            yield file
    except BrokenPipeError:
        raise
    except IsADirectoryError:
        raise InputError(what, rule="is a folder") from None
    except OSError as error:
        raise InputError(what, rule=f"cannot be written ({_reason(error)})") from None


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file() and not target.is_dir()


def _straight(target: Path) -> IO[bytes]:
    return open(target, "wb")


@contextmanager
def _renamed(target: Path) -> Iterator[IO[bytes]]:
    if target.is_dir():
        raise IsADirectoryError
    handle, name = tempfile.mkstemp(prefix=".tokenwire.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    finally:
        # After an error, or an interrupt, nothing of it stays behind.
        if os.path.exists(name):
            os.unlink(name)
