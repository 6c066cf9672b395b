"""No secret in a spec: its bundle is copied, reviewed and kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prlc.compiler.rules.rule import finding, spec_rule
from prlc.schema.diagnostics import Note
from prlc.schema.secrets import looks_secret

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

Path = tuple[str | int, ...]
NOTE = Note("note", "the name of a variable, set where the job starts; revoke the secret if it was ever shared")


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text of plain data with its path, keys of mappings too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))


@spec_rule(
    "PRL366",
    refused={"workload": {"environment": {"id": "verifiers:search", "args": {"api_key": "hunter2"}}}},
    accepted={"workload": {"environment": {"id": "verifiers:search", "args": {"api_key": "SEARCH_API_KEY"}}}},
)
def no_secret(resolved: Resolved) -> Iterator[Diagnostic]:
    """A spec holds no secret.

    Inequality: no text with a known token's prefix, none under a key named password, secret, token or key, and no
    random word of 32 characters or more (more than 3.2 bits a character, digests apart)
    Source: the spec is copied into the bundle, which people review, mail and commit.
    Cure: the name of an environment variable in capitals, such as SEARCH_API_KEY; set it where the job starts.
    """
    for path, value in texts(dataclasses.asdict(resolved.spec)):
        key = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
        if kind := looks_secret(key, value):
            found = finding(
                "PRL366",
                f"{'.'.join(map(str, path))} looks like {kind}, and a bundle must not hold it",
                resolved.span(path),
                label="would be copied into spec.yaml and plan.json",
                help=f"{key}: {re.sub(r'[^A-Z0-9]+', '_', key.upper())}",
            )
            cure, more = found.notes
            yield dataclasses.replace(found, hidden=True, notes=(cure, NOTE, more))
