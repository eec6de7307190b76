"""How fast packets are written and captures read, as ratios to scapy, dpkt and tshark in the same run.

    python benchmarks/wire.py [--packets 200000] [--large 10000000] [--repeat 3]

Every peer does the same work on the same file, and the fastest of its runs counts: RoCEv2 WRITE packets of 4,096 bytes
with their ICRC are written, a capture of them is read to flows (tshark: to the four fields that make flows; scapy and
dpkt: to the BTH of every packet; they read as many packets as take them some seconds). ``--large`` packets, kept to 96
bytes each, are read in a process of its own whose memory is measured. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tokenwire.wire import WireConfig
from tokenwire.wire.capture import summarize, write_capture
from tokenwire.wire.synthesis import messages_of_nic, synthesize

MTU, FEW = 4096, 3000
RATE = 50e9


def synthetic(count: int, snap: int = 2**18, content: bytes | None = None) -> object:
    """Return the records of ``count`` packets."""
    messages = messages_of_nic([0], [8], [count * MTU], nic=(0, 0), gpus_per_node=8, config=WireConfig())
    return synthesize(
        messages, WireConfig(), rate=RATE, nic=(0, 0), max_packets=count, snap_length=snap, content=content
    )


def drained(count: int, content: bytes | None = None) -> None:
    """Make packets and drop them."""
    for _ in synthetic(count, content=content):  # type: ignore[attr-defined]
        pass


def rate(work: Callable[[], object], packets: int, repeat: int) -> float:
    """Return packets a second of the fastest run."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return packets / best


def scapy_writes() -> None:
    """Make packets with scapy."""
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    body = bytes(MTU)
    for psn in range(FEW):
        bytes(
            Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50_000, dport=4791, chksum=0)
            / BTH(opcode=7, dqpn=256, psn=psn) / Raw(body)
        )  # fmt: skip


def scapy_reads(path: Path) -> None:
    """Read packets with scapy."""
    from scapy.contrib.roce import BTH
    from scapy.utils import PcapReader

    with PcapReader(str(path)) as reader:
        for _, packet in zip(range(FEW), reader, strict=False):
            assert packet[BTH].psn >= 0


def dpkt_reads(path: Path) -> None:
    """Read packets with dpkt, which leaves the BTH to us."""
    import dpkt

    with open(path, "rb") as file:
        for _, (_, data) in zip(range(10 * FEW), dpkt.pcap.Reader(file), strict=False):
            bth = bytes(dpkt.ethernet.Ethernet(data).data.data.data)[:12]
            assert int.from_bytes(bth[9:12], "big") >= 0


def tshark_reads(path: Path) -> None:
    """Read packets with tshark, as fields."""
    fields = ["frame.time_epoch", "ip.src", "ip.dst", "infiniband.bth.destqp", "infiniband.bth.psn"]
    asked = [part for field in fields for part in ("-e", field)]
    subprocess.run(
        ["tshark", "-r", str(path), "-T", "fields", *asked],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def installed(name: str) -> bool:
    """Return whether a peer is there."""
    import importlib.util

    return importlib.util.find_spec(name) is not None


MEMORY = """
import resource, sys, time
from tokenwire.wire.capture import summarize
start = time.perf_counter()
capture = summarize(sys.argv[1])
print(capture.packets, time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--packets", type=int, default=200_000)
    options.add_argument("--large", type=int, default=10_000_000)
    options.add_argument("--repeat", type=int, default=3)
    asked = options.parse_args()
    body = bytes(range(256)) * 4096
    drained(5000, body)  # compiled before anything is measured
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packets.pcap"
        write_capture(path, synthetic(asked.packets))  # type: ignore[arg-type]
        summarize(path)
        ours = {
            "written, payload of zeros": rate(lambda: drained(asked.packets), asked.packets, asked.repeat),
            "written, payload of bytes": rate(
                lambda: drained(asked.packets, body), asked.packets, asked.repeat
            ),
            "read to flows": rate(lambda: summarize(path), asked.packets, asked.repeat),
        }
        for what, value in ours.items():
            print(f"tokenwire  {what:28s} {value:12,.0f} packets/s")
        peers: list[tuple[str, str, str, float, float | None]] = []
        if installed("scapy"):
            made = rate(scapy_writes, FEW, asked.repeat)
            peers.append(("scapy", "written", "written, payload of zeros", made, 30))
            peers.append(("scapy", "written", "written, payload of bytes", made, 30))
            peers.append(
                ("scapy", "read", "read to flows", rate(lambda: scapy_reads(path), FEW, asked.repeat), 30)
            )
        if installed("dpkt"):
            peers.append(
                (
                    "dpkt",
                    "read",
                    "read to flows",
                    rate(lambda: dpkt_reads(path), 10 * FEW, asked.repeat),
                    None,
                )
            )
        if shutil.which("tshark"):
            seen = rate(lambda: tshark_reads(path), asked.packets, 1)
            peers.append(("tshark", "read", "read to flows", seen, 1))
        for name, did, what, value, wanted in peers:
            asked_for = f", wanted {wanted:g}" if wanted else ""
            print(
                f"{name:10s} {did:28s} {value:12,.0f} packets/s: {what} {ours[what] / value:,.0f} times as fast{asked_for}"
            )
        if asked.large:
            large = Path(folder) / "large.pcap"
            write_capture(large, synthetic(asked.large, snap=96))  # type: ignore[arg-type]
            out = subprocess.run(
                [sys.executable, "-c", MEMORY, str(large)], capture_output=True, text=True, check=True
            ).stdout.split()
            print(
                f"{int(out[0]):,} packets of 96 bytes read in {float(out[1]):.1f} s with {float(out[2]):.0f} MiB (limit 500 MB)"
            )


if __name__ == "__main__":
    main()
