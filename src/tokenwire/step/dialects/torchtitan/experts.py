"""Expert parallelism: tokens go to the rank of their expert and come back, by all_to_all.

Counts of tokens first, then the tokens; the same back, and both again in backward. How many tokens go where follows the routing:
``elements`` are what a rank sends when every expert gets as many (k a token, none dropped). Read off the sources, pytorch/torchtitan
v0.2.2, torchtitan/distributed/expert_parallel.py (ExpertParallel, ExpertTensorParallel, ReordererSequenceParallel), and not
compared with a dry run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenwire.model.architecture import Experts
from tokenwire.plan import Stage
from tokenwire.step.dialects.torchtitan.sizes import Sizes
from tokenwire.step.dialects.torchtitan.tensor_parallel import checkpointed
from tokenwire.step.operation import Operation, Phase

_EP = "torchtitan distributed/expert_parallel.py ExpertParallel"


def operations(z: Sizes, stage: Stage) -> Iterator[Operation]:
    """Yield the rows of a stage; none where ep is 1."""
    if z.plan.ep == 1:
        return
    again = set(checkpointed(z, stage))
    kinds: Counter[Experts] = Counter()
    twice: Counter[Experts] = Counter()
    for index in stage.layers:
        feed = z.arch.layers[index].feed_forward
        if isinstance(feed, Experts):
            kinds[feed] += 1
            twice[feed] += index in again
    for feed, layers in kinds.items():
        yield from _rows(z, stage, feed, layers, twice[feed])


def _rows(z: Sizes, stage: Stage, feed: Experts, layers: int, rerun: int) -> Iterator[Operation]:
    t, m, h = z.plan.training, z.plan.micro_batches, z.arch.hidden_size
    # Where tensor-parallel ranks take part in ep (etp = 1) each of them routes its share of the tokens.
    share = z.plan.tp if z.plan.etp == 1 else 1
    tokens = t.micro_batch * z.local_sequence // share * feed.active
    shown = f"{t.micro_batch}·{t.sequence_length}/{z.plan.cp}/{share}·{feed.active}·{h}"
    passes: tuple[tuple[Phase, int, int], ...] = (("forward", layers, layers), ("backward", rerun, layers + rerun))
    for phase, counts, moves in passes:
        yield z.row(
            stage, "all_to_all", "ep", phase, m * counts, feed.count, "int64", "ep", "tokens for each expert", formula="E",
            values=f"{feed.count}", source=f"{_EP}._token_dispatch", why="a rank must know how many tokens it will get",
            layers=layers,
        )  # fmt: skip
        for what, name in (("tokens to experts", "_token_dispatch"), ("tokens back", "_token_combine")):
            yield z.row(
                stage, "all_to_all", "ep", phase, m * moves, tokens * h, z.compute_dtype, "ep", what, formula="b·s/c·k·h",
                values=shown, source=f"{_EP}.{name}", layers=layers,
                why="experts stand on other ranks; sizes are those of even routing",
            )  # fmt: skip
