"""The account of an import for people and for machines. No value that may be a secret is shown."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from prlc.compiler.imports.primerl import Accounts, Entry
from prlc.compiler.imports.reading import Leaf
from prlc.compiler.imports.spec import Made
from prlc.schema.secrets import redacted

WIDTH = 80
HEADINGS = {
    "mapped": "mapped",
    "decided": "decided by prlc",
    "no counterpart": "no counterpart in a spec",
    "not supported": "not supported by this runtime",
    "unknown": "unknown",
    "overridden": "overridden",
}


def shown(leaf: Leaf) -> str:
    """A value as JSON; of a variable of the environment nothing, of a secret stars."""
    if "env_vars" in leaf.path:
        return "(not shown)"
    pair = redacted(f"{leaf.path[-1]}: {json.dumps(leaf.value, default=str, ensure_ascii=False)}")
    return pair.removeprefix(f"{leaf.path[-1]}: ")


def account_text(accounts: Accounts, made: Made) -> str:
    """Every key below the heading of what became of it, then what is assumed, missing and wrong."""
    blocks = []
    for verdict, heading in HEADINGS.items():
        found = [one for one in accounts.entries if one.verdict == verdict]
        if found:
            blocks.append("\n".join([f"{heading} ({len(found)})", *(_line(_entry(one)) for one in found)]))
    if made.assumed:
        lines = [_line(f"{one.path}: {json.dumps(one.value)}: {one.reason}") for one in made.assumed]
        blocks.append("\n".join([f"assumed ({len(lines)})", *lines]))
    return "\n\n".join(blocks) + "\n" if blocks else "no key\n"


def _line(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )


def _entry(one: Entry) -> str:
    start = f"{one.leaf.file}:{one.leaf.line} {one.leaf.name} = {shown(one.leaf)}"
    if one.target:
        return f"{start} -> {one.target}: {one.value}" + (f" ({one.reason})" if one.reason else "")
    return f"{start}: {one.reason}" + (f"; did you mean {one.meant}?" if one.meant else "")


def problems(accounts: Accounts, made: Made) -> list[str]:
    """What makes the input no run, one line each with its cure."""
    cures = {"model": "NAME", "cluster": "NAME"}
    return [
        *accounts.refusals,
        *(f"missing {path}: say --set {path}={cures.get(path, 'N')}" for path in made.missing),
    ]


def account_json(accounts: Accounts, made: Made) -> str:
    """The same as one JSON document."""
    document: dict[str, Any] = {
        "keys": [_row(one) for one in accounts.entries],
        "assumed": [{"path": one.path, "value": one.value, "reason": one.reason} for one in made.assumed],
        "problems": problems(accounts, made),
        "spec": made.spec,
    }
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def _row(one: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": one.leaf.name,
        "file": one.leaf.file,
        "line": one.leaf.line,
        "given": shown(one.leaf),
        "verdict": one.verdict,
        "reason": one.reason,
    }
    if one.target:
        row |= {"path": one.target, "value": one.value}
    return row | ({"meant": one.meant} if one.meant else {})
