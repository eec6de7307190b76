"""What all tests share: hypothesis profiles, skips with a reason for what this machine lacks, the shared data."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# A fault of the program itself is a line to a user; to a test it is the traceback.
os.environ["TOKENWIRE_TRACEBACK"] = "1"

settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@cache
def _missing(mark: str) -> str:
    """Return why tests with this mark cannot run here, or an empty string."""
    if mark == "torch" and find_spec("torch") is None:
        return "torch is not installed (extra `measure`)"
    if mark == "tshark" and shutil.which("tshark") is None:
        return "tshark is not on PATH"
    if mark == "network":
        return _no_namespaces()
    return ""


def _no_namespaces() -> str:
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip (iproute2) is not on PATH"
    name = f"tokenwire-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces here ({made.stderr.strip()})"
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in ("torch", "tshark", "network"):
            if item.get_closest_marker(mark) is not None and (reason := _missing(mark)):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared reference data (``TOKENWIRE_SHARED``, or ``shared`` beside the checkout)."""
    folder = Path(os.environ.get("TOKENWIRE_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip("the shared reference data is not here (TOKENWIRE_SHARED names its folder)")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return ROOT
