"""The installed megatron-core, with stand-ins for what a machine without GPUs lacks.

Runs in an environment with the extra ``peer``; meshplan is not imported.  Modules of torch and
Megatron are loaded by name, so that the rest of the project is checked without them.
"""

from __future__ import annotations

import contextlib
import importlib
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any

#: Release of Transformer Engine that Megatron is told about; the newest that 0.19 asks for.
TRANSFORMER_ENGINE = "2.19.0"


class PastChecksError(Exception):
    """Raised by a probe behind the last check of a function: all checks have passed."""


def past_checks(*_: object, **__: object) -> None:
    """Stand in for what a function does behind its last check."""
    raise PastChecksError


def _nothing(*_: object, **__: object) -> None:
    return None


def load(name: str) -> Any:
    """The module with that name."""
    return importlib.import_module(name)


@contextlib.contextmanager
def replaced(owner: Any, **values: object) -> Iterator[None]:
    """Attributes of ``owner`` replaced for a while; those that it lacks are left out."""
    saved = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    for name in saved:
        setattr(owner, name, values[name])
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(owner, name, value)


class Megatron:
    """The installed package, with stand-ins for what a machine without GPUs lacks."""

    def __init__(self) -> None:
        if not hasattr(typing, "override"):  # megatron.training needs Python 3.12 for this only
            vars(typing)["override"] = load("typing_extensions").override
        warnings.filterwarnings("ignore")
        self.torch = load("torch")
        self.capability = 9
        self._pretend_gpu()
        self.version: str = load("megatron.core").__version__
        load("megatron.core.utils")._te_version = load("packaging.version").Version(
            TRANSFORMER_ENGINE
        )
        self.state = load("megatron.core.parallel_state")
        self.batches = load("megatron.core.num_microbatches_calculator")
        self.schedules = load("megatron.core.pipeline_parallel.schedules")
        self.arguments = load("megatron.training.arguments")
        self.training = load("megatron.training.training")
        self.arguments.get_device_arch_version = lambda: self.capability
        self._pretend_kernels()
        argparse = load("argparse")
        self.parser = self.arguments.add_megatron_arguments(
            argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
        )
        self._build_stubs()

    def _pretend_gpu(self) -> None:
        cuda = self.torch.cuda
        idle = type("Idle", (), {"__getattr__": lambda _self, _name: _nothing})
        cuda.get_device_capability = lambda *_: (self.capability, 0)
        cuda.get_device_properties = lambda *_: types.SimpleNamespace(
            major=self.capability, minor=0, name="GPU", multi_processor_count=132
        )
        cuda.Stream = cuda.Event = lambda *_, **__: idle()
        cuda.current_stream = lambda *_: idle()
        cuda.current_device = lambda: self.torch.device("meta")

    @staticmethod
    def _pretend_kernels() -> None:
        """Kernels whose absence a constructor would refuse, where they are missing."""
        dispatcher = load("megatron.core.transformer.moe.token_dispatcher")
        kernels = (
            "fused_dispatch fused_combine hybrid_ep_dispatch hybrid_ep_combine set_deepep_num_sms"
        )
        for name in kernels.split():
            if getattr(dispatcher, name, None) is None:
                setattr(dispatcher, name, _nothing)

    def _build_stubs(self) -> None:
        torch = self.torch

        def init(module: Any, *_: object, **__: object) -> None:
            torch.nn.Module.__init__(module)

        #: In place of attention kernels, whose checks need Transformer Engine.
        self.empty_module = type("Empty", (torch.nn.Module,), {"__init__": init})
        mode = load("torch.overrides").TorchFunctionMode

        def to_meta(
            _self: object,
            function: Callable[..., Any],
            _types: object,
            args: Any = (),
            kw: Any = None,
        ) -> Any:
            options = dict(kw or {})
            if str(options.get("device", "")).startswith("cuda"):
                options["device"] = "meta"
            return function(*args, **options)

        #: Tensors that ask for a GPU get no storage at all.
        self.on_meta = type("OnMeta", (mode,), {"__torch_function__": to_meta})
        adam = type("FusedAdam", (), {"__init__": _adam})
        optimizers = types.ModuleType("transformer_engine.pytorch.optimizers")
        optimizers.FusedAdam = adam  # type: ignore[attr-defined]
        self.engine = {
            "transformer_engine": types.ModuleType("transformer_engine"),
            "transformer_engine.pytorch": types.ModuleType("transformer_engine.pytorch"),
            "transformer_engine.pytorch.optimizers": optimizers,
        }

    def leave(self) -> None:
        """Forget the last case: groups, calculator, and global arguments."""
        with contextlib.suppress(Exception):
            self.state.destroy_model_parallel()
        distributed = self.torch.distributed
        if distributed.is_initialized():
            with contextlib.suppress(Exception):
                distributed.destroy_process_group()
        with contextlib.suppress(Exception):
            self.batches.unset_num_microbatches_calculator()

    def groups(self, world: int, record: dict[str, list[list[int]]] | None, **sizes: Any) -> None:
        """Build all process groups of ``world`` ranks as rank 0, on torch's fake backend."""
        store = load("torch.testing._internal.distributed.fake_pg").FakeStore()
        self.torch.distributed.init_process_group(
            backend="fake", store=store, rank=0, world_size=world
        )
        original = self.state.create_group

        def create(ranks: Any = None, *args: Any, **options: Any) -> Any:
            if record is not None:
                known = record.setdefault(str(options.get("group_desc")), [])
                known.append(list(ranks))
            # Rank 0 never talks to the others, so that their groups need not exist.
            return original(ranks, *args, **options) if 0 in ranks else None

        with replaced(self.state, create_group=create):
            self.state.initialize_model_parallel(
                sizes["tp"],
                sizes["pp"],
                sizes.get("vpp"),
                context_parallel_size=sizes["cp"],
                hierarchical_context_parallel_sizes=sizes.get("hierarchical"),
                expert_model_parallel_size=sizes["ep"],
                expert_tensor_parallel_size=sizes["etp"],
                order=sizes.get("order", "tp-cp-ep-dp-pp"),
                create_gloo_process_groups=False,
            )


def _adam(
    self: object,
    params: object = None,
    master_weight_dtype: object = None,
    exp_avg_dtype: object = None,
    exp_avg_sq_dtype: object = None,
    use_decoupled_grad: bool = False,
) -> None:
    """Signature of Transformer Engine's FusedAdam, which OptimizerConfig looks at."""
