"""Quantities: a number with a unit in the document, a number in the base unit in the dataclass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prlc.schema.codec import UNITS, format_quantity, parse_quantity

QUICK = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("unit", UNITS)
@given(value=st.floats(min_value=0, max_value=1e20, allow_nan=False))
@QUICK
def test_any_number_comes_back_exactly(unit: str, value: float) -> None:
    assert parse_quantity(format_quantity(value, unit), unit) == value


@given(value=st.integers(0, 2**53))
@QUICK
def test_bytes_come_back_exactly(value: int) -> None:
    assert int(parse_quantity(format_quantity(value, "bytes"), "bytes")) == value


@given(number=st.integers(1, 9999), unit=st.sampled_from(sorted(UNITS)), data=st.data())
@QUICK
def test_the_text_is_never_longer_than_what_a_person_wrote(number: int, unit: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(UNITS[unit])))
    value = parse_quantity(f"{number}{name}", unit)
    digits = format_quantity(value, unit).rstrip("".join(UNITS[unit]) + "/")
    assert len(digits) <= len(str(number))


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80GiB", "bytes", 80 * 2**30),
        ("1.5 TB", "bytes", 1.5e12),
        ("5min", "seconds", 300),
        ("100ms", "seconds", 0.1),
        ("24h", "seconds", 86400),
        ("400Gbit/s", "bytes_per_second", 50e9),
        ("1e3GB/s", "bytes_per_second", 1e12),
        ("800TFLOP/s", "flops_per_second", 8e14),
    ],
)
def test_known_values(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit"),
    [(300, "seconds"), ("300", "seconds"), ("5 weeks", "seconds"), ("-5s", "seconds"), ("80GiB", "seconds"),
     ("", "bytes"), ("GiB", "bytes"), ("1e999s", "seconds"), ("1e999999999s", "seconds"), (True, "bytes")],
)  # fmt: skip
def test_other_texts_are_refused_with_the_units_known(text: object, unit: str) -> None:
    with pytest.raises(ValueError, match="is not a number with one of the units"):
        parse_quantity(text, unit)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (85899345920, "bytes", "80GiB"),
        (300, "seconds", "5min"),
        (0, "bytes", "0B"),
        (0.1, "seconds", "100ms"),
    ],
)
def test_the_shortest_text_is_chosen(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text
