"""Dropless routing: laws by hand, by enumeration and against simulation; draws conserve rows; the verb shows both."""

from __future__ import annotations

import json
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.running import run
from tests.step.models import llama, plan_of
from tokenwire.errors import InputError
from tokenwire.model.architecture import Experts
from tokenwire.step import operations
from tokenwire.step.routing import Router, Spread, draw, of_pair, of_plan, of_rank
from tokenwire.step.routing.laws import volume

DEEPSEEK = Router(256, 8, 8, 4)


def _enumerated(router: Router) -> list[tuple[int, ...]]:
    # Every choice of M groups, then of k experts in them; all equally likely.
    width = router.experts // router.groups
    return [
        chosen
        for groups in combinations(range(router.groups), router.group_topk)
        for chosen in combinations([g * width + i for g in groups for i in range(width)], router.active)
    ]


@pytest.mark.parametrize(
    "router", [Router(8, 2), Router(8, 3, 4, 2), Router(12, 3, 6, 2), Router(12, 4, 3, 2), Router(6, 6), Router(8, 2, 4, 1)]
)
def test_laws_agree_with_every_choice_there_is(router: Router) -> None:
    every = _enumerated(router)
    width = router.experts // router.groups
    for size in (s for s in range(1, router.experts + 1) if router.experts % s == 0 and (s % width == 0 or width % s == 0)):
        counts = np.array([sum(x < size for x in chosen) for chosen in every])
        assert router.mean(size) == pytest.approx(counts.mean())
        assert router.variance(size) == pytest.approx(counts.var(), abs=1e-12)
        assert router.reached(size) == pytest.approx((counts > 0).mean())
        assert router.confined(size) == pytest.approx((counts == router.active).mean())
        assert router.ends(size) == (counts.min(), counts.max())


def test_copies_by_hand() -> None:
    # Top-2 of 8 on 4 ranks, 2 nodes: 2 experts a rank, 4 a node. P(rank) = 1 - C(6,2)/C(8,2) = 13/28; P(node) = 1 - 6/28.
    spread = Spread(Router(8, 2), 4, 2)
    row, once, node = spread.a_row_an_expert, spread.a_row_a_rank, spread.a_row_a_node
    assert (row.own, row.nvlink, row.network) == pytest.approx((0.5, 0.5, 1.0))
    assert (once.own, once.nvlink, once.network) == pytest.approx((13 / 28, 13 / 28, 26 / 28))
    # Over the network once to the other node; there half of the goals are where it lands, half one NVLink hop on.
    assert (node.own, node.nvlink, node.network) == pytest.approx((13 / 28, 26 / 28, 22 / 28))
    # Both on the own rank: 1/28; both on the own node: C(4,2)/28 = 6/28.
    assert spread.farthest.own == pytest.approx(1 / 28)
    assert spread.farthest.nvlink == pytest.approx(5 / 28)
    assert spread.nodes_reached == pytest.approx(2 * 22 / 28)


@pytest.mark.parametrize(("nodes", "limit", "network"), [(2, 2, 4.0), (4, 4, 6.0), (8, 4, 7.0)])
def test_case_six_rows_over_the_network(nodes: int, limit: int, network: float) -> None:
    # Every node is as likely: 8 rows of which (N-1)/N leave the node, whatever the limit.
    spread = Spread(Router(256, 8, nodes, limit), 8 * nodes, nodes)
    assert spread.a_row_an_expert.network == pytest.approx(network)
    # A row a node: at most 4 nodes, and (N-1)/N of what reaches a node comes from another.
    assert spread.nodes_reached <= 4
    assert spread.a_row_a_node.network / spread.nodes_reached == pytest.approx((nodes - 1) / nodes)


