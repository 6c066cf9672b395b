"""Specs with something wrong: values, keys, structure or characters of a good spec changed."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 16, 63, 64, 1000, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.5, 0.1, 1.5,
    1e-300,
    1e300, float("inf"), float("-inf"), float("nan"), "", " ", "auto", "none", "fp8", "bf16", "fp32", "cpu",
    "mooncake",
    "direct", "vllm-router", "0", "-1", "1e999", "80GiB", "5min", "0s", "1us", "1e300s", "24h", "99999d", "-5min",
    "5 min",
    "5parsec", "x" * 500, "é", "\u202e", "a\nb", "\x00", "'", '"', "$x", "{", "{}", "[", "*", "&a",
    "!!python/object:x",
    "qwen3-8b", "glm-5.1", "tiny-moe", "local-cpu", "h200-1x8", "h200-28x8", "h200-64x8", [], {}, [1, 2], {"a": 1},
    {"mean": 0}, {"mean": 5, "p95": 1}, {"mean": "5s"}, [[]], {"x": {"y": {"z": None}}},
)  # fmt: skip
KEYS = (
    "name", "model", "nodes", "ep", "cp", "dp_shard", "mean", "p95", "lr", "time", "extra", "objective",
    "parallel", "seq_len",
    "batch_size", "x", "", "Name", "trainer", "inference", "precision", "prefer", "strict", "seed", 7, None, True,
)  # fmt: skip


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of plain data but the whole."""
    found: list[tuple[Any, ...]] = [path] if path else []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += paths(value, (*path, key))
    return found


@st.composite
def changed_data(draw: st.DrawFn, base: dict[str, Any]) -> str:
    """YAML of the base with one to three values, keys or mappings changed."""
    data = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 3))):
        there = paths(data)
        if not there:
            break
        *parents, last = draw(st.sampled_from(there))
        place: Any = data
        for key in parents:
            place = place[key]
        action = draw(st.sampled_from(("value", "value", "value", "delete", "add", "scale")))
        if action == "delete" and isinstance(place, dict):
            del place[last]
        elif action == "add":
            holder = place[last] if isinstance(place[last], dict) else place
            if isinstance(holder, dict):
                holder[draw(st.sampled_from(KEYS))] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif action == "scale" and isinstance(place[last], int | float) and not isinstance(place[last], bool):
            place[last] = place[last] * draw(st.sampled_from((-1, 0, 0.5, 2, 3, 1000, 10**9)))
        else:
            place[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


@st.composite
def changed_text(draw: st.DrawFn, text: str) -> str:
    """The base's text with characters, lines or indentation changed."""
    for _ in range(draw(st.integers(1, 3))):
        lines = text.splitlines() or [""]
        at = draw(st.integers(0, len(lines) - 1))
        action = draw(st.sampled_from(("drop", "double", "swap", "indent", "insert", "cut")))
        if action == "drop":
            del lines[at]
        elif action == "double":
            lines.insert(at, lines[at])
        elif action == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif action == "indent":
            lines[at] = " " * draw(st.integers(0, 5)) + lines[at].strip()
        elif action == "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        else:
            column = draw(st.integers(0, len(lines[at])))
            what = draw(st.sampled_from((*"{}[]:,#&*!|>'\"%@`\t-?", "\x00", "\x85", "\ufeff", "auto", ": ", "<<: *a")))
            lines[at] = lines[at][:column] + what + lines[at][column:]
        text = "\n".join(lines) + "\n"
    return text


def specs(bases: dict[str, tuple[str, int]]) -> st.SearchStrategy[tuple[str, str]]:
    """(name, text) of changed specs; `bases` maps a name to its text and how often it is drawn."""
    strategies = []
    for name, (text, weight) in bases.items():
        data = yaml.safe_load(text)
        one = st.one_of(changed_data(data), changed_data(data), changed_text(text))
        strategies += [st.tuples(st.just(name), one)] * weight
    return st.one_of(strategies)
