"""prlc import: reading, mapping and reporting; no key of any input goes unmentioned."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc.compiler.cli import main
from prlc.compiler.imports import convert
from prlc.compiler.imports.mapping import ROWS, TABLES
from prlc.compiler.imports.primerl import account
from prlc.compiler.imports.reading import Leaf, Source, TomlError, leaves
from prlc.compiler.imports.report import account_text
from prlc.compiler.imports.spec import made
from prlc.compiler.pins import known_paths

BASE = """
seq_len = 4096
[trainer.model]
name = "Qwen/Qwen3-30B-A3B"
[orchestrator]
batch_size = 64
group_size = 16
max_off_policy_steps = 8
"""


def imported(folder: Path, *more: str, **files: str) -> Result:
    """`prlc import` of files by their stem; in `more`, {stem} is the file's path."""
    paths = {}
    for stem, text in files.items():
        paths[stem] = folder / f"{stem}.toml"
        paths[stem].write_text(text, "utf-8")
    given = [one.format(**{stem: str(path) for stem, path in paths.items()}) for one in more]
    named = any(str(path) in one for path in paths.values() for one in given)
    return CliRunner().invoke(main, ["import", *([] if named else map(str, paths.values())), *given])


def document(folder: Path, *more: str, **files: str) -> dict:
    return json.loads(imported(folder, "--json", *more, **files).stdout)


def row(found: dict, key: str) -> dict:
    return next(one for one in found["keys"] if one["key"] == key)


def leaf_list(text: str, role: str = "") -> tuple[Leaf, ...]:
    return leaves([Source(file="rl.toml", text=text, role=role)])


def test_the_table_names_paths_of_a_spec_and_functions_that_exist() -> None:
    assert {one.target for one in ROWS if one.target} <= set(known_paths())
    for one in ROWS:
        assert (one.verdict == "mapped") == bool(one.target) == bool(one.convert), one
        assert not one.convert or one.convert in convert.FUNCTIONS
        assert one.target or one.reason
    used = {one.convert for one in ROWS} - {""}
    assert used == set(convert.FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = [1,\n", "rl.toml:2"),
        ("a = 1\na = 2\n", "rl.toml:2:"),
        ("[t]\nx = yes\n", "rl.toml:2:5: not TOML: Invalid value"),
        ("key\n", "rl.toml:1:"),
        ("", None),
    ],
)
def test_what_is_no_toml_is_refused_at_its_line(text: str, place: str | None) -> None:
    if place is None:
        assert leaf_list(text) == ()
        return
    with pytest.raises(TomlError) as error:
        leaf_list(text)
    assert str(error.value).startswith(place)


def test_the_command_says_where_toml_is_broken(tmp_path: Path) -> None:
    result = imported(tmp_path, rl="seq_len = 1\n[trainer\n")
    assert result.exit_code == 1
    assert f"error: {tmp_path / 'rl.toml'}:2:9: not TOML" in result.stderr
    assert "Traceback" not in result.output


def test_each_key_has_its_line() -> None:
    text = 'a = 1\n[t."x.y"]\nb = """\nc = 2\n"""\nd.e = 3\n[[l]]\nf = 4\n[[l]]\n[l.m]\ng = {h = 5}\n'
    assert {leaf.name: leaf.line for leaf in leaf_list(text)} == {
        "a": 1, "t.x.y.b": 3, "t.x.y.d.e": 6, "l[0].f": 8, "l[1].m.g.h": 11,
    }  # fmt: skip


def test_files_are_merged_and_later_ones_win(tmp_path: Path) -> None:
    found = document(tmp_path, one=BASE, two="seq_len = 8192\n[trainer.model]\nep = 8\n")
    assert found["spec"]["sequence"]["seq_len"] == 8192
    assert found["spec"]["trainer"]["parallel"]["ep"] == 8
    first, second = (one for one in found["keys"] if one["key"] == "seq_len")
    assert first["verdict"] == "overridden"
    assert "two.toml" in first["reason"]
    assert second["verdict"] == "mapped"


def test_a_list_is_replaced_whole() -> None:
    sources = [Source(file=name, text=text) for name, text in
               (("a", "[[env]]\nx = 1\n[[env]]\nx = 2\n"), ("b", "[[env]]\ny = 3\n"))]  # fmt: skip
    assert [(leaf.name, leaf.overridden) for leaf in leaves(sources)] == [
        ("env[0].x", "b"), ("env[1].x", "b"), ("env[0].y", ""),
    ]  # fmt: skip


def test_a_file_may_be_one_block_by_its_name_or_by_a_word(tmp_path: Path) -> None:
    split = {
        "trainer": 'seq_len = 4096\n[model]\nname = "Qwen/Qwen3-30B-A3B"\nep = 8\n',
        "orchestrator": "batch_size = 64\ngroup_size = 16\nmax_off_policy_steps = 8\nmax_inflight_rollouts = 100\n",
        "serve": "[vllm]\ntensor_parallel_size = 2\n",
    }
    found = document(tmp_path, "{trainer}", "{orchestrator}", "inference={serve}", **split)
    assert found["problems"] == []
    assert row(found, "trainer.model.ep")["path"] == "trainer.parallel.ep"
    assert row(found, "orchestrator.max_inflight_rollouts")["value"] == 6
    assert row(found, "inference.vllm.tensor_parallel_size")["path"] == "inference.tensor_parallel"


