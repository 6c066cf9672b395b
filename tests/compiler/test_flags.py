"""Every emitted command against the saved flags of its program, and the saved flags against the program's parser."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from prlc.catalog.compat import compat
from prlc.catalog.programs import FILES, flag_list, of_command
from prlc.compiler.bundle.flags import problems
from prlc.schema.plan import Launch

from tests.faults.plans import launches

# option strings of the parser of the installed version, one a line
READ = {
    "vllm-serve": (
        "from vllm.utils.argparse_utils import FlexibleArgumentParser as P;"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser as m;"
        "print(*m(P())._option_string_actions, sep='\\n')"
    ),
    "vllm-router": (
        "import argparse; from vllm_router.router_args import RouterArgs;"
        "p = argparse.ArgumentParser(); RouterArgs.add_cli_args(p); print(*p._option_string_actions, sep='\\n')"
    ),
    "torchrun": (
        "from torch.distributed.run import get_args_parser as g; print(*g()._option_string_actions, sep='\\n')"
    ),
}


@pytest.mark.parametrize("name", sorted(FILES.values()))
def test_saved_flags_are_of_the_version_that_bundles_name(name: str) -> None:
    saved = flag_list(name)
    assert compat().stack[saved.package] == saved.version
    assert len(saved.flags) > 40
    assert all(flag.startswith("-") for flag in saved.flags)


def test_every_emitted_flag_is_known() -> None:
    judged = [(name, launch) for name, launch in launches() if of_command(launch.command)]
    assert {launch.command[0] for _, launch in judged} == {"vllm", "vllm-router", "mooncake_master", "torchrun"}
    assert [(name, launch.role, said) for name, launch in judged for said in problems(launch)] == []


def test_no_flag_is_given_twice() -> None:
    for name, launch in launches():
        repeated = {"--prefill", "--decode"}
        given = [flag[0].partition("=")[0] for flag in launch.flags if flag[0] not in repeated]
        assert len(given) == len(set(given)), (name, launch.role)
        variables = [variable.name for variable in launch.environment]
        assert len(variables) == len(set(variables)), (name, launch.role)


def engine() -> Launch:
    return next(launch for _, launch in launches("engine"))


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (("--max-model-length", "4096"), "has no flag --max-model-length"),
        (("--seed", "1"), "--seed is given twice"),
        (("--block-size", "many"), "'many'"),
        (("--max-logprobs",), "0 values"),
        (("--all2all-backend", "deepep"), "'deepep' is none of"),
        (("--enable-lora", "true"), "1 values, it takes none"),
    ],
)
def test_a_wrong_flag_is_named(flag: tuple[str, ...], says: str) -> None:
    wrong = dataclasses.replace(engine(), flags=(*engine().flags, flag))
    assert any(says in said for said in problems(wrong)), problems(wrong)


@pytest.mark.runtime
@pytest.mark.parametrize("name", sorted(READ))
def test_saved_flags_are_those_of_the_installed_program(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", READ[name]], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"{name} is not installed")
    assert done.returncode == 0, done.stderr[-2000:]
    installed = {line for line in done.stdout.split() if line.startswith("-") and line not in ("-h", "--help")}
    ignored = {flag for flag in installed if flag.startswith("--help")}
    assert set(flag_list(name).flags) == installed - ignored
