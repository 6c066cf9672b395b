"""The programs' own judgement of a plan's commands: their parsers where they are installed, else their saved flags."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prlc.catalog.programs import of_command
from prlc.compiler.bundle.flags import problems

if TYPE_CHECKING:
    from pathlib import Path

    from prlc.schema.flags import FlagList
    from prlc.schema.plan import Launch, Plan

DEADLINE = 300.0  # s; vLLM's imports take most of it on a busy machine
PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
# Each reads JSON argument lists, one a line, and prints the version; it ends with 3 where the program is not installed,
# and with what the parser says where it refuses a line.
BEGIN = "import json, sys\ntry:\n    from importlib.metadata import version\n"
PARSERS = {
    "vllm serve": BEGIN
    + """    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:
    sys.exit(3)
parser = make_arg_parser(FlexibleArgumentParser())
for line in sys.stdin:
    validate_parsed_serve_args(parser.parse_args(json.loads(line)))
print(version("vllm"))
""",
    "vllm-router": BEGIN
    + """    from vllm_router.launch_router import parse_router_args
except ImportError:
    sys.exit(3)
for line in sys.stdin:
    parse_router_args(json.loads(line))
print(version("vllm-router"))
""",
    "torchrun": BEGIN
    + """    from torch.distributed.run import get_args_parser
except ImportError:
    sys.exit(3)
for line in sys.stdin:
    get_args_parser().parse_args(json.loads(line))
print(version("torch"))
""",
}


@dataclass(frozen=True)
class Verdict:
    """What was found on the commands of one program: by whom they were judged, and what is wrong with them."""

    program: str
    commands: int
    judge: str
    wrong: tuple[str, ...]


def validate(plan: Plan, python: Path) -> tuple[Verdict, ...]:
    """One verdict a program that the plan starts and that is not ours. `python` is asked for the parsers."""
    launches: dict[str, list[Launch]] = {}
    known: dict[str, FlagList] = {}
    for launch in plan.launches:
        saved = of_command(launch.command)
        if saved is not None:
            launches.setdefault(saved.program, []).append(launch)
            known[saved.program] = saved
    return tuple(_verdict(known[program], found, python) for program, found in launches.items())


def _verdict(saved: FlagList, launches: list[Launch], python: Path) -> Verdict:
    lines = [json.dumps(arguments(launch, index)) for launch in launches for index in _indexes(launch)]
    wrong = [f"{launch.role}: {said}" for launch in launches for said in problems(launch)]
    judge = f"saved flags of {saved.package} {saved.version}"
    script = PARSERS.get(saved.program)
    if script is None:
        return Verdict(saved.program, len(lines), f"{judge}; it has no parser to ask", tuple(wrong))
    try:
        done = subprocess.run(
            [str(python), "-c", script],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Verdict(saved.program, len(lines), f"{judge}; its parser could not be asked: {error}", tuple(wrong))
    if done.returncode == 3:
        return Verdict(saved.program, len(lines), f"{judge}; it is not installed at {python}", tuple(wrong))
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        wrong.append(f"its own parser: {said}")
        return Verdict(saved.program, len(lines), f"{judge} and its own parser", tuple(wrong))
    version = done.stdout.strip().splitlines()[-1]
    return Verdict(saved.program, len(lines), f"{judge} and the parser of version {version}", tuple(wrong))


def _indexes(launch: Launch) -> tuple[int, ...]:
    last = len(launch.nodes) * launch.tasks_per_node - 1
    return (0, last) if last else (0,)


def arguments(launch: Launch, index: int) -> list[str]:
    """What the program is given as arguments by process `index`, with addresses of this machine."""
    tables = {table.name: table.values for table in launch.tables}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in tables:
            return tables[name][index]
        fixed = {"BUNDLE": "/bundle", "RUN_DIR": "/run", "INDEX": str(index)}
        return fixed.get(name, "127.0.0.1")  # ADDRESS, X_ADDRESS, NODE_n

    known = of_command(launch.command)
    first = len(known.program.split()) if known else 1
    words = [*launch.command[first:], *(word for flag in launch.flags for word in flag)]
    # `-m module` is one word of the plan's and two of the command's
    words = [part for word in words for part in (word.split() if word.startswith("-m ") else (word,))]
    return [PLACEHOLDER.sub(value, word) for word in words]


def report(verdicts: tuple[Verdict, ...]) -> str:
    """Lines for people."""
    lines = []
    for verdict in verdicts:
        state = "refused" if verdict.wrong else "fine"
        lines.append(f"{verdict.program}: {verdict.commands} commands, {state} ({verdict.judge})")
        lines += [f"  {said}" for said in verdict.wrong]
    return "\n".join(lines)
