"""prlc catalog add: an entry with exact counts from a Hugging Face folder, or a clear answer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prlc import catalog
from prlc.compiler.cli import main


def prlc(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["catalog", "add", *(str(a) for a in arguments)])


def folder_of(path: Path, name: str, total_size: int | None = None, **changes: object) -> Path:
    entry = catalog.model(name)
    folder = path / "My_Model"
    folder.mkdir()
    config = {
        **entry.config, "architectures": [entry.architecture], "torch_dtype": "bfloat16",
        "num_nextn_predict_layers": entry.mtp.get("num_nextn_predict_layers", 0), **changes,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    if total_size is not None:
        index = {"metadata": {"total_size": total_size}, "weight_map": {"w": "model.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("name", "total_size", "what"),
    [  # total_size as the published entries of the catalog state it, with their sources
        ("qwen3-30b-a3b", 61064245248, "main model"),
        ("glm-5", 1487822475264, "main model, router biases in fp32"),
        ("glm-5.2", 1506659919872, "main model and MTP layers, router biases in fp32"),
    ],
)
def test_counts_are_those_of_published_indexes(name: str, total_size: int, what: str, tmp_path: Path) -> None:
    done = prlc(folder_of(tmp_path, name, total_size), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["index_agrees"] is True
    assert said["checked"].endswith(f"exactly the {what}")
    assert said["total_params"] == catalog.facts(catalog.model(name)).total_params


def test_the_file_is_a_model_that_specs_may_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    done = prlc(folder_of(tmp_path, "qwen3-30b-a3b"), "-o", file, "--name", "mine")
    assert done.exit_code == 0, done.output
    assert "compared with nothing" in done.stdout
    model = catalog.model(file)
    assert model.name == "mine"
    assert catalog.facts(model).total_params == 30532122624
    again = prlc(tmp_path / "My_Model", "-o", file)
    assert again.exit_code == 2
    assert "already there" in again.stderr


def test_an_index_that_contradicts_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3-30b-a3b", 61064245248 + 2)
    done = prlc(folder)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "+2" in done.stderr
    forced = prlc(folder, "--force")
    assert forced.exit_code == 0
    assert "+2" in forced.stdout


def test_a_quantized_checkpoint_is_not_compared(tmp_path: Path) -> None:
    done = prlc(folder_of(tmp_path, "qwen3-30b-a3b", 1, quantization_config={"quant_method": "fp8"}), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["index_agrees"] is None


@pytest.mark.parametrize("family", ["mixtral", "gemma3_text", "phi3", "olmo2", "falcon_h1"])
def test_an_unknown_family_gets_the_fields_that_are_needed(family: str, tmp_path: Path) -> None:
    done = prlc(folder_of(tmp_path, "llama-3.1-8b", model_type=family))
    assert done.exit_code == 2
    assert f"no parameter formula for model_type '{family}'" in done.stderr
    assert "known: deepseek_v3" in done.stderr
    assert "max_position_embeddings, attention_kind, config" in done.stderr


@pytest.mark.parametrize(
    ("index", "said"), [("{", "Expecting"), ("[]", "no metadata.total_size"), ('{"metadata": {}}', "no metadata")]
)
def test_a_broken_index_is_said(index: str, said: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "tiny-moe")
    (folder / "model.safetensors.index.json").write_text(index)
    done = prlc(folder)
    assert done.exit_code == 2
    assert said in done.stderr
