"""A plan for people: 120 columns, readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from prlc.schema.plan import Ledger, Plan, RoleSummary, Term

GIB = 2**30
WIDTH = 120
BAR = 9  # cells of a memory bar
NAME = 12  # columns of a forecast line's name
ATTENTION = {"gqa": "GQA", "mla": "MLA", "dsa": "DSA", "sliding": "sliding window"}


def console(file: TextIO, color: bool) -> Console:
    """A console of 120 columns that adds nothing to the text when `color` is off."""
    return Console(
        file=file,
        width=WIDTH,
        no_color=not color,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def size(count: float) -> str:
    """Bytes in the binary unit that reads best: 3 digits at most before the point.

    >>> size(600), size(18 * 2**30)
    ('600 B', '18 GiB')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    unit = 0
    while count >= 1000 and unit < len(units) - 1:
        count, unit = count / 1024, unit + 1
    digits = 0 if count >= 9.95 or unit == 0 or count == int(count) else 1
    return f"{count:,.{digits}f} {units[unit]}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best.

    >>> duration(0.012), duration(9), duration(288)
    ('12 ms', '9.0 s', '4.8 min')
    """
    for limit, scale, unit in ((0.9995, 1e-3, "ms"), (99.95, 1, "s"), (5400, 60, "min")):
        if seconds < limit:
            value = seconds / scale
            return f"{value:.1f} {unit}" if value < 10 or unit == "min" else f"{value:.0f} {unit}"
    return f"{seconds / 3600:.1f} h"


def params(count: int) -> str:
    """Parameters: 744B, 30.5B, 0.6B, 12M."""
    if count < 1e8:
        return f"{count / 1e6:.0f}M" if count >= 1e7 else f"{count / 1e6:.1f}M"
    return f"{count / 1e9:.0f}B" if count >= 1e11 else f"{count / 1e9:.1f}B"


def plural(count: int, noun: str) -> str:
    """'1 node', '2 nodes'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def plan_text(plan: Plan, out: Console, source: str, changes: Sequence[str] = ()) -> None:
    """Print the plan; `source` is the spec's file name, for the line of next commands; `changes`: what was pinned."""
    out.print(_head(plan))
    if changes:
        text = textwrap.wrap(f"with {', '.join(changes)}", WIDTH - 2, subsequent_indent="     ")
        out.print(Text("\n".join(f" {line}" for line in text), style="yellow"))
    out.print()
    print_table(_roles(plan), out)
    for line in _below(plan):
        out.print(line, soft_wrap=True)
    out.print()
    for line in _forecast(plan.forecast):
        out.print(line, soft_wrap=True)
    print_warnings(plan, out, "--json" if changes else f"prlc check {source}")
    out.print(
        Text(
            f" Next: prlc build {source} -o bundle/   more: --explain trainer.ep, --alternatives 10, --html plan.html",
            style="dim",
        ),
        soft_wrap=True,
    )


def print_warnings(plan: Plan, out: Console, full: str) -> None:
    """A line for each code: its first message, cut to the width, and how many more there are. `full`: what has all."""
    if not plan.warnings:
        return
    out.print(Text(f" {plural(len(plan.warnings), 'warning')}:", style="yellow"))
    by_code: dict[str, list[str]] = {}
    for warning in plan.warnings:
        by_code.setdefault(warning.code, []).append(warning.message)
    for code, (first, *others) in by_code.items():
        more = f" (and {len(others)} more)" if others else ""
        cut = textwrap.shorten(f"{code} {first}", WIDTH - 3 - len(more), placeholder=" ...")
        out.print(Text(f"   {cut}{more}"))
    out.print(Text(f"   in full: {full}", style="dim"), soft_wrap=True)


def print_table(table: Table, out: Console) -> None:
    """Without the blanks that rich fills the last column with."""
    with out.capture() as captured:
        out.print(table)
    out.file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _head(plan: Plan) -> Text:
    model, cluster = plan.model, plan.cluster
    parts = [params(model.total_params), ATTENTION.get(model.attention, model.attention.replace("_", " "))]
    if model.num_experts:
        parts.append(f"{model.num_experts} experts top-{model.top_k}")
    hardware = (
        f"{plural(cluster.nodes, 'node')} of CPUs"
        if cluster.gpu == "cpu"
        else f"{plural(cluster.nodes, 'node')} x {cluster.gpus_per_node} {cluster.gpu.upper()}"
    )
    text = Text(plan.name, style="bold")
    text.append(
        f"   {model.name} ({', '.join(parts)})   {hardware}   {plan.orchestrator.seq_len:,} tokens"
        f"   {plan.orchestrator.batch_size:,} rollouts a step",
        style="not bold",
    )
    return text


