"""The parts of a world of states.py that hold torch's things, and those of the process: modules,
tensors, settings, patches, contexts."""

from worlds import Part

NN = Part(
    setup="""
class Net(torch.nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(self.lin.weight, 0.5)
        torch.nn.init.constant_(self.lin.bias, 0.25)
        self.drop = torch.nn.Dropout(0.0)
        self.w = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("steps", torch.zeros(3))
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.parts = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Identity()])
        self.named = torch.nn.ModuleDict({"t": torch.nn.Tanh()})
        param = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.params = torch.nn.ParameterList([param])
        self.calls = 0
        self.extra = None

    def forward(self, y):
        self.calls += 1
        y = self.lin(y) * self.scale + self.w
        for p in self.parts:
            y = p(y)
        if self.training:
            y = y + 1
        if self.extra is not None:
            y = self.extra(y)
        return y + self.steps


class Odd(torch.nn.Module):
    def forward(self, y):
        return y - 3


net = Net()
lin = net.lin
hooks = []
""",
    reads="""
net.training ;; net.calls ;; net.scale ;; net.extra ;; len(net.parts) ;; len(net._modules)
list(net._modules) ;; list(net._parameters) ;; list(net._buffers) ;; list(net.named)
't' in net.named ;; [k for k, _ in net.named_parameters()] ;; [k for k, _ in net.named_buffers()]
[k for k, _ in net.named_modules()] ;; [type(c).__name__ for c in net.children()]
[p.requires_grad for p in net.parameters()] ;; list(net.state_dict()) ;; net.lin.bias is None
net.lin.in_features ;; net.lin is lin ;; hasattr(net, 'zz') ;; getattr(net, 'zz', A) ;; net.zz
isinstance(net.parts[0], torch.nn.ReLU) ;; type(net.parts[-1]).__name__ ;; net.parts[A]
net.drop.p ;; 'w' in net.__dict__ ;; isinstance(net.w, torch.nn.Parameter)
net.w is net._parameters.get('w') ;; next(net.parameters()).shape ;; net.get_submodule('lin') is lin
len(net._forward_hooks) ;; len(net.params) ;; net.steps.requires_grad ;; repr(net.drop)
copy.copy(net).calls ;; 'hidden' in net._non_persistent_buffers_set ;; callable(net.extra)
net.lin.weight.dtype
""",
    tensors="""
net(x) ;; net.lin(x) ;; net.forward(x) ;; net.parts[0](x) ;; net.named['t'](x)
torch.nn.functional.linear(x, lin.weight, lin.bias) ;; x * net.w ;; x + net.steps ;; x + net.hidden
x * sum(net.params) ;; sum(p.sum() for p in net.parameters()) + x
functools.reduce(lambda y, m: m(y), net.parts, x) ;; torch.func.functional_call(net, {'w': x}, (x,))
""",
    writes="""
net.calls += 1 ;; net.steps += 1 ;; net.steps.add_(A) ;; net.steps = net.steps + 1 ;; net.w.mul_(F)
net.w.data = net.w.data + 1 ;; net.w.data.add_(1) ;; net.scale = F ;; del net.scale ;; Net.scale = F
net.train() ;; net.eval() ;; net.drop.eval() ;; net.extra = net.parts[0] ;; net.extra = None
net.extra = torch.sin ;; net.parts.append(net.named['t']) ;; net.parts[1] = net.parts[0]
del net.parts[0] ;; net.named['W'] = net.parts[0] ;; net.named.pop('t') ;; net.zz = n
net.zz = x.detach() ;; del net.zz ;; net.lin.bias = None ;; net.register_buffer('more', x.detach())
net.hidden = None ;; net.hidden = x.detach() * 2 ;; del net.hidden ;; net.w.requires_grad_(True)
net.requires_grad_(False) ;; net._buffers['steps'] = x.detach()
net.w.tag = n
| log.append(net.w.tag)
net.steps.tag = n
V = net.lin
| net.second = V
net.apply(lambda m: setattr(m, 'seen', n))
""",
    changes="""
net.train() ;; net.eval() ;; net.training = 0 ;; net.calls = A ;; net.scale = 3.0 ;; del net.scale
Net.scale = A ;; Net.scale = torch.ones(3) ;; Net.scale = 2.0 ;; net.extra = torch.sin
net.extra = torch.nn.ReLU() ;; net.extra = None ;; net.extra = Odd()
net.lin = torch.nn.Linear(3, 3, bias=False)
| torch.nn.init.ones_(net.lin.weight)
net.lin = Odd() ;; net.lin = lin ;; lin.bias = None ;; lin.bias = torch.nn.Parameter(torch.ones(3))
lin.weight.data.mul_(A) ;; lin.weight.requires_grad_(False) ;; lin.weight.requires_grad_(True)
lin.weight.data = lin.weight.data.t() ;; lin.weight = torch.nn.Parameter(torch.eye(3))
lin.double().float() ;; lin.in_features = 4 ;; net.w = torch.nn.Parameter(torch.ones(1))
net.w = None ;; net.w.data = torch.ones(3) * A ;; net.w.add_(1) ;; net.w.requires_grad_(True)
net.w.requires_grad_(False)
del net.w
| net.w = torch.ones(3)
del net.w
| net.w = 2
del net.w
| net.w = torch.nn.Parameter(torch.ones(3), requires_grad=False)
net.__dict__['w'] = 5.0 ;; net.__dict__.pop('w', None) ;; net.__dict__['lin'] = Odd()
net.__dict__.pop('lin', None) ;; net.steps = torch.zeros(3) ;; net.steps = net.w.data
net.steps = net.hidden ;; net.steps = torch.zeros(3, dtype=torch.float64)
net.steps = torch.zeros(1) ;; net.steps = torch.zeros(2, 3) ;; net.steps = torch.zeros(3).expand(3)
net.steps = torch.zeros(6)[::2] ;; net.steps = None ;; net.hidden = net.steps
net.hidden = torch.ones(3) ;; net.params.append(torch.nn.Parameter(torch.ones(3)))
net.params[0] = torch.nn.Parameter(torch.zeros(3), requires_grad=False) ;; net.parts.append(Odd())
net.parts.append(net.parts[0]) ;; net.parts[0] = Odd() ;; net.parts[0] = torch.nn.ReLU()
del net.parts[-1] ;; net.parts = torch.nn.ModuleList()
net.parts = torch.nn.Sequential(Odd(), Odd()) ;; net.parts = [torch.sin] ;; net.named['t'] = Odd()
net.named['u'] = Odd() ;; del net.named['t']
net.named = torch.nn.ModuleDict({'t': torch.nn.Tanh()})
hooks.append(net.register_forward_hook(lambda m, a, out: out * 2))
hooks.append(lin.register_forward_hook(lambda m, a, out: out + 1))
hooks.append(lin.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))
hooks.append(torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1))
hooks.append(torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: None))
hooks.append(net.register_full_backward_hook(lambda m, a, b: None)) ;; hooks.pop().remove()
Net.forward = lambda self, y: y * 5 ;; net.forward = lambda y: y * 6 ;; del net.forward
Net.__call__ = lambda self, y: y * 7 ;; del Net.__call__ ;; Net.__getattr__ = lambda self, name: 3.0
del Net.__getattr__ ;; Net.zz = 1 ;; net.zz = A ;; del net.zz ;; net.__class__ = Odd
net.__class__ = Net
net = Net()
| lin = net.lin
net = Odd() ;; torch.nn.utils.parametrize.register_parametrization(lin, 'weight', torch.nn.ReLU())
torch.nn.utils.parametrize.remove_parametrizations(lin, 'weight')
torch.nn.ReLU.forward = lambda self, y: y + 4 ;; net.drop.p = 1.0
net.load_state_dict({**net.state_dict(), 'w': torch.full((3,), float(A))})
net._non_persistent_buffers_set.add('steps')
net._modules['lin'], net._modules['drop'] = net.drop, net.lin
""",
    names=["net", "lin"],
    restore="for h in hooks: h.remove()\ntorch.nn.ReLU.forward = saved_relu",
)
NN.setup = (
    "torch.utils.hooks.RemovableHandle.next_id = 0\nsaved_relu = torch.nn.ReLU.forward\n" + NN.setup
)

