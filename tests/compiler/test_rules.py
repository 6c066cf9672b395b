"""Every rule against its own examples: it refuses the one, lets the other pass, and has its page."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from prlc.compiler import explain
from prlc.compiler.resolve import Resolved, resolve
from prlc.compiler.rules import LAYOUT_RULES, SPEC_RULES, LayoutRule, SpecRule
from prlc.compiler.rules.example import adjusted, layout_of, spec_text
from prlc.compiler.rules.rule import Fragment
from prlc.compiler.rules.workload import ENVIRONMENTS, VERIFIERS
from prlc.schema import positions
from prlc.schema.diagnostics import Diagnostic
from prlc.schema.trainable import TRAINABLE

ROOT = Path(__file__).parents[2]


def resolved(part: Fragment) -> Resolved:
    found, diagnostics = resolve(spec_text(part), "run.yaml")
    assert found is not None, diagnostics
    return found


def judge_spec(rule: SpecRule, part: Fragment) -> list[Diagnostic]:
    return list(rule(resolved(part)))


def judge_layout(rule: LayoutRule, part: Fragment) -> list[Diagnostic]:
    return list(rule(adjusted(resolved(part.get("spec", {})), part), *layout_of(part)))


def well_formed(found: list[Diagnostic], code: str) -> None:
    for diagnostic in found:
        assert diagnostic.code == code
        assert diagnostic.span is not None
        assert any(note.label == "help" and note.text for note in diagnostic.notes)
        assert "\n" not in diagnostic.message


@pytest.mark.parametrize("rule", SPEC_RULES, ids=lambda r: r.code)
def test_spec_rule(rule: SpecRule) -> None:
    found = judge_spec(rule, rule.refused)
    assert found
    well_formed(found, rule.code)
    assert judge_spec(rule, rule.accepted) == []


@pytest.mark.parametrize("rule", LAYOUT_RULES, ids=lambda r: r.code)
def test_layout_rule(rule: LayoutRule) -> None:
    found = judge_layout(rule, rule.refused)
    assert found
    well_formed(found, rule.code)
    assert judge_layout(rule, rule.accepted) == []


@pytest.mark.parametrize("rule", [*SPEC_RULES, *LAYOUT_RULES], ids=lambda r: r.code)
def test_every_rule_has_a_page(rule: SpecRule | LayoutRule) -> None:
    page = explain.page(rule.code)
    for part in ("Inequality: ", "Source: ", "Cure: ", "Not reported with:"):
        assert part in page


def test_codes_are_given_once() -> None:
    given = [rule.code for rule in (*SPEC_RULES, *LAYOUT_RULES)]
    assert len(given) == len(set(given))


def test_every_code_in_the_sources_has_a_page() -> None:
    rooms = (*(ROOT / "compiler").rglob("*.py"), *(ROOT / "schema").rglob("*.py"))
    written = {code for path in rooms for code in re.findall(r'"(PRL\d+)"', path.read_text())}
    assert len(written) > 20
    assert written - set(explain.codes()) == set()


def test_help_lists_the_degrees_that_fit() -> None:
    rule = next(r for r in SPEC_RULES if r.code == "PRL314")
    (found,) = judge_spec(rule, {"trainer": {"parallel": {"ep": 12}}})
    (cure,) = [note.text for note in found.notes if note.label == "help"]
    degrees = [int(n) for n in re.findall(r"\d+", cure)]
    assert degrees
    assert all(128 % n == 0 for n in degrees)
    assert found.span is not None
    assert "12" in spec_text({"trainer": {"parallel": {"ep": 12}}}).splitlines()[found.span.line - 1]


def test_trainable_models_are_those_of_the_trainer() -> None:
    tree = ast.parse((ROOT / "runtime/trainer/model.py").read_text())
    families = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "FAMILIES"
    ]
    assert [[ast.literal_eval(key) for key in found.keys] for found in families] == [list(TRAINABLE)]


def test_environments_are_those_of_the_runtime() -> None:
    base = (ROOT / "runtime/environments/base.py").read_text()
    builtin = next(
        ast.literal_eval(node.value)
        for node in ast.parse(base).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BUILTIN"
    )
    classes = {
        node.name: node
        for node in ast.parse((ROOT / "runtime/environments/builtin.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    }

    def arguments(name: str) -> set[str]:
        node = classes[name]
        own = {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}
        return own.union(*(arguments(b.id) for b in node.bases if isinstance(b, ast.Name) and b.id in classes))

    assert {name: arguments(kind) for name, kind in builtin.items()} == {
        name: set(known) for name, known in ENVIRONMENTS.items()
    }
    assert f'VERIFIERS = "{VERIFIERS}"' in base


def spans_of(text: str) -> dict[tuple[int, int], tuple[str | int, ...]]:
    document = positions.load(text, "run.yaml")
    both = (*document.key_spans.items(), *document.value_spans.items())
    return {(span.line, span.col): path for path, span in both}


def pasted(text: str, path: tuple[str | int, ...], value: object) -> str:
    data = yaml.safe_load(text)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return yaml.safe_dump(data, sort_keys=False)


PASTE = re.compile(r"^([a-z_]+): (\[[^]]*\]|\{[^}]*\}|\S+?)(?:,| is | or |$)")


@pytest.mark.parametrize("rule", SPEC_RULES, ids=lambda r: r.code)
def test_a_help_line_of_the_underlined_key_can_be_pasted(rule: SpecRule) -> None:
    text = spec_text(rule.refused)
    (first, *_) = judge_spec(rule, rule.refused)
    assert first.span is not None
    path = spans_of(text)[(first.span.line, first.span.col)]
    (cure,) = [note.text for note in first.notes if note.label == "help"]
    match = PASTE.match(cure)
    if match is None or match[1] != str(path[-1]):
        return
    mended = pasted(text, path, yaml.safe_load(match[2]))
    found, diagnostics = resolve(mended, "run.yaml")
    assert found is not None, diagnostics
    left = [d for d in rule(found) if d.span is not None and spans_of(mended).get((d.span.line, d.span.col)) == path]
    assert left == []


def test_most_help_lines_can_be_pasted() -> None:
    can = 0
    for rule in SPEC_RULES:
        (first, *_) = judge_spec(rule, rule.refused)
        (cure,) = [note.text for note in first.notes if note.label == "help"]
        can += bool(re.search(r"\b[a-z_]+: \S+", cure)) or "leave " in cure
    assert can / len(SPEC_RULES) > 0.8