def test_case_six_nodes_reached_by_hand() -> None:
    # 2 nodes of 128 experts: a node is missed with C(128,8)/C(256,8).
    missed = math.comb(128, 8) / math.comb(256, 8)
    assert Spread(Router(256, 8), 16, 2).nodes_reached == pytest.approx(2 * (1 - missed))
    # 4 of 8 nodes open, 128 experts: one of the 4 is missed with C(96,8)/C(128,8).
    missed = math.comb(96, 8) / math.comb(128, 8)
    assert Spread(DEEPSEEK, 64, 8).nodes_reached == pytest.approx(4 * (1 - missed))


def _simulated(router: Router, tokens: int, seed: int) -> np.ndarray:
    # The model of the laws, token by token, without its formulas: bool[tokens, E].
    random = np.random.default_rng(seed)
    width = router.experts // router.groups
    hit = np.zeros((tokens, router.experts), dtype=bool)
    for token in hit:
        groups = random.choice(router.groups, router.group_topk, replace=False)
        token[random.choice((groups[:, None] * width + np.arange(width)).reshape(-1), router.active, replace=False)] = True
    return hit


@pytest.mark.parametrize(("router", "nodes"), [(Router(256, 8), 2), (Router(256, 8, 4, 4), 4), (DEEPSEEK, 8), (DEEPSEEK, 2)])
def test_laws_agree_with_simulation(router: Router, nodes: int) -> None:
    tokens, spread = 4000, Spread(router, 8 * nodes, nodes)
    hit = _simulated(router, tokens, seed=7)
    on_rank = hit.reshape(tokens, spread.ranks, -1)
    on_node = hit.reshape(tokens, nodes, -1).any(axis=2)
    ranks, once = on_rank.sum(axis=2), on_rank.any(axis=2)
    # The sender is on rank 0. Five standard errors of each mean.
    for seen, expected in (
        (ranks[:, 0], spread.a_row_an_expert.own), (ranks[:, 1:8].sum(axis=1), spread.a_row_an_expert.nvlink),
        (ranks[:, 8:].sum(axis=1), spread.a_row_an_expert.network), (once[:, 0], spread.a_row_a_node.own),
        (once[:, 8:].sum(axis=1), spread.a_row_a_rank.network), (on_node[:, 1:].sum(axis=1), spread.a_row_a_node.network),
        (once[:, np.arange(spread.ranks) % 8 != 0].sum(axis=1), spread.a_row_a_node.nvlink),
        (~on_node[:, 1:].any(axis=1), 1 - spread.farthest.network),
    ):  # fmt: skip
        assert abs(seen.mean() - expected) <= 5 * max(float(seen.std()), 1e-2) / math.sqrt(tokens)


@pytest.mark.parametrize(("router", "nodes"), [(Router(64, 6), 2), (Router(32, 4, 4, 4), 4)])
def test_a_draw_agrees_with_the_law(router: Router, nodes: int) -> None:
    spread, n = Spread(router, 4 * nodes, nodes), 4000
    drawn, N = draw(spread, n, seed=3), n * 4 * nodes
    for name in ("a_row_an_expert", "a_row_a_rank", "a_row_a_node"):
        seen, law = getattr(drawn, name), getattr(spread, name)
        for way in ("own", "nvlink", "network"):
            # A token's copies lie in 0..R: standard deviation below sqrt(mean·R), six standard errors.
            limit = 6 * math.sqrt(getattr(law, way) * spread.ranks / N)
            assert abs(getattr(seen, way) - getattr(law, way)) < limit / 2