def test_a_block_in_the_wrong_place_is_told_where_it_belongs(tmp_path: Path) -> None:
    found = document(tmp_path, rl=BASE, infer="max_num_seqs = 4\n")
    assert "inference=FILE" in row(found, "max_num_seqs")["reason"]


def test_a_misspelt_key_is_unknown_and_told_its_neighbour(tmp_path: Path) -> None:
    text = BASE + "group_sise = 4\nwholly_other = 1\n[inference.vllm]\nmax_num_seq = 3\nno_flag_of_it = 1\n"
    found = document(tmp_path, rl=text)
    assert row(found, "orchestrator.group_sise")["meant"] == "group_size"
    assert row(found, "inference.vllm.max_num_seq")["meant"] == "max_num_seqs"
    for key in ("orchestrator.wholly_other", "inference.vllm.no_flag_of_it"):
        assert row(found, key)["verdict"] == "unknown"
        assert "meant" not in row(found, key)


def test_a_table_on_record_without_its_keys_names_the_specs_own(tmp_path: Path) -> None:
    found = document(tmp_path, rl=BASE + "[ckpt]\nsome_key = 5\n")
    assert row(found, "ckpt.some_key")["verdict"] == "unknown"
    assert row(found, "ckpt.some_key")["reason"] == TABLES["ckpt"]


def test_values_that_disagree_are_refused_with_both_places(tmp_path: Path) -> None:
    text = "num_infer_nodes = 2\n" + BASE + "[inference.deployment]\nnum_nodes = 3\n"
    result = imported(tmp_path, "--set", "trainer.nodes=1", rl=text)
    assert result.exit_code == 1
    assert "rl.toml:11: inference.deployment.num_nodes makes nodes 4, num_infer_nodes at" in result.stderr
    assert imported(tmp_path, "--set", "trainer.nodes=1", "--set", "nodes=3", "--no-plan", rl=text).exit_code == 0


def test_the_larger_of_two_lengths_is_taken_and_the_other_is_told(tmp_path: Path) -> None:
    found = document(tmp_path, rl=BASE.replace("[trainer.model]", "[trainer]\nseq_len = 8192\n[trainer.model]"))
    assert found["spec"]["sequence"]["seq_len"] == 8192
    assert row(found, "seq_len")["verdict"] == "overridden"


@pytest.mark.parametrize("value", ["0", "-1", "2.5", '"16"', "true", "[16]"])
def test_a_value_of_the_wrong_kind_is_refused_at_its_line(value: str, tmp_path: Path) -> None:
    result = imported(tmp_path, rl=BASE.replace("group_size = 16", f"group_size = {value}"))
    assert result.exit_code == 1
    assert "rl.toml:7: orchestrator.group_size takes a whole number of at least 1" in result.stderr


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("ep = 'auto'", "trainer.parallel.ep", "auto"),
        ("fp8 = true", "trainer.precision", "fp8"),
        ("fp8 = false", "trainer.precision", "bf16"),
        ("quantization = {any = 'fp8'}", "trainer.precision", "fp8"),
        ("optim_cpu_offload = false", "trainer.optimizer.offload", "none"),
        ("dp_replicate = 2", "trainer.parallel.dp_replicate", 2),
    ],
)
def test_conversions_of_the_trainer(line: str, path: str, value: object, tmp_path: Path) -> None:
    rows = document(tmp_path, rl=BASE.replace("[orchestrator]", f"{line}\n[orchestrator]"))["keys"]
    assert [one["value"] for one in rows if one.get("path") == path] == [value]


@pytest.mark.parametrize("line", ["quantization = 'mxfp8'", "quantization = {any = 'mxfp8'}", "training_mode = 'opd'"])
def test_what_the_runtime_lacks_is_said_and_not_mapped(line: str, tmp_path: Path) -> None:
    found = document(tmp_path, rl=BASE.replace("[orchestrator]", f"{line}\n[orchestrator]"))
    assert [one["verdict"] for one in found["keys"] if "quant" in one["key"] or "mode" in one["key"][-5:]].count(
        "not supported"
    ) == 1


def test_an_island_of_nodes_is_its_shards(tmp_path: Path) -> None:
    text = "nodes_per_fsdp_group = 2\ndeployment.gpus_per_node = 8\n" + BASE.replace("[orch", "cp = 4\n[orch")
    found = document(tmp_path, rl=text)
    assert row(found, "nodes_per_fsdp_group")["value"] == 2 * 8 // 4
    assert row(found, "nodes_per_fsdp_group")["path"] == "trainer.parallel.dp_shard"


