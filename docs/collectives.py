"""Write the generated parts of docs/collectives.md: what the commands print, and how far the estimates are from runs.

    python docs/collectives.py

A part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. Nothing is fitted: the tables of the tuner are
NCCL's own.
"""

from __future__ import annotations

import csv
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tokenwire.collectives.nccl import Machine, choose, read_overrides
from tokenwire.units import format_bytes

ROOT = Path(__file__).resolve().parents[1]
PAGE, POSTED = ROOT / "docs" / "collectives.md", ROOT / "docs" / "nccl-posted.csv"
DATA = ROOT / "validation" / "data"
LARGE = 16 << 20
"""Only sizes above this one count for the target."""
NODES = (1, 2, 4, 8, 16, 32, 64, 128)
GROUPS = (2, 4, 8)


class Measured(NamedTuple):
    """One measured share of the peak, and what NCCL estimates there: by default, and where its NICs are behind the CPU."""

    table: str
    nodes: int
    size: int
    measured: float
    picked: str
    chosen: float
    without: float
    kept: str

    @property
    def error(self) -> float:
        """Return the relative error of NCCL's choice."""
        return self.chosen / self.measured - 1

    @property
    def error_without(self) -> float:
        """Return the relative error where LL128 is off."""
        return self.without / self.measured - 1


def machine_of(table: str, nodes: int) -> tuple[Machine, float]:
    """Return the machine of a column, and the peak that its shares are of, in bytes/s.

    The tables name neither: 8 GPUs a node and which of NIC and NVLink is the narrower is in their heads. 8 NICs of 400 Gb/s
    under NVLinks of 450 GB/s (H100) or 200 GB/s (H800) are the machines of which that is true; peaks are data-sheet rates.
    """
    if table == "one GPU a node":
        return Machine("hopper", nodes=nodes, ranks_per_node=1, nics_per_node=1), 50e9
    if table == "NVLink is narrower":
        return Machine("hopper", nodes=nodes, nvlink_rate=200e9), 200e9
    return Machine("hopper", nodes=nodes), 450e9 if nodes == 1 else 400e9


def estimate(table: str, nodes: int, size: int, nic_path: str = "PXB", settings: Iterable[str] = ()) -> tuple[float, str]:
    """Return NCCL's estimate of an all_gather as a share of the peak, and what it picks."""
    machine, peak = machine_of(table, nodes)
    found = choose(replace(machine, nic_path=nic_path), "all_gather", size, read_overrides(settings))
    return found.busbw / peak, f"{found.algorithm} {found.protocol}"


def simai(folder: Path) -> Iterator[Measured]:
    """Yield every measured share of both tables; columns that are the same in both count once."""
    for name, table in (("simai_nic_ratio.csv", "NIC is narrower"), ("simai_nvlink_ratio.csv", "NVLink is narrower")):
        with open(folder / name, newline="", encoding="utf-8") as file:
            for row in list(csv.reader(file))[1:]:
                places = [(table, nodes, row[c]) for c, nodes in enumerate(NODES, 1) if nodes > 1 or table.startswith("NIC")]
                if table.startswith("NIC"):
                    places += [("one GPU a node", nodes, row[c]) for c, nodes in enumerate(GROUPS, 9)]
                for where, nodes, text in places:
                    if text:
                        size = int(row[0])
                        share, picked = estimate(where, nodes, size)
                        without, kept = estimate(where, nodes, size, "PHB")
                        yield Measured(where, nodes, size, float(text), picked, share, without, kept)


def summary(errors: list[float]) -> tuple[float, float]:
    """Return the median and the worst of absolute errors."""
    absolute = [abs(error) for error in errors]
    return statistics.median(absolute), max(absolute)


def _cells(found: list[Measured]) -> str:
    large = [one for one in found if one.size > LARGE]
    m, w = summary([one.error for one in large])
    worst = max(large, key=lambda one: abs(one.error))
    sm, sw = summary([one.error_without for one in large])
    where = f"{worst.nodes} node{'s' * (worst.nodes > 1)}, {format_bytes(worst.size, binary=True)}"
    return f"{len(large)} | {m:.1%} | {w:.0%} ({where}) | {sm:.1%} | {sw:.0%}"


