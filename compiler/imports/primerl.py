"""A prime-rl configuration as a run spec: each key of it with what became of it, and the values of the spec."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from prlc.catalog.programs import flag_list
from prlc.compiler.imports import convert, models
from prlc.compiler.imports.mapping import ROWS, TABLES, Row, Verdict
from prlc.compiler.imports.reading import Leaf

CLOSE = 0.8  # how alike a misspelt key and the one that is meant are, of difflib
OWN = {"eval", "evals"}  # blocks whose values are not the training's


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One key of the input. `target` and `value`: the path of the spec that it sets and to what."""

    leaf: Leaf
    verdict: Verdict
    reason: str
    target: str = ""
    value: Any = None
    meant: str = ""


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Every key, the values by their path in the spec, and what makes the input a wrong one."""

    entries: tuple[Entry, ...]
    values: dict[str, Any]
    refusals: tuple[str, ...]
    gpus_per_node: int | None


def account(leaves: Sequence[Leaf], pins: Mapping[str, Any]) -> Accounts:
    """What becomes of each key. `pins`: values of the spec that a person gave, by path; they win."""
    rows = [None if leaf.overridden else matched(leaf) for leaf in leaves]
    known: dict[str, Any] = {**pins}
    for leaf, row in zip(leaves, rows, strict=True):
        if row is not None and leaf.value != "None":
            known.setdefault(row.name, leaf.value)
    entries, refusals = [], []
    for leaf, row in zip(leaves, rows, strict=True):
        try:
            entries.append(entry(leaf, row, known))
        except convert.WrongValue as error:
            refusals.append(f"{leaf.file}:{leaf.line}: {leaf.name} {error}")
            entries.append(Entry(leaf=leaf, verdict="not supported", reason=f"wrong value: it {error}"))
    values, entries, clashes = settled(entries, pins)
    gpus = known.get("gpus_per_node")
    return Accounts(
        entries=tuple(entries),
        values=values,
        refusals=(*refusals, *clashes),
        gpus_per_node=gpus if isinstance(gpus, int) and not isinstance(gpus, bool) else None,
    )


def words(leaf: Leaf) -> tuple[str, ...]:
    """The keys of a path, without its list indices."""
    return tuple(part for part in leaf.path if isinstance(part, str))


def matched(leaf: Leaf) -> Row | None:
    """The first row of the table that a key fits."""
    return next((row for row in ROWS if leaf.root in row.roots and named_like(row, words(leaf))), None)


def named_like(row: Row, path: tuple[str, ...]) -> bool:
    """Whether a path ends like the row's name, or runs through it where the row is a whole table."""
    name = tuple(row.name.split("."))
    if name[-1] != "*":
        return path[-len(name) :] == name
    table = name[:-1]
    return any(path[i : i + len(table)] == table for i in range(len(path)))


def entry(leaf: Leaf, row: Row | None, known: Mapping[str, Any]) -> Entry:
    """What becomes of one key. Raises convert.WrongValue."""
    if leaf.overridden:
        return Entry(leaf=leaf, verdict="overridden", reason=f"{leaf.overridden} gives another value")
    if row is None or row.name == "quantization.*":
        found = model_entry(leaf)
        if found is not None:
            return found
    if row is None:
        return unlisted(leaf)
    if row.verdict != "mapped":
        return Entry(leaf=leaf, verdict=row.verdict, reason=row.reason)
    if len(words(leaf)) < len(leaf.path) or OWN & set(words(leaf)):
        reason = f"of one source or of evaluations; here the run has one value: {row.target}"
        return Entry(leaf=leaf, verdict="not supported", reason=reason)
    if leaf.value == "None":
        return Entry(leaf=leaf, verdict="decided", reason=f"null there: {row.target} is left to prlc")
    try:
        value = convert.FUNCTIONS[row.convert](leaf.value, known)
    except convert.NotSupported as error:
        return Entry(leaf=leaf, verdict="not supported", reason=str(error))
    reason = row.reason if value == "auto" or row.convert != "degree" else ""
    return Entry(leaf=leaf, verdict="mapped", reason=reason, target=row.target, value=value)


