"""The parts of a world of states.py whose objects change it when they are asked: special methods
with effects, abstract classes, what is reached in two ways, training."""

from worlds import Part

EFFECTS = Part(
    setup="""
heard = []
total = {"n": 0}


class Counts:
    def __init__(self, k=1):
        self.k = k
        self.asked = 0

    def note(self, what):
        self.asked += 1
        heard.append(what)

    def __eq__(self, o):
        self.note("eq")
        return isinstance(o, Counts) and self.k == o.k

    def __hash__(self):
        total["n"] += 1
        return hash(self.k)

    def __lt__(self, o):
        self.note("lt")
        return self.k < o.k

    def __bool__(self):
        self.note("bool")
        return self.k > 1

    def __len__(self):  # nobody hears it: captured code asks for no hint of a length
        return max(vars(self).get("k", 0), 0)

    def __iter__(self):
        self.note("iter")
        for i in range(self.k):
            heard.append(i)
            yield i

    def __contains__(self, o):
        self.note("in")
        return o == self.k

    def __getitem__(self, i):
        self.note(("item", i))
        if i >= self.k:
            raise IndexError(i)
        return i

    def __setitem__(self, i, v):
        self.note(("set", i))
        self.k += v

    def __delitem__(self, i):
        self.k -= 1

    def __call__(self, y):
        self.note("call")
        return y + self.k

    def __add__(self, o):
        self.note("add")
        return self.k + (o.k if isinstance(o, Counts) else o)

    def __radd__(self, o):
        self.note("radd")
        return o + self.k

    def __iadd__(self, o):
        self.note("iadd")
        self.k += o
        return self

    def __enter__(self):
        self.note("enter")
        return self

    def __exit__(self, *exc):
        self.note(exc[0] and exc[0].__name__)
        return self.k > 2

    def __index__(self):
        self.note("index")
        return self.k

    def __repr__(self):
        self.note("repr")
        return f"Counts({self.k})"

    def __format__(self, spec):
        self.note(spec)
        return spec + str(self.k)

    @property
    def half(self):
        self.note("half")
        return self.k / 2

    @half.setter
    def half(self, v):
        self.note("sets")
        self.k = v * 2

    @functools.cached_property
    def once(self):
        self.note("once")
        return [self.k]

    def __getattr__(self, name):
        if name[:1] == "_":
            raise AttributeError(name)
        heard.append(name)
        if name == "gone":
            raise AttributeError(name)
        return len(name)

    def __reduce__(self):
        return Counts, (self.k,)


class Watched(Counts):
    def __setattr__(self, name, v):
        total["n"] += 1
        super().__setattr__(name, v)

    def __delattr__(self, name):
        heard.append("del")
        super().__delattr__(name)

    def __getattribute__(self, name):
        if name == "k":
            total["n"] += 1
        return super().__getattribute__(name)


class Stepper:
    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at % 4 == 0:
            raise StopIteration
        return self.at


class Logged(list):
    def append(self, v):
        heard.append(("append", v))
        super().append(v)

    def __getitem__(self, i):
        total["n"] += 1
        return super().__getitem__(i)


class Table(dict):
    def __setitem__(self, k, v):
        heard.append(k)
        super().__setitem__(k, v)

    def __missing__(self, k):
        self[k] = total["n"]
        return self[k]


thing = Counts(2)
same = Counts(2)
watched = Watched(1)
stepper = Stepper()
logged = Logged([1, 2])
missing = Table(a=1)
by_thing = {thing: "thing", 5: "five"}
things = [thing, Counts(3)]
""",
    reads="""
thing.k ;; thing == same ;; same != thing ;; thing < same ;; bool(thing) ;; len(thing)
list(thing) ;; [*thing] ;; A in thing ;; thing[A] ;; thing + A ;; A + thing ;; thing + same
f'{thing:>3}' ;; repr(thing) ;; str(thing) ;; thing.half ;; thing.once ;; thing.other ;; thing.gone
hasattr(thing, 'gone') ;; getattr(thing, 'gone', A) ;; hash(thing) == hash(same)
by_thing[same] ;; same in by_thing ;; by_thing.get(Counts(A)) ;; thing in things
things.index(same) ;; things.count(same) ;; sorted(things)[0].k ;; max(things).k
min(things) is thing
watched.k ;; watched.asked ;; watched.half ;; list(stepper) ;; next(stepper, None) ;; stepper.at
[v for v in stepper if v > A] ;; sum(thing) ;; tuple(thing) ;; dict(enumerate(thing)) ;; any(things)
all(things) ;; [0, 1, 2, 3, 4][thing] ;; range(thing) ;; heard[-1:] ;; len(heard) ;; total['n']
logged[0] ;; logged[-1] ;; list(logged) ;; missing['a'] ;; missing['b'] ;; missing.get('c')
copy.copy(thing).k ;; copy.deepcopy(things)[0].k ;; thing(A) ;; thing is things[0]
zip(thing, stepper).__next__() ;; dict(zip(stepper, thing)) ;; [a + b for a, b in zip(thing, thing)]
{thing, same} == {same} ;; len({thing, same, things[1]}) ;; vars(thing) ;; not thing
isinstance(thing, collections.abc.Iterable) ;; isinstance(stepper, collections.abc.Iterator)
functools.reduce(lambda a, b: a + b, things, A) ;; list(map(thing, [A, B]))
list(reversed(logged))
operator.index(thing) ;; operator.length_hint(thing) ;; divmod(7, thing.k or 1)
slice(thing).stop is thing
'abcdef'[thing:] ;; logged[:thing] ;; sorted([3, 1, 2], key=thing) ;; (thing and same) is same
(thing or same) is thing ;; 'yes' if thing else 'no' ;; thing == A ;; [thing] == [same]
(thing, A) == (same, A) ;; {'k': thing} == {'k': same} ;; thing in (same,)
things == [same, Counts(3)]
""",
    tensors="""
thing(x) ;; x * thing.k ;; x + len(thing) ;; x * thing.half ;; x + watched.k ;; x + sum(stepper)
x * missing['a'] ;; x * logged[0] ;; torch.stack([x] * (len(thing) + 1)).sum(0) ;; x + total['n']
""",
    writes="""
thing.k += 1 ;; thing.half = A ;; thing[0] = A ;; del thing[0] ;; thing.half += 1 ;; del thing.once
watched.k += A ;; watched.extra = n ;; del watched.extra ;; watched.half = A ;; del watched.k
logged.append(n) ;; logged[0] = n ;; logged += [n] ;; logged.extend(thing) ;; missing['W'] = n
missing.update(z=A) ;; missing.setdefault('q', n) ;; del missing['a'] ;; by_thing[same] = n
by_thing[Counts(A)] = n ;; del by_thing[same] ;; by_thing.pop(Counts(A), None)
things.append(same) ;; things.remove(same) ;; things.sort() ;; things.reverse()
globals()['thing'] += A
with thing:
|     log.append('inside')
|     raise ValueError('W')
with thing as V, watched:
|     log.append(V.k)
for V in thing:
|     log.append(V)
|     if V == A:
|         break
for V in stepper:
|     thing.k = V
a, *V = thing
| log.append((a, V))
try:
|     log.append(thing[5])
| except IndexError as V:
|     log.append(V.args)
V = iter(thing)
| log.append(next(V, None))
| thing.k = 1
| log.append(list(V))
match thing:
|     case Counts(k=1):
|         log.append('one')
|     case Counts(half=V):
|         log.append(V)
while thing.k < 4:
|     thing.k += 1
| else:
|     log.append(thing.k)
heard.clear() ;; total['n'] = 0 ;; total.update(n=total['n'] + 1)
""",
    changes="""
thing.k = A ;; thing.k = 2 ;; thing = Counts(A) ;; thing = same ;; same = Counts(A) ;; same.k = A
watched = Watched(A) ;; watched.__dict__['k'] = A ;; thing = watched ;; stepper.at = A
heard.clear()
total['n'] = 100 ;; total = {'n': 5} ;; heard = [] ;; logged.clear() ;; logged = Logged([A, B])
logged = [A, B] ;; missing.clear() ;; missing = Table(a=A) ;; missing = {'a': 1} ;; things.reverse()
things = [same, thing] ;; things.append(thing) ;; by_thing = {thing: 1}
by_thing = {same: 2, thing: 3}
by_thing.clear() ;; thing.other = 7 ;; del thing.other ;; thing.gone = 1 ;; del thing.gone
thing.once = 4 ;; thing.__dict__.pop('once', None) ;; Counts.__eq__ = lambda self, o: True
Counts.__bool__ = lambda self: False ;; del Counts.__bool__ ;; Counts.__len__ = lambda self: 9
Counts.__iter__ = lambda self: iter('it') ;; del Counts.__iter__
Counts.__add__ = lambda self, o: 50
Counts.note = lambda self, what: None ;; Counts.half = 3 ;; Counts.half = property(lambda self: 30)
Counts.__call__ = lambda self, y: y * 2 ;; Counts.__enter__ = lambda self: thing
Counts.__exit__ = lambda self, *e: True ;; Counts.__getattr__ = lambda self, name: 0
Counts.__hash__ = lambda self: 1 ;; Counts.__lt__ = lambda self, o: NotImplemented
Watched.__setattr__ = object.__setattr__ ;; del Watched.__setattr__ ;; del Watched.__getattribute__
Stepper.__next__ = lambda self: next(iter(()), None) or (_ for _ in ()).throw(StopIteration)
Stepper.__iter__ = lambda self: iter([7, 8]) ;; Logged.append = list.append ;; del Table.__missing__
Logged.__getitem__ = lambda self, i: 6 ;; Table.__setitem__ = dict.__setitem__
Counts.__contains__ = lambda self, o: True ;; del Counts.__contains__
Counts.__index__ = lambda s: 0
""",
    names=["thing", "same", "watched", "things", "by_thing", "logged", "missing", "heard"],
)

