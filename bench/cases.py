"""The cases of the demo and the benchmark: name -> (callable, positional arguments, keyword arguments).

Models come from `transformers` with random weights and their default configurations, except where a size stands here.
"""

import torch
import torch.nn.functional as F


def huggingface(model, config, **sizes):
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**sizes)).eval()


def tokens(batch, length, vocabulary=30000):
    return torch.randint(0, vocabulary, (batch, length))


class Toy(torch.nn.Module):
    """The documents' toy example: a graph break at the branch on data."""

    def forward(self, a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b


def pointwise(x):
    return ((x + 1) * 2).sin()


def softmax(x):
    return torch.softmax(x * 0.125, -1)


def layernorm_gelu(x, w, b):
    return F.gelu(F.layer_norm(x + 1, (1024,), w, b))


def rmsnorm(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def column_sum(x):
    return (x.sin() * 2).sum(0)


def transpose_add(x, y):
    return x.t() + y


def swiglu(g, u):
    return F.silu(g) * u


def adds(x):
    for _ in range(1000):
        x = x + 1
    return x


def mlp():
    layers = [torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()) for _ in range(4)]
    return torch.nn.Sequential(*layers).eval()


def deep_tiny():
    layers = [
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
        for _ in range(48)
    ]
    return torch.nn.Sequential(*layers).eval()


class Residual(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.linear(x)))


def residual_tiny():
    return torch.nn.Sequential(*[Residual(8) for _ in range(48)]).eval()


def llama():
    return huggingface(
        "LlamaForCausalLM",
        "LlamaConfig",
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=16,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=8000,
    )


NO_CACHE = {"use_cache": False}
CASES = {
    "pointwise": lambda: (pointwise, (torch.randn(10_000_000),), {}),
    "toy_break": lambda: (Toy(), (torch.randn(10), torch.randn(10)), {}),
    "mlp": lambda: (mlp(), (torch.randn(64, 1024),), {}),
    "softmax": lambda: (softmax, (torch.randn(4096, 1024),), {}),
    "layernorm": lambda: (
        layernorm_gelu,
        (torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)),
        {},
    ),
    "rmsnorm_bf16": lambda: (
        rmsnorm,
        (torch.randn(4096, 1024).bfloat16(), torch.randn(1024).bfloat16()),
        {},
    ),
    "colsum": lambda: (column_sum, (torch.randn(8192, 1024),), {}),
    "transpose_add": lambda: (
        transpose_add,
        (torch.randn(3072, 3072), torch.randn(3072, 3072)),
        {},
    ),
    "swiglu": lambda: (swiglu, (torch.randn(2048, 4096), torch.randn(2048, 4096)), {}),
    "tiny": lambda: (lambda x: x + 1, (torch.randn(8),), {}),
    "adds1000": lambda: (adds, (torch.randn(8),), {}),
    "deep_tiny": lambda: (deep_tiny(), (torch.randn(4, 8),), {}),
    "residual_tiny": lambda: (residual_tiny(), (torch.randn(4, 8),), {}),
    "bert": lambda: (huggingface("BertModel", "BertConfig"), (tokens(1, 128),), {}),
    "gpt2": lambda: (huggingface("GPT2LMHeadModel", "GPT2Config"), (tokens(1, 128),), NO_CACHE),
    "llama": lambda: (llama(), (tokens(1, 128, 8000),), NO_CACHE),
    "resnet50": lambda: (
        huggingface("ResNetForImageClassification", "ResNetConfig"),
        (torch.randn(1, 3, 224, 224),),
        {},
    ),
    "vit": lambda: (
        huggingface("ViTForImageClassification", "ViTConfig"),
        (torch.randn(1, 3, 224, 224),),
        {},
    ),
}
DEMO = ("pointwise", "toy_break", "mlp", "bert", "gpt2", "llama", "resnet50", "vit")


def make(name):
    """The case `name`, the same numbers every time: (callable, args, kwargs)."""
    torch.manual_seed(0)
    return CASES[name]()


def tensor_of(result):
    """The tensor to compare in what a case returns: itself, a model output's logits or last hidden state."""
    if isinstance(result, torch.Tensor):
        return result
    for key in ("logits", "last_hidden_state"):
        if getattr(result, key, None) is not None:
            return getattr(result, key)
    return result[0]
