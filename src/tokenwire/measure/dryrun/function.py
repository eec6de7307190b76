"""A training function of the user's own, run as one rank of a world of any size, and what it would send.

The function finds a process group that is initialized already (and the environment that torchrun would give it); its own
``init_process_group`` is answered with that one. Nothing is sent; "cuda" is not there, so it has to run on the CPU.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tokenwire.errors import InputError
from tokenwire.measure.dryrun.record import Recorder, fake_world, require_torch, table

if TYPE_CHECKING:
    import polars as pl


def is_function(source: str | None) -> bool:
    """Return whether ``source`` names a function of a Python file: ``my_train.py:main``.

    >>> is_function("my_train.py:main"), is_function("journey.toml"), is_function(None)
    (True, False, False)
    """
    return source is not None and ".py:" in source


def run_function(source: str, rank: int, world: int, ranks_per_node: int = 8) -> pl.DataFrame:
    """Return the calls that ``file.py:function`` makes as ``rank`` of ``world`` (``record.COLUMNS``; ``peer`` is a rank).

    Raises ``InputError`` where the file or function is not there, or where it fails (with its own error and line).
    """
    require_torch()
    function = _loaded(source)
    recorder = Recorder()
    from tokenwire.measure.dryrun.torchtitan import quiet

    with quiet(), fake_world(rank, world), _as_torchrun(rank, world, ranks_per_node), recorder.recording():
        try:
            with contextlib.redirect_stdout(sys.stderr):
                function()
        except SystemExit as end:
            if end.code not in (None, 0):
                raise InputError(f"{source}", rule=f"ended with status {end.code}") from None
        except InputError:
            raise
        except Exception as error:
            raise InputError(source, rule=f"failed at {_place(error, source)}: {type(error).__name__}: {_first_line(error)}") from None
    return table(recorder.calls)


def _loaded(source: str) -> Callable[[], Any]:
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file!r}", rule="is not a Python file that can be read")
    if not name.isidentifier():
        raise InputError(f"{source!r}", rule="must name a function", nearest=f"{file}:main")
    spec = importlib.util.spec_from_file_location("tokenwire_user_function", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{file!r}", rule="is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        rule = f"cannot be loaded ({type(error).__name__} at {_place(error, path.name)}: {_first_line(error)})"
        raise InputError(f"{file!r}", rule=rule) from None
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{name!r} in {file!r}", rule="is not a function there", nearest=", ".join(known[:5]))
    return function  # type: ignore[no-any-return]


@contextlib.contextmanager
def _as_torchrun(rank: int, world: int, ranks_per_node: int) -> Iterator[None]:
    import torch.distributed as dist

    local = min(ranks_per_node, world)
    environment = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local,
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}  # fmt: skip
    with (
        mock.patch.dict(os.environ, {key: str(value) for key, value in environment.items()}),
        mock.patch.object(dist, "init_process_group", return_value=None),
        mock.patch.object(dist, "destroy_process_group", return_value=None),
    ):
        yield


def _place(error: BaseException, otherwise: str) -> str:
    # Text that is not Python never ran, so no frame knows it; the error itself does, unless the file could not be read at all.
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    elsewhere = ("site-packages", "/tokenwire/measure/", "<frozen ")
    own = [frame for frame in frames if not any(part in frame.filename for part in elsewhere)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else otherwise


def _first_line(error: BaseException) -> str:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return next(iter(said.strip().splitlines()), "")[:300]
