"""Writes the reference pages of this folder from the code, so that they cannot go out of date.

    python docs/reference/generate.py [--check]

``scenario.md`` comes from the JSON Schema, ``rules.md`` from the catalogue, ``models.md`` and
``clusters.md`` from the cards and presets.  With ``--check`` nothing is written: it exits with 1,
and names the pages that differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

_NOTE = "<!-- Written by docs/reference/generate.py; change the code that it reads. -->"


def _cell(text: object) -> str:
    """``text`` inside a table: one line, no bar and no tag of its own."""
    flat = " ".join(str(text).split())
    return flat.replace("|", "\\|").replace("<", "&lt;")


def _code(text: object) -> str:
    """``text`` in code marks, where a bar has to be escaped in tables, but ``<`` must not be."""
    return "`" + " ".join(str(text).split()).replace("|", "\\|") + "`"


def _page(title: str, *parts: str) -> str:
    """A page of these paragraphs."""
    return "\n\n".join([f"# {title}", _NOTE, *parts]) + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table whose last ``numbers`` columns stand to the right."""
    marks = ["---"] * (len(columns) - numbers) + ["--:"] * numbers
    lines = [columns, marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- scenario.md ------------------------------------------------------------------------------


#: What the sections whose names are not those of their keys are called on the page.
_TITLES = {
    "ClusterSpec": "cluster",
    "LayoutPins": "layout",
    "ExpectedLayout": "expect.layout",
    "ModelCard": "model card",
    "Published": "published",
}


def _title(name: str) -> str:
    """Heading of the section that the schema calls ``name``: the key that it stands under."""
    return _TITLES.get(name, name.lower())


def _bounds(schema: dict[str, Any]) -> str:
    """Bounds of a number, text or list: ``1 to 16``; empty without any."""
    low = schema.get("minimum", schema.get("ge"))
    high = schema.get("maximum", schema.get("le"))
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    if high is not None or low is not None:
        return f"at most {high:,}" if low is None else f"at least {low:,}"
    unit = "entries" if schema.get("type") == "array" else "characters"
    most = schema.get("maxLength", schema.get("maxItems"))
    return f"at most {most:,} {unit}" if most is not None else ""


def _type(schema: dict[str, Any]) -> str:
    """What may be written for a key, in words."""
    if "anyOf" in schema:
        forms = [_type(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(forms))
    if "$ref" in schema:
        title = _title(schema["$ref"].rpartition("/")[2])
        return f"[{title}](#{title.replace('.', '').replace(' ', '-')})"
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(_code(json.dumps(one).strip('"')) for one in values)
    if schema.get("type") == "array":
        limit = f", {bounds}" if (bounds := _bounds(schema)) else ""
        return f"list of {_type(schema.get('items', {}))}{limit}"
    if schema.get("type") == "object":
        keys = ", ".join(f"{key}: ..." for key in schema.get("properties", {}))
        # The form {card: name, ...} takes every figure of a card, too many to list here.
        return _code("{" + (keys if len(keys) < 60 else "card: ..., figure: ...") + "}")
    words = {"string": "text", "boolean": "`true`, `false`", "integer": "integer"}
    word = words.get(schema.get("type", ""), schema.get("type", "any"))
    return f"{word}, {bounds}" if (bounds := _bounds(schema)) else word


def _default(key: str, schema: dict[str, Any], required: Sequence[str]) -> str:
    if key in required:
        return "required"
    value = schema.get("default")
    if value is None:
        return "none"
    if isinstance(value, dict) or value == "":
        return "empty" if value == "" else "see there"
    return _code(json.dumps(value).strip('"'))


def _keys(section: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Table of the keys of a section; one that is a section itself may have its meaning there."""
    required = section.get("required", ())
    rows = [
        (
            _code(key),
            _type(one),
            _default(key, one, required),
            _cell(one.get("description") or _summary(one, definitions)),
        )
        for key, one in section["properties"].items()
    ]
    return _table(("key", "may be", "default", "meaning"), rows)


def _summary(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """First paragraph of the description of a section, or of the one that ``schema`` refers to."""
    named = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return str(named.get("description", "")).partition("\n\n")[0]


def scenario_page() -> str:
    """Every key of a scenario file and of a model card, from the JSON Schema."""
    from meshplan.scenarios import json_schema

    schema = json_schema()
    parts = [
        "Every key with what it may be, its default and its meaning, from the schema that checks "
        "scenario files. [The scenario format](../scenario-format.md) introduces them, and "
        "`meshplan schema` prints the schema for editors.",
        "## Top level",
        _keys(schema, schema["$defs"]),
    ]
    for name, section in schema["$defs"].items():
        text = _summary(section, {})
        parts += [f"## {_title(name)}", _cell(text), _keys(section, schema["$defs"])]
    return _page("Scenario reference", *parts)


# -- rules.md ---------------------------------------------------------------------------------


def _rule_parts() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Family, id and labelled facts of each rule."""
    from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
    from meshplan.constraints.rules import ALL_RULES
    from meshplan.constraints.split_rules import SPLIT_RULES

    listed = set()
    for one in (*ALL_RULES, *SPLIT_RULES):
        listed.add(one.id)
        facts = [("holds if", _code(one.formula)), ("why", one.why), ("source", one.source)]
        facts.append(("reads", ", ".join(map(_code, one.scope))))
        if one.fields:
            facts.append(("to satisfy it, change", " or ".join(map(_code, one.fields))))
        if "framework.version" in one.fields:
            facts.append(("version", "what it asks for follows `framework.version`"))
        yield one.family, one.id, facts
    for layout_rule in ALL_LAYOUT_RULES:
        if layout_rule.id not in listed:
            formula = _code(layout_rule.formula)
            facts = [("holds if", formula), ("why", layout_rule.why)]
            facts += [("source", layout_rule.source)]
            facts.append(("to satisfy it, change", "`options.pipeline_layout`"))
            yield layout_rule.family, layout_rule.id, facts


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f"- *{label}*: {' '.join(text.split()).replace('<', '&lt;') if '`' not in text else text}"
        for label, text in facts
    )


def rules_page() -> str:
    """Every rule and advisory with its text, reason and source, from the catalogue."""
    from meshplan.constraints.advisories import ALL_ADVISORIES

    families: dict[str, list[tuple[str, list[tuple[str, str]]]]] = {}
    for family, rule_id, facts in _rule_parts():
        families.setdefault(family, []).append((rule_id, facts))
    count = sum(map(len, families.values()))
    parts = [
        f"The {count} rules and {len(ALL_ADVISORIES)} advisories, from the catalogue that the "
        "search and `check` use. [Rules and advisories](../rules.md) says how to read it, and "
        "`meshplan explain ID` shows one entry. Conflicts also name `memory-capacity`, which "
        "stands for the whole [memory model](../memory-model.md).",
    ]
    for family, rules in families.items():
        parts.append(f"## Rules: {family}")
        for rule_id, facts in rules:
            parts += [f"### {rule_id}", _facts(facts)]
    parts.append("## Advisories")
    for advice in ALL_ADVISORIES:
        facts = [("why", advice.why), ("source", advice.source)]
        parts += [f"### Advisory {advice.id}", _facts(facts)]
    return _page("Rule catalogue", *parts)


# -- models.md and clusters.md ----------------------------------------------------------------


def models_page() -> str:
    """The model cards with their key figures."""
    from meshplan.scenarios.cards import cards
    from meshplan.scenarios.flops import flops_per_token
    from meshplan.scenarios.parameters import active_parameters, total_parameters

    columns = ("card", "model", "attention", "experts", "layers", "MTP", "hidden")
    columns += ("parameters, B", "active, B", "GFLOP a token at 4K")
    rows = [
        (
            _code(card.name),
            _cell(card.title),
            ", ".join(dict.fromkeys(k.attention for k in card.kinds if k.attention != "none")),
            f"{card.experts}, top {card.topk}" if card.is_moe else "dense",
            str(card.layers),
            str(card.mtp_layers),
            f"{card.hidden:,}",
            f"{total_parameters(card) / 1e9:,.2f}",
            f"{active_parameters(card) / 1e9:,.2f}",
            f"{flops_per_token(card, 4096).total / 1e9:,.1f}",
        )
        for card in cards()
    ]
    text = (
        "The cards that `model:` of a scenario can name, with figures counted from them. Each card "
        "in `scenarios/models/` names the source of its figures. FLOPs are those of training, "
        "forward and backward; `meshplan flops` takes them apart."
    )
    return _page("Models", text, _table(columns, rows, 6))


def clusters_page() -> str:
    """The cluster presets with their figures."""
    from meshplan.topologies import node_types

    columns = ("preset", "GPU", "usable GiB", "HBM TB/s", "GPUs a node", "NVLink domain")
    columns += ("NVLink GB/s", "network GB/s", "host GiB a node", "bf16", "fp8", "fp4")
    rows = [
        (
            _code(node.name),
            node.gpu,
            *(f"{value:g}" for value in (node.hbm_gib, node.hbm_tbps, node.gpus_per_node)),
            f"{node.nvlink_domain_gpus}",
            *(f"{value:g}" for value in (node.nvlink_gbps, node.nic_gbps, node.host_memory_gib)),
            *(
                "-" if peak is None else f"{peak:g}"
                for peak in (node.bf16_tflops, node.fp8_tflops, node.fp4_tflops)
            ),
        )
        for node in node_types()
    ]
    text = (
        "The presets that `cluster.preset` of a scenario can name. Bandwidths are per GPU and "
        "direction; bf16, fp8 and fp4 are dense peaks in TFLOP/s. `topologies/data/` has the "
        "source of each figure."
    )
    return _page("Clusters", text, _table(columns, rows, 10))


PAGES = {
    "scenario.md": scenario_page,
    "rules.md": rules_page,
    "models.md": models_page,
    "clusters.md": clusters_page,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with ``--check`` say which of them differ."""
    parser = argparse.ArgumentParser(description="Writes the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if any differs")
    check = parser.parse_args(arguments).check
    stale = []
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, "utf-8")
    if check and stale:
        print(f"{', '.join(stale)}: not what the code says; run python {sys.argv[0]}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
