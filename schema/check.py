"""A document's text against its dataclass: the instance, and every mistake at its line with a cure.

PRL101 no YAML · PRL102 unknown key · PRL103 key given twice · PRL104 wrong type or choice · PRL105 wrong unit ·
PRL106 missing key · PRL107 out of bounds.
"""

from __future__ import annotations

import difflib
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


HELP_YAML = (
    Note("help", "check quotes, brackets, colons and indentation (spaces, no tabs) at and before this place"),
)


def check(cls: type[T], text: str, filename: str) -> tuple[T | None, list[Diagnostic]]:
    """The document as `cls`, or None with all of its mistakes, sorted by line. Raises nothing for a wrong text."""
    document = load(text, filename)
    if document.error:
        fault = document.error
        found = [
            Diagnostic("PRL101", "error", "this is not a YAML document", fault.span, fault.message, HELP_YAML)
        ]
        return None, found
    found = [_duplicate(d) for d in document.duplicates]
    instance: T | None = None
    try:
        instance = codec.decode(cls, {} if document.data is None else document.data, filename)
    except DocumentError as error:
        top = Span(filename, 1, 1, max(1, len((text.splitlines() or [""])[0].rstrip())))
        found += [_diagnostic(problem, document, top) for problem in error.problems]
    found.sort(key=lambda d: (d.span.line, d.span.col, d.code) if d.span else (0, 0, d.code))
    return (None if found else instance), found


def _diagnostic(problem: Problem, document: Positioned, top: Span) -> Diagnostic:
    path, key = problem.path, str(problem.path[-1]) if problem.path else "the document"
    code, value = CODES[problem.kind], document.value_spans.get(path, top)
    if problem.kind == "unknown":
        close = _close(key, problem.choices)
        notes = [Note("help", f"did you mean {close}?")] if close else []
        notes.append(Note("note", f"{_parent(path)} knows: {', '.join(problem.choices)}"))
        message = f"unknown key {key!r} in {_parent(path)}"
        return Diagnostic(
            code, "error", message, document.key_spans.get(path, top), "unknown key", tuple(notes)
        )
    if problem.kind == "missing":
        return _missing(problem, document, top)
    dotted = _dotted(path)
    if problem.kind == "unit":
        return Diagnostic(
            code, "error", f"{dotted} needs a unit", value, "no valid unit", (_unit_help(problem),)
        )
    if problem.kind == "choice":
        given = problem.message.partition(" is none of")[0].strip("'\"")
        close = _close(given, problem.choices)
        cure = f"did you mean {close}? It may be: " if close else "it may be: "
        note = Note("help", cure + ", ".join(problem.choices))
        return Diagnostic(code, "error", f"{dotted} cannot be {given}", value, "not a choice", (note,))
    if problem.kind == "bound":
        message = f"{dotted} is out of bounds"
        return Diagnostic(code, "error", message, value, problem.message, (_bound_help(key, problem),))
    wanted = problem.message.partition(" is not ")[2] or problem.message.partition(" is none of: ")[2]
    note = Note("help", f"{key} takes {wanted}" if wanted else f"{key}: {problem.message}")
    return Diagnostic(code, "error", f"{dotted} has the wrong type", value, problem.message, (note,))


def _missing(problem: Problem, document: Positioned, top: Span) -> Diagnostic:
    key, parent = str(problem.path[-1]), problem.path[:-1]
    where = (document.key_spans.get(parent) or document.value_spans.get(parent) or top) if parent else top
    place = f"add to {_dotted(parent)}" if parent else "add this line"
    note = Note("help", f"{place}: {key}: {problem.example}")
    message = f"missing key {key!r} in {_dotted(parent)}"
    return Diagnostic("PRL106", "error", message, where, f"{key} is missing", (note,))


def _unit_help(problem: Problem) -> Note:
    kinds = [kind for kind, units in UNITS.items() if set(units) <= set(problem.choices)]
    forms = [form for kind in kinds for form in UNIT_EXAMPLES[kind]]
    return Note(
        "help", f"write a number with its unit, e.g. {', '.join(forms)}; units: {', '.join(problem.choices)}"
    )


def _bound_help(key: str, problem: Problem) -> Note:
    for sign, word in (
        (" is below ", "at least"),
        (" is above ", "at most"),
        (" does not match ", "a text like"),
    ):
        if sign in problem.message:
            return Note("help", f"{key} must be {word} {problem.message.rpartition(sign)[2]}")
    return Note("help", f"{key} must be a finite number")


def _duplicate(duplicate: Duplicate) -> Diagnostic:
    key, first, second = str(duplicate.path[-1]), duplicate.first, duplicate.second
    message = f"key {key!r} is given twice in {_parent(duplicate.path)}: lines {first.line} and {second.line}"
    label = f"first given at line {first.line}, column {first.col}"
    return Diagnostic("PRL103", "error", message, second, label, (Note("help", "keep one of the two"),))


def _close(word: str, choices: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    return found[0] if found else ""


def _dotted(path: Path) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the document"


def _parent(path: Path) -> str:
    return _dotted(path[:-1])
