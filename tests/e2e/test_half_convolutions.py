"""Convolutions in bfloat16 and float16: in f32 where the library has no kernels for them, else by
the library, channels-last. No farther from convolutions in f64 than eager's."""

import pytest
import torch
import torch.nn.functional as F

import oxyfuel

pytestmark = pytest.mark.usefixtures("fresh")

DTYPES = [torch.bfloat16, torch.float16]
R = torch.randn
CASES = {
    "plain": (lambda x, w, b: F.conv2d(x, w, b, padding=1), R(2, 16, 9, 7), R(24, 16, 3, 3), 24),
    "point": (lambda x, w, b: F.conv2d(x, w, b).relu(), R(2, 32, 6, 6), R(8, 32, 1, 1), 8),
    "strided": (lambda x, w, b: F.conv2d(x, w, b, 2, 3), R(1, 3, 20, 20), R(16, 3, 7, 7), 16),
    "dilated": (lambda x, w, b: F.conv2d(x, w, b, 1, 2, 2), R(2, 8, 9, 9), R(8, 8, 3, 3), 8),
    "grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=4), R(2, 8, 9, 9), R(16, 2, 3, 3), 16),
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, groups=8), R(2, 8, 9, 9), R(8, 1, 3, 3), 8),
    "one channel": (lambda x, w, b: F.conv2d(x, w, b), R(2, 1, 9, 9), R(4, 1, 3, 3), 4),
    "one pixel": (lambda x, w, b: F.conv2d(x, w, b), R(2, 1, 1, 1), R(4, 1, 1, 1), 4),
    "no batch": (lambda x, w, b: F.conv2d(x, w, b), R(8, 9, 9), R(4, 8, 3, 3), 4),
    "line": (lambda x, w, b: F.conv1d(x, w, b, padding=1), R(2, 8, 50), R(16, 8, 3), 16),
    "volume": (lambda x, w, b: F.conv3d(x, w, b), R(1, 4, 5, 6, 7), R(8, 4, 3, 3, 3), 8),
    "transposed": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
        R(2, 8, 6, 6),
        R(8, 12, 3, 3),
        12,
    ),
}


def check(got, expected, exact):
    assert got.dtype == expected.dtype and got.stride() == expected.stride()
    off = [(x.double() - exact).abs() for x in (got, expected)]
    assert float(off[0].mean()) <= 1.05 * float(off[1].mean()) + 1e-9
    assert float(off[0].max()) <= 1.5 * float(off[1].max()) + 1e-9


# Without the library's kernels, and with those that this machine has.
MACHINES = {"avx2": {"machine": "plain, avx2"}, "own": {}}
LAYOUTS = [(name, False) for name in CASES]
LAYOUTS += [(name, True) for name, (_, x, _, _) in CASES.items() if x.dim() == 4]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "last"), LAYOUTS)
def test_convolutions_and_gradients(name, dtype, last, machine):
    function, x, w, channels = CASES[name]
    given = [t.to(dtype) for t in (x, w / 4, torch.linspace(-1, 1, channels))]
    if last:
        given[0] = given[0].contiguous(memory_format=torch.channels_last)
    compiled = oxyfuel.compile(function, options=MACHINES[machine])
    results = []
    for f, cast in (
        (compiled, torch.clone),
        (function, torch.clone),
        (function, torch.Tensor.double),
    ):
        leaves = [cast(t).requires_grad_() for t in given]
        out = f(*leaves)
        with torch.no_grad():
            seed = torch.linspace(-1, 1, out.numel()).view(out.shape).to(dtype).to(out.dtype)
        out.backward(seed)
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for got, expected, exact in zip(*results, strict=True):
        check(got, expected, exact)
    assert oxyfuel.stats()["fallbacks"] == 0


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes_that_vary(dtype, machine):
    function, _, w, _ = CASES["plain"]
    w, b = w.to(dtype), torch.ones(24, dtype=dtype)
    compiled = oxyfuel.compile(function, options=MACHINES[machine])
    with torch.no_grad():
        for n in (1, 2, 5, 3, 8):
            x = R(n, 16, 9, 4 + n).to(dtype)
            exact = function(x.double(), w.double(), b.double())
            check(compiled(x, w, b), function(x, w, b), exact)
    assert oxyfuel.stats()["recompiles"] <= 2


