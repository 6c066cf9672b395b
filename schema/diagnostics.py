"""What is wrong with a document or a plan, where, and its cure: as text for people, and as JSON, GitHub
annotations and SARIF for machines. The text has the shape that rustc and ruff print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from prlc.schema.secrets import redacted

Severity = Literal["error", "warning"]

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RESET, BOLD, RED, YELLOW, BLUE = "\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m"


@dataclass(frozen=True)
class Span:
    """A stretch of one line of a file; `line` and `col` count from 1, `length` is in characters."""

    file: str
    line: int
    col: int
    length: int


@dataclass(frozen=True)
class Note:
    """A line below the source: its label (help, rule, note, more) and its text."""

    label: str
    text: str


@dataclass(frozen=True)
class Related:
    """A second place that the finding rests on, such as a line of a catalog or cluster file: it brings its own
    source line, since that file is not the one that was checked."""

    span: Span
    line: str
    label: str


@dataclass(frozen=True)
class Diagnostic:
    """One finding. `code` is stable (PRLnnn); `label` stands under the source line, beside the underline.

    Whatever prints it hides what looks like a secret; `hidden` is for one that only its rule can tell."""

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[Note, ...] = ()
    related: tuple[Related, ...] = ()
    hidden: bool = False  # what is underlined is a secret: its line is shown without it


def render_text(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], color: bool = False) -> str:
    """All diagnostics for a terminal, a blank line between them. `sources` maps a file's name to its text;
    a finding in a file that is not there is printed without its source line."""
    return "\n".join(_one(_clean(d), sources, color) for d in diagnostics)


def _clean(diagnostic: Diagnostic) -> Diagnostic:
    """Without any secret in its words and in the lines of its related places."""
    return replace(
        diagnostic,
        message=redacted(diagnostic.message),
        label=redacted(diagnostic.label),
        notes=tuple(Note(note.label, redacted(note.text)) for note in diagnostic.notes),
        related=tuple(replace(r, line=redacted(r.line), label=redacted(r.label)) for r in diagnostic.related),
    )


def _one(diagnostic: Diagnostic, sources: Mapping[str, str], color: bool) -> str:
    def paint(style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if color and text else text

    strong = RED if diagnostic.severity == "error" else YELLOW
    head = paint(strong, f"{diagnostic.severity}[{diagnostic.code}]")
    lines = [head + paint(BOLD, f": {diagnostic.message}")]
    span = diagnostic.span
    places = [span, *(place.span for place in diagnostic.related)]
    gutter = " " * max((len(str(place.line)) for place in places if place), default=1)
    bar = paint(BLUE, f"{gutter} |")
    if span:
        lines.append(f"{gutter}{paint(BLUE, '-->')} {span.file}:{span.line}:{span.col}")
        text = sources.get(span.file, "").splitlines()[span.line - 1 : span.line]
        if text and diagnostic.hidden:
            start, end = span.col - 1, span.col - 1 + max(1, span.length)
            text = [text[0][:start] + "*" * len(text[0][start:end]) + text[0][end:]]
        if text:
            text = [redacted(text[0])]
            mark = paint(strong, f"{'^' * max(1, span.length)} {diagnostic.label}".rstrip())
            number = paint(BLUE, f"{span.line:>{len(gutter)}} |")
            lines += [bar, f"{number} {text[0]}".rstrip(), f"{bar} {_before(text[0], span)}{mark}"]
    for place in diagnostic.related:
        mark = paint(BLUE, f"{'-' * max(1, place.span.length)} {place.label}".rstrip())
        number = paint(BLUE, f"{place.span.line:>{len(gutter)}} |")
        lines += [
            bar,
            f"{gutter}{paint(BLUE, ':::')} {place.span.file}:{place.span.line}:{place.span.col}",
            bar,
            f"{number} {place.line}".rstrip(),
            f"{bar} {_before(place.line, place.span)}{mark}",
        ]
    if (span or diagnostic.related) and diagnostic.notes:
        lines.append(bar)
    for note in diagnostic.notes:
        first, *rest = note.text.splitlines() or [""]
        lines.append(f"{gutter} {paint(BLUE, '=')} {paint(BOLD, note.label)}: {first}".rstrip())
        indent = " " * (len(gutter) + len(note.label) + 5)
        lines += [f"{indent}{line}".rstrip() for line in rest]
    return "\n".join(lines) + "\n"


def _before(line: str, span: Span) -> str:
    """Blanks up to the underline; the line's tabs are kept, so that it stands below the same columns."""
    return "".join(c if c == "\t" else " " for c in line[: span.col - 1].ljust(span.col - 1))


def to_json(diagnostics: Sequence[Diagnostic]) -> str:
    """A JSON list; each entry has code, severity, message, file, line, column, length, label, notes and
    related places."""
    return json.dumps([_plain(_clean(d)) for d in diagnostics], indent=2, ensure_ascii=False) + "\n"


def _plain(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.col if span else None,
        "length": span.length if span else None,
        "label": diagnostic.label,
        "notes": [{"label": note.label, "text": note.text} for note in diagnostic.notes],
        "related": [
            {"file": r.span.file, "line": r.span.line, "column": r.span.col, "length": r.span.length, "label": r.label}
            for r in diagnostic.related
        ],
    }


def to_github(diagnostics: Sequence[Diagnostic]) -> str:
    """Workflow commands that GitHub Actions shows as annotations, one a line."""
    return "".join(f"{_github(_clean(d))}\n" for d in diagnostics)


def _github(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    properties = {"title": diagnostic.code}
    if span:
        properties = {
            "file": span.file,
            "line": str(span.line),
            "col": str(span.col),
            "endColumn": str(span.col + max(1, span.length)),
            **properties,
        }
    listed = ",".join(f"{key}={_escape(value, (':', ','))}" for key, value in properties.items())
    body = _escape("\n".join([_headline(diagnostic), *_note_lines(diagnostic)]), ())
    return f"::{diagnostic.severity} {listed}::{body}"


def _escape(text: str, more: tuple[str, ...]) -> str:
    for char in ("%", "\r", "\n", *more):
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def _headline(diagnostic: Diagnostic) -> str:
    return diagnostic.message + (f" ({diagnostic.label})" if diagnostic.label else "")


def _note_lines(diagnostic: Diagnostic) -> list[str]:
    places = [f"see {r.span.file}:{r.span.line}:{r.span.col}: {r.label}" for r in diagnostic.related]
    return [*places, *(f"{note.label}: {note.text}" for note in diagnostic.notes)]


def to_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """A SARIF 2.1.0 log with one run."""
    codes = sorted({d.code for d in diagnostics})
    rules = [{"id": code, "help": {"text": f"prlc explain {code}"}} for code in codes]
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "prlc", "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif(_clean(d)) for d in diagnostics],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _sarif(diagnostic: Diagnostic) -> dict[str, Any]:
    text = "\n".join([_headline(diagnostic), *_note_lines(diagnostic)])
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "level": diagnostic.severity,
        "message": {"text": text},
    }
    span = diagnostic.span
    if span:
        result["locations"] = [{"physicalLocation": _physical(span)}]
    if diagnostic.related:
        result["relatedLocations"] = [
            {"id": number, "physicalLocation": _physical(r.span), "message": {"text": r.label}}
            for number, r in enumerate(diagnostic.related, 1)
        ]
    return result


def _physical(span: Span) -> dict[str, Any]:
    region = {"startLine": span.line, "startColumn": span.col, "endColumn": span.col + max(1, span.length)}
    return {"artifactLocation": {"uri": quote(span.file, safe="/:")}, "region": region}
