"""Units: parsing what users write and printing what they read. Nothing else.

Inside the code bytes and elements are ``int``, time is ``float`` seconds, rates are bytes/s, work is FLOPs.
Networks are printed in Gb/s, memory and NVLink in GB/s. 1 GB = 10^9 bytes, 1 GiB = 2^30 bytes, always.
A bare number where a unit is needed is an error.
"""

from __future__ import annotations

import math
import re

from tokenwire.errors import InputError

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_PREFIX = {**_DECIMAL, **_BINARY}
# Divisors, so that "500 ns" is exactly 5e-07.
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ns": 10**9, "ps": 10**12}
_NUMBER = r"\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
_QUANTITY = re.compile(_NUMBER + r"([^\s\d].*)?\s*$")

ITEM_BYTES: dict[str, float] = {
    "fp64": 8, "int64": 8, "fp32": 4, "tf32": 4, "int32": 4, "bf16": 2, "fp16": 2, "int16": 2,
    "fp8": 1, "int8": 1, "uint8": 1, "bool": 1, "fp4": 0.5, "int4": 0.5,
}  # fmt: skip
"""Bytes of one element by dtype, by the names used in every table."""


def _split(text: str, kind: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.match(text) if len(text) <= 64 else None
    if not match:
        raise InputError(f"{text[:64]!r}", rule=f"is not a {kind}", nearest=f"{example!r}")
    number = float(match.group(1).replace("_", "").replace(",", ""))
    unit = (match.group(2) or "").strip()
    if not math.isfinite(number):
        raise InputError(f"{text!r}", rule=f"is not a finite {kind}", nearest=f"{example!r}")
    if not unit:
        raise InputError(f"{text!r}", rule=f"a {kind} needs a unit", nearest=f"{example!r}")
    return number, unit


def parse_bytes(text: str | int) -> int:
    """Return bytes from ``"64 MiB"``, ``"25 MB"``, ``"100 B"``; integers pass as they are.

    >>> parse_bytes("64 MiB"), parse_bytes("1.5kB"), parse_bytes("8 b"), parse_bytes("256MiB")
    (67108864, 1500, 1, 268435456)
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    number, unit = _split(str(text), "size", "64 MiB")
    prefix, base = unit[:-1], unit[-1:]
    if prefix not in _PREFIX or base not in ("B", "b"):
        raise InputError(f"{text!r}", rule="unknown unit of size", nearest="B, kB, MB, GB, KiB, MiB, GiB")
    value = number * _PREFIX[prefix] / (8 if base == "b" else 1)
    if value != round(value):
        raise InputError(f"{text!r}", rule="is not a whole number of bytes", nearest=f"{round(value)} B")
    return round(value)


def parse_memory(text: str | float) -> int:
    """Return the bytes of a memory as tools print it: rounded down to a whole byte, a bare number is bytes.

    >>> parse_memory("31.74GiB"), parse_memory("34,080,563,200"), parse_memory(80 * 2**30) // 2**30
    (34080565493, 34080563200, 80)
    """
    bare = re.fullmatch(_NUMBER, str(text)) if len(str(text)) <= 64 else None
    number, unit = _split(f"{text} B" if bare else str(text), "size", "31.74 GiB")
    if unit[:-1] not in _PREFIX or unit[-1:] != "B":
        raise InputError(f"{text!r}", rule="unknown unit of memory", nearest="B, kB, MB, GB, KiB, MiB, GiB")
    return math.floor(number * _PREFIX[unit[:-1]])


def parse_rate(text: str) -> float:
    """Return bytes/s from ``"400 Gb/s"``, ``"50 GiB/s"``, ``"100Gbps"``.

    >>> parse_rate("400 Gb/s"), parse_rate("50 GiB/s"), parse_rate("100 Gbps")
    (50000000000.0, 53687091200.0, 12500000000.0)
    """
    number, unit = _split(str(text), "rate", "400 Gb/s")
    unit = unit.replace("bps", "b/s").replace("bit/s", "b/s")
    prefix, base = unit[:-3], unit[-3:]
    if prefix not in _PREFIX or base not in ("B/s", "b/s"):
        raise InputError(f"{text!r}", rule="unknown unit of rate", nearest="b/s, Mb/s, Gb/s, GB/s, GiB/s")
    return number * _PREFIX[prefix] / (8 if base == "b/s" else 1)


def parse_seconds(text: str) -> float:
    """Return seconds from ``"3 us"``, ``"500 ns"``, ``"1.2 ms"``.

    >>> parse_seconds("3 us"), parse_seconds("500ns")
    (3e-06, 5e-07)
    """
    number, unit = _split(str(text), "time", "3 us")
    if unit not in _PER_SECOND:
        raise InputError(f"{text!r}", rule="unknown unit of time", nearest="s, ms, us, ns")
    return number / _PER_SECOND[unit]


def parse_flops(text: str) -> float:
    """Return FLOP/s from ``"989 TFLOP/s"`` (also ``TFLOPS``, ``TFLOPs``).

    >>> parse_flops("989 TFLOP/s")
    989000000000000.0
    """
    number, unit = _split(str(text), "compute rate", "989 TFLOP/s")
    match = re.fullmatch(r"([kMGTPE]?)FLOP(?:/s|S|s)", unit)
    if not match:
        raise InputError(f"{text!r}", rule="unknown unit of compute rate", nearest="TFLOP/s")
    return number * _DECIMAL[match.group(1)]


def parse_share(text: str, below: float = 1.0, *, zero: bool = False) -> float:
    """Return the share of a whole, above 0 (or from it on: ``zero``) and ``below`` 1 (or what is said), from ``"5%"`` or ``"0.05"``.

    >>> parse_share("5%"), parse_share("0.25"), parse_share("150%", below=100), parse_share("0%", zero=True)
    (0.05, 0.25, 1.5, 0.0)
    """
    match = re.fullmatch(_NUMBER + r"(%?)\s*", text) if len(text) <= 64 else None
    value = float(match.group(1).replace("_", "").replace(",", "")) / (100 if match.group(2) else 1) if match else math.nan
    if not 0 <= value < below or (value == 0 and not zero):
        least = "of at least" if zero else "above"
        raise InputError(f"{text[:64]!r}", rule=f"must be a share {least} 0 and below {below:,g}", nearest="5%")
    return value


def _scaled(value: float, steps: dict[str, int], unit: str) -> str:
    if not math.isfinite(value):
        raise InputError(f"a figure of {value} {unit}", rule="a value that was given is too large or too small to reckon with")
    magnitude = abs(value)
    prefix = ""
    for name, size in steps.items():
        # 999.6 prints as 1.00 k, never as 1000.
        if magnitude >= size * 0.9995 or name == "":
            prefix = name
    scaled = value / steps[prefix]
    if scaled == round(scaled) and abs(scaled) < 10_000:
        return f"{round(scaled):,} {prefix}{unit}"
    digits = max(0, 2 - math.floor(math.log10(abs(scaled)))) if scaled else 0
    return f"{scaled:,.{digits}f} {prefix}{unit}"


_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}


def format_bytes(value: float, *, binary: bool = False) -> str:
    """Return bytes as people read them, in powers of 1000 or (``binary``) of 1024.

    >>> format_bytes(67108864), format_bytes(67108864, binary=True), format_bytes(512)
    ('67.1 MB', '64 MiB', '512 B')
    """
    return _scaled(value, {"": 1, **_BINARY} if binary else _SI, "B")


def unit_of_bytes(largest: float) -> tuple[float, str]:
    """Return the unit in which a number of bytes is between 1 and 1,000 or above, for an axis or a column, with its bytes.

    >>> unit_of_bytes(26_700_000)
    (1000000.0, 'MB')
    """
    return next(((float(scale), f"{prefix}B") for prefix, scale in reversed(_SI.items()) if largest >= scale), (1.0, "B"))


def format_rate(value: float) -> str:
    """Return a network rate (bytes/s in) in bits a second.

    >>> format_rate(50e9), format_rate(1.25e6)
    ('400 Gb/s', '10 Mb/s')
    """
    return _scaled(value * 8, _SI, "b/s")


def format_memory_rate(value: float) -> str:
    """Return a memory or NVLink rate (bytes/s in) in bytes a second.

    >>> format_memory_rate(450e9)
    '450 GB/s'
    """
    return _scaled(value, _SI, "B/s")


def format_seconds(value: float) -> str:
    """Return a time in the unit that reads best.

    >>> format_seconds(0.00325), format_seconds(12.5), format_seconds(0), format_seconds(5e-7)
    ('3.25 ms', '12.5 s', '0 s', '500 ns')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} s"
    steps = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
    unit, size = next((step for step in steps if abs(value) >= step[1] * 0.9995), ("ns", 1e-9))
    return _scaled(value / size, {"": 1}, unit)