ABSTRACT = Part(
    setup="""
class Shape(abc.ABC):
    registry = []

    def __init_subclass__(cls, sides=0, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.sides = sides
        Shape.registry.append(cls.__name__)

    @abc.abstractmethod
    def area(self): ...

    @property
    @abc.abstractmethod
    def name(self): ...


class Square(Shape, sides=4):
    name = "square"

    def area(self):
        return self.sides


class Far:
    def area(self):
        return -1

    def close(self):
        return 0


@typing.runtime_checkable
class Closes(typing.Protocol):
    def close(self): ...


@functools.total_ordering
class Version:
    def __init__(self, k):
        self.k = k

    def __eq__(self, o):
        return self.k == o.k

    def __lt__(self, o):
        return self.k < o.k


class Sums:
    @functools.singledispatchmethod
    def add(self, o):
        return "object"

    @add.register
    def _(self, o: int):
        return o + 1

    halved = functools.partialmethod(lambda self, a, b: a - b, 10)

    @functools.lru_cache(maxsize=None)
    def kept(self, k):
        return k * version.k


class Problem(Exception):
    code = 1

    def __init__(self, *args, note=None):
        super().__init__(*args)
        self.note = note

    def __str__(self):
        return f"{self.code}:{self.note}"


class Handle:
    opened = 0

    def __init__(self, fails=False):
        self.fails = fails

    def __enter__(self):
        Handle.opened += 1
        return self

    def __exit__(self, kind, e, tb):
        Handle.opened -= 1
        return self.fails and kind is Problem


square = Square()
far = Far()
version = Version(2)
sums = Sums()
problem = Problem("text", note=[1])
handle = Handle()
keep = []


def fails(k):
    if k > 1:
        raise Problem(k, note=k) from problem
    return k
""",
    reads="""
isinstance(square, Shape) ;; isinstance(far, Shape) ;; issubclass(Far, Shape) ;; square.area()
Square.sides ;; Shape.registry ;; square.name ;; isinstance(far, Closes)
isinstance(square, Closes)
version > Version(A) ;; version <= Version(A) ;; version == Version(2) ;; sums.add(A)
sums.add('W')
sums.halved(A) ;; sums.kept(A) ;; str(problem) ;; problem.args ;; problem.note ;; Problem.code
handle.opened ;; handle.fails ;; fails(A) ;; Handle.opened
Shape.__abstractmethods__ == frozenset()
isinstance(problem, (ValueError, Problem)) ;; hasattr(far, 'close') ;; isinstance(version, int)
isinstance(3, numbers.Number) ;; isinstance([], collections.abc.Sequence) ;; keep
[type(k).__name__ for k in keep] ;; problem.__cause__ is None ;; len(Shape.registry)
isinstance(far, (Square, Far)) ;; type(square) in (Square, Far) ;; sums.add.__name__
""",
    tensors="""
x * square.area() ;; x + version.k ;; x * Square.sides ;; x - sums.kept(1) ;; x + Handle.opened
""",
    writes="""
version.k += A ;; Shape.registry.append('W') ;; Square.sides += 1 ;; problem.note = n
problem.note.append(n) ;; problem.args = (n, A) ;; Problem.code += 1 ;; handle.fails = True
keep.append(problem) ;; keep.append(Version(n)) ;; keep.append(Problem(n)) ;; Handle.opened += 1
with handle:
|     log.append(Handle.opened)
|     fails(n)
with Handle(fails=True) as V:
|     fails(A)
| log.append(V.fails)
try:
|     fails(n)
| except Problem as V:
|     log.append((str(V), V.args, V.__cause__ is problem))
|     keep.append(V)
try:
|     fails(A)
| finally:
|     keep.append(n)
try:
|     try:
|         fails(n)
|     except Problem as V:
|         raise KeyError('W') from V
| except KeyError as e:
|     log.append((e.__cause__.note, e.__context__ is e.__cause__))
def V():
|     try:
|         return fails(n)
|     except Problem:
|         return keep.append('W')
|     finally:
|         version.k += 1
| log.append(V())
with contextlib.ExitStack() as V:
|     V.enter_context(handle)
|     V.callback(keep.append, n)
|     log.append(Handle.opened)
class V(Square, sides=n):
|     pass
| log.append(V.sides)
""",
    changes="""
Shape.register(Far) ;; Square.area = lambda self: 11 ;; Square.name = property(lambda self: 'made')
Square.sides = A ;; Shape.registry = [] ;; square = far ;; square = Square() ;; far = square
far = Far()
version.k = A ;; version = Version(A) ;; Version.__lt__ = lambda self, o: True
Version.__gt__ = lambda self, o: 'gt' ;; Version.__eq__ = lambda self, o: False
Sums.add.register(str, lambda self, o: 'text') ;; Sums.halved = 3 ;; Sums.kept.cache_clear()
Sums.__dict__['add'].register(int, lambda self, o: -o) ;; sums = Sums() ;; problem.note = [A]
problem = Problem('W') ;; problem.args = () ;; Problem.code = A
Problem.__str__ = lambda self: 'W'
Problem.__bases__ = (ValueError,) ;; Problem.__bases__ = (Exception,) ;; handle.fails = A
Handle.__exit__ = lambda self, *e: None ;; Handle.opened = A ;; keep.clear() ;; keep = [problem]
fails = lambda k: k ;; fails.__code__ = (lambda k: k + 1).__code__ ;; problem.__cause__ = KeyError()
def fails(k): raise problem
def fails(k): raise KeyError(k)
Shape.__instancecheck__ = 1 ;; Shape.__subclasshook__ = classmethod(lambda cls, c: True)
""",
    names=["square", "far", "version", "sums", "problem", "handle", "keep"],
)