@given(
    shape=st.sampled_from([(8, 2, 1, 1, 4, 2), (16, 4, 4, 2, 8, 4), (12, 3, 6, 3, 6, 3), (8, 8, 1, 1, 4, 1), (16, 2, 8, 1, 4, 2)]),
    tokens=st.integers(1, 200), seed=st.integers(0, 2**32), skew=st.sampled_from([0.0, 0.5, 3.0]),
)  # fmt: skip
def test_draws_conserve(shape: tuple[int, ...], tokens: int, seed: int, skew: float) -> None:
    E, k, G, M, R, N = shape
    spread = Spread(Router(E, k, G, M), R, N)
    drawn = draw(spread, tokens, seed=seed, skew=skew)
    # Each rank sends k rows a token; each row arrives at one rank, at one expert; copies are all of them.
    assert (drawn.rows.sum(axis=1) == tokens * k).all()
    assert drawn.received.sum() == drawn.loads.sum() == R * tokens * k
    assert (drawn.loads.reshape(R, -1).sum(axis=1) == drawn.received).all()
    assert drawn.a_row_an_expert.total == pytest.approx(k)
    # A token is counted once where it has an expert: never more than its rows, on no more nodes than its groups are on.
    assert (drawn.once <= drawn.rows).all()
    assert (drawn.once <= tokens).all()
    assert drawn.a_row_a_rank.total <= min(k, R)
    assert drawn.nodes_reached <= min(N, M * max(1, N // G) if G > 1 else N, k)
    # Bounds that hold for any router, skewed or not.
    pair, rank = of_pair(spread, tokens), of_rank(spread, tokens)
    assert pair.least <= drawn.rows.min() <= drawn.rows.max() <= pair.most
    assert rank.least <= drawn.received.min() <= drawn.received.max() <= rank.most
    assert all(value >= 1 for value in drawn.imbalance.values())


def test_likely_bounds_hold_in_a_thousand_draws() -> None:
    # Doubt 1/100: 1,000 draws may break the bounds 10 times; Bernstein's inequality is not tight, so fewer.
    spread = Spread(Router(16, 2), 4)
    bounds = of_rank(spread, 50, doubt=1e-2)
    outside = 0
    for seed in range(1000):
        got = draw(spread, 50, seed=seed).received
        outside += bool(got.min() < bounds.likely_least or got.max() > bounds.likely_most)
    assert outside <= 10
    assert bounds.least < bounds.likely_least < bounds.mean < bounds.likely_most < bounds.most


def test_all_experts_chosen_leave_no_doubt() -> None:
    found = volume(Router(8, 8), 2, 100)
    assert (found.mean, found.deviation, found.likely_least, found.likely_most) == (200, 0, 200, 200)


def test_draws_are_seeded_and_skew_is_imbalance() -> None:
    spread = Spread(Router(64, 4), 8)
    first, again, other = draw(spread, 500, seed=1), draw(spread, 500, seed=1), draw(spread, 500, seed=2)
    assert (first.rows == again.rows).all()
    assert (first.rows != other.rows).any()
    assert draw(spread, 500, seed=1, skew=1.0).imbalance["rank"] > 1.2 > first.imbalance["rank"]


@pytest.mark.torch
def test_groups_are_chosen_as_megatron_chooses() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("megatron.core.transformer.moe.moe_utils")
    from tokenwire.step.routing.draw import _chosen

    router, tokens = Router(64, 4, 8, 2), 300
    ours = np.sort(_chosen(router, np.zeros(64, np.float32), tokens, np.random.default_rng(5)), axis=1)
    logits = np.random.default_rng(5).standard_normal((tokens, 64), dtype=np.float32)
    _, theirs = utils.group_limited_topk(torch.from_numpy(1 / (1 + np.exp(-logits))), 4, tokens, 64, 8, 2)
    assert (ours == np.sort(theirs.numpy(), axis=1)).all()


def test_a_plan_is_routed() -> None:
    # ep 4 on nodes of 2 GPUs: 2 nodes; 64 tokens a rank, top-2 of 8: 64·2·64·2 B = 16,384 B a rank, half of it abroad.
    arch = llama(experts=Experts(8, 2, 96))
    plan = plan_of(arch, 8, {"ep": 4, "moe_token_dispatcher_type": "alltoall"})
    routed = of_plan(arch, plan, 2, seed=1)
    assert (routed.spread.ranks, routed.spread.nodes, routed.tokens, routed.row_bytes) == (4, 2, 64, 128)
    assert routed.sent(routed.spread.a_row_an_expert) == {"own": 4096, "nvlink": 4096, "network": 8192}
    (row,) = operations(arch, plan).filter(stage=0, group="ep", what="tokens: dispatch").to_dicts()
    assert row["bytes"] == sum(routed.sent(routed.spread.a_row_an_expert).values())


def test_node_limit_lowers_what_deep_ep_sends() -> None:
    arch, more = llama(experts=Experts(32, 4, 96)), {"moe_token_dispatcher_type": "flex", "ep": 8}
    free = operations(arch, plan_of(arch, 8, more))
    limits = {"moe_router_num_groups": 4, "moe_router_group_topk": 2}
    held = operations(arch, plan_of(arch, 8, {**more, **limits}))
    # 4 experts a rank. Free: 8(1 - C(28,4)/C(32,4)) ranks; held: 16 open experts, 8·(1/2)(1 - C(12,4)/C(16,4)) ranks.
    for frame, ranks in ((free, 8 * (1 - 20475 / 35960)), (held, 4 * (1 - 495 / 1820))):
        (row,) = frame.filter(stage=0, phase="forward", what="tokens: dispatch").to_dicts()
        assert row["elements"] == round(64 * ranks) * 64


@pytest.mark.parametrize(
    "options",
    [{"moe_router_group_topk": 2}, {"moe_router_num_groups": 3, "moe_router_group_topk": 2},
     {"moe_router_num_groups": 4, "moe_router_group_topk": 5}, {"moe_router_num_groups": 8, "moe_router_group_topk": 1}],
)  # fmt: skip
def test_groups_that_megatron_refuses(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="moe_router"):
        plan_of(llama(experts=Experts(8, 2, 96)), 8, {"ep": 2, **options})


@pytest.mark.parametrize(
    "make",
    [lambda: Router(8, 9), lambda: Router(8, 2, 3, 1), lambda: Router(8, 2, 4, 5), lambda: Router(8, 3, 4, 1), lambda: Router(8, 0),
     lambda: Spread(Router(8, 2), 3), lambda: Spread(Router(8, 2), 4, 3), lambda: draw(Spread(Router(8, 2), 4), 0),
     lambda: draw(Spread(Router(8, 2), 4), 10**12), lambda: draw(Spread(Router(8, 2), 4), 9, seed=-1),
     lambda: draw(Spread(Router(8, 2), 4), 9, skew=float("nan"))],
)  # fmt: skip
def test_wrong_routing_is_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


MIXTRAL = ("step", "--set", "model.preset=mixtral-8x7b", "--set", "plan.ep=4", "--set", "plan.etp=1", "--set", "plan.pp=1", "--set", "plan.moe_token_dispatcher_type=alltoall")


def test_the_verb_shows_routing() -> None:
    out = run([*MIXTRAL, "--routing", "1"]).stdout.decode()
    assert "top-2 of 8 experts" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    facts = json.loads(run([*MIXTRAL, "--routing", "1", "--json"]).stdout)["routing"]
    assert facts["copies_per_token"]["a_row_an_expert"]["own"] == 0.5  # 2 rows, 4 ranks
    assert sum(facts["drawn"]["rows_received_by_rank"]) == 4 * 2 * facts["tokens_per_rank"]


def test_the_verb_writes_the_draw(tmp_path: object) -> None:
    lines = run([*MIXTRAL, "--routing", "1", "--csv", "-"]).stdout.decode().splitlines()
    assert lines[0] == "source,target,rows,tokens,bytes"
    assert len(lines) == 1 + 4 * 4


@pytest.mark.parametrize(
    "arguments", [("step", "--routing", "1"), (*MIXTRAL, "--routing", "-1"), (*MIXTRAL, "--routing", "1", "--skew", "-2"),
                  (*MIXTRAL, "--set", "plan.ep=1", "--routing", "1")],
)  # fmt: skip
def test_wrong_routing_is_one_line(arguments: tuple[str, ...]) -> None:
    ended = run(list(arguments))
    assert ended.returncode == 1
    assert len(ended.stderr.decode().strip().splitlines()) == 1
