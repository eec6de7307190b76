"""Running the command line as a user does: another process, in another folder, without a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run(
    arguments: Sequence[str], *, folder: Path | None = None, given: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Return what ``tokenwire ARGUMENTS`` printed and how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "tokenwire", *arguments], cwd=folder, input=given, capture_output=True, check=False,
        timeout=120, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **environment},
    )  # fmt: skip
