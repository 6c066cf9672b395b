"""A random mixture-of-experts model of about four million parameters, for runs on a CPU; nothing is downloaded.

    python -m prlc.runtime.ops.tiny_model --out DIR --seed 0

The folder is a Hugging Face checkpoint (Qwen3-MoE) with a word-level tokenizer for the built-in environments.
The same seed gives the same bytes with the same version of transformers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from prlc.runtime.environments.words import BOS, EOS, PAD, SPECIAL, UNKNOWN, VOCABULARY
from prlc.runtime.ops.files import mark_complete

# Experts start 25 times wider than the rest (transformers' 0.02), so that they differ from the first step: with equal
# experts a changed routing choice costs nothing, and router replay would have nothing to mend.
EXPERT_STD = 0.5


def write_tokenizer(out: Path) -> None:
    """Write tokenizer.json and its configuration: one word is one token. Raises OSError."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS, unk_token=UNKNOWN
    ).save_pretrained(out)


def write_model(out: Path, seed: int) -> None:
    """Write the checkpoint into the folder `out`, in float32. Raises OSError."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    out.mkdir(parents=True, exist_ok=True)
    config = Qwen3MoeConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=64,
        num_experts_per_tok=4,
        moe_intermediate_size=32,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        router_aux_loss_coef=0.0,
        pad_token_id=VOCABULARY.index(PAD),
        bos_token_id=VOCABULARY.index(BOS),
        eos_token_id=VOCABULARY.index(EOS),
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3MoeForCausalLM(config).to(torch.float32)
        with torch.no_grad():
            for layer in model.model.layers:
                layer.mlp.experts.gate_up_proj.normal_(std=EXPERT_STD)
                layer.mlp.experts.down_proj.normal_(std=EXPERT_STD)
    model.save_pretrained(out)
    write_tokenizer(out)
    mark_complete(out)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write a tiny random mixture-of-experts model.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_model(arguments.out, arguments.seed)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
