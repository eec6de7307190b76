"""Transformer Engine's Python without its kernels: one module of a checkout, with stand-ins for everything that it imports.

``TRANSFORMER_ENGINE`` names a checkout of NVIDIA/TransformerEngine (2.18). What is sent is decided in Python, so it runs on
a CPU; kernels are answered with zeros of the right shapes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest


class _StandIn(types.ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = mock.MagicMock(name=name)
        setattr(self, name, made)
        return made


def checkout() -> Path:
    """Return the checkout, or skip the test."""
    found = os.environ.get("TRANSFORMER_ENGINE", "")
    if not (Path(found) / "transformer_engine").is_dir() or not found:
        pytest.skip("TRANSFORMER_ENGINE names no checkout of Transformer Engine")
    return Path(found)


@contextlib.contextmanager
def stand_ins(modules: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Put stand-ins with the given contents in the place of modules (parents first), for as long as the block lasts."""
    made = {}
    for name, contents in modules.items():
        module = _StandIn(name)
        module.__path__ = []
        vars(module).update(contents)
        parent, _, last = name.rpartition(".")
        if parent in made:
            setattr(made[parent], last, module)
        made[name] = module
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("transformer_engine", "transformer_engine_torch")]:
            del sys.modules[name]


def load(path: str) -> Any:
    """Return one of its modules by its path in the checkout, loaded anew; inside ``stand_ins`` others find it by its name."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, checkout() / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
