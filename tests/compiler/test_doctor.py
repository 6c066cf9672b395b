"""prlc doctor: roles by what is installed, never by import."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc.compiler.bundle.preflight import ROUTER, STORE, VERSIONS
from prlc.compiler.cli import main
from prlc.compiler.commands import doctor

COMPILER = {"click": "8.2", "jinja2": "3.1.6", "jsonschema": "4.26.0", "pyyaml": "6.0.4", "rich": "15.0.0"}
CPU = {**COMPILER, **dict(VERSIONS["cpu"]), "torch": "2.13.0+cpu", "vllm": "0.32.0+cpu", ROUTER[0]: ROUTER[1]}


def prlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *(str(a) for a in arguments)])


def have(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], driver: Path = Path("/nowhere")) -> None:
    """Only these distributions are installed."""

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(doctor, "DRIVER", driver)


def test_the_compiler_alone_is_ready_and_the_rest_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, COMPILER)
    done = prlc("--json")
    assert done.exit_code == 0
    roles = json.loads(done.stdout)["roles"]
    assert {name: role["ok"] for name, role in roles.items()} == {
        "compiler": True, "trainer": False, "engine": False, "router": False, "store": False,
    }  # fmt: skip
    assert {part["name"] for part in roles["compiler"]["parts"]} == {"python", *COMPILER}
    assert all(part["get"] for part in roles["trainer"]["parts"])


def test_exit_code_is_that_of_the_role_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, CPU)
    ended = {role: prlc("--role", role).exit_code for role in doctor.ROLES}
    assert ended == {"compiler": 0, "trainer": 0, "engine": 0, "router": 0, "store": 1}
    done = prlc("--role", "store")
    assert f"get: pip install {STORE[0]}=={STORE[1]}" in done.stdout


def test_another_version_is_wrong_and_says_how_to_get_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, {**CPU, "torch": "2.12.1"})
    done = prlc("--role", "trainer")
    assert done.exit_code == 1
    assert "WRONG torch" in done.stdout
    assert "2.12.1" in done.stdout
    assert "get: pip install 'prlc[cpu]'" in done.stdout


def test_the_alias_of_the_cpu_wheel_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, {name: version for name, version in CPU.items() if name != "vllm"})
    done = prlc("--role", "engine")
    assert done.exit_code == 1
    assert "get: python -m prlc.runtime.inference.vllm_alias" in done.stdout


def test_the_device_follows_the_driver_and_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have(monkeypatch, CPU)
    assert not doctor.on_cuda()
    have(monkeypatch, {"vllm": "0.32.0"})
    assert doctor.on_cuda()
    have(monkeypatch, {}, driver=tmp_path)
    assert doctor.on_cuda()
    assert "prlc[cuda]" in prlc().stdout
    assert "prlc[cpu]" in prlc("--device", "cpu").stdout


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("8.1", ">=8.1,<9", True), ("9.0", ">=8.1,<9", False), ("3.11.0", ">=3.11", True), ("3.9", ">=3.11", False),
        ("2.13.0+cpu", "==2.13.0", True), ("2.13.1", "==2.13.0", False), ("0.3.13", "==0.3.13.post1", False),
    ],
)  # fmt: skip
def test_versions_against_ranges(version: str, wanted: str, fits: bool) -> None:
    assert doctor._fits(version, wanted) is fits


def test_in_a_pipe_no_heavy_import_no_colour_and_80_columns() -> None:
    code = (
        "import sys; from prlc.compiler.cli import main; main(['doctor'], standalone_mode=False); "
        "sys.exit(sorted({'torch', 'vllm', 'numpy', 'torchtitan'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "compiler: ready" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
