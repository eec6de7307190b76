"""Jobs beside each other in time: by hand, and what must hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.flows.test_traffic import call, plan, said
from tokenwire.cli import app
from tokenwire.fabric import ClusterConfig, Fabric, build
from tokenwire.flows import traffic
from tokenwire.flows.jobs import Jobs, jobs, placed
from tokenwire.flows.mix import mixed

NARROW = {"preset": "fat-tree", "nodes": 8, "oversubscription": 8.0, "routing": "static", "link_latency": "0 s", "domain_latency": "0 s"}


def shared(placement: str, size: int = 24_000_000, **fields: object) -> Jobs:
    """Return two equal jobs of 3 nodes; data parallel groups of 3, one GPU of each node."""
    rows = said(*[call(stage, "all_reduce", "dp", 3, size) for stage in (0, 1)])
    fabric = build(ClusterConfig.model_validate({**NARROW, **fields}))
    return jobs(["a", "b"], [traffic(rows, plan(), fabric, place=place) for place in placed([24, 24], 8, placement)])


def test_packed_jobs_share_nothing() -> None:
    # 4 nodes a leaf: job a has nodes 0 to 2 at leaf 0. Only b crosses spines.
    for run in mixed(shared("packed"), [0.0, 0.0], shared("packed").fabric):
        assert run.interference == pytest.approx(1.0)


def test_interleaved_jobs_halve_each_other() -> None:
    # Both cross the same few uplinks, alike: each takes twice as long as alone, together from the same start.
    found = shared("interleaved")
    a, b = mixed(found, [0.0, 0.0], found.fabric)
    crossing = [r.interference for r in (a, b)]
    assert max(crossing) > 1.2
    # When one starts after the other has ended, nobody waits.
    a, b = mixed(found, [0.0, a.alone_seconds + 1e-6], found.fabric)
    assert [a.interference, b.interference] == pytest.approx([1.0, 1.0])
    assert b.start + b.seconds == pytest.approx(a.alone_seconds + 1e-6 + b.alone_seconds)


def test_one_link_by_hand() -> None:
    # Two nodes at each of two leaves, one uplink of 50 GB/s: job a is nodes 0 and 2, b nodes 1 and 3, each sends S = 100 MB from one to
    # the other of its nodes, both ways. Alone 2 ms. From the same start 4 ms each. b 1 ms later: a alone for 1 ms (half done), then
    # both at half rate: a ends at 1 + 2 = 3 ms, b has half left then and ends at 4 ms: 3 ms each, × 1.5.
    rows = said(call(0, "all_to_all", "dp", 3, 1))
    fabric = build(ClusterConfig.model_validate({"preset": "fat-tree", "nodes": 4, "gpus_per_node": 1, "nics_per_node": 1, "nodes_per_unit": 2,
                                                 "oversubscription": 2.0, "link_latency": "0 s", "routing": "static"}))  # fmt: skip
    found = _by_pairs(fabric, rows)
    for start, wanted in ((0.0, (4e-3, 4e-3)), (1e-3, (3e-3, 3e-3)), (2e-3, (2e-3, 2e-3))):
        runs = mixed(found, [0.0, start], fabric)
        assert tuple(run.seconds for run in runs) == pytest.approx(wanted)
        assert [run.alone_seconds for run in runs] == pytest.approx([2e-3, 2e-3])


def _by_pairs(fabric: Fabric, rows: object) -> Jobs:
    import numpy as np

    from tokenwire.flows.patterns import Pairs, Pattern

    one = traffic(rows, plan(), build(ClusterConfig(preset="fat-tree", nodes=3)))  # type: ignore[arg-type]
    out = []
    for src, dst in ((0, 2), (1, 3)):
        pairs = Pairs(np.array([src, dst]), np.array([dst, src]), np.array([0, 0]))
        out.append(replace(one, kinds=(Pattern(0, "send", "pp", "forward", "pp", pairs, np.array([100_000_000])),), fabric=fabric))
    return Jobs(("a", "b"), tuple(out))


@given(st.floats(0, 2e-3), st.sampled_from(["packed", "interleaved"]), st.sampled_from(["static", "ecmp", "spray"]))
@settings(max_examples=15, deadline=None)
def test_nobody_is_faster_among_others(start: float, placement: str, routing: str) -> None:
    # One kind a job: with max-min sharing others only take. Bytes are those of the jobs alone.
    found = shared(placement, routing=routing)
    for run in mixed(found, [0.0, start], found.fabric):
        assert run.interference >= 1 - 1e-9
        assert run.kinds[0].bytes.sum() > 0


def test_kinds_come_one_after_the_other() -> None:
    late = [call(stage, "all_reduce", "dp", 3, 10**6)._replace(phase="gradients") for stage in (0, 1)]
    rows = said(*late, *(call(stage, "all_gather", "tp", 4, 10**6) for stage in (0, 1)))
    fabric = build(ClusterConfig(preset="fat-tree", nodes=3))
    (run,) = mixed(jobs(["a"], [traffic(rows, plan(), fabric)]), [1.0], fabric)
    assert [kind.group for kind in run.kinds] == ["tp", "dp"]  # forward before gradients
    began, ended = run.together
    assert began[0] == 1.0
    assert began[1] == pytest.approx(ended[0])
    assert run.interference == pytest.approx(1.0)


def invoke(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["flows", *arguments])
    said_ = str(ended.exception) if ended.exception and not isinstance(ended.exception, SystemExit) else ended.stderr
    return ended.exit_code, ended.stdout, said_


def test_the_verb(tmp_path: Path) -> None:
    other = tmp_path / "b.toml"
    other.write_text("[cluster]\nnodes = 2\ngpus_per_node = 4\n")
    code, out, _ = invoke("--job", str(other), "--placement", "interleaved", "--start", "1=5 us", "--json")
    assert code == 0
    facts = json.loads(out)
    assert [job["start_seconds"] for job in facts["jobs"]] == [0, 5e-6]
    for job in facts["jobs"]:
        assert job["interference"] >= 1 - 1e-9
        assert job["end_seconds"] == pytest.approx(job["start_seconds"] + job["seconds"])
        assert sum(kind["seconds"] for kind in job["kinds"]) == pytest.approx(job["seconds"], rel=1e-6)
    assert facts["makespan_seconds"] == max(job["end_seconds"] for job in facts["jobs"])
    code, out, _ = invoke("--job", str(other), "--csv", "-")
    assert out.splitlines()[0] == "job,op,group,phase,start_seconds,seconds,alone_seconds,interference"
    code, out, _ = invoke("--job", str(other))
    assert "slower" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--start", "1=5 ms"], "--job"), (["--job", "none.toml"], "no such file")],
)
def test_wrong_input(arguments: list[str], word: str) -> None:
    code, out, err = invoke(*arguments)
    assert code == 1
    assert word in err
    assert out == ""
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("start", "word"), [("2=5 ms", "jobs 0 to 1"), ("x", "JOB=TIME"), ("1=-5 ms", "zero or more"), ("1=5", "unit")])
def test_wrong_starts(tmp_path: Path, start: str, word: str) -> None:
    other = tmp_path / "b.toml"
    other.write_text("[cluster]\nnodes = 2\ngpus_per_node = 4\n")
    code, _, err = invoke("--job", str(other), "--start", start)
    assert code == 1
    assert word in err


