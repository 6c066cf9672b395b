"""Names, paths, Hugging Face folders, and what each wrong one says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prlc import catalog
from prlc.schema import codec

QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 32,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 512,
    "tie_word_embeddings": False, "dtype": "float32",
}  # fmt: skip


def write_config(folder: Path, config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", catalog.names("model"))
def test_models_carry_their_sources(name: str) -> None:
    model = catalog.model(name)
    assert model.name == name
    assert model.sources
    assert model.config["vocab_size"] == model.vocab_size
    assert codec.decode(catalog.Model, codec.encode(model)) == model


@pytest.mark.parametrize("name", catalog.names("gpu"))
def test_gpus(name: str) -> None:
    gpu = catalog.gpu(name)
    assert gpu.name == name
    assert gpu.memory_source
    assert gpu.sources


@pytest.mark.parametrize("name", catalog.names("cluster"))
def test_clusters_name_a_known_gpu(name: str) -> None:
    cluster = catalog.cluster(name)
    assert cluster.name == name
    assert cluster.sources
    assert catalog.gpu(cluster.node.gpu).name == cluster.node.gpu


def test_what_the_catalog_holds() -> None:
    assert catalog.names("gpu") == ("b200", "cpu", "h100", "h200")
    assert catalog.names("cluster") == ("h200-1x1", "h200-1x8", "h200-28x8", "h200-64x8", "local-cpu")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("glm-5.l", "glm-5.1"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ],
)
def test_a_close_name_is_offered(wrong: str, right: str) -> None:
    with pytest.raises(catalog.CatalogError) as caught:
        catalog.model(wrong)
    assert "no model named" in caught.value.message
    assert right in caught.value.help


def test_a_far_name_lists_all() -> None:
    with pytest.raises(catalog.CatalogError) as caught:
        catalog.gpu("zzzzzz")
    assert caught.value.help == "known: b200, cpu, h100, h200"
    with pytest.raises(catalog.CatalogError, match="no cluster named"):
        catalog.cluster("zzzzzz")


def test_a_missing_path_is_a_missing_file(tmp_path: Path) -> None:
    for name in (tmp_path / "none.yaml", "./none", "some/none.yaml"):
        with pytest.raises(catalog.CatalogError, match="no such model file or folder"):
            catalog.model(name)


def test_a_name_never_leaves_the_catalog() -> None:
    with pytest.raises(catalog.CatalogError):
        catalog.model("../gpus/h200")


def test_cluster_from_a_file(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(codec.dump(catalog.cluster("h200-1x8")).replace("nodes: 1\n", "nodes: 3\n"))
    assert catalog.cluster(own).nodes == 3
    assert catalog.cluster(str(own)).nodes == 3
    with pytest.raises(catalog.CatalogError, match="is a folder"):
        catalog.cluster(tmp_path)


def test_model_from_a_file(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(codec.dump(catalog.model("tiny-moe")))
    assert catalog.model(own) == catalog.model("tiny-moe")


def test_a_broken_entry_says_where(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(codec.dump(catalog.cluster("h200-1x8")).replace("memory: 2TiB", "memory: 2"))
    with pytest.raises(catalog.CatalogError, match="not a valid cluster entry") as caught:
        catalog.cluster(own)
    assert "node.memory" in caught.value.help
    own.write_text("name: [")
    with pytest.raises(catalog.CatalogError, match="cannot be read"):
        catalog.cluster(own)


def test_only_the_file_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.read_text

    def spy(self: Path, *args: Any, **kwargs: Any) -> str:
        read.append(self.name)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", spy)
    catalog.model("glm-5.1")
    assert read == ["glm-5.1.yaml"]


@pytest.mark.parametrize("as_file", [False, True])
def test_hugging_face_folder(tmp_path: Path, as_file: bool) -> None:
    folder = write_config(tmp_path, QWEN3_MOE)
    model = catalog.model(folder / "config.json" if as_file else folder)
    assert model.architecture == "Qwen3MoeForCausalLM"
    assert model.checkpoints[0].dtype == "float32"
    mine, tiny = catalog.facts(model), catalog.facts(catalog.model("tiny-moe"))
    assert mine.params == tiny.params
    assert (mine.layers, mine.top_k, mine.kv_heads, mine.attention_kind) == (4, 4, 2, "gqa")


def test_a_folder_stands_whole_in_what_is_made_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative one would be read as a hub id, or below the run directory."""
    folder = write_config(tmp_path, QWEN3_MOE)
    monkeypatch.chdir(folder.parent)
    for path in (folder.name, f"{folder.name}/config.json"):
        model = catalog.model(path)
        assert model.hf_id == model.checkpoints[0].hf_id == str(folder.resolve())


def test_hugging_face_text_config_of_a_larger_model(tmp_path: Path) -> None:
    whole = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
    known = catalog.model("kimi-k2.5")
    model = catalog.model(write_config(tmp_path, {**whole, "text_config": {**known.config}}))
    assert (model.model_type, model.config["model_type"], model.attention_kind) == (
        "kimi_k25",
        "kimi_k2",
        "mla",
    )
    assert catalog.facts(model).params == catalog.facts(known).params


@pytest.mark.parametrize("name", catalog.names("model"))
def test_the_kind_of_attention_follows_from_the_config(tmp_path: Path, name: str) -> None:
    known = catalog.model(name)
    model = catalog.model(write_config(tmp_path, {**known.config, "tie_word_embeddings": known.tie_word_embeddings}))
    assert model.attention_kind == known.attention_kind
    assert catalog.facts(model).params == catalog.facts(known).params


def test_unknown_model_type_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(catalog.CatalogError, match="mixtral") as caught:
        catalog.model(write_config(tmp_path, {**QWEN3_MOE, "model_type": "mixtral"}))
    assert "qwen3_moe" in caught.value.help


def test_config_with_holes(tmp_path: Path) -> None:
    with pytest.raises(catalog.CatalogError, match="has no hidden_size"):
        catalog.model(write_config(tmp_path, {k: v for k, v in QWEN3_MOE.items() if k != "hidden_size"}))
    for key in ("moe_intermediate_size", "num_hidden_layers", "num_key_value_heads", "num_experts_per_tok"):
        holed = catalog.model(write_config(tmp_path, {k: v for k, v in QWEN3_MOE.items() if k != key}))
        with pytest.raises(catalog.CatalogError, match=key):
            catalog.facts(holed)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"text_config": []}'])
def test_config_that_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(catalog.CatalogError, match=r"config\.json"):
        catalog.model(tmp_path)


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(catalog.CatalogError, match=r"no config\.json"):
        catalog.model(tmp_path)
