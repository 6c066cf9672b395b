"""A document's text against its dataclass: the instance, and every mistake at its line with a cure.

PRL101 no YAML, PRL102 unknown key, PRL103 key given twice, PRL104 wrong type or choice, PRL105 wrong unit,
PRL106 missing key, PRL107 out of bounds.
"""

from __future__ import annotations

import difflib
import re
from typing import TypeVar

from prlc.schema import codec
from prlc.schema.codec import UNIT_EXAMPLES, UNITS, DocumentError, Problem
from prlc.schema.diagnostics import Diagnostic, Note, Span
from prlc.schema.positions import Duplicate, Path, Positioned, load

T = TypeVar("T")

CODES: dict[codec.ProblemKind, str] = {
    "unknown": "PRL102",
    "type": "PRL104",
    "choice": "PRL104",
    "unit": "PRL105",
    "missing": "PRL106",
    "bound": "PRL107",
}
BOUNDS = ((" is below ", "at least"), (" is above ", "at most"), (" does not match ", "a text that matches"))
WORDED = re.compile(r"^'(\d+(?:\.\d+)?)\s*([A-Za-z/]+)' ")
COUNTED = re.compile(r"^'(\d+)\s*([kKmM])'(?: is not a whole number)?$")
OTHER_UNITS = {"day": "d", "hour": "h", "hr": "h", "minute": "min", "m": "min", "second": "s", "sec": "s"}
HELP_YAML = "check quotes, brackets, colons and indentation (spaces, no tabs) at and before this place"


def check(cls: type[T], text: str, filename: str) -> tuple[T | None, list[Diagnostic]]:
    """The document as `cls`, or None with all of its mistakes, sorted by line. A wrong text never raises."""
    document = load(text, filename)
    if document.error:
        return None, [_error("PRL101", "this is not a YAML document", document.error.span,
                             document.error.message, HELP_YAML)]  # fmt: skip
    found = [_duplicate(d) for d in document.duplicates]
    instance: T | None = None
    try:
        instance = codec.decode(cls, {} if document.data is None else document.data, filename)
    except DocumentError as error:
        top = Span(filename, 1, 1, max(1, len((text.splitlines() or [""])[0].rstrip())))
        found += [_diagnostic(problem, document, top) for problem in _without_echoes(error.problems)]
    found.sort(key=lambda d: (d.span.line, d.span.col, d.code) if d.span else (0, 0, d.code))
    return (None if found else instance), found


def _error(code: str, message: str, span: Span, label: str, cure: str, *more: Note) -> Diagnostic:
    return Diagnostic(code, "error", message, span, label, (Note("help", cure), *more))


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """A misspelt key is one mistake, not an unknown key and a missing one."""
    unknown = [p for p in problems if p.kind == "unknown"]
    meant = {(*p.path[:-1], _close(str(p.path[-1]), p.choices)) for p in unknown}
    return [p for p in problems if not (p.kind == "missing" and p.path in meant)]


def _diagnostic(problem: Problem, document: Positioned, top: Span) -> Diagnostic:
    path, code = problem.path, CODES[problem.kind]
    key, parent, dotted = str(path[-1]) if path else "the document", _dotted(path[:-1]), _dotted(path)
    span = document.value_spans.get(path, top)
    if problem.kind == "unknown":
        close = _close(key, problem.choices)
        known = Note("note", f"keys of {parent}: {', '.join(problem.choices)}")
        cure = f"did you mean {close}?" if close else "remove it, or use one of the keys below"
        where = document.key_spans.get(path, top)
        return _error(code, f"unknown key {key!r} in {parent}", where, "unknown key", cure, known)
    if problem.kind == "missing":
        holder = path[:-1]
        where = document.key_spans.get(holder) or document.value_spans.get(holder) or top if holder else top
        cure = f"{f'add to {parent}' if holder else 'add this line'}: {key}: {problem.example}"
        return _error(code, f"missing key {key!r} in {parent}", where, f"{key} is missing", cure)
    if problem.kind == "unit":
        units = ", ".join(problem.choices)
        meant, forms = _question(_meant_quantity(problem)), ", ".join(_forms(problem))
        cure = f"{meant}write a number with its unit, e.g. {forms}; units: {units}"
        return _error(code, f"{dotted} is not a number with a unit", span, "no valid unit", cure)
    if problem.kind == "bound":
        return _error(code, f"{dotted} is out of bounds", span, problem.message, _bound_cure(key, problem))
    given, _, wanted = problem.message.partition(" is none of: ")
    meant = _question(_close(given.strip("'\""), problem.choices) or _meant_count(given))
    if problem.kind == "choice":
        cure = f"{meant}{key} may be {_either(problem.choices)}"
        return _error(code, f"{dotted} cannot be {given}", span, "not a choice", cure)
    wanted = wanted or problem.message.rpartition(" is not ")[2]
    cure = f"{meant}{key} takes {_either(tuple(wanted.split(', ')))}"
    return _error(code, f"{dotted} has the wrong type", span, problem.message, cure)


def _question(word: str) -> str:
    return f"did you mean {word}? " if word else ""


def _meant_quantity(problem: Problem) -> str:
    """'1day' -> '1d', '80gib' -> '80GiB': what is said in other words, '' where that is not clear."""
    match = WORDED.match(problem.message)
    if match is None:
        return ""
    word = match[2].lower().removesuffix("s")
    named = OTHER_UNITS.get(word)
    same = [unit for unit in problem.choices if unit.lower() == match[2].lower()]
    units = same or [unit for unit in problem.choices if unit == named]
    return f"{match[1]}{units[0]}" if len(units) == 1 else ""


def _meant_count(given: str) -> str:
    """'32k' -> '32768': lengths of samples are counted in powers of two."""
    match = COUNTED.match(given)
    return str(int(match[1]) * (2**10 if match[2] in "kK" else 2**20)) if match else ""


def _forms(problem: Problem) -> list[str]:
    kinds = [kind for kind, units in UNITS.items() if set(units) <= set(problem.choices)]
    return [form for kind in kinds for form in UNIT_EXAMPLES[kind]]


def _bound_cure(key: str, problem: Problem) -> str:
    for sign, word in BOUNDS:
        if sign in problem.message:
            return f"{key} must be {word} {problem.message.rpartition(sign)[2]}"
    return f"{key} must be a finite number"


def _duplicate(duplicate: Duplicate) -> Diagnostic:
    key, first, second = str(duplicate.path[-1]), duplicate.first, duplicate.second
    lines = f"lines {first.line} and {second.line}"
    message = f"key {key!r} is given twice in {_dotted(duplicate.path[:-1])}: {lines}"
    return _error("PRL103", message, second, f"first given at line {first.line}", "keep one of the two")


def _close(word: str, choices: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    return found[0] if found else ""


def _either(words: tuple[str, ...]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _dotted(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the document"
