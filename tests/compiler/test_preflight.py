"""What a plan asks of every node follows from the plan, and its pins are those of the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

from prlc.compiler.bundle.ports import BLOCK, port_base
from prlc.compiler.bundle.preflight import ROUTER, STORE, VERSIONS
from prlc.compiler.plan import plan
from prlc.compiler.resolve import resolve

ROOT = Path(__file__).parents[2]
BIG = ROOT / "examples" / "glm-5.1-swe-28x8-h200.yaml"


def test_pins_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, pins in (("cpu", VERSIONS["cpu"]), ("cuda", (*VERSIONS["cuda"], ROUTER, STORE))):
        for name, version in pins:
            assert f"{name}=={version}" in extras[extra]


def test_a_plan_asks_for_what_it_uses() -> None:
    made, found = plan(BIG.read_text("utf-8"), str(BIG))
    assert made is not None, found
    assert made.preflight is not None
    asked = made.preflight
    assert (asked.device, asked.gpus, asked.collective_ranks) == ("cuda", 8, 8)
    assert {pin.name for pin in asked.versions} >= {"vllm", "vllm-router", "mooncake-transfer-engine"}
    assert asked.checkpoint_nodes == tuple(range(made.topology.nodes)), "engines and trainer fill the nodes"
    owners = {(need.owner.split()[0], need.node, need.port) for need in asked.ports}
    for role in made.topology.roles:
        for endpoint in role.endpoints:
            if endpoint.port:
                assert (f"{role.name}-{endpoint.index}", endpoint.node, endpoint.port) in owners
    assert sorted(node for need in asked.memory for node in need.nodes) == list(range(made.topology.nodes))
    assert all(0 < need.memory < 2 * 2**40 for need in asked.memory)
    assert [check.role for check in made.checks] == ["preflight", "collectives"]
    assert all(check.deadline for check in made.checks)


def test_two_runs_have_two_blocks_and_the_spec_may_say_which() -> None:
    text = BIG.read_text("utf-8")
    bases = []
    for said in (text, text.replace("name: glm-5.1-swe", "name: another"), text + "runtime: {base_port: 25000}\n"):
        resolved, found = resolve(said, str(BIG))
        assert resolved is not None, found
        bases.append(port_base(resolved.cluster, resolved.spec))
    assert abs(bases[0] - bases[1]) >= BLOCK
    assert bases[2] == 25000
    assert all(20000 <= base <= 32768 - BLOCK for base in bases)
