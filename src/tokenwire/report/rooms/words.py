"""The counts of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tokenwire.report.terminal import bar, shortened, table, visible
from tokenwire.text import Text, statistics
from tokenwire.units import format_bytes


def facts(text: Text) -> dict[str, Any]:
    """Return the counts of a text, with where it is from."""
    counted = statistics(text)
    return {
        "name": text.name, "source": text.source, "encoding": text.encoding, "source_bytes": text.source_bytes,
        **asdict(counted), "most_common": [{"type": form, "count": count} for form, count in counted.most_common],
    }  # fmt: skip


def picture(facts: dict[str, Any]) -> Iterator[Any]:
    """Yield the counts as tables."""
    rows = [
        ("bytes of UTF-8", f"{facts['bytes']:,} B", format_bytes(facts["bytes"])),
        ("characters", f"{facts['characters']:,}", f"{facts['bytes'] / max(facts['characters'], 1):.3f} B a character"),
        ("cantos", f"{facts['cantos']:,}", ""),
        ("stanzas", f"{facts['stanzas']:,}", ""),
        ("verses", f"{facts['verses']:,}", f"{facts['words'] / max(facts['verses'], 1):,.2f} words a verse"),
        ("words", f"{facts['words']:,}", f"{facts['mean_word_characters']:,.2f} characters a word"),
        ("types", f"{facts['types']:,}", f"{facts['once']:,} of them occur once"),
    ]
    yield table(rows, ["count of", "value", "that is"], right=["value"], title=facts["name"])
    for law, x, y in (("zipf", "rank", "frequency"), ("heaps", "words", "types")):
        fit = facts[law]
        if fit:
            sign = "-" if law == "zipf" else ""
            yield (
                f"{law.capitalize()}: {y} = {fit['scale']:,.3g} · {x}^{sign}{fit['exponent']:.3f}"
                f"   (least squares of logarithms, R² = {fit['r2']:.3f})"
            )
    most = max((row["count"] for row in facts["most_common"]), default=1)
    rows = [(shortened(visible(row["type"]), 40), f"{row['count']:,}", bar(row["count"] / most, 30)) for row in facts["most_common"]]
    yield table(rows, ["most common", "times", ""], right=["times"])