TENSORS = Part(
    setup="""
class Keeper:
    t = torch.ones(3)

    def __init__(self):
        self.u = torch.arange(3.0)


class Tagged(torch.Tensor):
    pass


keeper = Keeper()
base = torch.arange(6.0)
part_of_base = base[:3]
same_part = base[0:3]
stack = [torch.ones(3), torch.zeros(3)]
cache = {}
number = torch.tensor(2)
small = torch.ones(())
weight = torch.ones(3, requires_grad=True)
""",
    reads="""
keeper.u.shape ;; keeper.u.dtype ;; keeper.u.requires_grad ;; keeper.u.stride()
keeper.u.is_contiguous() ;; keeper.u.storage_offset() ;; keeper.u.is_leaf ;; keeper.u.ndim
keeper.u.device.type ;; keeper.u.grad is None ;; keeper.u.grad_fn is None ;; weight.grad is None
weight.requires_grad ;; type(keeper.u).__name__ ;; isinstance(keeper.u, Tagged)
isinstance(keeper.u, torch.nn.Parameter) ;; isinstance(keeper.t, torch.Tensor)
keeper.u is keeper.t ;; keeper.t is Keeper.t ;; keeper.u is stack[0]
any(s is keeper.u for s in stack) ;; len(stack) ;; list(cache) ;; 'k' in cache
getattr(keeper.u, 'tag', A) ;; hasattr(keeper.u, 'tag') ;; keeper.u.numel()
keeper.u.is_floating_point() ;; keeper.u.data_ptr() == base.data_ptr() ;; keeper.u._base is base
part_of_base._base is None ;; number.item() ;; int(number) ;; number + 1 ;; small.dtype
bool(number) ;; torch.is_tensor(keeper.u) ;; keeper.u.layout ;; keeper.u._version > 100
vars(keeper.u) ;; keeper.u.names ;; keeper.u.is_inference() ;; keeper.u.untyped_storage().nbytes()
len(keeper.u) ;; id(keeper.u) == id(keeper.t) ;; keeper.u in [keeper.u]
""",
    tensors="""
x + keeper.u ;; x * keeper.t ;; x + part_of_base ;; x + same_part ;; x * base[3:] ;; x + stack[0]
x + sum(stack) ;; x * number ;; x * small ;; x * weight ;; cache.setdefault('k', x.detach() * 2) + x
torch.stack(stack).sum(0) ;; x + base.view(2, 3) ;; x + part_of_base * same_part
""",
    writes="""
keeper.u.add_(A) ;; keeper.u += 1 ;; keeper.u = keeper.u + 1 ;; keeper.u = x.detach()
keeper.u = keeper.t ;; keeper.u[0] = A ;; keeper.t = keeper.u ;; Keeper.t = keeper.u * 2
part_of_base.mul_(2) ;; same_part[1:].add_(1) ;; base.add_(part_of_base.sum())
base[:3] = same_part + 1 ;; stack.append(keeper.u) ;; stack[0] = stack[1] ;; stack[0].add_(stack[1])
stack.append(stack[0][1:]) ;; stack[0] *= F ;; cache['k'] = x.detach() + 1
cache['v'] = base.view(3, 2) ;; cache.pop('k', None) ;; keeper.u.tag = n ;; keeper.u.data = base[3:]
keeper.view = base[1:4] ;; keeper.view = keeper.u.view(3) ;; number.add_(1) ;; number += 1
small.mul_(2) ;; weight.grad = x.detach() ;; weight.grad = None ;; (x * weight).sum().backward()
keeper.u.requires_grad_(False) ;; keeper.u.zero_().copy_(x.detach()) ;; keeper.u.t_()
keeper.alias = keeper.u.detach() ;; weight.data.add_(1)
with torch.no_grad():
|     weight.mul_(F)
V = keeper.u.clone()
| V.add_(1)
| keeper.copy = V
base.resize_(6) ;; torch.add(keeper.u, 1, out=stack[0]) ;; keeper.u = keeper.u.double()
""",
    changes="""
keeper.u = torch.ones(3) ;; keeper.u = torch.ones(3, dtype=torch.float64)
keeper.u = torch.ones(3, dtype=torch.int64) ;; keeper.u = torch.ones(1)
keeper.u = torch.ones(2, 3) ;; keeper.u = torch.ones(3, 3).t()[0]
keeper.u = torch.ones(3, requires_grad=True) ;; keeper.u = torch.nn.Parameter(torch.ones(3))
keeper.u = torch.ones(3).as_subclass(Tagged) ;; keeper.u = torch.ones(6)[::2]
keeper.u = torch.ones(1).expand(3) ;; keeper.u = base[:3] ;; keeper.u = base[1:4]
keeper.u = part_of_base ;; keeper.u = keeper.t ;; keeper.u = stack[0] ;; keeper.u = weight * 2
keeper.u = weight.detach() ;; keeper.u = 3 ;; keeper.u = 2.5 ;; keeper.u = None
with torch.inference_mode():
|     keeper.u = torch.ones(3)
keeper.u = torch.ones(3, device='meta') ;; keeper.u = torch.zeros(3).to_sparse()
keeper.u = torch.zeros(3).numpy() ;; keeper.u.data = torch.zeros(3) ;; keeper.u.data = base[3:]
keeper.u.requires_grad_(True) ;; keeper.u.requires_grad_(False) ;; keeper.u.tag = A
del keeper.u.tag ;; keeper.u.sin = 1 ;; keeper.u.resize_(1) ;; keeper.u.resize_(3).fill_(2)
keeper.u.set_(base) ;; keeper.u.grad = torch.ones(3) ;; del keeper.t ;; Keeper.t = torch.zeros(3)
Keeper.t = torch.zeros(3, dtype=torch.bfloat16) ;; keeper.t = torch.full((3,), 2.0)
base = torch.arange(6.0) ;; base = torch.arange(6) ;; base = torch.arange(12.0)[::2] ;; base.add_(A)
part_of_base = base[:3] ;; part_of_base = base[3:] ;; part_of_base = torch.ones(3)
part_of_base = same_part ;; same_part = base[1:4] ;; same_part = part_of_base.clone()
stack.append(torch.ones(3)) ;; stack.pop() ;; stack[0] = stack[1] ;; stack[0] = stack[1].view(3)
stack[0] = torch.ones(3) ;; stack = tuple(stack) ;; stack = torch.ones(2, 3) ;; cache.clear()
cache['k'] = torch.ones(3) ;; number = torch.tensor(A) ;; number = torch.tensor(2.0)
number.fill_(0) ;; number = A ;; small = torch.ones((), dtype=torch.float64)
small = torch.ones(1, dtype=torch.float64) ;; small = 1.5 ;; weight.grad = torch.ones(3)
weight.grad = None ;; weight.requires_grad_(False) ;; weight.requires_grad_(True)
weight = torch.ones(3) * 2 ;; weight.data = torch.full((3,), 2.0)
weight.register_hook(lambda g: g * 2) ;; torch.utils.swap_tensors(stack[0], stack[1])
Tagged.__torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: 5)
""",
    names=["keeper", "base", "part_of_base", "same_part", "stack", "cache", "weight"],
)

