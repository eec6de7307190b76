"""A calibration: times and rates of components by size, as a table, as a file, and read off between sizes."""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.files import read_limited

_LIMIT = 1 << 20


@dataclass(frozen=True)
class Calibration:
    """``calls``: (op, ranks) to (bytes of the full tensor, s) by size; ``matmul``: (m, k, n, FLOP/s) and ``attention``: (s, heads, KV heads, d,
    FLOP/s) in fp32 of one thread a rank, all ranks at once; attention counts the scores under the causal mask.
    """

    machine: str
    network: str
    ranks: int
    calls: dict[tuple[str, int], tuple[tuple[int, float], ...]]
    matmul: tuple[tuple[int, int, int, float], ...]
    attention: tuple[tuple[int, int, int, int, float], ...]

    def seconds(self, op: str, n: int, size: float) -> float:
        """Return the time of one call among n ranks: between measured sizes on a straight line, beyond the largest along the last one.

        Raises ``InputError`` for a call that was not measured.

        >>> one = Calibration("", "", 2, {("send", 2): ((100, 1.0), (200, 2.0), (400, 6.0))}, (), ())
        >>> [one.seconds("send", 2, size) for size in (50, 150, 300, 500)]
        [1.0, 1.5, 4.0, 8.0]
        """
        points = self.calls.get((op, n))
        if not points:
            measured = ", ".join(sorted({f"{name} among {ranks}" for name, ranks in self.calls}))
            raise InputError(f"{op} among {n} ranks", rule=f"was not measured; measured are: {measured}",
                             nearest="tokenwire measure --calibrate FILE --ranks N")  # fmt: skip
        if size <= points[0][0] or len(points) == 1:
            return points[0][1]
        at = min(bisect_left([point[0] for point in points], size), len(points) - 1)
        (a, low), (b, high) = points[at - 1], points[at]
        return low + (size - a) * (high - low) / (b - a)

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "machine": self.machine, "network": self.network, "ranks": self.ranks,
            "calls": [{"op": op, "ranks": n, "bytes": size, "seconds": seconds}
                      for (op, n), points in self.calls.items() for size, seconds in points],
            "matmul": [{"m": m, "k": k, "n": n, "flops_per_s": rate} for m, k, n, rate in self.matmul],
            "attention": [{"s": s, "heads": heads, "kv_heads": kv, "d": d, "flops_per_s": rate} for s, heads, kv, d, rate in self.attention],
        }  # fmt: skip

    def best(self) -> float:
        """Return the highest rate of a matrix product in FLOP/s."""
        return max((row[-1] for row in self.matmul), default=0.0)


def calibration_text(c: Calibration) -> str:
    """Return it as TOML. Shares of products are of the best one, in the columns of the timeline's own tables."""
    peak = c.best()
    lines = [
        "# Written by `tokenwire measure --calibrate`: measured by component on this machine, all ranks at once, fp32.",
        f'source = "measured on {_plain(c.machine)}"', f'machine = "{_plain(c.machine)}"', f'network = "{_plain(c.network)}"',
        f"ranks = {c.ranks}", f'peak = "{peak / 1e9:.4g} GFLOP/s"', "# m, k, n, how the operands lie, share of the peak.", "[tables]",
        "grouped = []", "matmul = [", *(f'  [{m}, {k}, {n}, "NN", {rate / peak:.4f}],' for m, k, n, rate in c.matmul), "]",
        "# s, heads, KV heads, d, share of the peak, forward, of the scores under the causal mask.", "attention_forward = [",
        *(f"  [{s}, {heads}, {kv}, {d}, {rate / peak:.4f}]," for s, heads, kv, d, rate in c.attention), "]",
        "# A call of gloo, ranks, bytes of the full tensor, seconds.", "[gloo]", "calls = [",
        *(f'  ["{op}", {n}, {size}, {seconds:.4e}],' for (op, n), points in sorted(c.calls.items()) for size, seconds in points), "]",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def read_calibration(path: str | Path) -> Calibration:
    """Read a file with what ``calibration_text`` returned. Raises ``InputError`` for any other."""
    from tokenwire.units import parse_flops

    try:
        facts = tomllib.loads(read_limited(path, limit=_LIMIT, what="calibration").decode())
        peak = parse_flops(facts["peak"])
        calls: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for op, n, size, seconds in facts["gloo"]["calls"]:
            if not (size >= 0 and 0 < seconds < float("inf")):
                raise ValueError(f"{op} of {size} B takes {seconds} s")
            calls.setdefault((str(op), int(n)), []).append((int(size), float(seconds)))
        return Calibration(
            str(facts["machine"]), str(facts["network"]), int(facts["ranks"]), {key: tuple(sorted(points)) for key, points in calls.items()},
            tuple((m, k, n, share * peak) for m, k, n, _, share in facts["tables"]["matmul"]),
            tuple((s, heads, kv, d, share * peak) for s, heads, kv, d, share in facts["tables"]["attention_forward"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"calibration {path}", rule=f"is not what --calibrate writes ({str(error)[:100]})",
                         nearest="tokenwire measure --calibrate FILE") from None  # fmt: skip


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable() and letter not in '"\\')
