"""The journey file: one TOML, one section a room, every section with defaults.

A section that is not there is that of the built-in walk (``catalog/dante.toml``), so an empty file is the built-in
walk; inside a section that is there, what is not said has the default of its room (for a plan: of its framework).
Overrides (``plan.tp=4``) are laid over the result. Paths in a file are relative to that file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import SerializeAsAny

from tokenwire.config import Section, read_section
from tokenwire.errors import InputError, closest
from tokenwire.fabric import ClusterConfig
from tokenwire.files import read_limited
from tokenwire.model import ModelConfig
from tokenwire.plan import PlanConfig, TrainingConfig, read_plan
from tokenwire.text import TextConfig
from tokenwire.tokens import TokenizerConfig
from tokenwire.wire import WireConfig

LIMIT = 2**20
"""Bytes of the largest journey file that is read."""

_DEEPEST = 256

_PATHS = {"text": ("source",), "tokenizer": ("file",), "model": ("config",), "cluster": ("file",)}
# Keys of [plan] that every dialect has; the rest belong to one framework.
_COMMON_PLAN = ("dialect", "tp", "pp", "cp", "ep", "etp", "vpp")


class JourneyConfig(Section):
    """A whole journey file, validated section by section."""

    text: TextConfig
    tokenizer: TokenizerConfig
    model: ModelConfig
    training: TrainingConfig
    plan: SerializeAsAny[PlanConfig]
    cluster: ClusterConfig
    wire: WireConfig


def built_in(name: str = "dante") -> dict[str, dict[str, Any]]:
    """Return a journey file that ships with the package, as nested mappings.

    >>> built_in()["plan"]["dialect"]
    'megatron'
    """
    source = resources.files("tokenwire.journey") / "catalog" / f"{name}.toml"
    return tomllib.loads(source.read_text("utf-8"))


def read_config(path: str | Path | None, overrides: Iterable[str] = (), base: str = "dante") -> JourneyConfig:
    """Return the journey of a file (``-`` is standard input, None the built-in ``base``), with overrides.

    Raises ``InputError`` naming the section, the key, the rule and the nearest name that works.
    """
    sections, given = built_in(base), {} if path is None else _sections_of(path)
    if path is not None:
        folder = Path() if str(path) == "-" else Path(path).parent
        for name, values in given.items():
            sections[name] = _with_paths(name, values, folder)
    overrides = list(overrides)
    if ("model" not in given) and _by_its_fields(overrides):
        # Fields describe a whole model: they take the place of the built-in one rather than clash with its name.
        sections["model"] = {}
    for override in overrides:
        _lay_over(sections, override)
    return _validated(sections)


def _by_its_fields(overrides: Iterable[str]) -> bool:
    """Return whether overrides describe a model by fields of its own."""
    keys = {override.partition("=")[0].strip() for override in overrides}
    of_model = {key for key in keys if key.startswith("model.")} - {"model.name"}
    return bool(of_model) and not of_model & {"model.preset", "model.config"}


def _sections_of(path: str | Path) -> dict[str, dict[str, Any]]:
    where = f"journey file {str(path)!r}"
    data = read_limited(path, limit=LIMIT, what="journey file")
    try:
        return _only_sections(tomllib.loads(_shallow(data.decode("utf-8-sig"))), where)
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise InputError(where, rule=f"is not UTF-8 (byte 0x{byte:02x} at offset {error.start:,})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(where, rule=f"is not TOML ({error})", nearest='lines such as [plan] and tp = 8') from None
    except RecursionError:
        raise InputError(where, rule="is nested too deeply") from None


def _shallow(text: str) -> str:
    """Return the text, or raise RecursionError for a key of very many parts, over which tomllib takes quadratic time."""
    for line in text.splitlines():
        if line.count(".") > _DEEPEST and not line.lstrip().startswith("#"):
            raise RecursionError
    return text


def _only_sections(values: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    known = list(JourneyConfig.model_fields)
    for name, section in values.items():
        if name not in known:
            raise InputError(
                f"unknown section [{name}]", where=where, rule=f"known are {', '.join(known)}",
                nearest=closest(name, known),
            )  # fmt: skip
        if not isinstance(section, dict):
            raise InputError(f"{name} = {section!r}"[:80], where=where, rule=f"[{name}] is a section, not a value")
    return dict(values)


def _with_paths(name: str, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    out = dict(values)
    for key in _PATHS.get(name, ()):
        value = out.get(key)
        if isinstance(value, str) and value != "-" and not Path(value).is_absolute() and (folder / value).exists():
            out[key] = str(folder / value)
    return out


def _lay_over(sections: dict[str, dict[str, Any]], override: str) -> None:
    key, sign, text = override.partition("=")
    section, dot, name = key.strip().partition(".")
    if not sign or not dot or not name:
        raise InputError(f"--set {override}", rule="must be section.key=value", nearest="--set plan.tp=4")
    known = list(JourneyConfig.model_fields)
    if section not in known:
        raise InputError(
            f"--set {override}", rule=f"unknown section {section!r}: known are {', '.join(known)}",
            nearest=closest(section, known),
        )  # fmt: skip
    value = _value(text.strip())
    values = sections.setdefault(section, {})
    if section == "plan" and name == "dialect" and value != values.get("dialect"):
        # Another framework: its own options begin at its own defaults.
        sections["plan"] = values = {key: values[key] for key in _COMMON_PLAN if key in values}
    if section == "model" and name in ("preset", "config"):
        sections["model"] = values = {}
    if section == "cluster" and name in ("nodes", "gpus"):
        values.pop("gpus" if name == "nodes" else "nodes", None)
    if section == "cluster" and name == "preset" and value != values.get("preset"):
        sections["cluster"] = values = {key: values[key] for key in ("nodes", "gpus") if key in values}
    if section == "cluster" and name == "file" and value != values.get("file"):
        # A file has a cluster of its own; one of links also says how many GPUs there are.
        kept = () if str(value).lower().endswith((".csv", ".graphml")) else ("preset", "nodes", "gpus")
        sections["cluster"] = values = {key: values[key] for key in kept if key in values}
    values[name] = value


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _validated(sections: Mapping[str, Mapping[str, Any]]) -> JourneyConfig:
    models: dict[str, type[Section]] = {
        "text": TextConfig, "tokenizer": TokenizerConfig, "model": ModelConfig, "training": TrainingConfig,
        "cluster": ClusterConfig, "wire": WireConfig,
    }  # fmt: skip
    read: dict[str, Any] = {
        name: read_section(model, sections.get(name, {}), where=f"[{name}]") for name, model in models.items()
    }
    return JourneyConfig(plan=read_plan(sections.get("plan", {})), **read)