def _roles(plan: Plan) -> Table:
    cpu = plan.cluster.gpu == "cpu"
    resource = "host" if cpu else "hbm"
    ledgers = {ledger.role: ledger for ledger in plan.ledgers if ledger.resource == resource}
    capacity = max((ledger.capacity for ledger in ledgers.values()), default=0)
    memory = f"{'memory a node' if cpu else 'HBM a GPU'} (of {size(capacity)})" if capacity else "memory"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 1), header_style="bold")
    table.add_column("role", no_wrap=True)
    table.add_column("nodes", no_wrap=True)
    table.add_column("ranks" if cpu else "GPUs", justify="right", no_wrap=True)
    table.add_column("layout", ratio=3)
    table.add_column(memory, no_wrap=True)
    table.add_column("reason", ratio=4)
    for row in plan.table:
        ledger = ledgers.get(row.role)
        table.add_row(*_cells(row, ledger))
    return table


def _cells(row: RoleSummary, ledger: Ledger | None) -> tuple[Text, ...]:
    used = Text(f"{size(ledger.total):>9}  {bar(ledger.total, ledger.capacity)}") if ledger else Text("-")
    return (
        Text(row.role, style="cyan"),
        Text(row.nodes),
        Text(str(row.gpus)),
        Text(row.layout),
        used,
        Text(row.reason),
    )


def bar(used: int, capacity: int) -> str:
    """How full: `[#######--]`; all dashes only when nothing is used.

    >>> bar(118, 141)
    '[########-]'
    """
    share = min(1.0, used / capacity) if capacity else 0.0
    filled = max(1 if used else 0, round(share * BAR))
    return f"[{'#' * filled}{'-' * (BAR - filled)}]"


def _below(plan: Plan) -> list[Text]:
    shown = "host" if plan.cluster.gpu == "cpu" else "hbm"
    in_table = {row.role for row in plan.table}
    parts = []
    for ledger in plan.ledgers:
        if ledger.total == 0 or (ledger.resource == shown and ledger.role in in_table):
            continue
        noun = {"host": "host RAM", "nvme": "scratch", "filesystem": "shared files", "hbm": "HBM"}
        # what the shared filesystem holds is not known here
        known = ledger.capacity and ledger.resource != "filesystem"
        of = f" of {size(ledger.capacity)}" if known else ""
        parts.append(f"{noun[ledger.resource]} ({ledger.role}): {size(ledger.total)}{of}")
    if plan.orchestrator.routed_experts:
        token = plan.model.replay_bytes_per_token
        most = token * plan.orchestrator.seq_len * plan.orchestrator.batch_size
        parts.append(f"router replay: {token:,} B a token, at most {size(most)} a step")
    return [Text(f" {'   '.join(parts[i : i + 2])}") for i in range(0, len(parts), 2)]


def _forecast(root: Term) -> list[Text]:
    """The step, a line for each part that has parts or takes time, one for the rest, and what is extrapolated."""
    lines = [Text(f" {root.name:<{NAME}} {_band(root)}")]
    rest = []
    for term in root.terms:
        if term.unit != "s":
            rest.append(f"{term.name} {_value(term, term.expected)}")
            continue
        parts = ", ".join(f"{part.name} {_value(part, part.expected)}" for part in term.terms)
        lines.append(_wrapped(term.name, f"{_band(term)}{f': {parts}' if parts else ''}"))
    if rest:
        lines.append(_wrapped("loop", ", ".join(rest)))
    beyond = [term for term in _walk(root) if term.extrapolated and not any(t.extrapolated for t in term.terms)]
    if beyond:
        names = ", ".join(dict.fromkeys(f"{term.name} ({_value(term, term.expected)})" for term in beyond))
        lines.append(
            _wrapped("beyond data", f"{names}: no measurement covers these inputs, the bands are guesses there")
        )
    return lines


def _wrapped(name: str, text: str) -> Text:
    lines = textwrap.wrap(f" {name:<{NAME}} {text}", WIDTH, subsequent_indent=" " * (NAME + 2), drop_whitespace=True)
    return Text("\n".join(lines))


def _walk(term: Term) -> list[Term]:
    return [term, *(below for part in term.terms for below in _walk(part))]


def _value(term: Term, value: float) -> str:
    if term.unit == "s":
        return duration(value)
    if term.unit == "1":  # a share, or a count
        return f"{100 * value:.2g} %" if value < 1 else f"{value:,.4g}"
    return f"{value:,.3g}" if term.unit in term.name else f"{value:,.3g} {term.unit}"


def _band(term: Term) -> str:
    if term.low == term.high:
        return _value(term, term.expected)
    return f"{_value(term, term.expected)} ({_value(term, term.low)} - {_value(term, term.high)})"


def alternatives_text(plan: Plan, count: int, out: Console) -> None:
    """Print the layouts that lost, best first."""
    out.print(Text(f"chosen: {'; '.join(f'{row.role} {row.layout}' for row in plan.table)}", style="bold"))
    if not plan.alternatives:
        out.print("no other layout fits")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 1), header_style="bold")
    for name in ("#", "layout", "outcome"):
        table.add_column(name, no_wrap=name == "#")
    for place, option in enumerate(plan.alternatives[:count], 1):
        table.add_row(str(place), Text(option.value), Text(option.outcome))
    print_table(table, out)