class Net(torch.nn.Module):
    """Layers whose readers need the layout, change it, or do not care."""

    def __init__(self):
        super().__init__()
        conv = torch.nn.Conv2d
        self.stem, self.norm = conv(3, 16, 7, 2, 3), torch.nn.BatchNorm2d(16)
        self.wide, self.point, self.depth = (
            conv(16, 32, 3, 1, 1),
            conv(32, 16, 1),
            conv(16, 16, 3, 1, 1, groups=16),
        )
        self.up, self.head = torch.nn.ConvTranspose2d(16, 8, 2, 2), torch.nn.Linear(8 * 20, 5)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.stem(x)).relu(), 3, 2, 1)
        y = F.gelu(self.wide(x)) * 2
        x = x + self.point(y)
        x = torch.cat([self.depth(x), x.flip(1)[:, :8]], 1)[:, :16]
        x = F.interpolate(self.up(x), size=(20, 20), mode="bilinear")
        return (
            self.head(x.permute(0, 2, 1, 3).flatten(2)),
            y[:, ::2].transpose(1, 2),
            x.mean((2, 3)),
        )


@pytest.mark.parametrize("how", ["bf16", "f16", "autocast", "f32"])
@pytest.mark.parametrize("training", [False, True])
def test_a_network(how, training):
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(how, torch.float32)
    torch.manual_seed(0)
    net = Net().to(dtype).train(training)
    exact = Net().double().train(training)
    exact.load_state_dict(net.state_dict())

    def call(x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            return net(x)

    compiled = oxyfuel.compile(call)
    state = {k: v.clone() for k, v in net.state_dict().items()}
    for n in (2, 3, 5, 1):
        x = R(n, 3, 64, 64).to(dtype)
        found = []
        for f in (compiled, call, lambda x: exact(x.double())):
            net.load_state_dict(state)
            exact.load_state_dict(state)
            out = f(x)
            grads = []
            if training:
                module = net if len(found) < 2 else exact
                grads = torch.autograd.grad(
                    sum(y.double().square().mean() for y in out), module.parameters()
                )
            found.append([*(y.detach() for y in out), *grads])
        for i, (got, expected, true) in enumerate(zip(*found, strict=True)):
            assert got.dtype == expected.dtype and got.stride() == expected.stride(), i
            # (A bias in front of a norm has no gradient but roundings.)
            size = true.norm() + 1e-2
            off = [float((y.double() - true).norm() / size) for y in (got, expected)]
            assert off[0] <= 1.3 * off[1] + (1e-5 if how == "f32" else 2e-3), (i, off)


def test_odd_images():
    def call(x, w):
        return F.conv2d(x, w, padding=w.shape[-1] // 2, groups=x.shape[1] // w.shape[1]) * 1

    compiled = oxyfuel.compile(call, dynamic=False)
    for dtype in (*DTYPES, torch.float32):
        for n, c, h, v, out, k, groups in [
            (0, 8, 9, 9, 4, 3, 1),
            (2, 8, 1, 1, 4, 1, 1),
            (1, 8, 1, 40, 1, 1, 1),
            (2, 2, 33, 17, 1, 3, 1),
            (1, 7, 1, 300, 5, 3, 1),
            (3, 8, 20, 20, 8, 1, 1),
            (2, 32, 17, 9, 32, 7, 32),
            (1, 32, 1, 5, 32, 3, 32),
            (2, 24, 18, 18, 48, 3, 24),
        ]:
            images, w = R(n, c, h, v).to(dtype), R(out, c // groups, k, k).to(dtype)
            views = [images, images.transpose(2, 3), torch.cat([images, images])[::2]]
            for x in (*views, images[:1].expand(2 if n else 0, *images.shape[1:])):
                got, expected = compiled(x, w), call(x, w)
                assert got.stride() == expected.stride() and got.shape == expected.shape
                tol = 1e-4 if dtype == torch.float32 else 2e-2 * (c * k * k) ** 0.5
                torch.testing.assert_close(got, expected, rtol=2e-2, atol=tol)


@pytest.mark.parametrize("channels", [8, 24, 40])
def test_images_of_a_batch_are_one_matrix(channels):
    """Blocks of rows begin and end inside of images, and batches vary."""
    net = torch.nn.Conv2d(channels, 72, 3, 2, 1), torch.nn.Conv2d(72, 33, 3, 1, 2, 2)
    last = torch.channels_last

    def call(x):
        y = net[1](F.silu(net[0](x)))
        return y, y.relu().sum((2, 3))

    for dynamic in (False, True):
        compiled = oxyfuel.compile(call, dynamic=dynamic)
        with torch.no_grad():
            for n, h, w in [(3, 5, 5), (40, 2, 2), (1, 1, 1), (17, 7, 3), (0, 4, 4), (300, 1, 2)]:
                for x in (
                    R(n, channels, h, w),
                    R(n, channels, h, w).contiguous(memory_format=last),
                ):
                    for got, expected in zip(compiled(x), call(x), strict=True):
                        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
                        lies = [
                            [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1]
                            for t in (got, expected)
                        ]
                        assert lies[0] == lies[1]
