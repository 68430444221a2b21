"""Training arguments of Megatron-LM for a layout: how the comparison asks the real package.

The flags are those of ``meshplan export``.  Arguments that no decision of meshplan reaches take the
values that every current recipe has: bf16 beside the low-precision formats, RMSNorm, RoPE, the
distributed optimizer.  Layouts need not be legal, and so are written out where an export says
nothing: experts' degrees of a dense model, the exchange of a context parallelism of one.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.solver.export import of_layout, of_training
from meshplan.solver.export.of_model import model_words
from meshplan.solver.export.setting import Setting, flag

#: Flags of the even split, by whether embedding and loss count as a layer each.
_ACCOUNT = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")

#: What a run needs beside model and layout.
ALWAYS = [
    "--normalization",
    "RMSNorm",
    "--position-embedding-type",
    "rope",
    "--no-rope-fusion",
    "--attention-dropout",
    "0",
    "--mock-data",
    "--train-iters",
    "10",
    "--lr",
    "1e-4",
    "--tokenizer-type",
    "NullTokenizer",
]


def arguments(problem: Problem, layout: Layout, account: tuple[int, int] = (0, 0)) -> list[str]:
    """Command line of the training script.

    Parameters
    ----------
    problem, layout
        What is asked.  ``problem.layout_string`` is passed on as it stands; with
        ``problem.even_split`` the framework splits the layers itself.
    account
        For the even split: whether the embedding and the loss count as a layer each.
    """
    words = [word for one in _settings(problem, layout) for word in one.words]
    written = [*ALWAYS, *model_words(problem.model), *words, *_unsaid(problem, layout)]
    written.append("--use-distributed-optimizer")
    return [*written, *_split(problem, layout, account)]


def _settings(problem: Problem, layout: Layout) -> Iterator[Setting]:
    for part in (
        of_layout.batch,
        of_layout.degrees,
        of_layout.recompute,
        of_layout.offload,
        of_layout.dispatch,
        of_layout.graphs,
        of_training.precision,
        of_training.formats,
        of_training.recipe,
    ):
        yield from part(problem, layout)


def _unsaid(problem: Problem, layout: Layout) -> Iterator[str]:
    """What an export leaves out, as it says nothing in a legal layout."""
    if layout.cp == 1:
        yield from flag("cp-comm-type", layout.cp_comm)
    if not problem.model.is_moe:
        yield from flag("expert-model-parallel-size", layout.ep)
        yield from flag("expert-tensor-parallel-size", layout.etp)
        yield from of_layout.dispatcher(layout).words
        if problem.training.overlap_expert_communication:
            yield "--overlap-moe-expert-parallel-comm"


def _split(problem: Problem, layout: Layout, account: tuple[int, int]) -> Iterator[str]:
    if problem.layout_string is not None:
        yield from ("--pipeline-model-parallel-layout", problem.layout_string)
        return
    yield from (name for name, wanted in zip(_ACCOUNT, account, strict=True) if wanted)
    if layout.vpp > 1:
        yield from ("--num-virtual-stages-per-pipeline-rank", str(layout.vpp))
