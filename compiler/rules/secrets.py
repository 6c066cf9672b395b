"""No secret in a spec: its bundle is copied, reviewed and kept."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

Path = tuple[str | int, ...]

# prefixes that their makers document for secret scanners, and shapes of keys without one
KNOWN = (
    (re.compile(r"\bhf_[A-Za-z0-9]{20,}"), "a Hugging Face token"),
    (re.compile(r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{16,}"), "an API key"),
    (re.compile(r"\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{20,}"), "a GitHub token"),
    (re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"), "a GitLab token"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "an AWS key id"),
    (re.compile(r"\bxox[abp]-[A-Za-z0-9-]{10,}"), "a Slack token"),
    (re.compile(r"\bwandb_v1_[A-Za-z0-9_]{16,}"), "a Weights & Biases key"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"), "a JSON Web Token"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), "a password in a URL"),
)
NAMES = re.compile(r"(?:^|[_-])(?:password|passwd|secret|token|api_?key|access_?key|private_?key|credentials?)$", re.I)
COUNTS = re.compile(r"(?:max|min|num|new|stop|eos|pad|bos)_?(?:new_)?token|tokens$", re.I)
WORD = re.compile(r"(?<!sha256:)\b[A-Za-z0-9+=]{32,}")  # a digest is public
BITS = 3.2  # 32 random hex characters have 3.3 bits each or more, repeated words less


def entropy(word: str) -> float:
    """Bits a character, from the word's own letters."""
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


def looks_secret(key: str, value: str) -> str:
    """What a value looks like: a known token, a password by its key, or a random key; '' for neither."""
    for pattern, name in KNOWN:
        if pattern.search(value):
            return name
    named = NAMES.search(key) and not COUNTS.search(key)
    if named and value and not value.isupper():  # HF_TOKEN: the name of a variable, not its value
        return f"the value of {key}"
    for word in WORD.findall(value):
        mixed = any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
        if mixed and entropy(word) > BITS:
            return "a random key"
    return ""


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
    refused={"workload": {"environment": {"id": "lookup", "args": {"api_key": "hunter2"}}}},
    accepted={"workload": {"environment": {"id": "lookup", "args": {"api_key": "SEARCH_API_KEY"}}}},
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
                f"{'.'.join(map(str, path))} looks like {kind}: a bundle must not hold it",
                resolved.span(path),
                label="would be copied into spec.yaml and plan.json",
                help=f"{key}: {re.sub(r'[^A-Z0-9]+', '_', key.upper())}   # the name of a variable, set where the job "
                "starts; revoke the one above if it was ever shared",
            )
            yield dataclasses.replace(found, hidden=True)
