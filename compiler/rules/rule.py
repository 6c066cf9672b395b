"""What a rule is: a check with its code, its page (the docstring) and two examples that are its test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from prlc.schema.diagnostics import Diagnostic, Note

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Related, Span
    from prlc.schema.plan import Ledger

Severity = Literal["error", "warning"]
Fragment = Mapping[str, Any]  # merged over the base of prlc.compiler.rules.example
SpecCheck = Callable[["Resolved"], Iterator[Diagnostic]]
LayoutCheck = Callable[["Resolved", "Layout", "tuple[Ledger, ...]"], Iterator[Diagnostic]]


@dataclass(frozen=True)
class SpecRule:
    """Judges what the spec says, before anything is solved. `refused` and `accepted` are parts of a spec."""

    code: str
    check: SpecCheck
    refused: Fragment
    accepted: Fragment

    def __call__(self, resolved: Resolved) -> Iterator[Diagnostic]:
        """Diagnostics of the rule, each with its code."""
        return self.check(resolved)

    @property
    def page(self) -> str:
        """What `prlc explain` prints."""
        return inspect.getdoc(self.check) or ""


@dataclass(frozen=True)
class LayoutRule:
    """Judges a candidate layout with its ledgers.

    The examples are parts of a layout: {"layout": {...}, "trainer": {...}, "engine": {...}, "engines": ({...}, ...),
    "store": {...}, "ports": ((node, port, role, purpose), ...), "ledger": {...}, "roles": (...), "spec": {...}},
    values that replace those of the base.
    """

    code: str
    check: LayoutCheck
    refused: Fragment
    accepted: Fragment

    def __call__(self, resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
        """Diagnostics of the rule, each with its code."""
        return self.check(resolved, layout, ledgers)

    @property
    def page(self) -> str:
        """What `prlc explain` prints."""
        return inspect.getdoc(self.check) or ""


def spec_rule(code: str, *, refused: Fragment, accepted: Fragment) -> Callable[[SpecCheck], SpecRule]:
    """Make a function a rule on specs."""
    return lambda check: SpecRule(code, check, refused, accepted)


def layout_rule(code: str, *, refused: Fragment, accepted: Fragment) -> Callable[[LayoutCheck], LayoutRule]:
    """Make a function a rule on layouts."""
    return lambda check: LayoutRule(code, check, refused, accepted)


def finding(
    code: str,
    message: str,
    span: Span | None,
    *,
    label: str = "",
    rule: str = "",
    help: str = "",
    severity: Severity = "error",
    related: tuple[Related, ...] = (),
) -> Diagnostic:
    """A diagnostic with the notes that every rule gives: the inequality, the cure and where to read more."""
    notes = [Note(name, text) for name, text in (("rule", rule), ("help", help)) if text]
    return Diagnostic(
        code=code,
        severity=severity,
        message=message,
        span=span,
        label=label,
        notes=(*notes, Note("more", f"prlc explain {code}")),
        related=related,
    )
