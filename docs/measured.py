"""Write the generated parts of docs/measured.md: every mode really run at 2, 3, 4 and 8 ranks, predicted beside measured.

    python docs/measured.py [--ranks 2 3 4 8] [--modes NAME ...] [--network auto]

A part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. What a plan refuses is a row that says why; what was missed is in
its row. Rows of cases that are not asked for stay as they are. Needs torch, and for frames root, iproute2 and tcpdump. Some twenty minutes on two cores.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwire.errors import InputError
from tokenwire.journey import Journey
from tokenwire.measure.compare import Measurement, Settings, measure
from tokenwire.measure.hosts import NetworkConfig
from tokenwire.measure.training import MODES, Mode, plan_of
from tokenwire.model import ModelConfig, architecture
from tokenwire.plan.training import TrainingConfig

PAGE = Path(__file__).resolve().parent / "measured.md"
RANKS = (2, 3, 4, 8)
SEQUENCE, MICRO_BATCH, ROWS_A_RANK = 48, 2, 4
"""A sequence that twice 2, 3, 4 and 8 ranks divide, sequences of a micro-batch, and of a step by rank."""
STEPS = 4


@dataclass(frozen=True)
class Case:
    """A mode at a number of ranks: measured, or refused for a reason."""

    mode: Mode
    ranks: int
    found: Measurement | None
    why: str = ""


def model(layers: int, vocabulary: int) -> Any:
    """Return a small decoder whose heads 2, 3, 4 and 8 ranks divide."""
    return architecture(ModelConfig(
        name="small", hidden_size=48, layers=layers, heads=24, feed_forward=96, gated=True, positions="rotary", norm="rms", bias=False,
        tied_embeddings=False, vocabulary_size=vocabulary,
    ))  # fmt: skip


def layers_of(mode: Mode, ranks: int) -> int:
    """Return as many layers as stages, and no fewer than two."""
    pp = mode.values.get("pp", 1)
    return max(2, int(ranks if pp == "N" else pp) * int(mode.values.get("vpp", 1)))


def run(mode: Mode, ranks: int, ids: Any, network: str) -> Case:
    """Return one case, run for real."""
    arch = model(layers_of(mode, ranks), 256)
    try:
        training = TrainingConfig(sequence_length=SEQUENCE, global_batch=ROWS_A_RANK * ranks, micro_batch=MICRO_BATCH)
        plan = plan_of(mode, training, arch, ranks)
        settings = Settings(NetworkConfig(ranks, network), STEPS, 600)  # type: ignore[arg-type]
        return Case(mode, ranks, measure(arch, plan, ids, settings, mode))
    except InputError as error:
        return Case(mode, ranks, None, str(error))


TABLE = ("mode", "ranks", "payload predicted, B", "worst rank off", "messages predicted", "off", "pairs and steps that differ in bytes",
         "frames with data predicted", "seen", "their bytes off", "acknowledgements seen", "at one a message", "all frames off")  # fmt: skip
COUNTS = ("mode", "ranks", "rank", "packets: interface", "sockets", "capture", "bytes: interface", "sockets", "options", "capture", "the store's")
REFUSED = "not run: "
COUNTED = 4
"""Ranks of the runs whose three counts are shown."""

Rows = dict[tuple[str, ...], list[str]]


def table_row(case: Case) -> list[str]:
    """Return the cells of a case in the table of payload, messages and frames."""
    m, begin = case.found, [case.mode.name, str(case.ranks)]
    if m is None:
        return [*begin, REFUSED + case.why, *[""] * (len(TABLE) - 3)]
    v = m.verdict()
    framed = [""] * 6
    if v["data_frames_off"] is not None:
        framed = [f"{m.total('data_frames_predicted'):,}", f"{m.total('data_frames_captured'):,}", f"{v['data_frame_bytes_off']:.3%}",
                  f"{v['acks']['captured']:,}", f"{v['acks']['expected']:,}", f"{v['frame_bytes_off']:.2%}"]  # fmt: skip
    worst = v["payload_worst_rank"] if v["payload_worst_rank"] is not None else v["stream_worst_rank"]
    return [*begin, f"{m.total('payload_predicted'):,}", f"{worst:.4%}", f"{m.total('messages_predicted'):,}",
            "" if v["messages_missed"] is None else f"{v['messages_missed']:,}", f"{v['pairs_different']} of {v['pairs']}", *framed]  # fmt: skip


def count_rows(case: Case) -> Iterator[list[str]]:
    """Yield what each rank of a case sent, counted three ways."""
    for row in case.found.three_ways if case.found and case.ranks == COUNTED else ():
        cells = [row[f"packets_{way}"] for way in ("interface", "sockets", "capture")]
        cells += [row["bytes_interface"], row["bytes_sockets"], row["option_bytes"], row["bytes_capture"], row["store_bytes"]]
        yield [case.mode.name, str(case.ranks), str(row["rank"]), *("" if x is None else f"{x:,}" for x in cells)]


def kept(page: str, name: str, key: int) -> Rows:
    """Return the rows of a part of the page by their first ``key`` cells."""
    part = re.search(rf"<!-- begin {name} -->(.*?)<!-- end {name} -->", page, flags=re.DOTALL)
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in (part[1] if part else "").strip().splitlines()[2:]]
    return {tuple(line[:key]): line for line in lines}


def drawn(columns: tuple[str, ...], rows: Rows) -> Iterator[str]:
    """Yield rows as Markdown, in the order of ranks and modes."""
    yield "| " + " | ".join(columns) + " |"
    yield "|---|" + "--:|" * (len(columns) - 1)
    order = list(MODES)
    for key in sorted(rows, key=lambda one: (int(one[1]), order.index(one[0]), *map(int, one[2:]))):
        yield "| " + " | ".join(rows[key]) + " |"


def summary(rows: Rows, counts: Rows) -> Iterator[str]:
    """Yield in a few lines what the tables come to."""
    run = [row for row in rows.values() if not row[2].startswith(REFUSED)]
    exact = sum(float(row[3].rstrip("%")) == 0 and row[5] in ("", "0") and row[6].startswith("0 of") for row in run)
    yield f"{len(run)} runs of {len({row[0] for row in run})} modes; {len(rows) - len(run)} plans refused."
    yield ""
    yield f"- payload and messages exact, every pair of ranks and step: {exact} of {len(run)} runs"
    for column, what in ((9, "frames with data, in bytes"), (12, "all frames, with one acknowledgement a message, in bytes")):
        off = [float(row[column].rstrip("%")) for row in run if row[column]]
        if off:
            yield f"- {what}: {sum(one <= 1 for one in off)} of {len(off)} within 1 %; worst {max(off):.3g} %"
    numbers = [[int(cell.replace(",", "") or 0) for cell in row[3:]] for row in counts.values()]
    apart = [(max(row[:3]) - min(row[:3]), max(way) - min(way)) for row in numbers for way in [(row[3], row[4] + row[5], row[6])]]
    if apart:
        yield (f"- interface, sockets and capture of {len(apart)} ranks: at most {max(one[0] for one in apart)} packets and "
               f"{max(one[1] for one in apart)} B apart")  # fmt: skip


def written(page: str, name: str, lines: Iterator[str]) -> str:
    """Return the page with one part replaced."""
    part = f"<!-- begin {name} -->\n" + "\n".join(lines) + f"\n<!-- end {name} -->"
    found, times = re.subn(rf"<!-- begin {name} -->.*?<!-- end {name} -->", lambda _: part, page, flags=re.DOTALL)
    if not times:
        raise SystemExit(f"{PAGE.name} has no part {name}")
    return found


def main() -> None:
    """Run every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=tuple(MODES))
    parser.add_argument("--network", choices=("auto", "namespaces", "loopback"), default="auto")
    given = parser.parse_args()
    ids = Journey.read(None, overrides=["tokenizer.kind=bytes"], base="measured").encoding().ids
    page = PAGE.read_text()
    rows, counts = kept(page, "table", 2), kept(page, "counts", 3)
    for ranks in given.ranks:
        for name in given.modes:
            case = run(MODES[name], ranks, ids, given.network)
            print(name, ranks, f"{case.found.seconds:.0f} s" if case.found else case.why, file=sys.stderr, flush=True)
            rows[name, str(ranks)] = table_row(case)
            counts.update({tuple(row[:3]): row for row in count_rows(case)})
    for part, lines in (("summary", summary(rows, counts)), ("table", drawn(TABLE, rows)), ("counts", drawn(COUNTS, counts))):
        page = written(page, part, lines)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