def model_entry(leaf: Leaf) -> Entry | None:
    """A text in a model block that is the name of a model; None for any other leaf."""
    if "model" not in words(leaf) or not isinstance(leaf.value, str):
        return None
    found = models.named(leaf.value)
    if found is None:
        return None
    return Entry(leaf=leaf, verdict="mapped", reason="a name of this model", target="model", value=found.model)


def unlisted(leaf: Leaf) -> Entry:
    """A key that the table does not have: a flag of vLLM, or unknown, with what may have been meant."""
    path = words(leaf)
    if leaf.root == "inference" and "vllm" in path[:-1]:
        return engine_flag(leaf, path[path.index("vllm") + 1])
    elsewhere = sorted({root for row in ROWS if named_like(row, path) for root in row.roots if root})
    if elsewhere:
        files = " or ".join(f"{root}=FILE" for root in elsewhere)
        reason = f"known in {' and '.join(elsewhere)}; a file that is such a block is given as {files}"
        return Entry(leaf=leaf, verdict="unknown", reason=reason)
    table = next((TABLES[part] for part in path[:-1] if part in TABLES), "")
    reason = table or "not a key of prime-rl that prlc has on record"
    meant = nearest(path[-1], _last_words())
    return Entry(leaf=leaf, verdict="unknown", reason=reason, meant=meant)


def engine_flag(leaf: Leaf, key: str) -> Entry:
    """A key of inference.vllm, which prime-rl hands to vLLM whatever it is."""
    flags = flag_list("vllm-serve")
    if f"--{key.replace('_', '-')}" in flags.flags:
        reason = f"a flag of vLLM {flags.version}; prlc writes the engines' command itself"
        return Entry(leaf=leaf, verdict="decided", reason=reason)
    keys = tuple(flag.removeprefix("--").replace("-", "_") for flag in flags.flags)
    reason = f"no flag of vLLM {flags.version}; prime-rl hands it on unread"
    return Entry(leaf=leaf, verdict="unknown", reason=reason, meant=nearest(key, keys))


@cache
def _last_words() -> tuple[str, ...]:
    return tuple(sorted({row.name.removesuffix(".*").rpartition(".")[2] for row in ROWS}))


def nearest(key: str, known: Sequence[str]) -> str:
    """The known key that a misspelt one is like, '' for none."""
    found = difflib.get_close_matches(key.lower(), known, n=1, cutoff=CLOSE)
    return found[0] if found else ""


def settled(entries: Sequence[Entry], pins: Mapping[str, Any]) -> tuple[dict[str, Any], list[Entry], list[str]]:
    """One value a path: the spec's, the entries once a value lost to another, and what disagrees."""
    values: dict[str, Any] = {}
    clashes = []
    mapped = [one for one in entries if one.verdict == "mapped"]
    for one in mapped:
        first = values.setdefault(one.target, one.value)
        if one.target == "sequence.seq_len":
            values[one.target] = max(first, one.value)
        elif first != one.value and not pinned(one.target, pins):
            other = next(e for e in mapped if e.target == one.target)
            clashes.append(
                f"{one.leaf.file}:{one.leaf.line}: {one.leaf.name} makes {one.target} {one.value}, "
                f"{other.leaf.name} at {other.leaf.file}:{other.leaf.line} makes it {first}: "
                f"make them equal, or say --set {one.target}=VALUE"
            )
    if any(e.target == "model" and e.leaf.root == "inference" and fp8_checkpoint(e) for e in mapped):
        values.setdefault("inference.precision", "fp8")
    values = {path: value for path, value in values.items() if not pinned(path, pins)} | dict(pins)
    return values, [lost(one, values) for one in entries], clashes


def pinned(path: str, pins: Mapping[str, Any]) -> bool:
    """Whether a person gave the value, or that of a mapping around it."""
    return any(path == pin or path.startswith(f"{pin}.") for pin in pins)


def fp8_checkpoint(one: Entry) -> bool:
    """Whether the name is that of a checkpoint in FP8."""
    found = models.named(one.leaf.value)
    return found is not None and found.fp8


def lost(one: Entry, values: Mapping[str, Any]) -> Entry:
    """An entry whose value another one replaced says so."""
    if one.verdict != "mapped" or (one.target in values and values[one.target] == one.value):
        return one
    reason = f"{one.target} is {values[one.target]}" if one.target in values else f"--set gives what {one.target} is in"
    return replace(one, verdict="overridden", reason=reason, target="", value=None)