SETTINGS = Part(
    setup="""
saved = (torch.get_default_dtype(), torch.is_grad_enabled())
w_grad = torch.ones(3, requires_grad=True)
""",
    reads="""
torch.get_default_dtype() ;; torch.is_grad_enabled() ;; torch.is_inference_mode_enabled()
torch.is_autocast_enabled() ;; torch.is_autocast_enabled('cpu') ;; torch.get_autocast_dtype('cpu')
torch.are_deterministic_algorithms_enabled() ;; torch.get_num_threads()
torch.get_float32_matmul_precision() ;; torch.backends.cudnn.benchmark
torch.backends.mkldnn.enabled ;; torch.tensor([1.5]).dtype ;; torch.ones(2).dtype
torch.empty(2).device.type ;; (torch.ones(2, dtype=torch.int64) / 2).dtype
(x * w_grad).requires_grad ;; torch.arange(2.0).requires_grad ;; torch.is_anomaly_enabled()
torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype
torch.utils.deterministic.fill_uninitialized_memory ;; torch.is_warn_always_enabled()
torch.get_default_device().type ;; torch.jit.is_scripting() ;; torch.backends.cuda.matmul.allow_tf32
torch.initial_seed() == 5 ;; torch._C._get_tracing_state() is None
torch.get_deterministic_debug_mode()
""",
    tensors="""
x * w_grad ;; x + torch.ones(3) ;; x + torch.full((3,), 2.0) ;; x * torch.tensor([1.0, 2, 3])
torch.nn.functional.linear(x, torch.ones(3, 3)) ;; x + torch.rand(3)
""",
    writes="""
torch.set_default_dtype(torch.float64) ;; torch.set_default_dtype(torch.float32)
torch.set_grad_enabled(n % 2 == 0)
with torch.no_grad():
|     log.append((x * w_grad).requires_grad)
with torch.enable_grad():
|     log.append((x * w_grad).requires_grad)
with torch.autocast('cpu', dtype=torch.bfloat16):
|     log.append(torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype)
with torch.device('meta'):
|     log.append(torch.ones(2).device.type)
torch.manual_seed(A) ;; torch.use_deterministic_algorithms(n % 2 == 0)
torch.set_float32_matmul_precision('high')
""",
    changes="""
torch.set_default_dtype(torch.float64) ;; torch.set_default_dtype(torch.float32)
torch.set_default_dtype(torch.bfloat16) ;; torch.set_grad_enabled(False)
torch.set_grad_enabled(True) ;; torch.use_deterministic_algorithms(True)
torch.use_deterministic_algorithms(False) ;; torch.set_deterministic_debug_mode(1)
torch.set_float32_matmul_precision('high') ;; torch.set_float32_matmul_precision('highest')
torch.set_default_device('meta') ;; torch.set_default_device('cpu')
torch.set_default_device(None) ;; torch.set_autocast_enabled('cpu', True)
torch.set_autocast_enabled('cpu', False) ;; torch.set_autocast_dtype('cpu', torch.float16)
torch.set_autocast_dtype('cpu', torch.bfloat16) ;; torch.set_anomaly_enabled(True)
torch.set_anomaly_enabled(False) ;; torch._C._set_cudnn_benchmark(True)
torch._C._set_cudnn_benchmark(False) ;; torch.set_warn_always(True)
torch.set_warn_always(False) ;; torch.manual_seed(A) ;; torch.manual_seed(5)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.utils.deterministic.fill_uninitialized_memory = True ;; w_grad.requires_grad_(False)
w_grad.requires_grad_(True) ;; torch.set_num_threads(2) ;; torch.set_num_threads(1)
""",
    restore="""
torch.set_default_device(None)
torch.set_default_dtype(torch.float32)
torch.set_grad_enabled(True)
torch.use_deterministic_algorithms(False)
torch.set_deterministic_debug_mode(0)
torch.set_float32_matmul_precision('highest')
torch.set_autocast_enabled('cpu', False)
torch.set_autocast_dtype('cpu', torch.bfloat16)
torch.set_anomaly_enabled(False)
torch._C._set_cudnn_benchmark(False)
torch.set_warn_always(False)
torch.utils.deterministic.fill_uninitialized_memory = True
torch.set_num_threads(1)
torch.manual_seed(0)
""",
    state="""[
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled('cpu'),
        torch.get_autocast_dtype('cpu'),
        torch.get_rng_state(),
    ]""",
)

