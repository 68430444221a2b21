"""Settings with a few values each: options, limits, formats of the recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshplan.constraints.decisions import CP_COMM_TYPES, DISPATCHERS
from meshplan.constraints.problem import Problem
from meshplan.constraints.resolve import KNOWN_VERSIONS
from meshplan.solver.changed import asked_value
from meshplan.solver.repairs.lever import (
    Effort,
    Lever,
    Step,
    first_that_works,
    least_that_works,
    values_of,
)
from meshplan.solver.repairs.pins import other_values
from meshplan.solver.repairs.results import Change
from meshplan.solver.repairs.trials import Trials

#: What a setting may become, the smallest step first; empty where there is nothing to change.
Values = Callable[[Problem], Sequence[object]]


@dataclass(frozen=True)
class Setting(Lever):
    """A field of the scenario with a few other values.

    Attributes
    ----------
    path
        The field.
    values
        Its steps, smallest first; none where it does not apply.
    now
        Its value as a reader would name it.
    monotone
        Whether each step allows every layout that the one before allows.
    meaning
        What it means, where its name does not say.
    """

    path: str
    effort: Effort
    values: Values
    now: Callable[[Problem], object]
    monotone: bool = False
    meaning: str = ""
    neutral: bool = False
    obscure: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """The path of the field."""
        return self.path

    def applies(self, problem: Problem) -> bool:
        """Whether there is another value."""
        return bool(self.values(problem))

    def widest(self, trials: Trials) -> Step:
        """The last of its values with a legal layout, or that a scenario may have at all."""
        steps = self._steps(trials.problem)
        tried = [(step, trials.trial(values_of(step))) for step in reversed(steps)]
        allowed = [(step, trial) for step, trial in tried if trial is not None]
        legal = (step for step, trial in allowed if trial.least is not None)
        return next(legal, allowed[0][0] if allowed else steps[-1])

    def smallest(self, trials: Trials) -> Step | None:
        """The first value that works."""
        search = least_that_works if self.monotone else first_that_works
        return search(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        before, now = asked_value(problem, self.path), self.now(problem)
        meaning = f" ({self.meaning})" if self.meaning else ""
        instead = f"instead of {_shown(now)}{meaning}"
        return [
            (Change(self.path, before, value, f"{self.path}: {_shown(value)} {instead}"),)
            for value in self.values(problem)
        ]


@dataclass(frozen=True)
class StateFormats(Lever):
    """Gradients and Adam moments in bf16: one of the two, or both."""

    name: str = "state-formats"
    effort: Effort = Effort.RECIPE

    def shown(self, problem: Problem) -> str:
        """The fields that are in fp32."""
        return " and ".join(change.path for change in self._steps(problem)[-1])

    def applies(self, problem: Problem) -> bool:
        """Whether one of them is in fp32."""
        return bool(self._steps(problem))

    def widest(self, trials: Trials) -> Step:
        """Both."""
        return self._steps(trials.problem)[-1]

    def smallest(self, trials: Trials) -> Step | None:
        """The first that works: moments, gradients, both."""
        return first_that_works(trials, self._steps(trials.problem))

    def _steps(self, problem: Problem) -> list[Step]:
        training = problem.training
        sizes = {"moment_dtype": training.moment_bytes, "gradient_dtype": training.gradient_bytes}
        single = [
            Change(path, asked_value(problem, path), "bf16", f"{path}: bf16 instead of fp32")
            for path in (f"training.{name}" for name, size in sizes.items() if size == 4)
        ]
        return [(one,) for one in single] + ([tuple(single)] if len(single) > 1 else [])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _if(applies: Callable[[Problem], bool], *values: object) -> Values:
    return lambda problem: values if applies(problem) else ()


def _pinned(path: str, value: object) -> Values:
    """Left to the search again, where the scenario decides it."""
    return _if(lambda problem: any(pin.path == path for pin in problem.pins), value)


def _asked(path: str, default: object) -> Callable[[Problem], object]:
    def now(problem: Problem) -> object:
        value = asked_value(problem, path)
        return default if value is None else value

    return now


def _offloads(problem: Problem) -> Sequence[object]:
    """Larger quarters of the optimizer state."""
    pin = problem.pinned.get("offload")
    if pin is None:
        return ()
    most = max(int(value) for value in pin)
    return [quarter / 4 for quarter in range(1, 5) if quarter * 25 > most]


def _graphs(problem: Problem) -> Sequence[object]:
    fixed = problem.training.full_iteration_graph or any(
        1 in pin.values for pin in problem.pins if pin.path == "options.cuda_graphs"
    )
    return ("none",) if fixed else ()


def _splits(problem: Problem) -> Sequence[object]:
    return ("auto",) if problem.layout_string is not None or problem.even_split else ()


def _fewer_replicas(problem: Problem) -> Sequence[object]:
    return range(problem.limits.min_dp - 1, 0, -1)


def _headrooms(problem: Problem) -> Sequence[object]:
    """Less headroom, percent by percent."""
    percent = round(problem.limits.memory_headroom * 100)
    return [one / 100 for one in range(percent - 1, -1, -1)]


def _newer(problem: Problem) -> Sequence[object]:
    """Later releases whose rules are known."""
    (_, first), (major, last) = KNOWN_VERSIONS
    return [
        f"{major}.{minor}" for minor in range(first, last + 1) if (major, minor) > problem.version
    ]


def _precisions(problem: Problem) -> Sequence[object]:
    """Other formats; one that the GPU lacks is refused when tried."""
    order = ("bf16", "fp8-block", "fp8-tensor", "mxfp8", "nvfp4")
    return [one for one in order if one != problem.precision]


def _activation_offloads(problem: Problem) -> Sequence[object]:
    """The modules that keep the most, then all."""
    attention = ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"]
    experts = ["expert_fc1", "moe_act"]
    lists = [experts, [*attention, *experts]] if problem.model.is_moe else [attention]
    return [names for names in lists if set(names) > set(problem.training.activation_offload)]


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "options.recompute",
        Effort.OPTION,
        _pinned("options.recompute", "auto"),
        _asked("options.recompute", "auto"),
        meaning="the search chooses the modules",
        neutral=True,
    ),
    Setting(
        "options.optimizer_offload",
        Effort.OPTION,
        _offloads,
        _asked("options.optimizer_offload", "auto"),
        meaning="fraction of the optimizer state in host memory",
    ),
    Setting(
        "options.activation_offload",
        Effort.OPTION,
        _activation_offloads,
        _asked("options.activation_offload", "none"),
        meaning="inputs of these modules in host memory",
    ),
    Setting(
        "options.pipeline_layout",
        Effort.OPTION,
        _splits,
        _asked("options.pipeline_layout", "auto"),
        meaning="the search splits the layers",
    ),
    Setting(
        "options.dispatcher",
        Effort.OPTION,
        lambda problem: other_values(problem, "options.dispatcher", DISPATCHERS),
        _asked("options.dispatcher", "auto"),
        neutral=True,
    ),
    Setting(
        "options.cuda_graphs",
        Effort.OPTION,
        _graphs,
        _asked("options.cuda_graphs", "none"),
        neutral=True,
    ),
    Setting(
        "layout.cp_comm",
        Effort.OPTION,
        lambda problem: other_values(problem, "layout.cp_comm", CP_COMM_TYPES),
        _asked("layout.cp_comm", "auto"),
        neutral=True,
    ),
    Setting(
        "training.sequence_parallel",
        Effort.OPTION,
        _if(lambda problem: not problem.training.sequence_parallel, True),
        lambda _: False,
    ),
    Setting(
        "training.distributed_optimizer",
        Effort.OPTION,
        _if(lambda problem: not problem.training.distributed_optimizer, True),
        lambda _: False,
    ),
    Setting(
        "training.attention_backend",
        Effort.OPTION,
        _if(lambda problem: not problem.training.fused_attention, "fused"),
        lambda _: "unfused",
    ),
    Setting(
        "training.cross_entropy",
        Effort.OPTION,
        _if(lambda problem: problem.training.cross_entropy == "unfused", "te", "native"),
        lambda _: "unfused",
    ),
    Setting(
        "limits.tp_within_domain",
        Effort.LIMIT,
        _if(lambda problem: problem.limits.tp_within_domain, False),
        lambda _: True,
        meaning="TP groups may leave the NVLink domain",
    ),
    Setting(
        "limits.ep_within_domain",
        Effort.LIMIT,
        _if(lambda problem: problem.limits.ep_within_domain and problem.model.is_moe, False),
        lambda _: True,
        meaning="EP groups may leave the NVLink domain",
    ),
    Setting(
        "limits.min_dp",
        Effort.LIMIT,
        _fewer_replicas,
        lambda problem: problem.limits.min_dp,
        monotone=True,
    ),
    Setting(
        "limits.memory_headroom",
        Effort.LIMIT,
        _headrooms,
        lambda problem: problem.limits.memory_headroom,
        monotone=True,
        meaning="less is left for fragmentation",
    ),
    Setting(
        "framework.version",
        Effort.LIMIT,
        _newer,
        lambda problem: ".".join(map(str, problem.version)),
        obscure=True,
    ),
    Setting(
        "training.store_param_remainders",
        Effort.RECIPE,
        _if(lambda problem: problem.training.param_remainders is False, "auto"),
        lambda _: False,
    ),
    Setting(
        "training.fp8_parameters",
        Effort.RECIPE,
        _if(lambda problem: problem.is_fp8 and not problem.fp8_parameters, "auto"),
        lambda _: False,
    ),
    Setting("workload.precision", Effort.RECIPE, _precisions, lambda problem: problem.precision),
    Setting(
        "workload.variable_length",
        Effort.WORKLOAD,
        _if(lambda problem: problem.variable_length, False),
        lambda _: True,
    ),
)

__all__ = ["SETTINGS", "Setting", "StateFormats"]
