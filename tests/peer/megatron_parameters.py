"""Count what the modules of the installed megatron-core hold, on every rank of a small world.

A program of its own, run by the Python of an environment with the extra ``peer``; meshplan is not
imported.  Standard input is a list of cases in JSON, standard output the list of answers::

    [{"kind": "gpt", "config": {...}, "vocab": 512, "tied": false, "norms": "RMSNorm",
      "world": 8, "tp": 2, "pp": 2, "ep": 2, "etp": 1}, ...]
    [[{"stage": 0, "dense": 1234, "expert": 56}, ...], "ValueError: why not", ...]

The models are GPTModel with the local layer specification, and HybridModel with the parts of its
own specification replaced by local ones.  Nothing is allocated: all tensors are on ``meta``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.peer.megatron_machine import Megatron, load, past_checks, replaced

#: Figures of a configuration that a machine without GPUs asks for.
PLAIN: dict[str, Any] = {
    "perform_initialization": False,
    "use_cpu_initialization": True,
    "gradient_accumulation_fusion": False,
    "moe_grouped_gemm": False,
    "add_bias_linear": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "normalization": "RMSNorm",
}


def _whole(torch: Any) -> Any:
    """Transformer Engine's linear that each TP rank holds whole (its mode "duplicated")."""

    class Whole(torch.nn.Linear):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, *_: Any, bias: bool = False, **mode: Any):
            assert mode["parallel_mode"] == "duplicated"
            super().__init__(inputs, outputs, bias=bias)

    return Whole


def _normed(torch: Any) -> Any:
    """Transformer Engine's linear with a norm of its input in front."""
    column: Any = load("megatron.core.tensor_parallel.layers").ColumnParallelLinear

    class Normed(column):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, **options: Any):
            super().__init__(inputs, outputs, **options)
            self.layer_norm_weight = torch.nn.Parameter(torch.empty(inputs))

    return Normed


def _gated_norm(torch: Any) -> Any:
    """The norm of package mamba_ssm: one weight for each element that the rank holds."""

    class GatedNorm(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, **_: Any):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(width))

    return GatedNorm


class Builder:
    """Builds models of one world after another."""

    def __init__(self) -> None:
        self.megatron = Megatron()
        self.torch = self.megatron.torch
        self.whole, self.normed = _whole(self.torch), _normed(self.torch)
        self.local = load("megatron.core.models.backends").LocalSpecProvider()

    @contextlib.contextmanager
    def rank(self, case: dict[str, Any], rank: int) -> Iterator[None]:
        """All process groups as ``rank`` sees them, on torch's fake backend."""
        store = load("torch.testing._internal.distributed.fake_pg").FakeStore()
        self.torch.distributed.init_process_group(
            backend="fake", store=store, rank=rank, world_size=case["world"]
        )
        try:
            self.megatron.state.initialize_model_parallel(
                case["tp"],
                case["pp"],
                expert_model_parallel_size=case["ep"],
                expert_tensor_parallel_size=case["etp"],
                create_gloo_process_groups=False,
            )
            yield
        finally:
            self.megatron.leave()

    def config(self, case: dict[str, Any]) -> Any:
        """The configuration of one case, with its degrees."""
        figures = PLAIN | case["config"]
        figures |= {
            "tensor_model_parallel_size": case["tp"],
            "pipeline_model_parallel_size": case["pp"],
            "expert_model_parallel_size": case["ep"],
            "expert_tensor_parallel_size": case["etp"],
            "pipeline_dtype": self.torch.bfloat16,
            "params_dtype": self.torch.bfloat16,
        }
        if figures.pop("gated"):
            figures |= {"gated_linear_unit": True, "activation_func": self.torch.nn.functional.silu}
        else:
            squared = load("megatron.core.activations").squared_relu
            figures |= {"gated_linear_unit": False, "activation_func": squared}
        latent = "kv_lora_rank" in figures
        module = load("megatron.core.transformer.transformer_config")
        return (module.MLATransformerConfig if latent else module.TransformerConfig)(**figures)

    def _shared(self, case: dict[str, Any]) -> dict[str, Any]:
        state = self.megatron.state
        return {
            "vocab_size": case["vocab"],
            "max_sequence_length": 64,
            "pre_process": state.is_pipeline_first_stage(),
            "post_process": state.is_pipeline_last_stage(),
            "share_embeddings_and_output_weights": case["tied"],
            "position_embedding_type": "none" if case["kind"] == "hybrid" else "rope",
        }

    def gpt(self, case: dict[str, Any], config: Any) -> Any:
        """GPTModel with the local layer specification."""
        specs = load("megatron.core.models.gpt.gpt_layer_specs")
        block = specs.get_gpt_decoder_block_spec(config, False, normalization="RMSNorm")
        prediction = None
        if config.mtp_num_layers:
            layer = specs.get_gpt_decoder_layer_specs(config, False, normalization="RMSNorm")[-1]
            prediction = specs.get_gpt_mtp_block_spec(config, layer, False)
        for spec in [*block.layer_specs, *(prediction.layer_specs if prediction else [])]:
            inner = getattr(spec.submodules, "mtp_model_layer", None) or spec
            self._as_engine_does(config, inner.submodules.self_attention.submodules)
        model = load("megatron.core.models.gpt.gpt_model").GPTModel
        return model(config, block, mtp_block_spec=prediction, **self._shared(case))

    def _as_engine_does(self, config: Any, parts: Any) -> None:
        # The local specification splits the down projections of MLA over TP; Transformer
        # Engine's, with which everybody trains, does not.  Its core takes other arguments.
        if config.multi_latent_attention:
            parts.linear_q_down_proj = parts.linear_kv_down_proj = self.whole
            parts.core_attention = self.megatron.empty_module
            if not config.q_lora_rank:  # no latent, no norm
                parts.q_layernorm = load("megatron.core.transformer.identity_op").IdentityOp

    def hybrid(self, case: dict[str, Any], config: Any) -> Any:
        """HybridModel; its specification has Transformer Engine's modules only."""
        model = load("megatron.core.models.hybrid.hybrid_model").HybridModel
        pattern = case["pattern"]
        if case["pp"] > 1:  # stages are cut in the pattern
            size = len(pattern) // case["pp"]
            pattern = "|".join(pattern[i : i + size] for i in range(0, len(pattern), size))
        pattern += "/*E" * (config.mtp_num_layers or 0)
        norm = self.local.layer_norm(rms_norm=True)
        with replaced(load("megatron.core.models.hybrid.hybrid_block"), TENorm=norm):
            return model(
                config,
                self._hybrid_spec(config, norm),
                hybrid_layer_pattern=pattern,
                **self._shared(case),
            )

    def _hybrid_spec(self, config: Any, norm: Any) -> Any:
        spec = load("megatron.core.transformer.spec_utils").ModuleSpec
        column, row = self.local.column_parallel_linear(), self.local.row_parallel_linear()
        mixer = load("megatron.core.ssm.mamba_mixer")
        mamba = load("megatron.core.ssm.mamba_layer")
        block = load("megatron.core.models.hybrid.hybrid_block")
        layer = load("megatron.core.transformer.transformer_layer")
        specs = load("megatron.core.models.gpt.gpt_layer_specs")
        mtp = load("megatron.core.transformer.multi_token_prediction")
        both = {
            experts: specs.get_gpt_layer_local_submodules(
                num_experts=experts, normalization="RMSNorm"
            )
            for experts in (None, config.num_moe_experts)
        }
        attention, mlp, moe = (
            spec(module=layer.TransformerLayer, submodules=layer.TransformerLayerSubmodules(**kw))
            for kw in (
                {
                    "input_layernorm": norm,
                    "self_attention": both[None].self_attention,
                },
                {"pre_mlp_layernorm": norm, "mlp": both[None].mlp},
                {"pre_mlp_layernorm": norm, "mlp": both[config.num_moe_experts].mlp},
            )
        )
        parts = mixer.MambaMixerSubmodules(in_proj=column, out_proj=row)
        inside = spec(module=mixer.MambaMixer, submodules=parts)
        net = load("megatron.core.ssm.gated_delta_net")
        delta = spec(
            module=layer.TransformerLayer,
            submodules=layer.TransformerLayerSubmodules(
                input_layernorm=norm,
                self_attention=spec(
                    module=net.GatedDeltaNet,
                    submodules=net.GatedDeltaNetSubmodules(
                        in_proj=column, out_norm=norm, out_proj=row
                    ),
                ),
            ),
        )
        prediction = mtp.MultiTokenPredictionLayerSubmodules(
            enorm=norm, hnorm=norm, layer_norm=norm, eh_proj=column, mtp_model_layer=None
        )
        return spec(
            module=block.HybridStack,
            submodules=block.HybridStackSubmodules(
                gdn_layer=delta,
                mamba_layer=spec(
                    module=mamba.MambaLayer,
                    submodules=mamba.MambaLayerSubmodules(norm=norm, mixer=inside),
                ),
                attention_layer=attention,
                mlp_layer=mlp,
                moe_layer=moe,
                mtp_block_spec=spec(
                    module=mtp.MultiTokenPredictionBlock,
                    submodules=mtp.MultiTokenPredictionBlockSubmodules(
                        layer_specs=[
                            spec(module=mtp.MultiTokenPredictionLayer, submodules=prediction)
                        ]
                    ),
                ),
            ),
        )

    @contextlib.contextmanager
    def without_engine(self) -> Iterator[None]:
        """Stand-ins for what Transformer Engine, mamba_ssm and a GPU give."""
        mixer = load("megatron.core.ssm.mamba_mixer")
        latent = load("megatron.core.transformer.multi_latent_attention")
        experts = load("megatron.core.transformer.moe.moe_layer")
        engine = load("megatron.core.extensions.transformer_engine_spec_provider")
        delta = "megatron.core.ssm.gated_delta_net"
        with (
            replaced(
                mixer,
                HAVE_MAMBA_SSM=True,
                ExtendedRMSNorm=_gated_norm(self.torch),
                get_cuda_rng_tracker=lambda: _NoTracker(),
            ),
            replaced(load(f"{delta}.common"), HAVE_FLA=True),
            replaced(load(f"{delta}.gdn"), chunk_gated_delta_rule=past_checks),
            replaced(engine, TELayerNormColumnParallelLinear=self.normed),
            replaced(latent, TELinear=self.whole),
            replaced(experts, HAVE_TE=True, TELinear=self.whole),
            replaced(self.torch.Tensor, cuda=lambda tensor, *_, **__: tensor),
            self.torch.device("meta"),
            self.megatron.on_meta(),
        ):
            yield

    def count(self, case: dict[str, Any]) -> list[dict[str, int]]:
        """Parameters of each rank, dense and routed experts."""
        answers = []
        for rank in range(case["world"]):
            with self.rank(case, rank), self.without_engine():
                model = getattr(self, case["kind"])(case, self.config(case))
                stage = self.megatron.state.get_pipeline_model_parallel_rank()
                found = {"stage": stage, "dense": 0, "expert": 0}
                for name, parameter in model.named_parameters():
                    found["expert" if ".experts." in name else "dense"] += parameter.numel()
                answers.append(found)
        return answers


class _NoTracker:
    @contextlib.contextmanager
    def fork(self, *_: object) -> Iterator[None]:
        yield


def _answer(builder: Builder, case: dict[str, Any]) -> list[dict[str, int]] | str:
    try:
        return builder.count(case)
    except Exception as error:  # the test shows it; other cases go on
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Answer the cases of standard input."""
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        builder = Builder()
        answers = [_answer(builder, case) for case in cases]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
