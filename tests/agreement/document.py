"""A plan as it stands in a journey file: sections of keys and values, and the TOML that says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Mapping[str, Any]]
"""``model, training, plan, cluster`` and what each says."""


def toml(document: Document) -> str:
    """Return the journey file; values of None are left out.

    >>> print(toml({"plan": {"tp": 2, "sequence_parallel": True, "cp_comm_type": ["p2p", "a2a"], "vpp": None}}))
    [plan]
    tp = 2
    sequence_parallel = true
    cp_comm_type = ["p2p", "a2a"]
    <BLANKLINE>
    """
    return "\n".join(_section(name, keys) for name, keys in document.items())


def _section(name: str, keys: Mapping[str, Any]) -> str:
    # JSON writes words, whole numbers, fractions, lists and booleans as TOML does.
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None]
    return "\n".join([f"[{name}]", *lines, ""])


def changed(document: Document, **sections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a copy with keys of sections replaced; a value of None takes the key away."""
    out = {name: dict(keys) for name, keys in document.items()}
    for name, keys in sections.items():
        out[name] = {key: value for key, value in {**out[name], **keys}.items() if value is not None}
    return out