PATCHES = Part(
    setup="""
originals = {
    (torch, "relu"): torch.relu,
    (torch, "sin"): torch.sin,
    (torch.nn.functional, "relu"): torch.nn.functional.relu,
    (torch.nn.functional, "silu"): torch.nn.functional.silu,
    (torch.nn.functional, "softmax"): torch.nn.functional.softmax,
    (torch.nn.ReLU, "forward"): torch.nn.ReLU.forward,
    (torch.nn.functional, "has_torch_function_unary"): torch.nn.functional.has_torch_function_unary,
    (torch.Tensor, "__abs__"): torch.Tensor.__abs__,
    (builtins, "len"): builtins.len,
    (builtins, "isinstance"): builtins.isinstance,
    (builtins, "sum"): builtins.sum,
    (builtins, "range"): builtins.range,
    (builtins, "abs"): builtins.abs,
    (math, "sqrt"): math.sqrt,
    (functools, "reduce"): functools.reduce,
    (copy, "copy"): copy.copy,
    (operator, "add"): operator.add,
    (collections, "OrderedDict"): collections.OrderedDict,
}
relu = torch.nn.ReLU()
""",
    reads="""
len([1, 2, A]) ;; isinstance(A, int) ;; sum([A, B]) ;; list(range(A)) ;; abs(-A) ;; math.sqrt(A)
math.pi ;; math.extra ;; functools.reduce(operator.add, [A, B]) ;; copy.copy([A])
operator.add(A, B) ;; collections.OrderedDict(a=A) ;; unknown_name ;; hasattr(torch, 'states_extra')
hasattr(torch.Tensor, 'states_extra') ;; x.states_extra() ;; torch.states_extra
getattr(torch, 'states_extra', A) ;; builtins.len([1]) ;; 'len' in globals()
""",
    tensors="""
torch.relu(x) ;; x.relu() ;; torch.sin(x) ;; x.sin() ;; torch.nn.functional.relu(x)
torch.nn.functional.silu(x) ;; relu(x) ;; torch.nn.functional.softmax(x, 0) ;; x + abs(-A)
x * len([1, 2]) ;; abs(x) ;; sum([x, x])
""",
    writes="""
torch.states_extra = n ;; builtins.unknown_name = n ;; globals()['len'] = lambda o: 9
globals().pop('len', None) ;; math.extra = n ;; torch.nn.functional.silu = torch.sin
torch.relu = torch.sin
""",
    changes="""
torch.relu = lambda y: y + 1 ;; torch.relu = originals[torch, 'relu'] ;; torch.sin = torch.cos
torch.sin = originals[torch, 'sin'] ;; torch.Tensor.sin = lambda self: self + 2
del torch.Tensor.sin ;; torch.Tensor.relu = lambda self: self + 2 ;; del torch.Tensor.relu
torch.Tensor.__abs__ = lambda self: self + 2 ;; torch.Tensor.states_extra = lambda self: A
del torch.Tensor.states_extra ;; torch.states_extra = A ;; del torch.states_extra
torch.nn.functional.relu = lambda y, inplace=False: y - 1
torch.nn.functional.relu = originals[torch.nn.functional, 'relu']
torch.nn.functional.silu = lambda y: y * 3
torch.nn.functional.silu = originals[torch.nn.functional, 'silu']
torch.nn.functional.silu.__defaults__ = (True,) ;; torch.nn.functional.silu.__defaults__ = (False,)
def V(input, dim=None, _stacklevel=3, dtype=None): return input * 4
| torch.nn.functional.softmax.__code__ = V.__code__
torch.nn.functional.softmax.__code__ = saved_code
torch.nn.functional.has_torch_function_unary = lambda y: False
torch.nn.ReLU.forward = lambda self, y: y * 9
torch.nn.ReLU.forward = originals[torch.nn.ReLU, 'forward']
torch.nn.ReLU.__call__ = lambda self, y: y * 8 ;; del torch.nn.ReLU.__call__ ;; relu.inplace = True
relu.inplace = False ;; builtins.len = lambda o: 77 ;; builtins.len = originals[builtins, 'len']
builtins.isinstance = lambda o, c: False ;; builtins.isinstance = originals[builtins, 'isinstance']
builtins.sum = max ;; builtins.sum = originals[builtins, 'sum'] ;; builtins.abs = lambda o: 5
builtins.abs = originals[builtins, 'abs'] ;; builtins.range = lambda k: [k]
builtins.range = originals[builtins, 'range'] ;; builtins.unknown_name = A
del builtins.unknown_name ;; unknown_name = A ;; del unknown_name ;; len = lambda o: 8 ;; del len
abs = max ;; math.sqrt = lambda v: v ;; math.sqrt = originals[math, 'sqrt'] ;; math.pi = 3
math.pi = saved_pi ;; math.extra = A ;; del math.extra ;; functools.reduce = lambda f, l: 3
functools.reduce = originals[functools, 'reduce'] ;; copy.copy = lambda o: o
copy.copy = originals[copy, 'copy'] ;; operator.add = operator.mul
operator.add = originals[operator, 'add'] ;; collections.OrderedDict = dict
collections.OrderedDict = originals[collections, 'OrderedDict']
torch = types.SimpleNamespace(relu=torch.sin, nn=torch.nn, sin=torch.sin)
torch = sys.modules['torch'] ;; math = types.SimpleNamespace(sqrt=lambda v: 1, pi=4)
math = sys.modules['math']
""",
    restore="""
import builtins, sys
for (where, name), value in originals.items():
    setattr(where, name, value)
T = sys.modules["torch"]
for where, name in ((builtins, "unknown_name"), (saved_math, "extra"), (T, "states_extra")):
    where.__dict__.pop(name, None)
T.nn.functional.softmax.__code__ = saved_code
T.nn.functional.silu.__defaults__ = (False,)
saved_math.pi = saved_pi
for name in ("states_extra", "sin", "relu"):
    if name in T.Tensor.__dict__:
        delattr(T.Tensor, name)
if "__call__" in T.nn.ReLU.__dict__:
    del T.nn.ReLU.__call__
""",
    state="""[
        [getattr(where, name) is value for (where, name), value in originals.items()],
        [vars(builtins).get('unknown_name'), vars(sys.modules['torch']).get('states_extra')],
        vars(sys.modules['math']).get('extra'),
    ]""",
)
PATCHES.setup += """
saved_code = torch.nn.functional.softmax.__code__
saved_pi = math.pi
saved_math = math
"""