def by_scale(rows: list[Measured]) -> str:
    """Return the table of errors by machine and nodes."""
    out = ["| table | nodes | rows | median | worst | median, LL128 off | worst, LL128 off |", "|---|---|---|---|---|---|---|"]
    for table in dict.fromkeys(one.table for one in rows):
        own = [one for one in rows if one.table == table]
        out += [f"| {table} | {n} | {_cells([one for one in own if one.nodes == n])} |" for n in dict.fromkeys(o.nodes for o in own)]
        out.append(f"| **{table}** | all | {_cells(own)} |")
    out.append(f"| **all** | all | {_cells(rows)} |")
    own = [one._replace(chosen=_one_node(one.size), without=_one_node(one.size)) for one in rows if one.nodes == 1]
    out.append(f"| not counted: one node as H800 | 1 | {_cells(own)} |")
    return "\n".join(out)


def _one_node(size: int) -> float:
    return choose(Machine("hopper", nvlink_rate=200e9), "all_gather", size).busbw / 200e9


def by_size(rows: list[Measured]) -> str:
    """Return the table of errors by size."""
    out = ["| size | rows | median | worst | at | measured | estimated | median, LL128 off |", "|---|---|---|---|---|---|---|---|"]
    for size in sorted({one.size for one in rows}):
        own = [one for one in rows if one.size == size]
        m, w = summary([one.error for one in own])
        worst = max(own, key=lambda one: abs(one.error))
        out.append(
            f"| {format_bytes(size, binary=True)} | {len(own)} | {m:.1%} | {w:.0%} | {worst.table}, {worst.nodes} nodes | "
            f"{worst.measured:.3g} | {worst.chosen:.3g} ({worst.picked}) | {summary([o.error_without for o in own])[0]:.1%} |"
        )
    return "\n".join(out)


