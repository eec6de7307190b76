"""Pages of reference, written from the program itself: its help, its sections, its doors, its catalogs."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module, resources
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from press.blocks import command

DOORS = ("text", "tokens", "model", "plan", "step", "collectives", "fabric", "flows", "wire", "timeline", "needs", "search", "measure", "formats",
         "journey", "report", "web")  # fmt: skip
"""Rooms in the order of the walk; those that are not there are left out."""


def pages() -> dict[str, str]:
    """Return the pages by their place in the book, as Markdown."""
    return {
        "reference/commands.md": commands(),
        "reference/keys.md": keys(),
        "reference/python.md": doors(),
        "reference/models.md": models(),
        "reference/clusters.md": clusters(),
    }


# Command line -----------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Return every verb with its help, and its sub-commands with theirs."""
    from tokenwire.cli import VERBS, _exists

    out = ["# Command line", "", "What `--help` prints, verb by verb in the order of the walk. Exit status: 0, 1 for a wrong input (one line), 2 for "
           "wrong usage. `NO_COLOR` is honoured; `COLUMNS` is the width in a pipe.", ""]  # fmt: skip
    for verb in VERBS:
        if _exists(verb):
            said = _help(verb)
            out += [f"## {verb}", "", f"```text\n{said}\n```", ""]
            for inner in _inner(said):
                out += [f"### {verb} {inner}", "", f"```text\n{_help(f'{verb} {inner}')}\n```", ""]
    return "\n".join(out)


def _help(arguments: str) -> str:
    from pathlib import Path

    return command(f"{arguments} --help", Path.cwd())[1].strip("\n")


def _inner(said: str) -> list[str]:
    _, _, listed = said.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][\w-]*)  ", listed, re.MULTILINE)


# Journey file -----------------------------------------------------------------------------------------------------------


def keys() -> str:
    """Return every key of every section, with its type and default."""
    from tokenwire.journey import JourneyConfig
    from tokenwire.plan import PlanConfig

    out = ["# Every key of a journey file", "", "Read from the program. *none* stands for a key that may be left out; what then holds is said at the "
           "section. See [the journey file](../journey-file.md) for an example.", ""]  # fmt: skip
    for name, field in JourneyConfig.model_fields.items():
        section: Any = field.annotation
        out += [f"## [{name}]", "", *_section(section)]
        if issubclass(section, PlanConfig):
            for dialect in sorted(_dialects(), key=lambda one: one.__name__):
                called = dialect.model_fields["dialect"].default
                own = [key for key in dialect.model_fields if key not in PlanConfig.model_fields]
                out += [f"### [{name}] of {called}", "", *_section(dialect, own)]
    return "\n".join(out)


def _dialects() -> list[type[BaseModel]]:
    from tokenwire.plan import PlanConfig

    for module in ("megatron", "torchtitan", "deepspeed", "ddp"):
        import_module(f"tokenwire.plan.{module}")
    return [one for one in PlanConfig.__subclasses__() if one.__module__.startswith("tokenwire.")]


def _section(section: type[BaseModel], only: list[str] | None = None) -> Iterator[str]:
    yield _prose(inspect.getdoc(section) or "")
    yield ""
    yield "| key | value | default |"
    yield "|---|---|---|"
    for key, field in section.model_fields.items():
        if only is None or key in only:
            default = "required" if field.default is PydanticUndefined and field.default_factory is None else _default(field.get_default(call_default_factory=True))
            yield f"| `{field.alias or key}` | {_type(field.annotation, field.metadata)} | {default} |"
    yield ""


def _default(value: Any) -> str:
    return "*none*" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value if value != '' else repr(value)}`"


def _type(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join(_type(part, metadata) for part in get_args(annotation) if part is not type(None))
    if hasattr(annotation, "__metadata__"):
        return _type(get_args(annotation)[0], [*metadata, *annotation.__metadata__])
    if any("_quantity" in repr(getattr(part, "func", part)) for part in metadata):
        return "number with a unit"
    named = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if origin is tuple:
        return f"list of: {_type(get_args(annotation)[0], [])}"
    return named.get(annotation, f"`{getattr(annotation, '__name__', annotation)}`")


def _prose(text: str) -> str:
    # Doctests stay programs; ``names`` become code.
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            out.append("```python")
            inside = True
        if inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)


# Python -----------------------------------------------------------------------------------------------------------------


def doors() -> str:
    """Return the door of every room: what it says of itself, and its public names with their docstrings."""
    out = ["# Python", "", "Every room is entered by one door. `from tokenwire import Journey` strings them together.", ""]
    for name in DOORS:
        try:
            door = import_module(f"tokenwire.{name}")
        except ModuleNotFoundError:
            continue
        out += [f"## tokenwire.{name}", "", _prose(inspect.getdoc(door) or ""), ""]
        for public in getattr(door, "__all__", ()):
            out += _entry(public, getattr(door, public))
    return "\n".join(out)


