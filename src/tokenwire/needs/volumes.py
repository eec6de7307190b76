"""How many bytes a GPU sends in a step, by parallelism, inside its node and to other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenwire.figures import Figure
from tokenwire.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

MEDIA = {"nvlink": "NVLink", "network": "the network"}
"""The two ways between GPUs, as they are written in names of figures."""

AT_THE_END = {"embedding": "embedding", "position_embedding": "embedding", "mp": "norm", "world": "norm", "optimizer_instance": "norm"}
"""Groups whose calls end a step, whatever parallelism made them: tied embeddings are summed, gradient norm and checks agreed on."""
PARALLELISMS = {
    "dp": "data parallelism", "fsdp": "sharded data parallelism", "tp": "tensor parallelism",
    "sp": "sequence parallelism", "pp": "pipeline parallelism", "cp": "context parallelism", "ep": "expert parallelism",
    "embedding": "tied embedding", "norm": "gradient norm and checks",
}  # fmt: skip
"""What each short name of a parallelism says in full."""


@dataclass(frozen=True)
class Busiest:
    """The rank that sends most of one kind: ``parts`` are its bytes by operation and group, most first."""

    parallelism: str
    medium: str
    rank: int
    bytes: int
    parts: tuple[tuple[str, str, int], ...]


def by_medium(transfers: pl.DataFrame, gpus_per_node: int) -> pl.DataFrame:
    """Return the transfers with ``medium``: ``nvlink`` where both ends are in one node, else ``network``."""
    import polars as pl

    same = pl.col("src") // gpus_per_node == pl.col("dst") // gpus_per_node
    return transfers.with_columns(medium=pl.when(same).then(pl.lit("nvlink")).otherwise(pl.lit("network")))


def busiest(transfers: pl.DataFrame) -> list[Busiest]:
    """Return for each parallelism and medium the rank that sends most, largest first within a medium.

    ``transfers`` have ``src, bytes, op, group, parallelism, medium``; of equals the lowest rank. Sequence parallelism is a part of
    tensor parallelism, in its group; what ends a step is a kind of its own (``AT_THE_END``).
    """
    import polars as pl

    kind = pl.col("group").replace_strict(AT_THE_END, default=None, return_dtype=pl.String)
    transfers = transfers.with_columns(parallelism=pl.coalesce(kind, pl.col("parallelism").replace({"sp": "tp"})))
    kinds = ["medium", "parallelism"]
    totals = transfers.group_by([*kinds, "src"]).agg(pl.col("bytes").sum())
    most = totals.sort(["bytes", "src"], descending=[True, False]).group_by(kinds, maintain_order=True).first()
    parts = (
        transfers.join(most.select([*kinds, "src"]), on=[*kinds, "src"], how="semi")
        .group_by([*kinds, "op", "group"])
        .agg(pl.col("bytes").sum())
        .sort(["bytes", "op", "group"], descending=[True, False, False])
    )
    out = []
    for row in most.iter_rows(named=True):
        mine = parts.filter((pl.col("medium") == row["medium"]) & (pl.col("parallelism") == row["parallelism"]))
        named = tuple((op, group, size) for op, group, size in mine.select("op", "group", "bytes").iter_rows())
        out.append(Busiest(row["parallelism"], row["medium"], row["src"], row["bytes"], named))
    order = list(MEDIA)
    return sorted(out, key=lambda one: (order.index(one.medium), -one.bytes, one.parallelism))


def volume_figures(found: list[Busiest]) -> list[Figure]:
    """Return one figure for each parallelism and medium."""
    out = []
    for one in found:
        name = PARALLELISMS.get(one.parallelism, one.parallelism)
        parts = " + ".join(f"{op} on {group} {format_bytes(size)}" for op, group, size in one.parts[:4])
        rest = len(one.parts) - 4
        out.append(
            Figure(
                f"sent per GPU per step over {MEDIA[one.medium]}: {name}", one.bytes, "B",
                "max over GPUs of Σ calls · bytes sent per call", parts + (f" + {rest} more" if rest > 0 else ""),
                "tokenwire.flows, algorithm by algorithm; rings as NVIDIA/nccl-tests, doc/PERFORMANCE.md",
                f"rank {one.rank} sends most",
            )
        )  # fmt: skip
    return out
