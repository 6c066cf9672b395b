"""The command line. Exit codes: 0 done, 1 refused (or different), 2 wrong usage.

Each command imports what it needs: `prlc --help` is instant.
"""

from __future__ import annotations

import click
from prlc.compiler.commands.build import build
from prlc.compiler.commands.calibrate import calibrate
from prlc.compiler.commands.cancel import cancel
from prlc.compiler.commands.catalog import catalog_group
from prlc.compiler.commands.check import check
from prlc.compiler.commands.diff import diff
from prlc.compiler.commands.doctor import doctor
from prlc.compiler.commands.explain import explain
from prlc.compiler.commands.import_ import import_
from prlc.compiler.commands.init import init
from prlc.compiler.commands.logs import logs
from prlc.compiler.commands.plan import plan
from prlc.compiler.commands.schema import schema
from prlc.compiler.commands.status import status
from prlc.compiler.commands.submit import submit
from prlc.compiler.commands.verify import verify


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="prlc")
def main() -> None:
    """Plan and build reinforcement-learning runs of large mixture-of-experts models.

    \b
    prlc plan run.yaml                 what would run where, and why
    prlc build run.yaml -o bundle/     the run as a folder of scripts and configs
    prlc explain PRL314                what a diagnostic means
    prlc submit bundle/                verify it, then sbatch (or run.sh); then: status, logs, cancel
    """


for command in (
    init,
    doctor,
    plan,
    build,
    check,
    import_,
    catalog_group,
    explain,
    verify,
    diff,
    schema,
    submit,
    status,
    logs,
    cancel,
    calibrate,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