ALIASES = Part(
    setup="""
class Node:
    def __init__(self, value, *next):
        self.value = value
        self.next = list(next)
        self.up = None
        for child in next:
            child.up = self


leaf = Node(1)
left = Node(2, leaf)
right = Node(3, leaf)
root = Node(0, left, right)
one = [1, 2]
two = one
nest = [one, two, {"one": one, "two": [3]}]
pairs = {"a": left, "b": right, "c": left}
ring = Node(7)
ring.next.append(ring)
pick = 0
strings = ["a" * 3, "aaa"]
amounts = [10**20, 10**20, 1.5, 1.5]


def depth(node):
    return 1 + max([depth(c) for c in node.next], default=0) if node is not ring else 99


def walk(node, seen):
    if id(node) not in seen:
        seen[id(node)] = node.value
        for child in node.next:
            walk(child, seen)
    return seen


def swap():
    global one, two
    one, two = two, one
""",
    reads="""
left.next[0] is right.next[0] ;; leaf.up is right ;; leaf.up.up is root ;; one is two
nest[0] is nest[1]
nest[2]['one'] is one ;; nest[2]['two'] is two ;; one == two ;; depth(root) ;; len(walk(root, {}))
list(walk(root, {}).values()) ;; pairs['a'] is pairs['c'] ;; pairs['a'].value
ring.next[0] is ring
root.next[pick].value ;; [c.value for c in root.next] ;; one + two ;; nest
strings[0] is strings[1]
amounts[0] is amounts[1] ;; amounts[2] is amounts[3] ;; leaf in left.next ;; root.next.index(right)
[p is left for p in pairs.values()] ;; len({id(p) for p in pairs.values()}) ;; id(one) == id(two)
copy.deepcopy(nest) ;; copy.copy(nest)[0] is one ;; copy.deepcopy(pairs)['a'].value
sorted(pairs, key=lambda k: pairs[k].value) ;; root.up is None ;; nest[-1]['two']
ring.next[0].value
[a is b for a in (one, two) for b in nest[:2]] ;; any(c is leaf for c in right.next)
""",
    tensors="""
x * leaf.value ;; x + depth(root) ;; x * one[0] + two[0] ;; x - left.next[0].value
x + root.next[pick].value
""",
    writes="""
leaf.value += 1 ;; left.next.append(right) ;; right.next[0].value = n ;; one.append(n)
two.append(A)
nest[0].append(n) ;; nest[2]['two'].extend(one) ;; nest.append(nest[2]['two']) ;; swap()
left.next, right.next = right.next, left.next ;; root.next.reverse() ;; pairs['a'] = pairs['b']
pairs['a'].value, pairs['c'].value = n, A ;; root.next[pick].next = [] ;; ring.next[0].value += 1
globals()['two'] = one[:] ;; globals()['one'] = two ;; globals()['pick'] = 1 - pick
left.up.next.pop() ;; leaf.up = left ;; root.next.insert(0, Node(n, leaf)) ;; nest[1] = two
one[:] = two + [n] ;; one += two ;; pairs.update(d=leaf) ;; nest[2] = {**nest[2], 'three': one}
V = Node(n, leaf)
| root.next[0] = V
| log.append(leaf.up is V)
V = copy.deepcopy(root)
| V.next[0].value = n
| log.append(root.next[0].value)
for V in root.next:
|     V.value += 1
for V in pairs.values():
|     V.value += A
V = one
| V.append(n)
| log.append(V is two)
del left.next[:] ;; del pairs['c'] ;; log.append(nest.pop())
""",
    changes="""
two = one ;; two = [1, 2] ;; two = list(one) ;; one = two ;; one = [1, 2] ;; nest[1] = one
nest[1] = two
nest[1] = [1, 2] ;; nest[0] = nest[1] ;; nest[2]['one'] = one ;; nest[2]['one'] = [1]
nest = [one, one, {}]
nest[2]['two'] = one ;; nest[2]['two'] = nest[2] ;; leaf = Node(A) ;; leaf = left ;; left = right
left = Node(A, leaf) ;; right = left ;; right = Node(3, leaf) ;; left.next[0] = Node(5)
right.next[0] = left.next[0] ;; root.next.reverse() ;; root.next[0] = root.next[1] ;; root = left
root = Node(0, left, right) ;; root = ring ;; pairs['c'] = pairs['b'] ;; pairs['c'] = pairs['a']
pairs['a'] = Node(9) ;; pairs = {'a': left, 'b': right, 'c': left} ;; ring.next[0] = leaf
ring.next[0] = ring ;; ring = leaf ;; pick = 1 ;; pick = 0 ;; pick = -1 ;; leaf.up = None
leaf.up = leaf
left.next = right.next ;; left.next = list(right.next) ;; strings[0] = strings[1]
strings = ['b', 'b']
amounts[0] = amounts[1] ;; amounts[2] = float('1.5') ;; amounts = [1, True, 1.0, 1]
Node.value = 8 ;; del leaf.value ;; leaf.value = 1 ;; leaf.value = one
""",
    names=["leaf", "left", "right", "root", "one", "two", "nest", "pairs", "ring"],
)

