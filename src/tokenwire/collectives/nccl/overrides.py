"""NCCL's environment variables that overrule its choice, by their own names.

``NCCL_ALGO`` and ``NCCL_PROTO`` are lists: ``Ring,Tree``, all but some: ``^LL128``, or by operation:
``Ring;allreduce:^Ring`` (the first entry may lack the operation and then holds for all). ``NCCL_MIN_NCHANNELS`` and
``NCCL_MAX_NCHANNELS`` bound the channels.

Source: NVIDIA/nccl 2.30.7, src/graph/tuning.cc, parseList; src/graph/connect.cc, ncclMinNchannels and ncclMaxNchannels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenwire.collectives.nccl.constants import ALGORITHMS, OPERATIONS, PROTOCOLS
from tokenwire.collectives.nccl.graph import MAXCHANNELS
from tokenwire.errors import InputError, unknown

NAMES = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")


@dataclass(frozen=True)
class Overrides:
    """What was set: allowed names by operation (an operation that is missing keeps NCCL's defaults), bounds on channels."""

    algorithms: tuple[tuple[str, frozenset[str]], ...] = ()
    protocols: tuple[tuple[str, frozenset[str]], ...] = ()
    least: int = 0
    most: int = MAXCHANNELS
    text: str = ""

    def allows(self, op: str, algorithm: str, protocol: str, *, on: bool) -> bool:
        """Return whether a pair may be chosen; ``on`` is whether the protocol is on by default."""
        algorithms, protocols = dict(self.algorithms).get(op), dict(self.protocols).get(op)
        if algorithms is not None and algorithm not in algorithms:
            return False
        return on if protocols is None else protocol in protocols


DEFAULT = Overrides()


def read(settings: Iterable[str]) -> Overrides:
    """Return the overrides of ``NAME=VALUE`` settings. Raises ``InputError`` naming the setting.

    >>> read(["NCCL_ALGO=Ring", "NCCL_PROTO=^LL128;allreduce:LL128"]).allows("all_reduce", "Ring", "LL128", on=False)
    True
    """
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in NAMES:
            raise unknown("setting of NCCL", name[:80], NAMES)
        if not equals or not value.strip():
            raise InputError(f"--env {setting[:80]}", rule="needs a value", nearest=f"{name}={_EXAMPLE[name]}")
        given[name] = value.strip()
    most = _count(given, "NCCL_MAX_NCHANNELS", MAXCHANNELS)
    return Overrides(
        _lists(given.get("NCCL_ALGO"), "NCCL_ALGO", ALGORITHMS), _lists(given.get("NCCL_PROTO"), "NCCL_PROTO", PROTOCOLS),
        _count(given, "NCCL_MIN_NCHANNELS", 0), max(most, 1), " ".join(f"{name}={value}" for name, value in given.items()),
    )  # fmt: skip


_EXAMPLE = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "^LL128", "NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "32"}


def _count(given: dict[str, str], name: str, otherwise: int) -> int:
    text = given.get(name)
    if text is None:
        return otherwise
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"{name}={text[:80]}", rule="must be a whole number", nearest=f"{name}={_EXAMPLE[name]}")
    return min(int(text), MAXCHANNELS)


def _lists(text: str | None, name: str, known: tuple[str, ...]) -> tuple[tuple[str, frozenset[str]], ...]:
    out: dict[str, frozenset[str]] = {}
    for place, entry in enumerate(text.split(";") if text else ()):
        before, colon, after = entry.partition(":")
        if place and not colon:
            raise InputError(f"{name}={(text or '')[:80]}", rule="only the first entry may lack an operation",
                             nearest=f"{name}={_EXAMPLE[name]};allreduce:{_EXAMPLE[name]}")  # fmt: skip
        ops = [_operation(before, name)] if colon else list(OPERATIONS)
        out.update(dict.fromkeys(ops, _names(after if colon else before, name, known)))
    return tuple(out.items())


def _operation(text: str, name: str) -> str:
    found = next((op for op, theirs in OPERATIONS.items() if theirs.lower() == text.strip().lower()), None)
    if found is None:
        raise unknown(f"operation in {name}", text[:80], OPERATIONS.values())
    return found


def _names(text: str, name: str, known: tuple[str, ...]) -> frozenset[str]:
    text = text.strip()
    without, chosen = text.startswith("^"), set()
    for part in text.removeprefix("^").split(","):
        found = next((one for one in known if one.lower() == part.strip().lower()), None)
        if found is None:
            raise unknown(name, part.strip()[:80], known)
        chosen.add(found)
    return frozenset(set(known) - chosen if without else chosen)