CONTEXTS = Part(
    setup="""
var = contextvars.ContextVar("var", default=1)
bare = contextvars.ContextVar("bare")
local = threading.local()
local.depth = 1
local.seen = []
array_ = np.arange(3.0)
scalar = np.float64(2.0)


class Target:
    k = 1


target = Target()
ref = weakref.ref(target)
weak_table = weakref.WeakKeyDictionary({target: 1})
weak_values = weakref.WeakValueDictionary(t=target)
weak_set = weakref.WeakSet([target])
os.environ["STATES_VAR"] = "1"
rng = random.Random(3)
generator = torch.Generator().manual_seed(3)
pattern = re.compile("a+")
moment = datetime.date(2020, 1, 2)
error = ValueError("text", 1)
text_file = io.StringIO()
logger = logging.getLogger("states")
lock = threading.Lock()
path = pathlib.PurePosixPath("a/b")
fraction = fractions.Fraction(1, 2)
complex_ = 1 + 2j
tree = [1, {"a": (2, [3])}]


@contextlib.contextmanager
def scope(v):
    token = var.set(v)
    try:
        yield v
    finally:
        var.reset(token)
""",
    reads="""
var.get() ;; bare.get(A) ;; bare.get() ;; local.depth ;; getattr(local, 'zz', A) ;; local.seen
hasattr(local, 'depth') ;; vars(local) ;; array_.sum() ;; array_.shape ;; array_.dtype.name
float(array_[0]) ;; len(array_) ;; scalar ;; scalar * 2 ;; float(scalar) ;; ref() is target
ref().k ;; ref() is None ;; weak_table.get(target) ;; target in weak_table ;; len(weak_table)
weak_values.get('t') is target ;; target in weak_set ;; os.environ.get('STATES_VAR')
os.environ['STATES_VAR'] ;; 'STATES_VAR' in os.environ ;; os.getenv('STATES_VAR', 'W')
rng.random() ;; rng.randint(0, 3) ;; pattern.pattern ;; pattern.findall('baab') ;; moment.year
moment > datetime.date(2019, 1, 1) ;; error.args ;; str(error) ;; text_file.getvalue()
logger.level ;; logger.isEnabledFor(20) ;; lock.locked() ;; str(path) ;; path.name ;; fraction + 1
complex_.real ;; abs(complex_) ;; torch.utils._pytree.tree_map(lambda v: v + 1, tree)
torch.utils._pytree.tree_leaves(tree) ;; target.k ;; sys.getrecursionlimit() ;; sys.flags.optimize
warnings.filters[0][0]
""",
    tensors="""
x * var.get() ;; x + local.depth ;; x * scalar ;; x + torch.from_numpy(array_).float()
x * rng.random() ;; x + torch.rand(3, generator=generator) ;; x * float(os.environ['STATES_VAR'])
x + ref().k ;; x * float(fraction) ;; x + torch.as_tensor(array_)
""",
    writes="""
var.set(A) ;; bare.set(n)
V = var.set(A)
| log.append(var.get())
| var.reset(V)
with scope(n):
|     log.append(var.get())
local.depth += 1 ;; local.zz = n ;; del local.zz ;; local.seen.append(n) ;; array_[0] = A
array_ += 1 ;; globals()['array_'] = array_ * 2 ;; os.environ['STATES_VAR'] = 'W'
os.environ['STATES_VAR'] = str(n) ;; os.environ.pop('STATES_VAR', None) ;; target.k += 1
weak_table[target] = n ;; weak_set.discard(target) ;; globals()['ref'] = weakref.ref(target)
error.args = (n,) ;; error.note = n ;; text_file.write('W') ;; logger.setLevel(20)
lock.acquire(blocking=False)
with contextlib.suppress(RuntimeError):
|     lock.release()
tree[1]['a'][1].append(n)
try:
|     raise error
| except ValueError as V:
|     log.append(V.args)
print('W', n, file=text_file)
with contextlib.redirect_stdout(text_file):
|     print(n)
""",
    changes="""
var.set(A) ;; var.set(1) ;; bare.set(A) ;; local.depth = A ;; del local.depth ;; local.zz = 1
local = threading.local() ;; local.seen.append(A) ;; array_ = np.arange(3.0)
array_ = np.arange(3.0, dtype='float32') ;; array_ = np.arange(4.0) ;; array_ = np.arange(6.0)[::2]
array_ = np.arange(3) ;; array_[0] = A ;; array_.flags.writeable = False ;; array_ = [1.0, 2.0, 3.0]
scalar = np.float32(2.0) ;; scalar = np.float64(A) ;; scalar = np.int64(A) ;; scalar = 2.0
target = Target() ;; target.k = A ;; Target.k = A ;; ref = weakref.ref(target)
ref = lambda: target ;; ref = weakref.ref(target, lambda r: None) ;; weak_table.clear()
weak_table[target] = A ;; weak_values['t'] = Target ;; weak_set.clear() ;; weak_set.add(target)
os.environ['STATES_VAR'] = '2' ;; os.environ['STATES_VAR'] = '1'
os.environ.pop('STATES_VAR', None) ;; rng.seed(A) ;; rng = random.Random(A)
generator.manual_seed(A) ;; generator = torch.Generator().manual_seed(A)
pattern = re.compile('b') ;; moment = datetime.date(2018, 1, 2) ;; error.args = ('W',)
error = KeyError('W') ;; text_file = io.StringIO('W') ;; text_file.write('W') ;; logger.setLevel(10)
logger.disabled = True ;; logger.disabled = False ;; lock.acquire(blocking=False) ;; lock.release()
path = path / 'c' ;; fraction = fractions.Fraction(A, 3) ;; complex_ = complex(A)
tree.append([A]) ;; tree[1]['a'] = [2] ;; tree = (1, 2)
""",
    names=["var", "local", "array_", "ref", "rng", "tree", "error"],
    restore="os.environ.pop('STATES_VAR', None)\nlogger.setLevel(0)\nlogger.disabled = False",
    state="[os.environ.get('STATES_VAR'), var.get(), bare.get(None)]",
)
