"""Hypothesis strategies for whole documents, from their annotations and bounds."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from prlc.schema.codec import unit_of

WORDS = st.text(alphabet="abcxyz -:#'\"{[&*!é", max_size=12) | st.sampled_from(
    ["1e-6", "0o17", "0x1F", "12", "012", ".5", "yes", "true", "null", "~", "12:30", "2020-01-01", ".inf", ""]
)
QUANTITIES = {"bytes": st.integers(0, 2**53), "seconds": st.floats(0, 1e9)}
RATES = st.floats(0, 1e18)


def instances(cls: type[Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Any legal instance of a document; tuples get shorter with depth, so that recursive documents end."""
    hints = get_type_hints(cls, include_extras=True)
    fields = {f.name: _values(hints[f.name], f.metadata, depth) for f in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


def _values(kind: Any, metadata: Any, depth: int) -> st.SearchStrategy[Any]:
    unit, origin, args = unit_of(kind), get_origin(kind), get_args(kind)
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if unit:
        return QUANTITIES.get(unit, RATES)
    if origin in (Union, types.UnionType):
        return st.one_of([_values(option, metadata, depth) for option in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*(_values(arg, {}, depth + 1) for arg in args))
    if origin is tuple:
        if depth > 3:
            return st.just(())
        inner = st.deferred(lambda: _values(args[0], {}, depth + 1))
        return st.lists(inner, max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(WORDS, _values(args[1], {}, depth + 1), max_size=2)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return st.deferred(lambda: instances(kind, depth + 1))
    if kind is str:
        pattern = metadata.get("pattern")
        return st.from_regex(pattern, fullmatch=True).map(str.strip) if pattern else WORDS
    if kind is int:
        return st.integers(low if low is not None else -(2**31), high if high is not None else 2**40)
    if kind is float:
        return st.floats(low if low is not None else -1e12, high if high is not None else 1e12)
    return {bool: st.booleans(), type(None): st.none(), Any: st.integers(0, 9)}[kind]