def steps(rows: list[Measured]) -> str:
    """Return how long a step of the ring took by the bytes of a rank and the nodes, and NCCL's estimates by protocol.

    An all_gather is n-1 steps of S/n bytes, so a step takes (S/n) / busbw.
    """
    nodes = (4, 8, 16, 32, 64, 128)
    found = {(o.size // (8 * o.nodes), o.nodes): o.measured * 400e9 for o in rows if o.table == "NIC is narrower" and o.nodes > 1}
    out = ["| bytes of a rank |" + "".join(f" {n} nodes |" for n in nodes) + " LL | LL128 | Simple |", "|---" * (len(nodes) + 4) + "|"]
    for size in sorted({size for size, n in found if n in nodes}):
        cells = [f"{size / found[size, n] * 1e6:.2f}" if (size, n) in found else "" for n in nodes]
        for protocol in ("LL", "LL128", "Simple"):
            share, _ = estimate("NIC is narrower", 64, 512 * size, settings=[f"NCCL_PROTO={protocol}"])
            cells.append(f"{size / (share * 400e9) * 1e6:.2f}")
        out.append(f"| {format_bytes(size, binary=True)} | {' | '.join(cells)} |")
    return "\n".join(out)


def misses(rows: list[Measured]) -> str:
    """Return every row above 16 MiB that is off by more than a quarter."""
    far = [one for one in rows if one.size > LARGE and abs(one.error) > 0.25]
    out = [f"{len(far)} of {sum(one.size > LARGE for one in rows)} rows above 16 MiB are off by more than 25 %:", "",
           "| table | nodes | size | measured | estimated | error | LL128 off |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    out += [
        f"| {o.table} | {o.nodes} | {format_bytes(o.size, binary=True)} | {o.measured:.3g} | {o.chosen:.3g} ({o.picked}) | "
        f"{o.error:+.0%} | {o.error_without:+.0%} ({o.kept}) |"
        for o in sorted(far, key=lambda one: -abs(one.error))
    ]
    return "\n".join(out)


class Post(NamedTuple):
    """A figure that somebody posted, and what NCCL estimates there, in GB/s of the bus."""

    row: dict[str, str]
    picked: str
    estimated: float

    @property
    def error(self) -> float:
        """Return the relative error."""
        return self.estimated / float(self.row["busbw_gbytes_per_s"]) - 1


def posted() -> list[Post]:
    """Return the posted figures with their estimates."""
    with open(POSTED, newline="", encoding="utf-8") as file:
        return [_post(row) for row in csv.DictReader(file)]


def _post(row: dict[str, str]) -> Post:
    machine = Machine(
        row["gpu"], nodes=int(row["nodes"]), ranks_per_node=int(row["ranks_per_node"]),
        nvlink_rate=float(row["nvlink_gbytes_per_s"]) * 1e9, nics_per_node=int(row["nics_per_node"]),
        nic_rate=float(row["nic_gbits_per_s"]) / 8 * 1e9, cpu=row["cpu"], nvswitch=int(row["ranks_per_node"]) != 2,
    )  # fmt: skip
    settings = [f"NCCL_ALGO={row['algorithm']}"] if row["algorithm"] else []
    found = choose(machine, row["op"], int(row["size_bytes"]), read_overrides(settings))
    return Post(row, f"{found.algorithm} {found.protocol}", found.busbw / 1e9)


def posted_table(found: list[Post]) -> str:
    """Return the posted figures as a table, and below it the errors by collective and scale."""
    out = ["| source | what | op | size | measured, GB/s | estimated, GB/s | error |", "|---|---|---|---|---|---|---|"]
    for row, picked, estimated in found:
        forced = "" if row["algorithm"] else ", NCCL's pick"
        size = format_bytes(int(row["size_bytes"]), binary=True)
        out.append(f"| {row['source']} | {row['nodes']} x {row['ranks_per_node']}; {row['note']} | {row['op']} | {size} | "
                   f"{float(row['busbw_gbytes_per_s']):g} | {estimated:.4g} ({picked}{forced}) | "
                   f"{estimated / float(row['busbw_gbytes_per_s']) - 1:+.0%} |")  # fmt: skip
    out += ["", "| op | where | rows | median | worst |", "|---|---|---|---|---|"]
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        for where, test in (("one node", lambda n: n == 1), ("several nodes", lambda n: n > 1)):
            errors = [one.error for one in found if one.row["op"] == op and test(int(one.row["nodes"]))]
            if errors:
                m, w = summary(errors)
                out.append(f"| {op} | {where} | {len(errors)} | {m:.1%} | {w:.0%} |")
    m, w = summary([one.error for one in found])
    out.append(f"| **all** | all | {len(found)} | {m:.1%} | {w:.0%} |")
    return "\n".join(out)


CASE7 = 'preset = "dgx-h100-superpod"\nnics_per_node = 1\nnic_rate = "100 Gb/s"\n'


def printed(*arguments: str) -> str:
    """Return a command and what it prints, as a block; ``CLUSTER`` stands for the file of case 7."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one-nic.toml").write_text(CASE7, "utf-8")
        ended = subprocess.run(
            [sys.executable, "-m", "tokenwire", *arguments], capture_output=True, check=True, text=True, cwd=folder
        )
    lines = "\n".join(line.rstrip() for line in ended.stdout.rstrip().splitlines())
    return f"```\n$ tokenwire {' '.join(arguments)}\n{lines}\n```"


def parts() -> dict[str, str]:
    """Return the generated parts by name."""
    out = {
        "table": printed("collective", "all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "64", "--sizes", "8B-8GiB"),
        "case7": printed("collective", "all_reduce", "--topology", "one-nic.toml", "--ranks", "16", "--bytes", "1GiB"),
        "case7ring": printed("collective", "all_reduce", "--topology", "one-nic.toml", "--ranks", "16", "--bytes", "1GiB",
                             "--algorithm", "nccl", "--env", "NCCL_ALGO=Ring"),
        "case7nvls": printed("collective", "all_reduce", "--topology", "dgx-h100-superpod", "--ranks", "8", "--bytes", "8GiB"),
        "posted": posted_table(posted()),
    }  # fmt: skip
    rows = list(simai(DATA))
    return out | {"by-scale": by_scale(rows), "by-size": by_size(rows), "misses": misses(rows), "steps": steps(rows)}


def main() -> None:
    """Write the parts into the page and say which."""
    page = PAGE.read_text("utf-8")
    for name, text in parts().items():
        page, times = re.subn(
            rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", lambda m, text=text: m[1] + text + "\n" + m[2], page, flags=re.S
        )
        print(f"{name}: {'written' if times else 'has no place in the page'}")
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
