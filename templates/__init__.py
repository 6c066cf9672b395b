"""The texts of a bundle's scripts. Templates print what the plan decided: no arithmetic, no decision."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

import jinja2

PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
_FIXED = {
    "BUNDLE": "$PRLC_BUNDLE",
    "RUN_DIR": "$PRLC_RUN_DIR",
    "INDEX": "$index",
    "ADDRESS": "${nodes[${NODE[index]}]}",
}


def sh(value: str, tables: Iterable[str] = ()) -> str:
    """One word of a shell script that evaluates to `value`, whatever it holds.

    With `tables`, {NAME} of a table becomes its value at the process's index, {X_ADDRESS} the address of the
    node in table X_NODE, and {BUNDLE}, {RUN_DIR}, {INDEX}, {ADDRESS}, {NODE_n} what
    `prlc.schema.plan.Launch` says.
    Raises ValueError for a placeholder that is none of these.
    """
    known = set(tables)
    if not known or not PLACEHOLDER.search(value):
        word = shlex.quote(value)
        return f"'{word}'" if word.startswith("=") else word  # NAME==x reads like a comparison
    parts, end = [], 0
    for match in PLACEHOLDER.finditer(value):
        parts.append(_inside_double_quotes(value[end : match.start()]))
        parts.append(_lookup(match[1], known))
        end = match.end()
    parts.append(_inside_double_quotes(value[end:]))
    return '"' + "".join(parts) + '"'


def _lookup(name: str, tables: set[str]) -> str:
    if name in _FIXED and (name != "ADDRESS" or "NODE" in tables):
        return _FIXED[name]
    if name in tables:
        return f"${{{name}[index]}}"
    if re.fullmatch(r"NODE_\d+", name):
        return f"${{nodes[{name[5:]}]}}"
    if name.endswith("_ADDRESS") and f"{name[:-8]}_NODE" in tables:
        return f"${{nodes[${{{name[:-8]}_NODE[index]}}]}}"
    raise ValueError(f"unknown placeholder {{{name}}}")


def _inside_double_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def render(name: str, **values: Any) -> str:
    """Text of a template, e.g. 'roles/role.sh.j2'. Raises jinja2.UndefinedError for a missing value."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("prlc.templates", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        comment_start_string="{##",  # ${#array[@]} is no comment
        comment_end_string="##}",
    )
    environment.filters["sh"] = sh
    return environment.get_template(name).render(**values)


def page(name: str, **values: Any) -> str:
    """An HTML page of templates/report; every value is escaped. Raises jinja2.UndefinedError for a missing value."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("prlc.templates", "report"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    return environment.get_template(name).render(**values)
