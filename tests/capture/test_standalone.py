"""oxyfuel.compile needs neither torch._dynamo nor torch._inductor: both are blocked while it
works."""

import os
import subprocess
import sys
import textwrap

import pytest

BLOCK = """
import sys

BLOCKED = ("torch._dynamo", "torch._inductor")

def is_blocked(name):
    return name.startswith(tuple(b + "." for b in BLOCKED)) or name in BLOCKED

class Block:
    def find_spec(self, name, path=None, target=None):
        if is_blocked(name):
            raise ImportError(f"{name} is imported")

def block():
    for name in [n for n in sys.modules if is_blocked(n)]:
        del sys.modules[name]
    sys.meta_path.insert(0, Block())

"""

FUNCTIONS = """
block()
import torch
import oxyfuel

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))

    def forward(self, x):
        return torch.nn.functional.gelu(self.layers(x))

@oxyfuel.compile
def bare(x):
    return x + 1

@oxyfuel.compile(fullgraph=True)
def decorated(x, scale=2.0):
    return {"y": torch.softmax(x * scale, -1), "n": x.shape[0]}

@oxyfuel.compile
def breaks(x):
    if x.sum() > 0:
        x = x * 2
    return x - 1

x = torch.randn(4, 8)
with torch.no_grad():
    for _ in range(2):
        assert torch.equal(bare(x), x + 1)
        assert torch.allclose(decorated(x)["y"], torch.softmax(x * 2, -1))
        assert torch.equal(breaks(x.abs()), x.abs() * 2 - 1)
    net = Net()
    for backend in (*oxyfuel.list_backends(), lambda gm, inputs: gm.forward):
        assert torch.allclose(oxyfuel.compile(net, backend=backend)(x), net(x), atol=1e-6)
assert oxyfuel.stats()["graphs"] >= 7
print("ok")
"""

MODEL = """
import torch
import transformers

torch.manual_seed(0)
model = {model}.eval()
tokens = torch.randint(0, 64, (2, 12))
with torch.no_grad():
    expected = model(tokens, **{arguments})
block()
import oxyfuel

compiled = oxyfuel.compile(model, fullgraph=True)
with torch.no_grad():
    for _ in range(2):
        result = compiled(tokens, **{arguments})
        assert type(result) is type(expected) and list(result) == list(expected)
        torch.testing.assert_close(result[0], expected[0], rtol=1e-4, atol=1e-5)
assert oxyfuel.stats()["graphs"] == 1 and oxyfuel.stats()["graph_breaks"] == 0
print("ok")
"""

MODELS = {
    "bert": (
        "transformers.BertModel(transformers.BertConfig(vocab_size=64, hidden_size=32, "
        "num_hidden_layers=2, "
        "num_attention_heads=2, intermediate_size=64))",
        "{}",
    ),
    "gpt2": (
        "transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, "
        "n_head=2, "
        "n_positions=32))",
        "{'use_cache': False}",
    ),
}


def run(program):
    environment = {**os.environ, "OXYFUEL_STRICT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.endswith("ok\n"), done.stderr


def test_functions_and_modules():
    run(FUNCTIONS)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    pytest.importorskip("transformers")
    model, arguments = MODELS[name]
    run(MODEL.replace("{model}", model).replace("{arguments}", arguments))


def test_the_block_blocks():
    with pytest.raises(AssertionError, match="torch._dynamo is imported"):
        run("block()\nimport torch\nimport torch._dynamo")
