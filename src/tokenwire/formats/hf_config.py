"""Hugging Face's ``config.json``: which model a ``[model]`` section means, from a file, a preset or fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.files import read_limited
from tokenwire.model import Architecture, Model, ModelConfig, architecture, from_huggingface

LIMIT = 2**22
"""Bytes of the largest ``config.json`` that is read."""


def model_of(config: ModelConfig, vocabulary_size: int | None = None) -> Model:
    """Return the model of a section: the ``config.json`` is read if one is named, else preset or fields.

    >>> model_of(ModelConfig(preset="gpt2")).parameters.total
    124439808
    """
    if config.config is not None:
        arch = read_config(config.config)
        return Model.of(replace(arch, name=config.name) if config.name else arch)
    return Model.of(architecture(config, vocabulary_size))


def read_config(path: str | Path) -> Architecture:
    """Return the architecture of a ``config.json`` (or of the folder that has one; ``-`` is standard input).

    Raises ``InputError``, one line, for a file that is missing, too large, not JSON, or not a model that is known.
    """
    file = Path(path)
    if str(path) != "-" and file.is_dir():
        file = file / "config.json"
    where = f"config {str(path)!r}"
    values = parse(read_limited(file, limit=LIMIT, what="model configuration"), where)
    arch = from_huggingface(values, where=where)
    named = values.get("_name_or_path") or values.get("name")
    if isinstance(named, str) and 0 < len(named) <= 200:
        return replace(arch, name=Path(named).name or named)
    folder = file.parent.name if file.name == "config.json" else file.stem
    return replace(arch, name=folder or arch.family)


def parse(data: bytes, where: str) -> Mapping[str, Any]:
    """Return the keys and values of a JSON object. Raises ``InputError`` where it is none.

    >>> parse(b'{"model_type": "gpt2"}', "config.json")
    {'model_type': 'gpt2'}
    """
    try:
        values = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            where, rule=f"is not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start:,})"
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(
            where, rule=f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        ) from None
    except RecursionError:
        raise InputError(where, rule="is nested too deeply") from None
    except ValueError:
        # Python refuses whole numbers of thousands of digits.
        raise InputError(where, rule="has a number that is too long") from None
    if not isinstance(values, dict):
        raise InputError(where, rule="must be a JSON object of keys and values")
    return values
