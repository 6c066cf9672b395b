"""The page of a code, and why one value of a plan is what it is."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import yaml
from prlc.compiler.rules import LAYOUT_RULES, SPEC_RULES, LayoutRule, SpecRule

if TYPE_CHECKING:
    from prlc.schema.plan import Decision, Plan

RULES: tuple[SpecRule | LayoutRule, ...] = (*SPEC_RULES, *LAYOUT_RULES)
# what is reported outside the rules
OTHER = {
    "PRL101": "The file is not a YAML document.\n\nCure: quotes, brackets, colons and indentation (spaces,"
    " no tabs) at and before the place.",
    "PRL102": "A key that the document does not know; nothing is ignored silently.\n\nCure: the listed name"
    " that was meant, or leave it out. `prlc schema` has every key.",
    "PRL103": "A key is given twice in one mapping.\n\nCure: keep one of the two.",
    "PRL104": "A value of the wrong type, or none of the choices.\n\nCure: the diagnostic lists what it may be.",
    "PRL105": "A size, time or rate without its unit, or with a unit that is not known.\n\nCure: 80GiB, 5min,"
    " 400GB/s; bare numbers are counts.",
    "PRL106": "A key that must be given is missing.\n\nCure: add it; what prlc can derive is never asked for.",
    "PRL107": "A value outside the bounds of its key.\n\nCure: the diagnostic names the bound.",
    "PRL201": "No model of that name or path.\n\nCure: a name of `prlc catalog list models`, a model file,"
    " or a folder with a Hugging Face config.json.",
    "PRL202": "No cluster of that name or path.\n\nCure: a name of `prlc catalog list clusters`, or a cluster file.",
    "PRL203": "The cluster's GPU is not in the catalog.\n\nCure: a name of `prlc catalog list gpus`.",
    "PRL206": "No kernels file of that name or path, or one of another GPU than the cluster's.\n\n"
    "Cure: kernels: auto, a name of catalog/kernels, or a file that `prlc calibrate` wrote for this GPU.",
    "PRL204": "The model's architecture has no parameter formula, or its config lacks a key.\n\n"
    "Cure: a model_type that the catalog knows.",
    "PRL400": "No layout of trainer and engines fits the cluster.\n\nCure: the diagnostic names the nearest"
    " miss and what would help: more nodes, a shorter seq_len, a lower precision, or fewer pinned degrees.",
}


class NothingToExplain(LookupError):
    """No such code or path; the message says what there is."""


def codes() -> tuple[str, ...]:
    """Every code that has a page."""
    return tuple(sorted({*OTHER, *(rule.code for rule in RULES)}))


def page(code: str) -> str:
    """What a code means, its inequality, source, cure and examples. Raises NothingToExplain."""
    code = code.upper()
    for rule in RULES:
        if rule.code == code:
            subject = "run.yaml" if isinstance(rule, SpecRule) else "a layout"
            return "\n".join(
                [
                    f"{code}: {rule.page}",
                    "",
                    f"Reported for {subject} with:",
                    _indented(rule.refused),
                    "",
                    "Not reported with:",
                    _indented(rule.accepted),
                ]
            )
    if code in OTHER:
        return f"{code}: {OTHER[code]}"
    raise NothingToExplain(f"no code {code}; there are {', '.join(codes())}")


def _indented(fragment: object) -> str:
    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    text = yaml.safe_dump(plain(fragment), sort_keys=False, default_flow_style=None, allow_unicode=True)
    return "\n".join(f"  {line}" for line in text.splitlines())


def decision(plan: Plan, path: str) -> Decision:
    """The decision on a spec path, or on the end of one (`ep`, `trainer.ep`). Raises NothingToExplain."""
    wanted = path.lower().split(".")
    exact = [d for d in plan.decisions if d.path.lower() == path.lower()]
    found = exact or [d for d in plan.decisions if _ends(d.path.lower().split("."), wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NothingToExplain(f"{path} could be {' or '.join(d.path for d in found)}")
    known = [d.path for d in plan.decisions]
    close = difflib.get_close_matches(path, known, n=3, cutoff=0.5)
    listed = f"did you mean {' or '.join(close)}?" if close else f"decided: {', '.join(known)}"
    raise NothingToExplain(f"{path} is not a value that was derived; {listed}")


def _ends(path: list[str], wanted: list[str]) -> bool:
    """True when `path` holds the keys of `wanted` in order and ends as it: trainer.[parallel.]ep."""
    keys = iter(path)
    return path[-1] == wanted[-1] and all(key in keys for key in wanted)


def decision_text(found: Decision) -> str:
    """A decision for people."""
    lines = [
        f"{found.path} = {found.value}   (asked: {found.asked})",
        f"  because: {found.reason}",
        f"  decided by: {found.rule}",
    ]
    if found.alternatives:
        lines.append("  instead of:")
        lines += [f"    {option.value}: {option.outcome}" for option in found.alternatives]
    return "\n".join(lines)
