"""What looks like a secret in a text, and the text without it: nothing that prlc prints shows one."""

from __future__ import annotations

import math
import re
from collections import Counter

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
WORDS = r"(?:password|passwd|secret|token|api_?key|access_?key|private_?key|credentials?)"
NAMES = re.compile(rf"(?:^|[_-]){WORDS}$", re.I)
COUNTS = re.compile(r"(?:max|min|num|new|stop|eos|pad|bos)_?(?:new_)?token|tokens$", re.I)
WORD = re.compile(r"(?<!sha256:)\b[A-Za-z0-9+=]{32,}")  # a digest is public
BITS = 3.2  # 32 random hex characters have 3.3 bits each or more, repeated words less


def entropy(word: str) -> float:
    """Bits a character, from the word's own letters."""
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


def random_key(word: str) -> bool:
    """Letters and digits mixed, with more bits a character than words have."""
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word) and entropy(word) > BITS


def _names_secret(key: str) -> bool:
    return bool(NAMES.search(key)) and not COUNTS.search(key)


def looks_secret(key: str, value: str) -> str:
    """What a value looks like: a known token, a password by its key, or a random key; '' for neither."""
    for pattern, name in KNOWN:
        if pattern.search(value):
            return name
    if _names_secret(key) and value and not value.isupper():  # HF_TOKEN: the name of a variable, not its value
        return f"the value of {key}"
    return "a random key" if any(map(random_key, WORD.findall(value))) else ""


# such a key and its value in YAML or JSON: quoted, a list, or plain up to what closes it
PAIR = re.compile(
    rf"""(?P<key>(?<![A-Za-z0-9])(?:[A-Za-z0-9]+[_-])*{WORDS})["']?[ \t]*[:=][ \t]*"""
    r"""(?P<value>"(?:\\.|[^"\\])*"?|'(?:''|[^'])*'?|\[[^]]*\]?"""
    r"""|[^\s,{}\[\]#](?:[^,{}\[\]\n]|[,{}\[\]](?=[^\s,{}\[\]]))*)""",
    re.I,
)


def redacted(text: str) -> str:
    """The text with stars, one a character, for known tokens, random keys and what stands behind the key of a secret.

    >>> redacted("{id: lookup, args: {api_key: hunter2}}")
    '{id: lookup, args: {api_key: *******}}'
    """
    for pattern, _ in KNOWN:
        text = pattern.sub(lambda m: "*" * len(m[0]), text)
    text = WORD.sub(lambda m: "*" * len(m[0]) if random_key(m[0]) else m[0], text)
    return PAIR.sub(_value_hidden, text)


def _value_hidden(pair: re.Match[str]) -> str:
    value = pair["value"].rstrip()
    if not _names_secret(pair["key"]) or value.strip("\"'").isupper():
        return pair[0]
    start = pair.start("value") - pair.start()
    return pair[0][:start] + "*" * len(value) + pair[0][start + len(value) :]
