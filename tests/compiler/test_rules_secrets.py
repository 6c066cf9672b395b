"""Secrets in a spec: known tokens, passwords by their key, random keys; names, digests and paths are none."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prlc import catalog
from prlc.compiler.cli import main
from prlc.compiler.plan import plan
from prlc.compiler.rules.example import spec_text
from prlc.schema.diagnostics import render_text, to_github, to_json, to_sarif
from prlc.schema.secrets import looks_secret, redacted

LETTERS = string.ascii_letters + string.digits


def word(length: int, letters: str = LETTERS, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


# made here: no scanner of the repository may find a whole token in this file
SECRETS = (
    ("x", "hf_" + word(34)), ("x", "sk-" + word(48)), ("x", "sk-ant-api03-" + word(60)), ("x", "ghp_" + word(36)),
    ("x", "github_pat_" + word(50)), ("x", "glpat-" + word(20)), ("x", "AKIA" + word(16, string.ascii_uppercase)),
    ("x", "xoxb-" + word(30)), ("x", word(40, "0123456789abcdef")), ("x", word(64)), ("x", "key " + word(32)),
    ("x", "https://me:" + word(8) + "@host/x"), ("x", "-----BEGIN RSA PRIVATE KEY-----"), ("password", "hunter2"),
    ("API_KEY", "abc"), ("wandb_api_key", word(12)), ("auth_token", "t"), ("client-secret", "s"),
    ("x", "eyJ" + word(20) + ".eyJ" + word(30) + "." + word(30)),
)  # fmt: skip
PLAIN = (
    ("x", "nemotron-3-super-120b-a12b-base-bf16-checkpoint"), ("x", "/shared/runs/2026-11-30/glm-5.1-swe-28x8-h200"),
    ("x", "registry.example#prlc/cuda@sha256:" + word(64, "0123456789abcdef")), ("api_key", "SEARCH_API_KEY"),
    ("max_tokens", "200"), ("stop_token", "x" * 40), ("x", "a" * 60), ("x", "zai-org/GLM-5.1-FP8"),
    ("x", "20000-20255"),
    ("eos_token", "<|endoftext|>"), ("x", "the quick brown fox jumps over the lazy dog again and again"),
    ("hf_home", "/shared/hf"), ("secret", ""), ("x", "aHR"), ("x", "node[001-028,030]"), ("new_tokens", "5"),
)  # fmt: skip


@pytest.mark.parametrize(("key", "value"), SECRETS)
def test_a_secret_is_seen(key: str, value: str) -> None:
    assert looks_secret(key, value)


@pytest.mark.parametrize(("key", "value"), PLAIN)
def test_a_plain_text_is_not(key: str, value: str) -> None:
    assert looks_secret(key, value) == ""


def test_no_name_of_the_catalog_looks_like_one() -> None:
    for name in catalog.names("model"):
        model = catalog.model(name)
        for text in (name, model.hf_id, *(c.hf_id for c in model.checkpoints)):
            assert looks_secret("model", text) == "", text


def test_random_keys_are_found_and_few_are_missed() -> None:
    missed = [n for n in range(300) if not looks_secret("x", word(40, "0123456789abcdef", n))]
    assert len(missed) <= 3


PLACES: tuple[dict[str, Any], ...] = (
    {"checkpoint": "hf_" + word(34)},
    {"workload": {"environment": {"args": {"nested": {"password": ["hunter2"]}}}}},
    {"slurm": {"comment": "sk-" + word(48)}},
    {"runtime": {"venv": "/x/" + word(40, "0123456789abcdef")}},
)


@pytest.mark.parametrize("part", PLACES, ids=lambda p: next(iter(p)))
def test_it_is_refused_wherever_it_stands_and_the_right_way_is_shown(part: dict[str, Any]) -> None:
    made, found = plan(spec_text(part), "run.yaml")
    assert made is None
    (secret,) = [d for d in found if d.code == "PRL366"]
    assert secret.span is not None
    ((kind, cure), *others) = [(n.label, n.text) for n in secret.notes]
    key, _, value = cure.partition(": ")
    assert (kind, looks_secret(key, value)) == ("help", ""), "the help line can be pasted"
    assert any(label == "note" and "name of a variable" in text for label, text in others)
    shown = render_text(found, {"run.yaml": spec_text(part)}) + to_sarif(found) + to_json(found) + to_github(found)
    for value in ("hunter2", word(34), word(48), word(40, "0123456789abcdef")):
        assert value not in shown, "a diagnostic must not print the secret"
    assert "****" in shown


HIDDEN = (
    "workload: {environment: {id: looku, args: {api_key: %s}}}",  # another rule underlines id
    "workload: {environment: {id: lookup, args: {api_key: %s, argz: 1}}}",  # another underlines argz
    "workload: {environment: {id: lookup, argz: {api_key: %s}}}",  # the spec cannot be read
    "workload: {turns: {mean: many, api_key: %s}}",
    "workload: {turns: {password: %s}}",
    "workload: {turns: {mean: {password: %s}}}",
    "trainer: {nodes: {password: [%s]}}",
    "trainer: {nodes: [ {password: %s}",  # no YAML
    "api_key: %s",
    "api_key: a,%s",
    'trainer: {"api_key": "a \\" %s"}',
    "slurm: {partition: 'gpu debug', comment: 'x api_key=%s'}",
)


@pytest.mark.parametrize("line", HIDDEN)
def test_no_finding_about_something_else_shows_it(line: str) -> None:
    top = line.partition(":")[0]
    text = "".join(f"{part}\n" for part in spec_text({}).split("\n") if part)
    kept = [part for part in re.split(r"(?m)^(?=[a-z])", text) if not part.startswith(f"{top}:")]
    for secret in ("hunter2", "sk-" + word(48), word(40, "0123456789abcdef")):
        spec = "".join(kept) + line % secret + "\n"
        made, found = plan(spec, "run.yaml")
        assert made is None
        shown = render_text(found, {"run.yaml": spec}) + to_sarif(found) + to_json(found) + to_github(found)
        assert secret not in shown


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    "option",
    [
        "--sweep=workload.environment.args.api_key=hunter2,hunter3",
        "--pin=workload.environment.args.api_key=hunter2",
        "--pin=workload.environment={id: lookup, argz: {token: hunter2}}",
        "--pin=password:hunter2",
        "--set=nodes.password=hunter2",
    ],
)
def test_no_command_line_with_one_is_echoed(option: str, more: tuple[str, ...]) -> None:
    example = Path(__file__).parents[2] / "examples" / "tiny-moe-cpu.yaml"
    done = CliRunner().invoke(main, ["plan", str(example), option, *more])
    assert done.output
    assert "hunter" not in done.output


def test_what_is_no_secret_is_shown_as_it_stands() -> None:
    for key, value in PLAIN:
        assert redacted(f"{{{key}: {value}}}") == f"{{{key}: {value}}}"
    assert redacted("a: {token: x, mean: 2}") == "a: {token: *, mean: 2}"
    assert redacted("note: password: p w, b") == "note: password: ***, b"
