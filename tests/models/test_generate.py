"""`generate` of small models with random weights through oxyfuel.compile: eager's tokens, by few
captures."""

from __future__ import annotations

import pytest
import torch

import oxyfuel

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
TEXT = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4}, SMALL),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}, GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}, GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": None}, GROUPED),
    "opt": ("OPTForCausalLM", "OPTConfig", {"ffn_dim": 64, "word_embed_proj_dim": 32}, SMALL),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("OXYFUEL_STRICT", "1")
    oxyfuel.reset()
    torch.manual_seed(0)
    yield
    oxyfuel.reset()


def build(model, config, own, common):
    made = getattr(transformers, config)(**{**common, **own})
    return getattr(transformers, model)(made).eval()


def generated(model, **inputs):
    out = model.generate(**inputs, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    return out.tolist()


@pytest.mark.parametrize("name", TEXT)
def test_text(name):
    model = build(*TEXT[name])
    prompts = [torch.randint(3, 64, (2, n)) for n in (7, 11, 5)]
    masks = [torch.ones_like(p) for p in prompts]
    expected = [generated(model, input_ids=p, attention_mask=m) for p, m in zip(prompts, masks)]
    model.forward = oxyfuel.compile(model.forward)
    found = generated(model, input_ids=prompts[0], attention_mask=masks[0])
    assert found == expected[0]
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["unsupported"] == stats["graph_breaks"] == 0
    # The prompt, then all tokens behind it.
    assert stats["graphs"] == 2
    for p, m, tokens in zip(prompts, masks, expected):
        assert generated(model, input_ids=p, attention_mask=m) == tokens
    assert oxyfuel.stats()["graphs"] == 3  # prompts of any length


def test_whisper():
    config = transformers.WhisperConfig(
        vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
        max_source_positions=50, max_target_positions=64, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=3, begin_suppress_tokens=None,
        suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    sounds = [torch.randn(2, 8, 100), torch.randn(2, 8, 100)]
    expected = [generated(model, input_features=s) for s in sounds]
    model.forward = oxyfuel.compile(model.forward)
    for sound, tokens in zip(sounds, expected):
        assert generated(model, input_features=sound) == tokens
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["unsupported"] == 0
    assert stats["graphs"] <= 4, stats