def _entry(name: str, found: Any) -> list[str]:
    if inspect.ismodule(found) or not callable(found):
        return []
    said = _prose(inspect.getdoc(found) or "")
    signature = "" if inspect.isclass(found) and issubclass(found, BaseModel) else _signature(found)
    out = [f"### {name}", "", f"```python\n{_folded(name + signature)}\n```", "", said, ""]
    if inspect.isclass(found):
        for method, value in vars(found).items():
            if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, classmethod))) and not hasattr(BaseModel, method):
                one = value.fget if isinstance(value, property) else value.__func__ if isinstance(value, classmethod) else value
                if one is not None and one.__doc__:
                    first = one.__doc__.strip().splitlines()[0].replace("``", "`")
                    out.append(f"- `{method}{'' if isinstance(value, property) else _signature(one)}`: {first}")
        out.append("")
    return out


def _signature(found: Any) -> str:
    try:
        said = str(inspect.signature(found))
    except (TypeError, ValueError):
        return ""
    # Annotations are texts, in quotes; defaults keep theirs.
    said = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", said.removesuffix(" -> None") if inspect.isclass(found) else said)
    said = re.sub(r"(: |-> )(?:'([^']*)'|\"([^\"]*)\")", r"\1\2\3", said)
    # Where a default is a function, where it stands in memory is of no use.
    said = re.sub(r"<function [^>]*> at 0x\w+>|<[^<>]* at 0x\w+>", "...", said)
    return re.sub(r"\btokenwire\.[\w.]*\.(?=\w)", "", said)


def _folded(signature: str, width: int = 88) -> str:
    """Return a long signature with a line for each parameter.

    >>> print(_folded("f(a: int, b: tuple[int, int]) -> int", 20))
    f(
        a: int,
        b: tuple[int, int],
    ) -> int
    """
    if len(signature) <= width:
        return signature
    out, depth = "", 0
    for k, sign in enumerate(signature):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "(" and depth == 1:
            out += "(\n    "
        elif sign == ")" and depth == 0:
            return f"{out},\n){signature[k + 1 :]}"
        elif sign == "," and depth == 1:
            out += ",\n   "
        else:
            out += sign
    return signature


# Catalogs ---------------------------------------------------------------------------------------------------------------


def _catalog(package: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(resources.files(package).joinpath("catalog").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            yield file.name.removesuffix(".toml"), tomllib.loads(file.read_text("utf-8"))


def models() -> str:
    """Return the models of the catalog with their sizes, counted tensor by tensor, and their sources."""
    from tokenwire.model import ModelConfig, architecture, parameters

    out = ["# Models of the catalog", "", "`tokenwire model NAME`, or `preset = \"NAME\"` in `[model]`. Parameters are counted tensor by tensor. A model "
           "that is not here comes as its Hugging Face `config.json`.", "",
           "| name | parameters | active | layers | hidden | vocabulary |", "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    more = []
    for name, facts in _catalog("tokenwire.model"):
        arch = architecture(ModelConfig(preset=name), 1000)
        count = parameters(arch)
        out.append(f"| `{name}` | {count.total:,} | {count.active:,} | {len(arch.layers)} | {arch.hidden_size:,} | {arch.vocabulary_size:,} |")
        more += [f"- `{name}`: {facts['source']}"] if "source" in facts else []
    return "\n".join([*out, "", "`dante` takes its vocabulary from the tokenizer: 1,000 here.", "", "## Sources", "", *more, ""])


def clusters() -> str:
    """Return the clusters of the catalog with their facts and sources."""
    from tokenwire.fabric import preset
    from tokenwire.units import format_memory_rate, format_quantity, format_rate

    out = ["# Clusters of the catalog", "", "`preset = \"NAME\"` in `[cluster]`; every fact may be changed beside it. Rates are of one direction; peaks are dense, "
           "in bf16.", "", "| name | GPU | peak | GPUs a node | in the node, a GPU | NICs a node | a NIC | topology |", "|---|---|---:|---:|---:|---:|---:|---|"]  # fmt: skip
    more = []
    for name, _ in _catalog("tokenwire.fabric"):
        facts = preset(name)
        out.append(f"| `{name}` | {facts.gpu} | {format_quantity(facts.peak_flops, 'FLOP/s')} | {facts.gpus_per_node} | "
                   f"{format_memory_rate(facts.domain_rate)} ({facts.domain}) | {facts.nics_per_node} | {format_rate(facts.nic_rate)} | {facts.topology} |")  # fmt: skip
        more += [f"**{name}**: {facts.title}. Source: {facts.source or 'none: made up for teaching'}." + (f" {facts.notes.capitalize()}." if facts.notes else ""), ""]
    return "\n".join([*out, "", "## Sources", "", *more])