TRAINING = Part(
    setup="""
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.0))
for p in model.parameters():
    torch.nn.init.constant_(p, 0.5)
target = torch.arange(3.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
adam = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
ema = {k: v.detach().clone() for k, v in model.named_parameters()}
emb = torch.nn.Embedding(4, 3)
torch.nn.init.constant_(emb.weight, 0.25)
norm = torch.nn.LayerNorm(3)
losses = []
best = {"loss": None, "step": 0}
frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)


def batch(y):
    return torch.stack([y, y + 1, y * 2])


def update(decay):
    with torch.no_grad():
        for k, v in model.named_parameters():
            ema[k].lerp_(v, 1 - decay)
""",
    reads="""
model.training ;; model[1].training ;; optimizer.param_groups[0]['lr'] ;; scheduler.get_last_lr()
model[1].momentum ;; model[1].num_batches_tracked.item() ;; len(losses) ;; best['loss'] is None
best['step'] ;; [p.grad is None for p in model.parameters()] ;; list(ema) ;; len(model)
[type(m).__name__ for m in model] ;; len(optimizer.state) ;; adam.param_groups[0]['betas']
model[1].track_running_stats ;; emb.num_embeddings ;; norm.eps ;; frozen.requires_grad
model[0].weight.requires_grad ;; optimizer.param_groups[0].keys() ;; scheduler.last_epoch
""",
    tensors="""
model(batch(x)).sum(0) ;; model[0](x) ;; norm(x) ;; emb(torch.tensor([A])).sum(0) + x ;; x * frozen
model[:1](x) ;; sum(losses[-1:], x) ;; x + ema['0.bias']
torch.nn.functional.dropout(x, 0.0, model.training)
torch.nn.functional.batch_norm(batch(x), model[1].running_mean, model[1].running_var).sum(0)
""",
    writes="""
losses.append(x.detach().sum()) ;; losses.append(x.sum().item()) ;; model.train() ;; model.eval()
model[1].eval() ;; optimizer.zero_grad() ;; optimizer.step() ;; scheduler.step() ;; adam.step()
(model(batch(x)).sum(0) - target).square().sum().backward() ;; update(F) ;; norm.eps = 0.1
optimizer.param_groups[0]['lr'] *= 0.5 ;; best['step'] += 1 ;; best.update(loss=n)
model[1].momentum = 0.5
model[1].reset_running_stats() ;; frozen.add_(1) ;; frozen.data.mul_(F) ;; emb.weight.data[A] += 1
model[2].p = 0.0 ;; ema['0.bias'].mul_(F) ;; model.zero_grad(set_to_none=False) ;; losses.clear()
with torch.no_grad():
|     for V in model.parameters():
|         V.mul_(0.9)
for V in model.parameters():
|     V.requires_grad_(n % 2 == 0)
if best['loss'] is None or n < best['loss']:
|     best['loss'] = n
|     best['step'] = len(losses)
optimizer.param_groups[0]['params'][0].grad = torch.ones(3, 3)
""",
    changes="""
model.train() ;; model.eval() ;; model[1].momentum = 0.2 ;; model[1].momentum = None
model[2].p = 1.0
model[2].p = 0.0 ;; optimizer.param_groups[0]['lr'] = 0.01 ;; optimizer.param_groups[0]['lr'] = 1
optimizer.param_groups[0]['momentum'] = 0 ;; optimizer.param_groups[0]['weight_decay'] = 0.1
optimizer.param_groups[0]['nesterov'] = True ;; optimizer.param_groups[0]['maximize'] = True
optimizer.add_param_group({'params': [frozen], 'lr': 0.5}) ;; optimizer.state.clear()
optimizer.load_state_dict(optimizer.state_dict()) ;; scheduler.step() ;; scheduler.gamma = 0.5
for p in model.parameters(): p.grad = torch.ones_like(p)
for p in model.parameters(): p.grad = None
model[0].weight.requires_grad_(False) ;; model[0].weight.requires_grad_(True)
model[0].bias.grad = None
model[1].track_running_stats = False ;; model[1].running_mean.fill_(1) ;; model[1].affine = False
model[1] = torch.nn.BatchNorm1d(3) ;; model[1] = torch.nn.Identity()
model.append(torch.nn.Tanh())
del model[-1] ;; model[0] = torch.nn.Linear(3, 3, bias=False) ;; norm.eps = 1.0
norm.weight = None
norm = torch.nn.LayerNorm(3, elementwise_affine=False) ;; norm.normalized_shape = (3,)
ema = {k: v * 2 for k, v in ema.items()} ;; ema['0.bias'] = torch.zeros(3) ;; ema.clear()
emb.padding_idx = 1 ;; emb.max_norm = 0.1 ;; emb.weight.data.zero_()
emb.scale_grad_by_freq = True
losses.clear() ;; losses.append(torch.ones(())) ;; losses.append(2.0)
best = {'loss': 1, 'step': 0}
best['loss'] = None ;; frozen.requires_grad_(True) ;; frozen.requires_grad_(False)
target = torch.ones(3)
adam.param_groups[0]['lr'] = torch.tensor(0.1) ;; adam.param_groups[0]['amsgrad'] = True
adam.param_groups[0]['betas'] = (0.5, 0.5) ;; adam.param_groups[0]['params'][0].grad = torch.ones(3)
torch.nn.Linear.forward = lambda self, y: y * 2 ;; torch.nn.Linear.forward = saved_linear
""",
    names=["model", "ema", "losses", "best", "frozen"],
    restore="torch.nn.Linear.forward = saved_linear",
)
TRAINING.setup = "saved_linear = torch.nn.Linear.forward\n" + TRAINING.setup
