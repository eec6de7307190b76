"""The one error that a user's input can raise: one clear line, never a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input, said in one line: what, where, the rule, and the nearest value that works.

    >>> print(InputError("tp = 3", where="[plan]", rule="tp must divide the 32 attention heads", nearest="tp = 4"))
    [plan] tp = 3: tp must divide the 32 attention heads; nearest that works: tp = 4
    """

    def __init__(self, what: str, *, where: str = "", rule: str = "", nearest: str = "") -> None:
        self.what, self.where, self.rule, self.nearest = what, where, rule, nearest
        line = f"{where} {what}".strip()
        if rule:
            line += f": {rule}"
        if nearest:
            line += f"; nearest that works: {nearest}"
        super().__init__(" ".join(line.split()))


class MissingExtra(InputError):
    """Something needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, rule=f"needs the extra `{extra}`", nearest=f"pip install 'tokenwire[{extra}]'")


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name most like ``name``, or ``""`` where none is near.

    >>> closest("llama-3.1-8", ["gpt2", "llama-3.1-8b", "llama-3.1-70b"])
    'llama-3.1-8b'
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else ""


def edits(a: str, b: str) -> int:
    """Return how many letters must be put in, taken out or changed to make ``a`` into ``b`` (Levenshtein).

    >>> edits("lama", "llama"), edits("olmo", "openelm")
    (1, 5)
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def unknown(kind: str, name: str, known: Iterable[str], *, where: str = "") -> InputError:
    """Return the error for a name that is not in a list, with the nearest one and the whole list.

    >>> print(unknown("model preset", "gpt-2", ["gpt2", "llama"]))
    unknown model preset 'gpt-2': known are gpt2, llama; nearest that works: gpt2
    """
    names = sorted(known)
    return InputError(
        f"unknown {kind} {name!r}", where=where, rule=f"known are {', '.join(names)}", nearest=closest(name, names)
    )
