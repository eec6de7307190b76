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


def read_limited(path: str | Path, *, limit: int, what: str) -> bytes:
    """Return the bytes of ``path`` (``-`` is standard input), refusing more than ``limit`` bytes.

    ``what`` names the kind of file in the error ("journey file", "tokenizer").
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r}", rule="no such file") from None
    except IsADirectoryError:
        raise InputError(f"{what} {str(path)!r}", rule="is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{what} {str(path)!r}", rule=f"cannot be read ({reason})") from None
    if len(data) > limit:
        raise InputError(f"{what} {str(path)!r}", rule=f"is larger than the limit of {format_bytes(limit)}")
    return data


@contextmanager
def whole_or_nothing(path: str | Path, mode: str = "wb") -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` and rename it to ``path`` once the block ends without an error."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent or ".")
    except OSError as error:
        raise InputError(f"output file {str(path)!r}", rule=f"cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, mode) as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except IsADirectoryError:
        os.unlink(name)
        raise InputError(f"output file {str(path)!r}", rule="is a folder") from None
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise
