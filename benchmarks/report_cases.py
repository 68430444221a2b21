"""User reports in terms of meshplan: each becomes a scenario and a layout, or a reason why not."""

from __future__ import annotations

import re
from math import lcm
from typing import Any

#: Kinds of rule that a layout does not express, and why.
BEYOND = {
    "R18": "host memory of loader processes is no part of a layout",
    "R26": "a cluster here has one kind of GPU",
    "R27": "which value a run resolves is not in the report",
    "R28": "a property of an estimator, not a layout: see the tests of the memory model",
}
#: Repositories whose attention replicates no KV heads: megatron-core before 0.16 has their rule.
NO_REPLICATION = ("torchtitan", "transformers", "Automodel")

#: Shipped cards by what a model's name contains.
CARDS = {
    r"deepseek-v3": "deepseek-v3",
    r"kimi-k2": "kimi-k2",
    r"llama-3(\.1)?-405b": "llama-3.1-405b",
    r"llama-3(\.1)?-70b": "llama-3.1-70b",
    r"llama-3(\.1)?-8b": "llama-3.1-8b",
    r"moonlight-16b": "moonlight-16b-a3b",
    r"qwen3-(vl-|omni-)?235b": "qwen3-235b-a22b",
    r"qwen3-(vl-|omni-)?30b": "qwen3-30b-a3b",
    r"qwen3-next-80b": "qwen3-next-80b-a3b",
    r"gpt-oss-120b": "gpt-oss-120b",
}
#: Presets by what a GPU's name starts with; the first stands in for GPUs that we do not know.
PRESETS = {
    "H100": "h100-hgx", "A100": "a100-hgx", "A800": "a100-hgx", "H200": "h200-hgx",
    "H800": "h800-hgx", "B200": "b200-hgx", "B300": "b300-hgx", "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
}  # fmt: skip
_MODEL_KEYS = {
    "layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_groups",
    "head_dim": "head_dim", "ffn": "ffn", "vocab": "vocab", "experts": "experts", "topk": "topk",
    "moe_ffn": "moe_ffn", "dense_first": "dense_layers", "shared_ffn": "shared_ffn",
}  # fmt: skip
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")


class OutOfScope(Exception):
    """A report that cannot be put as a layout; the text is the reason."""


class Report:
    """One report, and what it means in our terms."""

    def __init__(self, case: dict[str, Any], memory_gb: dict[str, float]) -> None:
        self.case = case
        self.id = str(case["id"])
        self.source: dict[str, str] = case.get("source") or {}
        self.model: dict[str, Any] = case.get("model") or {}
        self.cluster: dict[str, Any] = case.get("cluster") or {}
        self.written: dict[str, Any] = case.get("layout") or {}
        self.other: dict[str, Any] = case.get("other") or {}
        expect = case["expect"]
        self.verdict = str(expect["verdict"])
        self.rules = tuple(expect.get("rules") or ())
        self.memory_gb = memory_gb
        self.filled: list[str] = []
        self._judged()
        self.gpus = int(self.cluster["count"])
        self.degrees = self._degrees()

    def _judged(self) -> None:
        """Refuse what is no question about one layout."""
        case = self.case
        if case.get("out_of_scope"):
            raise OutOfScope(str(case["out_of_scope"]))
        beyond = [rule for rule in self.rules if rule in BEYOND]
        if beyond and (len(beyond) == len(self.rules) or "mixed" in str(self.cluster.get("gpu"))):
            raise OutOfScope(BEYOND[beyond[0]])
        if not isinstance(self.cluster.get("count"), int):
            raise OutOfScope("the number of GPUs is not given")
        if "unknown" in self.written:
            raise OutOfScope("the layout is not given")
        sharded = int(self.written.get("zero_stage") or 0) >= 2 or "fsdp" in self.written
        if sharded or ("dp_shard" in self.written and "R02" not in self.rules):
            raise OutOfScope("fully sharded weights (ZeRO-2/3, FSDP) are not planned here")
        if "full iteration" in str(self.other.get("cuda_graph", "")) and "R24" in self.rules:
            raise OutOfScope("full-iteration CUDA graphs are not planned here")
        for name in _DEGREES:
            if not isinstance(self.written.get(name, 1), int):
                raise OutOfScope(f"{name} = {self.written[name]} is not one layout")

    def _degrees(self) -> dict[str, int]:
        written = dict(self.written)
        if "dp" not in written and "dp_shard" in written:
            written["dp"] = written["dp_shard"]
        found = {name: int(written[name]) for name in _DEGREES if name in written}
        for name in ("tp", "cp", "pp", "vpp", "ep"):
            found.setdefault(name, 1)
        if "etp" not in found and self.is_moe:
            unset = str(self.other.get("etp", ""))
            repo = self.source.get("repo", "")
            one = unset == "" or "swift" in repo or "Bridge" in repo
            found["etp"] = 1 if one else found["tp"]
        return found

    @property
    def is_moe(self) -> bool:
        """Whether the model has experts, or the layout expert parallelism."""
        name = str(self.model.get("name", "")).lower()
        return bool(self.model.get("experts") or self.written.get("ep", 1) != 1 or "moe" in name)

    @property
    def card(self) -> str | None:
        """The shipped card of the model, if there is one."""
        name = str(self.model.get("name", "")).lower()
        return next((card for key, card in CARDS.items() if re.search(key, name)), None)

    @property
    def string(self) -> str | None:
        """The split of the layers as a layout string, if the report gives one."""
        written, pp = self.written, self.degrees["pp"]
        if "pp_layout" in written:
            return str(written["pp_layout"])
        counts = written.get("split")
        if not isinstance(counts, list):
            ends = [written.get("first"), written.get("last")]
            layers = self.model.get("layers")
            if ends == [None, None] or not isinstance(layers, int):
                return None
            middle = pp - sum(end is not None for end in ends)
            share = (layers - sum(end or 0 for end in ends)) // middle if middle else 0
            head, tail = ([end] if end is not None else [] for end in ends)
            counts = [*head, *[share] * middle, *tail]
        return "E" + "|".join(f"t*{count}" for count in counts) + "L"

    def scenario(self) -> dict[str, Any]:
        """The scenario; nothing of the layout is pinned in it."""
        tokens = 2 * self.degrees["cp"] * self.degrees["tp"] * 32
        seq_len = self.case.get("seq_len") or -(-4096 // tokens) * tokens
        return {
            "meshplan": 1,
            "name": "report",
            "model": self._model(),
            "cluster": self._cluster(),
            "workload": {
                "seq_len": seq_len,
                "global_batch_size": self._batch(),
                "precision": self._precision(),
            },
            "training": {
                # DeepSpeed keeps gradients in the training precision.
                "gradient_dtype": "bf16" if "zero_stage" in self.written else "fp32",
                "moment_dtype": "fp32",
            },
            # The report is held to the framework's rules only, not to what we advise.
            "limits": {"tp_within_domain": False, "ep_within_domain": self._unaligned()},
            "framework": {"version": "0.15" if self._no_replication() else "0.19"},
        }

    def _unaligned(self) -> bool:
        """Whether the scheduler may cut groups that the dispatcher wants inside a domain."""
        return self.other.get("slurm_segment") == "unset"

    def _no_replication(self) -> bool:
        return any(self.source.get("repo", "").endswith(name) for name in NO_REPLICATION)

    def _precision(self) -> str:
        text = str(self.other.get("precision", "bf16"))
        found = {"mxfp8": "mxfp8", "block": "fp8-block", "fp8-cs": "fp8-current"}
        return next((name for key, name in found.items() if key in text), "bf16")

    def _batch(self) -> int:
        if self.case.get("gbs"):
            return int(self.case["gbs"])
        d = self.degrees
        dp = d.get("dp") or max(1, self.gpus // (d["tp"] * d["cp"] * d["pp"]))
        micro = self.written.get("microbatches") or self.other.get("ga") or 4 * d["pp"]
        return int(self.case.get("mbs") or 1) * dp * int(micro)

    def _cluster(self) -> dict[str, Any]:
        gpu = str(self.cluster.get("gpu", ""))
        preset = next((p for name, p in PRESETS.items() if gpu.startswith(name)), None)
        if preset is None:
            self.filled.append(f"H100 stands in for {gpu}")
            preset = "h100-hgx"
        node = self.cluster.get("gpus_per_node") or 8
        domain = int(self.cluster.get("nvlink_domain") or node)
        if self._unaligned():  # whole racks in turn, the last one in part
            whole, rest = divmod(self.gpus, domain)
        elif "nvl72" in preset or domain >= 8:
            return {"preset": preset, "gpus": self.gpus}
        else:
            whole, rest = divmod(self.gpus, domain)
        return {"preset": preset, "domains": [domain] * whole + [rest] * bool(rest)}

    def _model(self) -> dict[str, Any]:
        given = {
            ours: self.model[key]
            for key, ours in _MODEL_KEYS.items()
            if isinstance(self.model.get(key), int)
        }
        given["mtp_layers"] = (self.string or "").count("m") or int(self.model.get("mtp") or 0)
        if self.card is not None:
            return {"card": self.card, **given}
        return self._whole(given)

    def _whole(self, given: dict[str, Any]) -> dict[str, Any]:
        """A card from the figures given; the others are such that every degree divides them."""
        d = self.degrees
        split = d["tp"] * d["cp"]
        fill: dict[str, Any] = {"layers": 2 * d["pp"] * d["vpp"], "heads": lcm(8, split)}
        heads = given.get("heads", fill["heads"])
        hidden = given.get("hidden", heads * 128)
        fill |= {
            "hidden": hidden, "kv_groups": heads,
            "head_dim": hidden // heads if hidden % heads == 0 else 128,
            "vocab": 32000,
        }  # fmt: skip
        if self.is_moe:
            fill |= {"experts": 8 * d["ep"], "moe_ffn": 256 * d["etp"], "dense_layers": 0}
            fill["topk"] = min(8, given.get("experts", fill["experts"]))
        if not self.is_moe or given.get("dense_layers"):
            # Unless the report gives a width, the classic MLP: two matrices of 4*hidden.
            fill["ffn"] = 128 * split * max(1, 4 * hidden // (128 * split))
            fill["gated"] = "ffn" in given
        fill["attention"] = "gqa"
        if "MLA" in str(self.model.get("attention", "")):
            fill |= {
                "attention": "mla", "q_lora_rank": 1536, "kv_lora_rank": 512,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            }  # fmt: skip
            given = {key: value for key, value in given.items() if key != "kv_groups"}
        absent = [key for key in fill if key not in given and key in ("layers", "heads", "experts")]
        if absent:
            self.filled.append(f"{', '.join(absent)} filled in")
        return {"name": "reported-model", **fill, **given}

    def layout(self) -> dict[str, Any]:
        """The layout, with all degrees and what is said about options."""
        stated: dict[str, Any] = {**self.degrees, "mbs": int(self.case.get("mbs") or 1)}
        micro = self.written.get("microbatches") or self.other.get("ga")
        if isinstance(micro, int):
            stated["ga"] = micro
        text = str(self.written.get("dispatcher") or self.other.get("dispatcher") or "").lower()
        named = [name for name in ("deepep", "hybridep", "alltoall") if name in text]
        stated["dispatcher"] = named[0] if named else "alltoall"
        if "a2a" in str(self.written.get("cp_type", "")):
            stated["cp_comm"] = "a2a"
        recompute = str(self.other.get("recompute", ""))
        if recompute in ("full", "none"):
            stated["recompute"] = recompute
        stated["offload"] = 100 if self.other.get("optimizer_cpu_offload") else 0
        if self.string is not None:
            stated["pipeline"] = self.string
        elif self.case.get("complete") == "full" and self.degrees["pp"] > 1:
            stated["pipeline"] = "even"  # what the framework does if nothing is said
        return stated

    def memory_gib(self) -> float | None:
        """Memory of the GPU in GiB, or None where the report leaves too much open to judge it."""
        gpu = str(self.cluster.get("gpu", ""))
        known = next((gb for key, gb in self.memory_gb.items() if gpu.startswith(key)), None)
        if size := re.search(r"(\d+) ?GB", gpu):
            known = float(size[1])
        widths = {"layers", "hidden", "moe_ffn" if self.is_moe else "heads"} <= set(self.model)
        whole = self.case.get("complete") == "full" or {"tp", "pp"} <= set(self.written)
        if known is None or "offload" in self.other or not (self.card or widths) or not whole:
            return None
        return known * 1e9 / 2**30

    @property
    def weights_only(self) -> bool:
        """Whether next to nothing but the weights is resident: adapters are small."""
        return "LoRA" in str(self.other.get("mode", ""))
