"""Small configurations of the models that the benchmark runs in full size, against eager."""

import pytest
import torch
import torch._dynamo

import oxyfuel

pytestmark = pytest.mark.usefixtures("strict_without_grad")

transformers = pytest.importorskip("transformers")


def tokens():
    return torch.randint(0, 64, (2, 12))


def bert(layers):
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
    )
    return transformers.BertModel(config), {"input_ids": tokens()}


def gpt2(layers):
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=layers, n_head=2, n_positions=32
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(), "use_cache": False}


def llama(layers):
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens(), "use_cache": False}


def t5_encoder(layers):
    config = transformers.T5Config(
        vocab_size=64, d_model=32, num_layers=layers, num_heads=2, d_kv=16, d_ff=64
    )
    return transformers.T5EncoderModel(config), {"input_ids": tokens()}


def vit(layers):
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return transformers.ViTModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def resnet(layers):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[layers, layers], layer_type="bottleneck"
    )
    return transformers.ResNetModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def compare(make, layers):
    """Runs the compiled model twice against eager; the number of distinct kernels."""
    torch._dynamo.reset()
    oxyfuel.reset()
    model, inputs = make(layers)
    model.eval()
    compiled = torch.compile(model, backend="oxyfuel")
    expected = model(**inputs).to_tuple()
    for _ in range(2):
        found = compiled(**inputs).to_tuple()
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert a.dtype == b.dtype and a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    stats = oxyfuel.stats()
    assert stats["fallbacks"] == stats["unsupported"] == stats["grad_fallbacks"] == 0
    assert stats["graphs"] == 1 and stats["kernels"] > 0
    return stats["kernels"]


@pytest.mark.parametrize("make", [bert, gpt2, llama, t5_encoder, vit, resnet])
def test_model(make):
    compare(make, layers=2)


@pytest.mark.parametrize("make", [bert, gpt2, llama, vit])
def test_repeated_layers_share_their_kernels(make):
    assert compare(make, layers=3) == compare(make, layers=5)


def test_bfloat16():
    model, inputs = llama(2)
    model = model.eval().to(torch.bfloat16)
    expected = model(**inputs).logits
    found = torch.compile(model, backend="oxyfuel")(**inputs).logits
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    assert oxyfuel.stats()["fallbacks"] == 0
