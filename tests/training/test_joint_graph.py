"""Joint graphs as they are shown: torch's own form of the documents' example, and what is saved."""

import pathlib

import pytest
import torch

import oxyfuel

MM = """\
class joint_helper(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[4, 4] requires_grad"
        primals_2: "f32[4, 4] requires_grad"
        tangents_1: "f32[4, 4]"
        primals_1, primals_2, tangents_1, = \
fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        mm: "f32[4, 4]" = torch.ops.aten.mm.default(primals_1, primals_2)
        t: "f32[4, 4] strides=[1, 4]" = torch.ops.aten.t.default(primals_1)
        mm_1: "f32[4, 4]" = torch.ops.aten.mm.default(t, tangents_1)
        t_1: "f32[4, 4] strides=[1, 4]" = torch.ops.aten.t.default(primals_2)
        mm_2: "f32[4, 4]" = torch.ops.aten.mm.default(tangents_1, t_1)
        return pytree.tree_unflatten([mm, mm_2, mm_1], self._out_spec)
"""

MM_SAVED = """\
saved  where     type                     bytes  reason
L_m1_  primal 0  f32[4, 4] requires_grad  64     lives anyway
L_m2_  primal 1  f32[4, 4] requires_grad  64     lives anyway
kept for the backward alone: 0 bytes
"""


def traced(folder: pathlib.Path, f, *args):
    """What a call and its backward leave in the trace folder, by name of file."""
    oxyfuel.compile(f, options={"trace": str(folder), "strict": True})(*args).sum().backward()
    return {p.name: p.read_text() for p in sorted(folder.glob("*/*.*"))}


def test_the_documents_example(tmp_path):
    def mm(m1, m2):
        return torch.mm(m1, m2)

    files = traced(tmp_path, mm, *(torch.randn(4, 4, requires_grad=True) for _ in range(2)))
    lines = files["joint_graph.py"].splitlines(keepends=True)
    assert "".join(line for line in lines if "# File" not in line) == MM
    assert any(f"{__file__}:" in line for line in lines)
    assert files["saved_for_backward.txt"] == MM_SAVED


def test_ops_of_the_backward_know_the_users_line(tmp_path):
    def f(x, w):
        y = x @ w
        return y.sin()

    joint = traced(
        tmp_path, f, torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    )["joint_graph.txt"]
    # A comment stands where the line is another one than that of the call before.
    said = [line.split("=")[-1].split(" aten.")[-1] for line in joint.splitlines() if "#" in line]
    calls = [(text.split(".")[0], text.split(":")[-1]) for text in said]
    assert [name for name, _ in calls] == ["mm", "sin", "t"]
    assert calls[0][1] == calls[2][1] != calls[1][1]


@pytest.mark.parametrize("partitioner", ["min_cut", "default"])
@pytest.mark.parametrize("budget", [0, 0.3, 1.0])
def test_partitioners_agree_with_eager(partitioner, budget):
    def f(x, w, b):
        y = torch.nn.functional.gelu(x @ w + b)
        return torch.softmax(y @ w.t(), -1) * x.sigmoid(), y.cos()

    def gradients(g):
        args = [t.clone().requires_grad_() for t in tensors]
        out = g(*args)
        return torch.autograd.grad([o.square().sum() for o in out], args)

    tensors = torch.randn(6, 8), torch.randn(8, 5), torch.randn(5)
    options = {"partitioner": partitioner, "activation_memory_budget": budget, "strict": True}
    torch.testing.assert_close(gradients(oxyfuel.compile(f, options=options)), gradients(f))


def test_bad_budgets():
    for value in (-0.1, 1.5, "much"):
        with pytest.raises(ValueError, match="is not a number from 0 to 1"):
            oxyfuel.compile(torch.sin, options={"activation_memory_budget": value})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "product",
    [
        lambda x: x.prod(),
        lambda x: x.prod(0),
        lambda x: (x * 2).prod(-1, keepdim=True) * 3,
        lambda x: x.mT.prod(1) + x.sum(),
        lambda x: x.prod(1, dtype=torch.float64),
    ],
)
def test_gradients_of_products(product, dtype):
    """Quotients, but where there are zeros, which autograd looks for."""
    torch.manual_seed(0)
    compiled = oxyfuel.compile(product, options={"strict": True})
    loose = 8 * torch.finfo(dtype).eps
    for zeros in ([], [(0, 1)], [(0, 1), (3, 1)], [(0, 1), (0, 2), (3, 1)], [(2, 3), (1, 3)]):
        x = (torch.rand(4, 6) + 0.5).to(dtype)
        for at in zeros:
            x[at] = 0
        for some in (x, x.t().contiguous().t(), torch.cat([x, x])[::2]):
            grads = []
            for f in (product, compiled):
                leaf = some.detach().requires_grad_()
                f(leaf).double().sum().backward()
                grads.append(leaf.grad)
            torch.testing.assert_close(grads[1], grads[0], rtol=loose, atol=0)


@pytest.mark.parametrize("other", [float("inf"), float("nan")])
def test_gradients_of_products_without_a_number(other):
    for numbers in ([2.0, other, 3.0], [2.0, other, 0.0], [other, 0.0, other], [2.0, 0.0, 0.0]):
        grads = []
        for f in (torch.prod, oxyfuel.compile(torch.prod, options={"strict": True})):
            x = torch.tensor(numbers, requires_grad=True)
            f(x).backward()
            grads.append(x.grad)
        torch.testing.assert_close(grads[1], grads[0], equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_products_of_one_factor(dynamic):
    inf, nan = float("inf"), float("nan")
    products = (
        lambda x: x.prod(1),
        lambda x: x.prod(1, keepdim=True, dtype=torch.float64),
        lambda x: x[:1].prod(),
    )
    for product in products:
        compiled = oxyfuel.compile(product, dynamic=dynamic, options={"strict": True})
        for factors in ([2.0, inf, 3.0], [nan, -inf, 2.0], [inf, 0.0, nan], [0.0, 1.0, 2.0]):
            grads = []
            for f in (product, compiled):
                x = torch.tensor(factors)[:, None].requires_grad_()
                f(x).backward(torch.full_like(f(x), 2.0))
                grads.append(x.grad)
            torch.testing.assert_close(grads[1], grads[0], equal_nan=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_products_with_zeros_in_other_rows(dim):
    compiled = oxyfuel.compile(torch.prod, options={"strict": True})
    inf, nan = float("inf"), float("nan")
    rows = [[2.0, 3.0, 4.0], [2.0, 0.0, 3.0], [0.0, inf, 0.0], [nan, 0.0, 3.0]]
    for row in ([2.0, -inf, 3.0], [inf, -inf, 2.0], [nan, 2.0, inf], [nan, -3.0, nan], [inf] * 3):
        for other in rows:
            grads = []
            for f in (torch.prod, compiled):
                x = torch.tensor([row, other, [-2.0, 5.0, 1.0]])
                x = (x if dim == 1 else x.t().contiguous()).requires_grad_()
                f(x, dim).sum().backward()
                grads.append(x.grad)
            torch.testing.assert_close(grads[1], grads[0], equal_nan=True)


def test_products_are_not_scanned_in_a_backward(tmp_path):
    options = {"trace": str(tmp_path), "strict": True}
    x = torch.rand(4, 6, requires_grad=True)
    oxyfuel.compile(lambda x: x.prod(1), options=options)(x).sum().backward()
    schedules = [p.read_text() for p in tmp_path.rglob("schedule*") if p.is_file()]
    assert schedules and not any("cumprod" in text for text in schedules)
