"""register_replacement and register_pass: what is found, what is replaced, and that results stay
right."""

import math

import pytest
import torch

import oxyfuel

STRICT = {"strict": True}


@pytest.fixture(autouse=True)
def forget_passes():
    yield
    for name in oxyfuel.registered_passes():
        oxyfuel.unregister_pass(name)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def fused_attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def heads(*sizes):
    torch.manual_seed(0)
    return [torch.randn(*sizes) for _ in range(3)]


# Scores of more than 32 MB: attention over fewer becomes gemms and a softmax again.
LARGE = (1, 1, 3072, 16)


def compiled_text(f, *inputs, capfd, **options):
    """The result of a compiled call, and the ATen graph behind the passes."""
    oxyfuel.set_logs("aot_graphs")
    capfd.readouterr()
    try:
        with torch.no_grad():
            result = oxyfuel.compile(f, options={**STRICT, **options})(*inputs)
    finally:
        oxyfuel.set_logs("")
    said = capfd.readouterr()
    return result, said.out + said.err


def test_a_replacement_is_found_at_other_sizes(capfd):
    oxyfuel.register_replacement(attention, fused_attention, [torch.empty(1, 2, 4, 8)] * 3)

    def layer(q, k, v):
        return torch.relu(attention(q + 1, k, v * 2)) + q

    inputs = heads(*LARGE)
    result, text = compiled_text(layer, *inputs, capfd=capfd)
    assert "flash_attention" in text and "bmm" not in text
    torch.testing.assert_close(result, layer(*inputs))


def test_every_occurrence_is_replaced(capfd):
    oxyfuel.register_replacement(attention, fused_attention, [torch.empty(1, 2, 4, 8)] * 3)

    def layers(q, k, v):
        for _ in range(3):
            q = attention(q, k, v) + q
        return q.transpose(1, 2)

    inputs = heads(*LARGE)
    result, text = compiled_text(layers, *inputs, capfd=capfd)
    assert text.count("flash_attention_for_cpu.default") == 3
    torch.testing.assert_close(result, layers(*inputs))
    assert result.stride() == layers(*inputs).stride()


def test_another_scale_is_no_match(capfd):
    oxyfuel.register_replacement(attention, fused_attention, [torch.empty(1, 2, 4, 8)] * 3)

    def other(q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / 3.0, -1) @ v

    inputs = heads(1, 2, 4, 8)
    result, text = compiled_text(other, *inputs, capfd=capfd)
    assert "flash_attention" not in text
    torch.testing.assert_close(result, other(*inputs))


def test_a_number_stands_for_any_number(capfd):
    def scaled(x, y, factor):
        return x * factor + y

    def replacement(x, y, factor):
        return torch.add(y, x, alpha=factor)

    oxyfuel.register_replacement(scaled, replacement, [torch.empty(4), torch.empty(4), 0.377])
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    result, text = compiled_text(lambda x, y: scaled(x, y, 2.5), x, y, capfd=capfd, kernels=False)
    assert "aten.mul" not in text and "2.5" in text
    torch.testing.assert_close(result, scaled(x, y, 2.5))


def test_values_with_other_readers_stay(capfd):
    def pattern(x):
        return torch.relu(x.sin())

    oxyfuel.register_replacement(pattern, lambda x: x.cos(), [torch.empty(4)])

    def both(x):
        s = x.sin()
        return torch.relu(s), s

    x = torch.randn(5)
    result, text = compiled_text(both, x, capfd=capfd)
    assert "aten.cos" not in text
    torch.testing.assert_close(result, both(x))


def test_several_results(capfd):
    def pattern(x):
        return x.sin() * 2, x.sin() + 1

    def replacement(x):
        return x.cos() * 2, x.cos() + 1

    oxyfuel.register_replacement(pattern, replacement, [torch.empty(4)])
    x = torch.randn(5)
    result, _ = compiled_text(lambda x: pattern(x), x, capfd=capfd)
    torch.testing.assert_close(result, replacement(x))


def test_layout_is_kept(capfd):
    def pattern(x):
        return x.sin().t()

    oxyfuel.register_replacement(pattern, lambda x: x.t().cos().contiguous(), [torch.empty(4, 3)])
    x = torch.randn(5, 7)
    result, text = compiled_text(lambda x: pattern(x), x, capfd=capfd)
    assert "aten.cos" in text
    torch.testing.assert_close(result, x.cos().t())
    assert result.stride() == (1, 7)


def test_extra_check_may_refuse(capfd):
    oxyfuel.register_replacement(
        lambda x: x.sin(),
        lambda x: x.cos(),
        [torch.empty(4)],
        extra_check=lambda x: x.shape[0] > 8,
        name="wide_only",
    )
    for size in (4, 16):
        x = torch.randn(size)
        result, _ = compiled_text(lambda x: x.sin(), x, capfd=capfd)
        torch.testing.assert_close(result, x.cos() if size > 8 else x.sin())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pass_on_the_fx_graph(capfd, when):
    def sin_to_cos(module):
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.sin.default:
                node.target = torch.ops.aten.cos.default

    oxyfuel.register_pass(sin_to_cos, when=when)

    def f(x, y):
        y.mul_(2)
        return x.sin().view(-1), y

    x, y = torch.randn(3, 4), torch.randn(3)
    expected = y * 2
    result, _ = compiled_text(f, x, y, capfd=capfd)
    torch.testing.assert_close(result[0], x.cos().view(-1))
    assert result[1] is y
    torch.testing.assert_close(y, expected)
    again, _ = compiled_text(lambda x: x.sin(), x, capfd=capfd, disabled_passes="sin_to_cos")
    torch.testing.assert_close(again, x.sin())


def test_a_pass_that_changes_a_result_is_refused():
    oxyfuel.register_pass(
        lambda module: setattr(module.graph.output_node(), "args", ((),)), name="drops_all"
    )
    with torch.no_grad(), pytest.raises(oxyfuel.InternalError, match="drops_all changes"):
        oxyfuel.compile(lambda x: x + 1, options=STRICT)(torch.ones(2))


@pytest.mark.parametrize(
    "pattern, message",
    [
        (lambda x: x.add_(1), "does not write"),
        (lambda x: x, "computes what it returns"),
        (lambda x: torch.rand_like(x) + x, "no effects"),
        (lambda x: 3, "returns tensors"),
    ],
)
def test_what_is_no_pattern(pattern, message):
    with pytest.raises(ValueError, match=message):
        oxyfuel.register_replacement(pattern, lambda x: x.cos(), [torch.empty(4)])
    assert not oxyfuel.registered_passes()


def test_names():
    assert oxyfuel.register_replacement(torch.sin, torch.cos, [torch.empty(2)]) == "sin"
    with pytest.raises(ValueError, match="there already"):
        oxyfuel.register_replacement(torch.sin, torch.cos, [torch.empty(2)])
    with pytest.raises(ValueError, match="there already"):
        oxyfuel.register_pass(lambda m: None, name="cse")
    with pytest.raises(ValueError, match="before, after"):
        oxyfuel.register_pass(lambda m: None, name="mine", when="during")
    oxyfuel.unregister_pass("sin")
    with pytest.raises(ValueError, match="no registered pass"):
        oxyfuel.unregister_pass("sin")
