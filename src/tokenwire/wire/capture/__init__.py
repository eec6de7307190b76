"""Captures: packets of ours written as pcap, captures of others read into columns, flows and volumes.

Writing streams; reading is done in pieces, so that neither needs more memory for a larger file.
"""

from tokenwire.wire.capture.layout import PACKETS, TRANSPORTS
from tokenwire.wire.capture.reading import Notes, read_capture
from tokenwire.wire.capture.summary import Capture, summarize
from tokenwire.wire.capture.writing import link_type, records, write_capture

__all__ = [
    "PACKETS", "TRANSPORTS", "Capture", "Notes", "link_type", "read_capture", "records", "summarize", "write_capture"
]  # fmt: skip
