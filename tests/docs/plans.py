"""Write docs/plans from the examples' own plans: `python -m tests.docs.plans [NAME...]`. Takes some minutes for all.

Every figure comes from a plan that is made here; the arguments below hold words alone.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

from prlc.compiler import render
from prlc.compiler.decisions import layout_text
from prlc.compiler.plan import plan as make
from prlc.compiler.search.losers import memory_of
from prlc.compiler.whatif import Answer, answer
from prlc.schema.plan import Plan, Term

ROOT = Path(__file__).parents[2]
EXAMPLES, OUT = ROOT / "examples", ROOT / "docs" / "plans"
DEGREES = {
    "trainer.parallel.cp": ("1", "2", "4", "8"),
    "trainer.parallel.ep": ("1", "2", "4", "8", "16", "32"),
    "trainer.activation_checkpoint": ("none", "selective", "full"),
    "trainer.optimizer.offload": ("none", "cpu"),
    "inference.tensor_parallel": ("1", "2", "4", "8"),
    "inference.expert_parallel": ("true", "false"),
    "inference.disaggregate": ("true", "false"),
}


@dataclass(frozen=True)
class Argument:
    """What a page says beside its figures: why this workload, what decides, and layouts to compare with."""

    title: str
    about: str
    decides: str
    compare: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()  # (words, pins)


SWE = "Software-engineering episodes: many short turns over a prefix that grows to the whole context."
RECIPE = (
    ("trainer.parallel", "{cp: 4, ep: 8}"),
    ("trainer.optimizer.offload", "cpu"),
    ("inference.disaggregate", "true"),
)
ARGUMENTS = {
    "glm-5.1-swe-28x8-h200": Argument(
        "GLM-5.1 on 28 nodes",
        SWE + " The objective is a step of five minutes, on as few GPUs as reach it; the published run had 12 trainer"
        " and 16 inference nodes (Prime Intellect, RL at 1T scale, 2026-06; the split is from the vLLM newsletter)"
        " with a trainer step of about 3.7 minutes and rollouts of about 5.0 minutes, medians.",
        "Memory decides the trainer: masters, gradients and moments leave the GPU, layers are recomputed, and cp cuts"
        " the longest sample until one layer's working set fits beside what a layer gathers. Expert parallelism inside"
        " a node cuts the gathered experts and keeps their exchange on NVLink. Prefill and decode are apart because a"
        " turn's new tokens would otherwise stop the decoding of everyone on that server.",
        (
            (
                "the published split, 12 trainer and 16 engine nodes",
                (("trainer.nodes", "12"), ("nodes", "28"), *RECIPE, ("objective", "{minimize: step_time}")),
            ),
            ("the shortest step on all 28 nodes", (("objective", "{minimize: step_time}"),)),
            ("the most tokens a GPU-hour", (("objective", "{minimize: gpu_hours_per_token}"),)),
        ),
    ),
    "glm-5.1-swe-32x8-h200": Argument(
        "GLM-5.1 on 32 nodes, beside the published recipe",
        SWE + " The public recipe (examples/advanced/glm-5.2/swe-llmd.toml of prime-rl at 559b447) has 16 trainer nodes"
        " with cp 4, ep 8, fp8 and the optimizer in host memory, four prefill replicas of two nodes, one decode replica"
        " of eight nodes, a KV store of 1 TB a node and at most 512 rollouts in flight. Nothing of it is held here.",
        "The recipe's choices come out of the search by themselves where the figures below say so. cp 4 is the smallest"
        " that leaves room for a layer's working set; ep 8 is the largest that stays in a node; decode is one wide"
        " replica because every rank of it then reads few experts, and prefill stays narrow because its all-to-all"
        " carries whole turns.",
        (
            (
                "the published recipe, held",
                (
                    ("trainer.nodes", "16"),
                    *RECIPE,
                    ("inference.prefill_nodes", "8"),
                    ("algorithm.max_inflight_groups", "32"),
                ),
            ),
            (
                "the same, rollouts in flight left to the plan",
                (("trainer.nodes", "16"), *RECIPE, ("inference.prefill_nodes", "8")),
            ),
            ("four trainer nodes fewer", (("trainer.nodes", "12"),)),
            ("four trainer nodes more", (("trainer.nodes", "20"),)),
        ),
    ),
    "glm-4.5-air-base-64x8-h200": Argument(
        "GLM-4.5-Air-Base on 512 H200",
        "Long answers with a few tool calls, a thousand rollouts a step.",
        "A model of this size fits in one server, so experts need no wide sharing to be held; what counts is how fast"
        " the sequences in flight decode together. The trainer has room to spare and pays for recompute only as far"
        " as the longest sample needs it.",
        (("engines that share experts over nodes", (("inference.expert_parallel", "true"),)),),
    ),
    "kimi-k2.7-code-48x8-h200": Argument(
        "Kimi-K2.7-Code on 48 nodes",
        SWE,
        "The largest model of the catalog: its routed experts alone are most of a trillion parameters, so the exchange"
        " of experts crosses nodes in the trainer, and decode spreads them until a GPU holds few. MLA keeps one latent"
        " row a token, so the KV pool is no constraint.",
        (("experts of the trainer inside a node", (("trainer.parallel.ep", "8"),)),),
    ),
    "kimi-k2-thinking-64x8-h200": Argument(
        "Kimi-K2-Thinking, the most tokens a GPU-hour",
        "One long answer a rollout, no tools. The objective is cost, not speed: most trained tokens a GPU-hour, on as"
        " many of 64 nodes as that takes.",
        "With hardly any prefill there is nothing to take off the decode servers, so engines stay together. Cost per"
        " token falls as long as the idle share of either half falls, and rises again when communication does.",
        (("the shortest step on 64 nodes", (("objective", "{minimize: step_time}"),)),),
    ),
    "nemotron-3-ultra-550b-a55b-64x8-h200": Argument(
        "Nemotron-3-Ultra-550B on 512 H200",
        SWE + " The model is a hybrid of Mamba-2 and attention layers with latent experts. Router replay of Mamba"
        " hybrids rests on prefix caching that vLLM calls experimental; the plan warns of it.",
        "Few layers have a KV cache, so context costs little in the engines. Mamba layers bound cp by their groups, and"
        " prefill and decode must have the same tensor parallelism, because block sizes of hybrid models depend on it.",
    ),
    "deepseek-v3.2-32x8-h200": Argument(
        "DeepSeek-V3.2 on 32 nodes",
        SWE,
        "Sparse attention as in GLM-5.1, a little smaller and with wider layers: the same constraints bind. Attention"
        " is linear in the tokens it selects, and its indexer is the part that still grows with the square.",
    ),
    "qwen3-235b-a22b-16x8-h200": Argument(
        "Qwen3-235B-A22B on 16 nodes",
        "Mathematics with a few tool calls, 32,768 tokens.",
        "Without latent attention the KV cache is the engines' constraint: tensor parallelism cuts it, data parallelism"
        " does not. The sample is short enough for cp 1.",
    ),
    "qwen3-30b-a3b-1x8-h200": Argument(
        "Qwen3-30B-A3B on one node",
        "Short look-up episodes. Trainer and engines share one node, each on GPUs of its own.",
        "The split of eight GPUs is the whole question. Weights go through the filesystem, and their write is most of"
        " the sync: more trainer ranks than the step itself needs are no loss.",
        (("four GPUs each", (("trainer.parallel.dp_shard", "4"),)),),
    ),
    "qwen3-30b-a3b-2x8-h200": Argument(
        "Qwen3-30B-A3B on two nodes",
        "Look-up episodes, twice the batch of the one-node example and twice its sample length.",
        "A node each: the trainer stays on NVLink, and so do the engines.",
    ),
    "qwen3-30b-a3b-4x8-h200": Argument(
        "Qwen3-30B-A3B on four nodes",
        "The same with four times the batch of one node.",
        "Two nodes each. Gathers over two nodes cost more than they save, so state that fits twice is kept twice"
        " where the plan says hsdp.",
        (("one copy of the state over both nodes", (("trainer.parallel.dp_replicate", "1"),)),),
    ),
}


def row(words: str, tried: Answer, base: Answer) -> str:
    """One row of a table of layouts."""
    if tried.choice is None:
        return f"| {words} | - | - | - | - | - | refused: {tried.why} |"
    assert base.choice is not None
    c = tried.choice
    more = f"{c.step / base.choice.step - 1:+.1%}" if tried is not base else "chosen"
    return (
        f"| {words} | {render.duration(c.step)} ({more}) | {render.duration(c.trainer)} | {render.duration(c.rollouts)}"
        f" | {c.gpus} | {memory_of(tried):.0f} GiB | {layout_text(c)} |"
    )


HEAD = "| | step | trainer | rollouts | GPUs | trainer, a GPU | layout |\n| --- | --- | --- | --- | --- | --- | --- |"


def degrees(text: str, filename: str, base: Answer) -> list[str]:
    """The best plan of each other value of each degree."""
    found = []
    for path, values in DEGREES.items():
        chosen = chosen_value(base, path)
        for value in values:
            if value != chosen:
                tried = answer(text, filename, {path: value})
                found.append(row(f"`{path}: {value}`, not {chosen}", tried, base))
    return found


def chosen_value(base: Answer, path: str) -> str:
    """What the plan has at a path of DEGREES."""
    assert base.choice is not None
    mesh, engine = base.choice.layout.trainer, base.choice.layout.engines[-1]
    return {
        "trainer.parallel.cp": str(mesh.cp),
        "trainer.parallel.ep": str(mesh.ep),
        "trainer.activation_checkpoint": mesh.activation_checkpoint,
        "trainer.optimizer.offload": mesh.offload,
        "inference.tensor_parallel": str(engine.tp),
        "inference.expert_parallel": str(engine.expert_parallel).lower(),
        "inference.disaggregate": str(len(base.choice.layout.engines) > 1).lower(),
    }[path]


def shown(made: Plan, source: str) -> str:
    """What `prlc plan` prints, up to its warnings."""
    out = io.StringIO()
    render.plan_text(made, render.console(out, False), source)
    lines = []
    for line in out.getvalue().splitlines():
        if line.startswith((" Next:",)) or line.rstrip().endswith((" warning:", " warnings:")):
            break
        lines.append(line.rstrip())
    return "\n".join(lines)


def walk(term: Term) -> list[Term]:
    """A term and all below it."""
    return [term, *(below for part in term.terms for below in walk(part))]


def sure(made: Plan) -> str:
    """How far the figures can be trusted."""
    root = made.forecast
    beyond = [t.name for t in walk(root) if t.extrapolated and not any(p.extrapolated for p in t.terms)]
    words = f"The step's band is {render.duration(root.low)} to {render.duration(root.high)}."
    if beyond:
        words += f" Beyond the data are: {', '.join(dict.fromkeys(beyond))}; there the band is a guess."
    return words + " The order of two layouts that differ by less than a few percent is not to be trusted."


def page(name: str, argument: Argument) -> str:
    """One page. Raises SystemExit when the example is refused."""
    path = EXAMPLES / f"{name}.yaml"
    text = path.read_text("utf-8")
    made, found = make(text, str(path))
    base = answer(text, str(path), {})
    if made is None or base.choice is None:
        raise SystemExit(f"{name}: {[d.message for d in found if d.severity == 'error']}")
    idle = {t.name: t.expected for t in made.forecast.terms if t.name.endswith("idle")}
    longer = "engines" if base.choice.rollouts > base.choice.trainer else "trainer"
    waits = ", ".join(f"{part.removesuffix(' idle')} {share:.0%}" for part, share in idle.items())
    parts = [
        f"# {argument.title}",
        f"[`examples/{name}.yaml`](../../examples/{name}.yaml). {argument.about}",
        "## The plan",
        f"```\n{shown(made, f'examples/{name}.yaml')}\n```",
        "## Why",
        argument.decides,
        f"The {longer} set{'s' if longer == 'trainer' else ''} the pace: the trainer takes"
        f" {render.duration(base.choice.trainer)}, a batch of rollouts {render.duration(base.choice.rollouts)}"
        f"{f'; idle are: {waits}' if waits else ''}.",
    ]
    if argument.compare:
        rows = [row("chosen", base, base)]
        rows += [row(words, answer(text, str(path), dict(pins)), base) for words, pins in argument.compare]
        parts += ["Beside it:", "\n".join([HEAD, *rows])]
    if made.alternatives:
        steps = [
            f"| {option.value} | {render.duration(step)} | {step / base.choice.step - 1:+.1%} |"
            for option in made.alternatives[:6]
            if (step := option.step) is not None
        ]
        parts += [
            "## The next best splits of the nodes",
            "\n".join(["| layout | step | |", "| --- | --- | --- |", *steps]),
        ]
    parts += [
        "## What each choice beat",
        "The best plan with one value held and everything else free.",
        "\n".join([HEAD, *degrees(text, str(path), base)]),
        "## How sure",
        sure(made),
        "Made by `python -m tests.docs.plans` from the plan itself.",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write the pages named, or all of them and their index."""
    OUT.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or list(ARGUMENTS)
    for name in names:
        (OUT / f"{name}.md").write_text(page(name, ARGUMENTS[name]), "utf-8")
        print(name, flush=True)
    index = "\n".join(f"- [{a.title}]({name}.md)" for name, a in ARGUMENTS.items())
    (OUT / "README.md").write_text(
        f"# Plans, argued\n\nWhat `prlc plan` chooses for each example, and why.\n\n{index}\n", "utf-8"
    )


if __name__ == "__main__":
    main()
