"""Texts of the spec that become file names, shell words and #SBATCH lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prlc.compiler.rules.rule import finding, spec_rule

if TYPE_CHECKING:
    from prlc.compiler.resolve import Resolved
    from prlc.schema.diagnostics import Diagnostic

UNSAFE = re.compile(r"""[\x00-\x1f\x7f'"`\\${}]""")
PATHS = (("name",), ("model",), ("checkpoint",), ("cluster",), ("runtime", "venv"), ("runtime", "run_dir"))
SLURM = ("partition", "account", "qos", "reservation", "constraint", "exclude")


@spec_rule(
    "PRL361",
    refused={"runtime": {"run_dir": "runs/it's"}},
    accepted={"runtime": {"run_dir": "runs/its"}},
)
def plain_paths(resolved: Resolved) -> Iterator[Diagnostic]:
    """Names and paths have no quote, newline, control character, backslash, dollar sign, backquote or brace.

    Inequality: no character of [control ' " ` \\ $ { }] in name, model, checkpoint, cluster and runtime
    Source: they become words of scripts and of #SBATCH lines, where {X} is a lookup.
    Cure: another name, or a link to the folder.
    """
    for path in PATHS:
        value: object = resolved.spec
        for key in path:
            value = getattr(value, key)
        if isinstance(value, str) and (bad := UNSAFE.search(value)):
            yield finding(
                "PRL361",
                f"{'.'.join(path)} has the character {bad[0]!r}, which scripts cannot carry safely",
                resolved.span(path),
                label=f"character {bad.start() + 1} of the value",
                help="another name, or a symbolic link to the folder",
            )


@spec_rule(
    "PRL362",
    refused={"slurm": {"partition": "gpu debug"}},
    accepted={"slurm": {"partition": "gpu,debug", "constraint": "[rack1|rack2]"}},
)
def one_word_slurm_options(resolved: Resolved) -> Iterator[Diagnostic]:
    """A Slurm option is one word.

    Inequality: no white space, quote, backslash or '#' in a value of slurm, and not empty
    Source: sbatch splits #SBATCH lines at white space and drops what follows; a '#' starts a comment.
    Cure: commas between several partitions or nodes.
    """
    for key in SLURM:
        value = getattr(resolved.spec.slurm, key)
        if value is not None and (not value or re.search(r"""[\s'"\\#]""", value)):
            yield finding(
                "PRL362",
                f"slurm.{key} must be one word: {value!r}",
                resolved.span(("slurm", key)),
                label="becomes one word of an #SBATCH line",
                help="separate several values with commas, without spaces",
            )
