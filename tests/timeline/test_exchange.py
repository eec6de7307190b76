"""Exchanges that send a token once to a node: by hand, and what cannot be."""

import pytest

from tokenwire.model import preset
from tokenwire.plan import Plan, TrainingConfig, read_plan, resolve
from tokenwire.timeline.communication import Place
from tokenwire.timeline.exchange import once


def mixtral(dispatcher: str) -> Plan:
    config = read_plan({"ep": 8, "moe_token_dispatcher_type": dispatcher})
    return resolve(config, TrainingConfig(sequence_length=4096, global_batch=8, micro_batch=1), preset("mixtral-8x7b"), 8)


def test_two_of_eight_experts_on_two_nodes_by_hand() -> None:
    # 8 ranks, an expert each, 4 on a node; 2 of 8 chosen. The other node is reached with 1 - C(4,2)/C(8,2) = 1 - 6/28 = 11/14; each of
    # its 4 ranks with 1/4. Sent by rank: 4·1/4 = 1; once to the node: 11/14.
    assert once(preset("mixtral-8x7b"), mixtral("flex"), Place(8, 2, 4)) == pytest.approx(11 / 14)


def test_nothing_is_saved_inside_a_node_or_by_plain_exchanges() -> None:
    assert once(preset("mixtral-8x7b"), mixtral("flex"), Place(8, 1, 8)) == 1
    assert once(preset("mixtral-8x7b"), mixtral("alltoall"), Place(8, 2, 4)) == 1
