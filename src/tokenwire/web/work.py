"""Long work, off the thread that answers: a thread a page, bounded in number, that can be waited for and stopped."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from tokenwire.errors import InputError

MOST = 6
"""Pieces of work at a time."""
FORGOTTEN = 60.0
"""Seconds after which work is dropped that nobody has asked for again."""


class Stopped(BaseException):
    """Raised inside work that its visitor has stopped."""


class _Piece:
    def __init__(self, function: Callable[[], Any]) -> None:
        self.began = self.asked = time.monotonic()
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self.thread.start()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            self.value = function()
        except BaseException as error:
            self.error = error


class Running:
    """What ``Work.result`` returns while work goes on: for how many ``seconds`` it has."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Work:
    """Pieces of work by key; visitors who ask for the same key share one piece."""

    def __init__(self) -> None:
        self._pieces: dict[Hashable, _Piece] = {}
        self._lock = threading.Lock()

    def result(self, key: Hashable, function: Callable[[], Any], patience: float) -> Any:
        """Return what ``function`` returns, or ``Running`` where it takes longer than ``patience`` seconds; ask again then.

        Raises what the function raised, and ``InputError`` where too much is going on already.
        """
        with self._lock:
            self._sweep()
            piece = self._pieces.get(key)
            if piece is None:
                if len(self._pieces) >= MOST:
                    raise InputError("the explorer", rule=f"is busy with {MOST} other pages: try again in a moment")
                piece = self._pieces[key] = _Piece(function)
            piece.asked = time.monotonic()
        piece.thread.join(patience)
        if piece.thread.is_alive():
            return Running(time.monotonic() - piece.began)
        with self._lock:
            self._pieces.pop(key, None)
        if piece.error is not None:
            raise piece.error
        return piece.value

    def stop(self, key: Hashable) -> None:
        """Stop a piece of work, at its next line of Python."""
        with self._lock:
            piece = self._pieces.pop(key, None)
        if piece is not None:
            _interrupt(piece.thread)

    def _sweep(self) -> None:
        now = time.monotonic()
        for key, piece in list(self._pieces.items()):
            if now - piece.asked > FORGOTTEN:
                del self._pieces[key]
                _interrupt(piece.thread)


def _interrupt(thread: threading.Thread) -> None:
    # Python has no other way to end a thread; the exception is raised between two of its instructions.
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
