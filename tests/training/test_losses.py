"""Every loss of torch.nn in each of its reductions and forms, CTC loss, embeddings with dense and
sparse gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from model_check import first_difference
from torch import nn

import oxyfuel


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def probabilities(*shape):
    return torch.rand(*shape).mul(0.9).add(0.05).requires_grad_()


def classes(n, *shape):
    return torch.randint(0, n, shape)


def signs(*shape):
    return torch.randint(0, 2, shape) * 2.0 - 1


def log_of_probabilities(*shape):
    return torch.randn(*shape).log_softmax(-1).requires_grad_()


REDUCTIONS = ("mean", "sum", "none")
# By name: the loss's class, further settings, and arguments of a call.
LOSSES = {
    "l1": (nn.L1Loss, {}, lambda: (leaf(5, 3), leaf(5, 3))),
    "mse": (nn.MSELoss, {}, lambda: (leaf(5, 3), leaf(5, 3))),
    "smooth l1": (nn.SmoothL1Loss, {"beta": 0.5}, lambda: (leaf(5, 3), leaf(5, 3))),
    "smooth l1 of no width": (nn.SmoothL1Loss, {"beta": 0.0}, lambda: (leaf(5, 3), leaf(5, 3))),
    "huber": (nn.HuberLoss, {"delta": 0.7}, lambda: (leaf(5, 3), leaf(5, 3))),
    "cross entropy": (nn.CrossEntropyLoss, {}, lambda: (leaf(5, 4), classes(4, 5))),
    "cross entropy of images": (
        nn.CrossEntropyLoss,
        {"weight": torch.rand(4)},
        lambda: (leaf(2, 4, 3, 3), classes(4, 2, 3, 3)),
    ),
    "cross entropy, smooth": (
        nn.CrossEntropyLoss,
        {"label_smoothing": 0.1, "ignore_index": 1},
        lambda: (leaf(5, 4), classes(4, 5)),
    ),
    "cross entropy of probabilities": (
        nn.CrossEntropyLoss,
        {"label_smoothing": 0.1},
        lambda: (leaf(5, 4), torch.rand(5, 4).softmax(-1).requires_grad_()),
    ),
    "cross entropy without a batch": (nn.CrossEntropyLoss, {}, lambda: (leaf(4), classes(4))),
    "nll": (nn.NLLLoss, {"ignore_index": 2}, lambda: (log_of_probabilities(5, 4), classes(4, 5))),
    "nll of images": (
        nn.NLLLoss,
        {"weight": torch.rand(3)},
        lambda: (leaf(2, 3, 4, 4), classes(3, 2, 4, 4)),
    ),
    "poisson": (nn.PoissonNLLLoss, {}, lambda: (leaf(5, 3), torch.rand(5, 3) * 5)),
    "poisson, full": (
        nn.PoissonNLLLoss,
        {"log_input": False, "full": True},
        lambda: (probabilities(5, 3), torch.rand(5, 3) * 5),
    ),
    "gaussian": (
        nn.GaussianNLLLoss,
        {"full": True},
        lambda: (leaf(5, 3), torch.randn(5, 3), probabilities(5, 3)),
    ),
    "kl": (nn.KLDivLoss, {}, lambda: (log_of_probabilities(5, 3), probabilities(5, 3))),
    "kl of logarithms": (
        nn.KLDivLoss,
        {"log_target": True},
        lambda: (log_of_probabilities(5, 3), log_of_probabilities(5, 3)),
    ),
    "bce": (
        nn.BCELoss,
        {"weight": torch.rand(3)},
        lambda: (probabilities(5, 3), torch.rand(5, 3)),
    ),
    "bce of logits": (
        nn.BCEWithLogitsLoss,
        {"weight": torch.rand(3), "pos_weight": torch.rand(3) * 3},
        lambda: (leaf(5, 3), probabilities(5, 3)),
    ),
    "margin ranking": (
        nn.MarginRankingLoss,
        {"margin": 0.3},
        lambda: (leaf(5), leaf(5), signs(5)),
    ),
    "hinge embedding": (nn.HingeEmbeddingLoss, {}, lambda: (leaf(5, 3), signs(5, 3))),
    "multilabel margin": (
        nn.MultiLabelMarginLoss,
        {},
        lambda: (leaf(3, 4), torch.tensor([[3, 0, -1, 1], [-1, 0, 0, 0], [0, 1, 2, 3]])),
    ),
    "multilabel soft margin": (
        nn.MultiLabelSoftMarginLoss,
        {"weight": torch.rand(3)},
        lambda: (leaf(5, 3), classes(2, 5, 3).float()),
    ),
    "soft margin": (nn.SoftMarginLoss, {}, lambda: (leaf(5, 3), signs(5, 3))),
    "multi margin": (
        nn.MultiMarginLoss,
        {"p": 2, "margin": 0.7, "weight": torch.rand(4)},
        lambda: (leaf(5, 4), classes(4, 5)),
    ),
    "cosine embedding": (
        nn.CosineEmbeddingLoss,
        {"margin": 0.2},
        lambda: (leaf(5, 3), leaf(5, 3), signs(5)),
    ),
    "triplet": (
        nn.TripletMarginLoss,
        {"swap": True},
        lambda: (leaf(5, 3), leaf(5, 3), leaf(5, 3)),
    ),
    "triplet with distance": (
        nn.TripletMarginWithDistanceLoss,
        {"distance_function": nn.CosineSimilarity()},
        lambda: (leaf(5, 3), leaf(5, 3), leaf(5, 3)),
    ),
    "ctc": (
        nn.CTCLoss,
        {"zero_infinity": True},
        lambda: (log_of_probabilities(9, 2, 4), classes(3, 2, 3) + 1, (9, 7), (3, 2)),
    ),
    "ctc of tensors": (
        nn.CTCLoss,
        {"blank": 1},
        lambda: (
            log_of_probabilities(9, 2, 4),
            torch.tensor([2, 3, 0, 2, 0]),
            torch.tensor([9, 8]),
            torch.tensor([3, 2]),
        ),
    ),
}
CASES = [
    pytest.param(kind, settings | {"reduction": reduction}, make, id=f"{name}-{reduction}")
    for name, (kind, settings, make) in LOSSES.items()
    for reduction in REDUCTIONS + (("batchmean",) if kind is nn.KLDivLoss else ())
]


def trained(call, args, leaves):
    out = call(*args)
    grads = torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)
    return [out, list(grads)]


def differentiable(args):
    return [t for t in args if isinstance(t, torch.Tensor) and t.requires_grad]


def in_one_graph():
    stats = oxyfuel.stats()
    assert stats["graph_breaks"] == stats["unsupported"] == stats["grad_fallbacks"] == 0


@pytest.mark.parametrize(("kind", "settings", "make"), CASES)
def test_loss(kind, settings, make):
    loss = kind(**settings)
    compiled = oxyfuel.compile(loss)
    for _ in range(2):
        args = make()
        leaves = differentiable(args)
        wanted = trained(loss, args, leaves)
        assert not first_difference(trained(compiled, args, leaves), wanted)
    # The one looks for negative variances; what the other keeps has a size that depends on lengths
    # in tensors. Both break torch.compile's graphs too.
    if kind is nn.GaussianNLLLoss or (kind is nn.CTCLoss and isinstance(args[2], torch.Tensor)):
        assert oxyfuel.stats()["grad_fallbacks"] == oxyfuel.stats()["unsupported"] == 0
    else:
        in_one_graph()


def test_every_loss_of_torch_is_here():
    known = {kind for kind, _, _ in LOSSES.values()}
    names = [n for n in dir(nn) if n.endswith("Loss")]
    old = {"NLLLoss2d"}  # another name of NLLLoss that warns
    made_elsewhere = {"AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss"}  # below
    missing = [n for n in names if getattr(nn, n) not in known]
    assert set(missing) <= old | made_elsewhere


def test_adaptive_softmax():
    module = nn.AdaptiveLogSoftmaxWithLoss(6, 12, cutoffs=[3, 8])
    compiled = oxyfuel.compile(lambda x, y: module(x, y).loss)
    x, y = leaf(7, 6), classes(12, 7)
    found, wanted = ([], [])
    for call, to in ((compiled, found), (lambda x, y: module(x, y).loss, wanted)):
        out = call(x, y)
        to += [out, *torch.autograd.grad(out, [x, *module.parameters()], allow_unused=True)]
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_cross_entropy(reduction, bias):
    make = getattr(nn, "LinearCrossEntropyLoss", None)
    if make is None:
        pytest.skip("torch has it from 2.13 on")
    loss = make(3, 5, bias=bias, reduction=reduction)
    compiled = oxyfuel.compile(loss)
    x, y = leaf(4, 3), classes(5, 4)
    leaves = [x, *loss.parameters()]
    assert not first_difference(trained(compiled, (x, y), leaves), trained(loss, (x, y), leaves))
    in_one_graph()


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("norm", [None, 0.8])
def test_embedding(padding, by_frequency, norm):
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        torch.manual_seed(0)
        module = nn.Embedding(
            6, 3, padding_idx=padding, scale_grad_by_freq=by_frequency, max_norm=norm
        )
        run = wrap(lambda i, module=module: (module(i) * 2).sin())
        seen = []
        for shape in ((4, 5), (7,), ()):
            out = run(classes(6, *shape))
            out.sum().backward()
            seen += [out.detach(), module.weight.grad.clone()]
        results.append(seen + [module.weight.detach()])
    for found, wanted in zip(*reversed(results)):
        torch.testing.assert_close(found, wanted)
    assert oxyfuel.stats()["grad_fallbacks"] == 0


def same_gradient(found, wanted):
    assert found.layout == wanted.layout and found.shape == wanted.shape
    assert found.is_sparse and found._nnz() == wanted._nnz()
    torch.testing.assert_close(found.coalesce(), wanted.coalesce())


@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_with_a_sparse_gradient(padding):
    """Of a table with padding its size depends on data: a graph breaks around that."""
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        torch.manual_seed(0)
        module = nn.Embedding(6, 3, padding_idx=padding, sparse=True)
        optimizer = torch.optim.SparseAdam(module.parameters(), lr=0.1)
        run = wrap(lambda i, module=module: (module(i.abs()) * 2).sin().sum())
        seen = []
        for _ in range(3):
            run(classes(6, 4, 5)).backward()
            seen.append(module.weight.grad.clone())
            optimizer.step()
            optimizer.zero_grad()
        results.append((seen, module.weight.detach()))
    for found, wanted in zip(results[1][0], results[0][0]):
        same_gradient(found, wanted)
    torch.testing.assert_close(results[1][1], results[0][1])
    stats = oxyfuel.stats()
    assert stats["grad_fallbacks"] == stats["fallbacks"] == stats["unsupported"] == 0
    assert (stats["graph_breaks"] > 0) == (padding is not None)


class Twice(nn.Module):
    """Looks several times into one table, as models of words and graphs do."""

    def __init__(self, tied):
        super().__init__()
        self.table, self.tied = nn.Embedding(9, 3, sparse=True), tied

    def forward(self, i):
        out = (self.table(i) * self.table(i.flip(0)[:1]).cos()).sin()
        return F.linear(out, self.table.weight) if self.tied else out + self.table(i * 2 % 9)


class Bag(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.table = nn.EmbeddingBag(9, 3, sparse=True, **options)

    def forward(self, i):
        return self.table(i.flatten(), torch.tensor([0, 2, 2])).sin()


class Gathers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 3))

    def forward(self, i):
        return self.weight.gather(0, i.flatten().expand(3, -1).t(), sparse_grad=True).sin()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Twice(tied=False),
        lambda: Twice(tied=True),
        Bag,
        lambda: Bag(mode="mean", padding_idx=2),
        Gathers,
    ],
    ids=["sum", "tied", "bag", "bag-padding", "gather"],
)
def test_sparse_gradients_are_of_the_graph(make, dynamic):
    results = []
    for wrap in (lambda m: m, lambda m: oxyfuel.compile(m, dynamic=dynamic, fullgraph=True)):
        torch.manual_seed(0)
        module = make().double()
        run, weight = wrap(module), next(module.parameters())
        seen = []
        for n in (4, 4, 7, 3):
            ids = classes(9, n, 2)
            for _ in range(2):  # added to the first one
                run(ids).sum().backward()
            seen.append(weight.grad)
            weight.grad = None
            with torch.no_grad():
                weight.add_(seen[-1], alpha=-0.1)
        results.append([*seen, weight.detach()])
    for found, wanted in zip(*reversed(results)):
        assert found.layout == wanted.layout
        torch.testing.assert_close(found.to_dense(), wanted.to_dense())
    assert oxyfuel.stats()["grad_fallbacks"] == 0


def test_a_sparse_embedding_in_inference_is_in_the_graph():
    module = nn.Embedding(6, 3, sparse=True)
    compiled = oxyfuel.compile(lambda i: module(i) * 2, fullgraph=True)
    with torch.no_grad():
        i = classes(6, 4)
        assert torch.equal(compiled(i), module(i) * 2)


def test_gather_with_a_sparse_gradient():
    x = leaf(4, 5)
    index = classes(4, 2, 5)
    f = lambda x: torch.gather(x * 1, 0, index, sparse_grad=True).sin()
    grads = [torch.autograd.grad(g(x).sum(), x)[0] for g in (f, oxyfuel.compile(f))]
    # What goes through a graph, as that of x * 1 here, is dense from there on.
    torch.testing.assert_close(grads[1].to_dense(), grads[0].to_dense())


BAGS = [
    pytest.param(mode, last, weights, padding, id=f"{mode}-{last}-{weights}-{padding}")
    for mode, last, weights, padding in itertools.product(
        ("sum", "mean", "max"), (False, True), (False, True), (None, 1)
    )
    if mode == "sum" or not weights
]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("mode", "last", "weighted", "padding"), BAGS)
def test_embedding_bag(mode, last, weighted, padding, sparse):
    if sparse and mode == "max":
        pytest.skip("torch has no sparse gradient of maxima")
    results = []
    for wrap in (lambda f: f, oxyfuel.compile):
        torch.manual_seed(0)
        weight, scales = leaf(6, 3), leaf(8)
        offsets = torch.tensor([0, 3, 3, 8] if last else [0, 3, 3])

        def call(i, offsets=offsets, weight=weight, scales=scales):
            return F.embedding_bag(
                i,
                weight * 1 if not sparse else weight,
                offsets,
                mode=mode,
                sparse=sparse,
                per_sample_weights=scales if weighted else None,
                include_last_offset=last,
                padding_idx=padding,
            )

        run = wrap(call)
        seen = []
        for _ in range(2):
            out = run(classes(6, 8))
            out.square().sum().backward()
            seen += [out.detach(), weight.grad.to_dense(), scales.grad]
            weight.grad = scales.grad = None
        results.append(seen)
    for found, wanted in zip(*reversed(results)):
        if wanted is None:
            assert found is None
        else:
            torch.testing.assert_close(found, wanted)
    assert oxyfuel.stats()["grad_fallbacks"] == oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none"}, {"zero_infinity": True, "blank": 3}]
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ctc_loss_of_lengths_in_tensors(options, dtype):
    """What the gradient reads has sizes that depend on the lengths; they change with each call."""

    def loss(x, targets, of_inputs, of_targets):
        return F.ctc_loss(x.log_softmax(-1), targets, of_inputs, of_targets, **options) * 2

    oxyfuel.reset()
    compiled = oxyfuel.compile(loss)
    for longest in (9, 4, 7, 1):
        torch.manual_seed(longest)
        x, targets = torch.randn(20, 3, 12), torch.randint(4, 12, (3, 9)).to(dtype)
        lengths = torch.tensor([20, 17, 12]).to(dtype), torch.tensor([longest, 1, 1]).to(dtype)
        results = []
        for f in (loss, compiled):
            leaf = x.clone().requires_grad_()
            out = f(leaf, targets, *lengths)
            out.sum().backward()
            results.append((out.detach(), leaf.grad))
        torch.testing.assert_close(*results)
    stats = oxyfuel.stats()
    assert (stats["graph_breaks"], stats["recompiles"], stats["grad_fallbacks"]) == (0, 0, 0)
