"""A user's own topology as a table of links: edge lists (CSV) and GraphML, checked line by line.

An edge list has the columns ``src, dst, rate`` and may have ``latency``, ``count`` (parallel links), ``one_way`` (true, false),
``src_kind, dst_kind``. GraphML says the same by data of its edges (``rate``, or ``bandwidth``; ``latency``, ``count``) and nodes
(``kind``); edges of a directed graph go one way. Rates and latencies are written with their units; rates are of one direction.

The kind of a device is told by ``kind``, or else by the last of these words in its name: gpu, nic (hca, mlx5), nvswitch, pcie,
cpu, leaf (tor), spine (agg), core, switch (all else).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tokenwire.errors import InputError, closest
from tokenwire.fabric.safe_xml import Element, read_xml
from tokenwire.units import parse_rate, parse_seconds

KINDS = ("gpu", "nic", "nvswitch", "pcie", "cpu", "leaf", "spine", "core", "switch")
_SYNONYMS = {"hca": "nic", "mlx5": "nic", "tor": "leaf", "agg": "spine"}
_WORD = re.compile("|".join(["nvswitch", *[k for k in KINDS if k != "nvswitch"], *_SYNONYMS]))
COLUMNS = ("src", "dst", "rate", "latency", "count", "one_way", "src_kind", "dst_kind")
MOST_LINKS, MOST_COUNT = 4_000_000, 4096
DEFAULT_LATENCY = 5e-7
"""Seconds of a link whose latency is not told."""


@dataclass(frozen=True)
class Link:
    """One line: devices by name, bytes/s of one direction, s, parallel links, whether it goes one way only; where it stands."""

    src: str
    dst: str
    rate: float
    latency: float
    count: int
    one_way: bool
    place: str


def kind_of(name: str) -> str:
    """Return the kind that a device's name tells.

    >>> [kind_of(name) for name in ("gpu12", "h3-mlx5_0", "node0/nvswitch1", "tor-7", "x9")]
    ['gpu', 'nic', 'nvswitch', 'leaf', 'switch']
    """
    found = _WORD.findall(name.lower())
    return _SYNONYMS.get(found[-1], found[-1]) if found else "switch"


def read_links(data: bytes, path: str, where: str) -> tuple[list[Link], dict[str, str]]:
    """Return the links and the kind of each device of a file. Raises ``InputError`` with the line that is wrong."""
    kinds: dict[str, str] = {}
    found = _graphml(data, where, kinds) if path.lower().endswith(".graphml") else _edge_list(data, where, kinds)
    links: list[Link] = []
    seen: dict[tuple[str, str], str] = {}
    total = 0
    for link in found:
        for pair in ((link.src, link.dst),) if link.one_way else ((link.src, link.dst), (link.dst, link.src)):
            if pair in seen:
                raise InputError(f"link {pair[0]} to {pair[1]}"[:100], where=f"{where}, {link.place}",
                                 rule=f"is there twice (first {seen[pair]})", nearest="count = 2 for parallel links")  # fmt: skip
            seen[pair] = link.place
        total += link.count
        if total > MOST_LINKS:
            raise InputError(where, rule=f"has more than {MOST_LINKS:,} links")
        links.append(link)
    if not links:
        raise InputError(where, rule="has no links", nearest="a line such as gpu0,leaf0,400 Gb/s")
    for link in links:
        for name in (link.src, link.dst):
            kinds.setdefault(name, kind_of(name))
    return links, kinds


def _checked(values: Mapping[str, str], place: str, where: str) -> Link:
    at = f"{where}, {place}"
    src, dst = (values.get(key, "").strip() for key in ("src", "dst"))
    if not src or not dst:
        raise InputError("a link without both ends", where=at, rule="src and dst must be names")
    if src == dst:
        raise InputError(f"link {src} to itself"[:80], where=at, rule="must join two devices")
    try:
        rate = parse_rate(values.get("rate", "").strip())
        latency = parse_seconds(values["latency"].strip()) if values.get("latency", "").strip() else DEFAULT_LATENCY
    except InputError as error:
        raise InputError(f"link {src} to {dst}: {error.what}"[:120], where=at, rule=error.rule, nearest=error.nearest) from None
    if rate <= 0 or latency < 0:
        wrong = f"rate {values['rate']}" if rate <= 0 else f"latency {values['latency']}"
        raise InputError(f"link {src} to {dst}: {wrong}"[:120], where=at,
                         rule="must be above zero" if rate <= 0 else "must not be negative", nearest="400 Gb/s" if rate <= 0 else "500 ns")  # fmt: skip
    count = values.get("count", "").strip() or "1"
    if not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= MOST_COUNT):
        raise InputError(f"count = {count}"[:80], where=at, rule=f"must be a whole number, 1 to {MOST_COUNT:,}", nearest="1")
    one_way = values.get("one_way", "").strip().lower() or "false"
    if one_way not in ("true", "false"):
        raise InputError(f"one_way = {one_way}"[:80], where=at, rule="must be true or false", nearest="false")
    return Link(src, dst, rate, latency, int(count), one_way == "true", place)


def _kind(kinds: dict[str, str], name: str, kind: str, at: str) -> None:
    kind = _SYNONYMS.get(kind.strip().lower(), kind.strip().lower())
    if not kind:
        return
    if kind not in KINDS:
        raise InputError(f"kind = {kind}"[:80], where=at, rule=f"must be one of {', '.join(KINDS)}", nearest=closest(kind, KINDS))
    if kinds.setdefault(name, kind) != kind:
        raise InputError(f"{name} is a {kind}"[:80], where=at, rule=f"it was a {kinds[name]} before: two devices of one name?")


def _edge_list(data: bytes, where: str, kinds: dict[str, str]) -> Iterator[Link]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(where, rule=f"is not UTF-8 (offset {error.start:,})") from None
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(lines, [])]
        for name in header:
            if name not in COLUMNS:
                raise InputError(f"column {name[:40]!r}", where=where, rule=f"known are {', '.join(COLUMNS)}",
                                 nearest=closest(name[:40], COLUMNS))  # fmt: skip
        if len(set(header)) < len(header):
            raise InputError(where, rule="names a column twice")
        for name in COLUMNS[:3]:
            if name not in header:
                raise InputError(f"column {name}", where=where, rule="is not there", nearest="src,dst,rate")
        for row in lines:
            if not row:
                continue
            place = f"line {lines.line_num:,}"
            if len(row) != len(header):
                raise InputError(f"{len(row)} fields", where=f"{where}, {place}", rule=f"there are {len(header)} columns")
            values = dict(zip(header, row, strict=True))
            link = _checked(values, place, where)
            for end in ("src", "dst"):
                _kind(kinds, getattr(link, end), values.get(f"{end}_kind", ""), f"{where}, {place}")
            yield link
    except csv.Error as error:
        raise InputError(where, rule=f"is not CSV (line {lines.line_num:,}: {error})") from None


def _graphml(data: bytes, where: str, kinds: dict[str, str]) -> Iterator[Link]:
    root = read_xml(data, where)
    graphs = [child for child in root.children if child.name == "graph"]
    if root.name != "graphml" or len(graphs) != 1:
        raise InputError(where, rule="is not GraphML with one graph", nearest="<graphml><graph>...</graph></graphml>")
    keys = {child.attributes.get("id", ""): child.attributes.get("attr.name", child.attributes.get("id", ""))
            for child in root.children if child.name == "key"}  # fmt: skip
    graph, names = graphs[0], set()
    directed = graph.attributes.get("edgedefault", "undirected") == "directed"
    for node in _of(graph.children, "node"):
        name = node.attributes.get("id", "")
        if not name or name in names:
            raise InputError(f"node {name!r}"[:80], where=f"{where}, line {node.line:,}",
                             rule="is there twice" if name else "has no id")  # fmt: skip
        names.add(name)
        _kind(kinds, name, _data(node, keys).get("kind", ""), f"{where}, line {node.line:,}")
    for edge in _of(graph.children, "edge"):
        place = f"line {edge.line:,}"
        ends = {"src": edge.attributes.get("source", ""), "dst": edge.attributes.get("target", "")}
        for name in ends.values():
            if name not in names:
                raise InputError(f"a link to {name!r}"[:100], where=f"{where}, {place}", rule="which is no node of the graph",
                                 nearest=closest(name[:80], sorted(names)[:10_000]))  # fmt: skip
        values = _data(edge, keys)
        values.setdefault("rate", values.pop("bandwidth", ""))
        known = edge.attributes.get("directed", str(directed).lower()) == "true"
        yield _checked({**values, **ends, "one_way": str(known).lower()}, place, where)


def _of(children: Iterable[Element], name: str) -> Iterator[Element]:
    return (child for child in children if child.name == name)


def _data(element: Element, keys: Mapping[str, str]) -> dict[str, str]:
    return {keys.get(one.attributes.get("key", ""), one.attributes.get("key", "")): one.text.strip()
            for one in _of(element.children, "data")}  # fmt: skip
