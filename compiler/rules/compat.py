"""What catalog/compat.yaml says of the features that meet in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.catalog.compat import compat, release
from prlc.compiler.compat import path_of, speaking
from prlc.compiler.rules.places import of_model
from prlc.compiler.rules.rule import finding, layout_rule

if TYPE_CHECKING:
    from prlc.compiler.layout import Layout
    from prlc.compiler.resolve import Resolved
    from prlc.schema.compat import Pair
    from prlc.schema.diagnostics import Diagnostic
    from prlc.schema.plan import Ledger


def _together(row: Pair) -> str:
    return " with ".join(row.features) if len(row.features) > 1 else row.features[0]


def _listed(row: Pair) -> str:
    return f"{', '.join(row.features[:-1])} and {row.features[-1]}"


def _help(row: Pair) -> str:
    return (row.cure or "leave one of them out") + (f"; the price: {row.price}" if row.price else "")


@layout_rule(
    "PRL801",
    refused={"store": {"segment_bytes": 2**40}, "layout": {"router_replay": True}},
    accepted={"layout": {"router_replay": True}},
)
def features_go_together(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """No two features of the plan exclude each other.

    Inequality: no row of catalog/compat.yaml with the verdict refused whose features and versions the plan has
    Source: the row's own source, which the diagnostic prints.
    Cure: what the row says; its price is what giving a feature up costs.
    """
    for row, _ in speaking(resolved, layout):
        if row.verdict == "refused":
            yield finding(
                "PRL801",
                f"{_together(row)}: {row.reason}",
                resolved.span(path_of(row, resolved)),
                label=f"compat.yaml: {row.id}",
                rule=f"source: {row.source}",
                help=_help(row),
            )


@layout_rule(
    "PRL802",
    refused={
        "spec": {"model": "glm-5.1", "cluster": "h200-28x8"},
        "trainer": {"cp": 4},
        "facts": {"index_topk": 100},
    },
    accepted={"spec": {"model": "glm-5.1", "cluster": "h200-28x8"}, "trainer": {"cp": 4}},
)
def conditions_are_met(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Features that work on a condition have it.

    Inequality: for each row of catalog/compat.yaml with the verdict works_if, the plan has all that it needs
    Source: the row's own source, which the diagnostic prints. What only the machines can tell is the preflight's.
    Cure: what the row says.
    """
    for row, missing in speaking(resolved, layout):
        if row.verdict == "works_if" and missing:
            yield finding(
                "PRL802",
                f"{_together(row)} works only with {' and '.join(missing)}: {row.reason}",
                resolved.span(path_of(row, resolved)),
                label=f"compat.yaml: {row.id}",
                rule=f"source: {row.source}",
                help=_help(row),
            )


@layout_rule(
    "PRL803",
    refused={"spec": {"model": "gpt-oss-20b"}, "layout": {"router_replay": True}},
    accepted={"spec": {"model": "qwen3-30b-a3b"}, "layout": {"router_replay": True}},
)
def combinations_are_known(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """Somebody has shown that the features of the plan work together (warning; an error with strict).

    Inequality: no row of catalog/compat.yaml with the verdict unknown whose features and versions the plan has
    Source: the row's own source, which the diagnostic prints.
    Cure: what the row says, or a small run of your own that shows it.
    """
    for row, _ in speaking(resolved, layout):
        if row.verdict == "unknown":
            yield finding(
                "PRL803",
                f"nobody has shown {_listed(row)} together: {row.reason}"
                if len(row.features) > 1
                else f"nobody has shown {row.features[0]} to work: {row.reason}",
                resolved.span(path_of(row, resolved)),
                label=f"compat.yaml: {row.id}",
                rule=f"source: {row.source}",
                help=row.cure or "leave one of them out",
                severity="warning",
            )


@layout_rule(
    "PRL811",
    refused={"model": {"serving": {"vllm_recipe": {"min_vllm_version": "99.0"}}}},
    accepted={"model": {"serving": {"vllm_recipe": {"min_vllm_version": "0.8.5"}}}},
)
def engines_know_the_model(resolved: Resolved, layout: Layout, ledgers: tuple[Ledger, ...]) -> Iterator[Diagnostic]:
    """The engines of this release know the model.

    Inequality: min_vllm_version of the model <= vLLM of the stack
    Source: the model's entry in the catalog, from vllm-project/recipes; the stack stands in catalog/compat.yaml.
    Cure: another model, or a release of prlc with a newer vLLM.
    """
    recipe = resolved.model.serving.get("vllm_recipe")
    wanted = str(recipe.get("min_vllm_version", "")) if isinstance(recipe, dict) else ""
    ours = compat().stack["vllm"]
    if wanted and release(wanted) > release(ours):
        yield finding(
            "PRL811",
            f"{resolved.model.name} needs vLLM {wanted}, and this release runs {ours}",
            resolved.span(("model",)),
            label=f"{wanted} > {ours}",
            rule="min_vllm_version <= vLLM of the stack",
            help="another model, or a newer prlc",
            related=of_model(resolved, ("min_vllm_version",), wanted),
        )