def test_no_secret_and_no_variable_of_the_environment_is_shown(tmp_path: Path) -> None:
    secret = "hf_" + "abcdEFGH12345678ijklMNOP"
    text = BASE + f'[env_vars]\nWANDB_API_KEY = "hunter2"\n[wandb]\napi_key = "{secret}"\n[other]\nx = "{secret}"\n'
    for more in ((), ("--json",)):
        result = imported(tmp_path, *more, "--no-plan", rl=text)
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert secret not in result.output


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    out = tmp_path / "run.yaml"
    first = imported(tmp_path, "-o", str(out), "--no-plan", rl=BASE)
    assert first.exit_code == 0
    before = out.read_bytes()
    assert imported(tmp_path, "-o", str(out), "--no-plan", rl=BASE).exit_code == 2
    assert out.read_bytes() == before


def test_the_plan_follows_unless_it_is_not_wanted(tmp_path: Path) -> None:
    cluster = ("--cluster", "h200-28x8", "--set", "nodes=4")
    planned, alone = imported(tmp_path, *cluster, rl=BASE), imported(tmp_path, *cluster, "--no-plan", rl=BASE)
    assert planned.exit_code == alone.exit_code == 0, planned.output
    assert planned.output.startswith(alone.output)
    assert "weight sync" in planned.output
    assert "weight sync" not in alone.output


@pytest.mark.parametrize(
    ("given", "path", "value"),
    [
        ("trainer.ep=4", "ep", {"ep": 4}),
        ("trainer.parallel=auto", "ep", "auto"),
        ("trainer.cp=2", "", {"ep": 8, "cp": 2}),
    ],
)
def test_a_set_value_wins_over_the_file_and_the_key_says_so(
    given: str, path: str, value: object, tmp_path: Path
) -> None:
    found = document(tmp_path, "--set", given, rl=BASE.replace("[orchestrator]", "ep = 8\n[orchestrator]"))
    assert found["spec"]["trainer"]["parallel"] == value
    assert row(found, "trainer.model.ep")["verdict"] == ("overridden" if path else "mapped")


def test_a_set_value_at_no_path_of_a_spec_is_refused(tmp_path: Path) -> None:
    result = imported(tmp_path, "--set", "trainer.wholly_other=1", rl=BASE)
    assert result.exit_code == 1
    assert "PRL102" in result.stderr


def test_what_is_missing_is_told_with_its_cure(tmp_path: Path) -> None:
    result = imported(tmp_path, rl="max_steps = 3\n")
    assert result.exit_code == 1
    for path in ("model=NAME", "algorithm.batch_size=N", "sequence.seq_len=N"):
        assert f"--set {path}" in result.stderr


WORDS = sorted(
    {part for one in ROWS for part in one.name.split(".") if part != "*"} | set(TABLES) | {"eval", "zz", "x-y"}
)
VALUES = (
    "1",
    "8",
    "true",
    '"auto"',
    '"None"',
    '"fp8"',
    "[1, 2]",
    "{}",
    "{a = 1, b = {c = 2}}",
    "-3",
    "1.5",
    "1979-05-27",
)


def random_toml(seed: int) -> str:
    """Tables, lists of tables and keys, some of them on record, at random places."""
    chance = random.Random(seed)
    roots = ["trainer", "orchestrator", "inference", "inference.vllm", "model", "run", "wandb", "ckpt", "other"]
    tables = {root: chance.random() < 0.2 for root in chance.sample(roots, chance.randint(0, 6))}
    if "inference.vllm" in tables and tables.get("inference"):
        del tables["inference.vllm"]
    blocks = [f"top_{i} = {chance.choice(VALUES)}" for i in range(chance.randint(0, 2))]
    for table, listed in tables.items():
        for _ in range(2 if listed else 1):
            keys = [key for key in chance.sample(WORDS, chance.randint(0, 8)) if f"{table}.{key}" not in roots]
            head = f"[[{table}]]" if listed else f"[{table}]"
            blocks += [head, *(f"{key} = {chance.choice(VALUES)}" for key in keys)]
    return "\n".join(blocks) + "\n"


@pytest.mark.parametrize("seed", range(150))
def test_no_key_of_any_input_is_unmentioned(seed: int) -> None:
    text = random_toml(seed)
    keys = leaf_list(text)
    accounts = account(keys, {})
    assert [one.leaf for one in accounts.entries] == list(keys)
    shown = " ".join(account_text(accounts, made(accounts, "rl", None)).split())
    for one in accounts.entries:
        assert f"{one.leaf.file}:{one.leaf.line} {one.leaf.name} = " in shown
        assert one.target or one.reason
    assert len(keys) == counted(tomllib.loads(text))


def counted(value: object, top: bool = True) -> int:
    """Keys with a value of their own, counted on another way than the reader's."""
    if isinstance(value, dict):
        return sum(counted(one, False) for one in value.values()) if value else int(not top)
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return sum(counted(one, False) for one in value)
    return 1