def format_count(value: float) -> str:
    """Return an exact count with thousands separators.

    >>> format_count(8030261248)
    '8,030,261,248'
    """
    return f"{value:,}" if isinstance(value, int) or value != round(value) else f"{round(value):,}"


def format_quantity(value: float, unit: str) -> str:
    """Return ``value`` with ``unit``: ``B``, ``B/s`` (network), ``GB/s`` (memory), ``s``, ``FLOP``, ``%``, or a word.

    >>> format_quantity(50e9, "B/s"), format_quantity(0.25, "%"), format_quantity(3, "packets"), format_quantity(1, "packets")
    ('400 Gb/s', '25 %', '3 packets', '1 packet')
    """
    if value == math.inf:
        return "unlimited"
    if unit == "B":
        return format_bytes(value)
    if unit == "B/s":
        return format_rate(value)
    if unit == "GB/s":
        return format_memory_rate(value)
    if unit == "s":
        return format_seconds(value)
    if unit in ("FLOP", "FLOP/s"):
        return _scaled(value, _SI, unit)
    if unit == "%":
        return f"{value * 100:.3g} %"
    number = format_count(value) if value == round(value) else f"{value:,.4g}"
    # One of them is a packet, not packets.
    unit = unit.removesuffix("s") if value == 1 and unit.isalpha() else unit
    return number if unit in ("", "1") else f"{number} {unit}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "document"), counted(1000, "document")
    ('1 document', '1,000 documents')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def element_bytes(elements: int, dtype: str) -> int:
    """Return the bytes of ``elements`` of ``dtype`` (4-bit types rounded up to a byte).

    >>> element_bytes(3, "bf16"), element_bytes(3, "int4")
    (6, 2)
    """
    return math.ceil(elements * ITEM_BYTES[dtype])
