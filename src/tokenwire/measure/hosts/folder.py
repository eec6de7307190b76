"""The folder of a run, gone when it ends; what a killed process left is removed by the next one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenwire.measure.hosts.processes import started

PREFIX = "tokenwire-measure"


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder for the block; its name says which process it is of."""
    remove_stale()
    pid = os.getpid()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}.{pid}.{started(pid)}.") as name:
        yield Path(name)


def remove_stale() -> list[Path]:
    """Remove folders of processes that are gone, if they are this user's; return them."""
    stale = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}.*.*.*"):
        _, pid, when, _ = folder.name.split(".", 3)
        if pid.isdigit() and started(int(pid)) != when and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
            stale.append(folder)
    return stale
