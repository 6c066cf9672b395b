"""docs/diagnostics: one page a code, from the rule's docstring and its two examples, and an index.

`python -m prlc.compiler.rule_pages docs/diagnostics` writes them; a test holds the files to it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml
from prlc.catalog.compat import compat
from prlc.compiler import explain
from prlc.compiler.rules import LayoutRule, SpecRule
from prlc.compiler.rules.example import merged

FAMILIES = (
    ("1", "Documents"),
    ("2", "Names of the catalog"),
    ("30", "Counts and lengths"),
    ("31", "The trainer's mesh"),
    ("32", "Nodes and engines"),
    ("33", "Precisions and held values"),
    ("34", "Router replay"),
    ("35", "Staleness and schedules"),
    ("36", "Paths, jobs and secrets"),
    ("37", "This release"),
    ("39", "Loss and optimizer"),
    ("4", "Memory, fit and objective"),
    ("5", "Engines, router and KV"),
    ("6", "Forecast"),
    ("7", "Slurm"),
    ("8", "Features and versions"),
)
PARTS = ("Inequality", "Source", "Cure")


def files() -> dict[str, str]:
    """File name to text of every page and of the index."""
    codes = explain.codes()
    return {"README.md": index(codes)} | {f"{code}.md": page(code) for code in codes}


def page(code: str) -> str:
    """One page as Markdown."""
    rule = next((r for r in explain.RULES if r.code == code), None)
    if rule is None:
        title, *rest = explain.page(code).partition(": ")[2].split("\n\n")
        return _text([f"# {code}: {_flat(title)}", *(_flat(part) for part in rest)])
    title, *parts = rule.page.split("\n\n")
    parts = [_labelled(part) for part in parts]
    kind = "a spec" if isinstance(rule, SpecRule) else "a plan whose layout, beside a small base, has"
    blocks = [f"# {code}: {_flat(title)}", *parts, f"Reported for {kind}:", _example(rule, refused=True)]
    return _text([*blocks, "Not reported for:", _example(rule, refused=False)])


def _example(rule: SpecRule | LayoutRule, *, refused: bool) -> str:
    fragment = rule.refused if refused else rule.accepted
    both = merged({}, _plain(fragment))
    text = yaml.safe_dump(both, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
    return f"```yaml\n{text.rstrip()}\n```"


def _plain(value: object) -> dict[str, object]:
    def plain(item: object) -> object:
        if isinstance(item, dict):
            return {key: plain(inner) for key, inner in item.items()}
        return [plain(inner) for inner in item] if isinstance(item, list | tuple) else item

    made = plain(value)
    assert isinstance(made, dict)
    return made


def _labelled(part: str) -> str:
    """A paragraph of a docstring; Inequality, Source and Cure become items."""
    found = re.split(rf"^({'|'.join(PARTS)}): ", part, flags=re.M)
    if len(found) == 1:
        return _flat(part)
    lead, pairs = found[0].strip(), list(zip(found[1::2], found[2::2], strict=True))
    items = [f"- {name}: {f'`{_flat(text)}`' if name == 'Inequality' else _flat(text)}" for name, text in pairs]
    return "\n".join([*([_flat(lead), ""] if lead else []), *items])


def _flat(text: str) -> str:
    return " ".join(text.split())


def _text(blocks: list[str]) -> str:
    return "\n\n".join(blocks) + "\n"


def index(codes: tuple[str, ...]) -> str:
    """README.md: every code by family."""
    lines = [
        "# Diagnostics",
        "",
        "What `prlc plan`, `prlc build` and `prlc check` may say; `prlc explain CODE` prints the same page. Made by",
        "`python -m prlc.compiler.rule_pages docs/diagnostics` from the rules.",
    ]
    left = list(codes)
    for prefix, title in FAMILIES:
        here = [code for code in left if code.startswith(f"PRL{prefix}")]
        left = [code for code in left if code not in here]
        if here:
            lines += ["", f"## {title}", ""]
            lines += [f"- [{code}]({code}.md): {_title(code)}" for code in here]
    if left:
        lines += ["", "## Others", "", *(f"- [{code}]({code}.md): {_title(code)}" for code in left)]
    return "\n".join(lines) + "\n"


def _title(code: str) -> str:
    return _flat(explain.page(code).partition(": ")[2].split("\n\n")[0])


def compatibility() -> str:
    """docs/compatibility.md: catalog/compat.yaml as tables."""
    table = compat()
    lines = [
        "# Compatibility",
        "",
        "Which features go together, by `catalog/compat.yaml`; `python -m prlc.compiler.rule_pages docs/diagnostics`",
        "makes this page. A row speaks where a plan has all of its features and the versions lie in its ranges:",
        "`refused` is [PRL801](diagnostics/PRL801.md), `works_if` without what it needs",
        "[PRL802](diagnostics/PRL802.md), `unknown` a warning, [PRL803](diagnostics/PRL803.md): `strict: true` in",
        "a spec or `prlc check --strict` makes an error. Of two wishes that are left to `auto` and exclude each other,",
        "`prefer` in the spec says which one wins; the plan's decisions state the price of the other.",
        "",
        "Versions of this release: " + ", ".join(f"{name} {version}" for name, version in table.stack.items()) + ".",
        "",
        "| features | verdict | versions | why | instead | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in table.rows:
        needs = [*row.needs, *([row.probe] if row.probe else [])]
        verdict = row.verdict + (f": {', '.join(needs)}" if needs else "")
        why = row.reason + (f" Price of doing without: {row.price}." if row.price else "")
        versions = ", ".join(f"{name} {wanted}" for name, wanted in row.versions.items())
        cells = (" with ".join(row.features), verdict, versions, why, row.cure, row.source)
        lines.append("| " + " | ".join(_flat(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", "## Features", "", "| feature | when a run has it | key |", "| --- | --- | --- |"]
    lines += [f"| {f.name} | {_flat(f.means)} | {f.path or 'none in this release'} |" for f in table.features]
    return "\n".join(lines) + "\n"


def main(folder: str) -> int:
    """Write every page; pages of codes that are gone go too."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    made = files()
    for old in out.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (out / name).write_text(text, "utf-8")
    (out.parent / "compatibility.md").write_text(compatibility(), "utf-8")
    print(f"{len(made)} pages in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
