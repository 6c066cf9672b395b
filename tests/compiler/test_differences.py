"""prlc diff speaks in words: what the spec says otherwise, and what follows from it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from click.testing import CliRunner
from prlc.compiler.bundle.differences import differences
from prlc.compiler.bundle.emit import build, write
from prlc.compiler.cli import main
from prlc.schema.plan import SlurmOptions, Warning

from tests.templates.plans import plan


def test_equal_plans_have_nothing_to_say() -> None:
    assert differences(plan(), plan()) == []


def test_each_part_of_a_plan_is_told_in_its_words() -> None:
    one = plan()
    engine = one.launches[0]
    two = dataclasses.replace(
        plan(ports=(23001, 24000), run_dir="runs/other"),
        spec_text="name: stub\nseed: 3\n",
        launches=(
            dataclasses.replace(engine, flags=(("--seed", "1"),), tasks_per_node=2),
            *one.launches[1:],
        ),
        forecast=dataclasses.replace(one.forecast, expected=1.5),
        slurm=SlurmOptions(options=(("time", "20"), ("requeue", ""))),
        warnings=(Warning(code="PRL999", message="odd"),),
    )
    assert differences(one, two) == [
        "spec: seed: new: 3",
        "forecast: step: 1 s became 1.5 (+50.0%)",
        "command: engine: arguments: gone (was {ADDRESS} {PORT})",
        "command: engine: tasks a node: 1 became 2",
        "command: engine: --seed: new: 1",
        "ports: 1 processes listen elsewhere, e.g. engine-1 on 24000, not 23002",
        "job: --time: 10 became 20",
        "job: --requeue: new: set",
        "run directory: runs/stub became runs/other",
        "warning new: PRL999 odd",
    ]


def test_a_bundle_that_was_changed_by_hand_is_told_from_one_with_another_plan(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(build(plan()), tmp_path / name)
    run = CliRunner()
    assert run.invoke(main, ["diff", str(tmp_path / "a"), str(tmp_path / "b")]).exit_code == 0
    (tmp_path / "b" / "run.sbatch").write_text("#!/bin/bash\n")
    answer = run.invoke(main, ["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert answer.exit_code == 1
    assert answer.output.startswith("the plans agree, these files do not: run.sbatch\n")
