"""The cases of the demo and the benchmark: name -> (callable, positional arguments, keyword
arguments).

Models come from `transformers` with random weights and their default configurations, except where a
size stands here.
"""

import torch
import torch.nn.functional as F
from torch._higher_order_ops import while_loop


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


def group_norm_silu(x, w, b):
    return F.silu(F.group_norm(x, 32, w, b))


def batch_norm_relu(x, mean, variance, w, b):
    return F.relu(F.batch_norm(x, mean, variance, w, b))


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def rope(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def masked_softmax(x, mask):
    return torch.softmax(x.masked_fill(mask, float("-inf")), -1)


def embedding_norm(ids, table, w, b):
    return F.layer_norm(F.embedding(ids, table), (table.shape[1],), w, b)


def argmax(x):
    return (x * 2).argmax(-1)


def cumsum(x):
    return (x + 1).cumsum(-1)


def index_add(x, index, rows):
    return x.index_add(0, index, rows * 2)


def upsample(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear") + 1


def max_pool(x):
    return F.max_pool2d(F.relu(x), 3, 2, 1)


def cat_slices(x, y):
    return torch.cat((x[:, :512] * 2, y[:, 256:], (x + y)[:, ::2]), 1)


def dequantise(x, scale, zero):
    return (x.float() - zero) * scale


def where_chain(x, y):
    z = torch.where(x > 0, x * 2, y)
    z = torch.where(z > 1, z - 1, z * z)
    return torch.where(y < 0, -z, z)


def outer_sum(x, y, z):
    return torch.tanh(x[:, None] + y[None, :]) * z


def middle_sum(x):
    return (x * x).sum(1)


def permute_4d(x):
    return (x.permute(0, 2, 3, 1) + 1).contiguous()


def boolean_masks(x, y):
    return ((x > 0) & (y < 0.5) | (x < -1)) & ~(y > 2)


def variance(x):
    return (x * 0.5).var(-1)


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


class Decode(torch.nn.Module):
    """One token behind 128 others, the same at each call, with a cache of fixed size that the call
    writes."""

    def __init__(self):
        import transformers

        super().__init__()
        self.model = llama()
        self.cache = transformers.StaticCache(config=self.model.config, max_cache_len=256)
        with torch.no_grad():
            self.model(tokens(1, 128, 8000), past_key_values=self.cache, use_cache=True)

    def forward(self, ids):
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(128)
        return self.model(ids, past_key_values=self.cache, use_cache=True).logits


NO_CACHE = {"use_cache": False}


def branch(x):
    return torch.cond(x.sum() > 0, lambda a: (a + 1).relu(), lambda a: a - 1, (x,)) * 2


def rounds(x):
    """A loop of torch's with twenty rounds."""

    def body(n, t):
        return n + 1, t * 1.5 + 1

    return while_loop(lambda n, t: n < 20, body, (torch.tensor(0), x))[1]


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
    "group_norm": lambda: (
        group_norm_silu,
        (torch.randn(8, 256, 64, 64), torch.randn(256), torch.randn(256)),
        {},
    ),
    "batch_norm_relu": lambda: (
        batch_norm_relu,
        (torch.randn(8, 256, 64, 64), *(torch.rand(256) + 0.5 for _ in range(4))),
        {},
    ),
    "gelu_tanh": lambda: (gelu_tanh, (torch.randn(2048, 4096),), {}),
    "rope": lambda: (
        rope,
        (torch.randn(4, 16, 1024, 128), torch.randn(1024, 128), torch.randn(1024, 128)),
        {},
    ),
    "masked_softmax": lambda: (
        masked_softmax,
        (torch.randn(8, 512, 1024), torch.rand(8, 1, 1024) > 0.8),
        {},
    ),
    "embedding_norm": lambda: (
        embedding_norm,
        (tokens(16, 512), torch.randn(30000, 768), torch.randn(768), torch.randn(768)),
        {},
    ),
    "cross_entropy": lambda: (
        F.cross_entropy,
        (torch.randn(1024, 8000), torch.randint(0, 8000, (1024,))),
        {},
    ),
    "argmax": lambda: (argmax, (torch.randn(4096, 2048),), {}),
    "cumsum": lambda: (cumsum, (torch.randn(4096, 2048),), {}),
    "index_add": lambda: (
        index_add,
        (torch.randn(8192, 512), torch.randint(0, 8192, (4096,)), torch.randn(4096, 512)),
        {},
    ),
    "upsample": lambda: (upsample, (torch.randn(4, 32, 128, 128),), {}),
    "max_pool": lambda: (max_pool, (torch.randn(8, 64, 112, 112),), {}),
    "cat_slices": lambda: (cat_slices, (torch.randn(4096, 1024), torch.randn(4096, 1024)), {}),
    "dequantise": lambda: (
        dequantise,
        (torch.randint(-128, 128, (4096, 4096), dtype=torch.int8),)
        + (torch.rand(4096, 1), torch.randn(4096, 1)),
        {},
    ),
    "where_chain": lambda: (where_chain, (torch.randn(2048, 4096), torch.randn(2048, 4096)), {}),
    "outer_sum": lambda: (
        outer_sum,
        (torch.randn(2048), torch.randn(4096), torch.randn(2048, 4096)),
        {},
    ),
    "middle_sum": lambda: (middle_sum, (torch.randn(64, 256, 512),), {}),
    "permute_4d": lambda: (permute_4d, (torch.randn(16, 64, 96, 96),), {}),
    "boolean_masks": lambda: (
        boolean_masks,
        (torch.randn(2048, 4096), torch.randn(2048, 4096)),
        {},
    ),
    "variance": lambda: (variance, (torch.randn(4096, 2048),), {}),
    "tiny": lambda: (lambda x: x + 1, (torch.randn(8),), {}),
    "adds1000": lambda: (adds, (torch.randn(8),), {}),
    "branch": lambda: (branch, (torch.ones(1000),), {}),
    "rounds20": lambda: (rounds, (torch.ones(1000),), {}),
    "deep_tiny": lambda: (deep_tiny(), (torch.randn(4, 8),), {}),
    "residual_tiny": lambda: (residual_tiny(), (torch.randn(4, 8),), {}),
    "bert": lambda: (huggingface("BertModel", "BertConfig"), (tokens(1, 128),), {}),
    "gpt2": lambda: (huggingface("GPT2LMHeadModel", "GPT2Config"), (tokens(1, 128),), NO_CACHE),
    "llama": lambda: (llama(), (tokens(1, 128, 8000),), NO_CACHE),
    "decode": lambda: (Decode(), (tokens(1, 1, 8000),), {}),
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
BREAKS = ("toy_break",)  # a graph break is what they are about
DEMO = ("pointwise", "toy_break", "mlp", "bert", "gpt2", "llama", "resnet50", "vit")


def make(name):
    """The case `name`, the same numbers every time: (callable, args, kwargs)."""
    torch.manual_seed(0)
    return CASES[name]()


def tensor_of(result):
    """The tensor to compare in what a case returns: itself, a model output's logits or last hidden
    state."""
    if isinstance(result, torch.Tensor):
        return result
    for key in ("logits", "last_hidden_state"):
        if getattr(result, key, None) is not None:
            return getattr(result, key)
    return result[0]
