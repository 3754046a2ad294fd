"""The parts that a world of states.py is made of: what there is, how code reads and writes it, and
how it changes between calls.

`setup` is at the level of the module. `reads` are expressions, `tensors` those that give a tensor
of three floats, `writes` are statements of the function; `changes` are statements that run between
calls, one of which often undoes another. They are texts, in which `;;` or the end of the line
stands between two; a line that goes on has a bar in front. `names` are globals that the function
may also reach as cells, defaults, attributes. `restore` undoes what was changed outside of the
world.

A B: small ints; F: a float; V: a new name; W: a word.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Part:
    setup: str
    reads: str
    writes: str
    changes: str
    tensors: str = ""
    names: list[str] = field(default_factory=list)
    restore: str = ""
    state: str = ""  # an expression: what has changed outside of the world

    def __post_init__(self) -> None:
        self.pieces = {
            kind: [p for line in text.replace("\n|", "\0").split("\n") for p in pieces_of(line)]
            for kind in ("reads", "writes", "changes", "tensors")
            if (text := getattr(self, kind))
        }


def pieces_of(line: str) -> list[str]:
    """Of a line, those behind a bar included."""
    found = [p.strip() for p in line.split(" ;; ")]
    return [p.replace("\0 ", "\n").replace("\0", "\n") for p in found if p]


SCALARS = Part(
    setup="""
count = 2
ratio = 0.5
label = "ab"
flag = True
nothing = None
pair = (1, 2)


def bump(by):
    global count
    count += by
    return count


def rename(to):
    global label
    label = label + to
""",
    reads="""
count ;; count + A ;; count > A ;; ratio ;; label ;; len(label) ;; flag ;; flag is True
not nothing ;; nothing is None ;; pair ;; pair[0] ;; pair == (1, 2) ;; globals().get('extra', A)
'extra' in globals() ;; type(count).__name__ ;; isinstance(count, int)
f'{count}|{ratio}|{label!r}' ;; repr(ratio) ;; count in pair ;; bump(A) ;; (count, ratio, flag)
-ratio ;; label.upper() ;; extra ;; label == 'ab' ;; label is nothing ;; hash(pair) == hash((1, 2))
round(ratio, 1)
""",
    tensors="""
x * count ;; x + ratio ;; x * (count if flag else A) ;; x - pair[0]
""",
    writes="""
bump(A) ;; rename('W') ;; globals()['extra'] = A ;; globals().pop('extra', None)
globals()['flag'] = not globals()['flag'] ;; globals()['pair'] = (n, A) ;; globals()['ratio'] *= F
match count:
|     case 2:
|         log.append('two')
|     case int(V):
|         log.append(V)
del globals()['extra']
""",
    changes="""
count = A ;; count = 2 ;; count = True ;; count = 2.0 ;; count = 10**20 ;; label = 'W'
label = 'ab' ;; label = None ;; flag = 1 ;; flag = True ;; flag = False ;; ratio = 0.5
ratio = -0.0 ;; ratio = 0.0 ;; ratio = float('nan') ;; ratio = 1 ;; pair = (1, True)
pair = (1, 2) ;; pair = [1, 2] ;; nothing = 0 ;; nothing = None ;; extra = A ;; del extra
del count
class V(int): pass
| count = V(3)
class V(str): pass
| label = V('ab')
import enum
| class V(enum.IntEnum):
|     ONE = 1
| count = V.ONE
""",
    names=["ratio", "pair", "flag", "nothing"],
)

MODULES = Part(
    setup="""
space = types.ModuleType("space")
space.a = 1
space.t = torch.ones(3)
space.f = lambda y: y + 1
space.sub = types.SimpleNamespace(k=2, items=[1])
sys.modules["states_space"] = space
""",
    reads="""
space.a ;; getattr(space, 'b', A) ;; hasattr(space, 'b') ;; 'b' in vars(space)
space.__dict__.get('a') ;; space.sub.k ;; space.sub.items[-1] ;; getattr(space.sub, 'z', None)
vars(space.sub) ;; sorted(k for k in vars(space) if k[0] != '_') ;; space.b
__import__('states_space').a ;; sys.modules['states_space'].a ;; 'states_space' in sys.modules
space.sub == types.SimpleNamespace(k=2, items=[1]) ;; operator.attrgetter('sub.k')(space)
space.__name__ ;; space.__getattr__('z') ;; 'b' in dir(space)
space is sys.modules.get('states_space')
""",
    tensors="""
space.f(x) ;; space.t * x ;; x + space.a ;; x * space.sub.k
""",
    writes="""
space.a += A ;; space.b = n ;; del space.b ;; setattr(space, 'c', [n]) ;; space.sub.k = n
space.sub.items.append(n) ;; vars(space)['d'] = A
import states_space as V
| log.append(V.a)
from states_space import a as V
| log.append(V)
space.sub.__dict__.update(z=n) ;; delattr(space.sub, 'z')
V = space.f
| space.f = lambda y: V(y) * 2
space.t = x.detach() + 1 ;; space.t.add_(A)
""",
    changes="""
space.a = A ;; space.a = 1 ;; space.b = A ;; del space.b ;; del space.a ;; space.f = lambda y: y * 2
space.f = torch.sin ;; space.f = lambda y, k=A: y - k ;; space.__getattr__ = lambda name: len(name)
del space.__getattr__ ;; space.sub = types.SimpleNamespace(k=7, items=[1, 2]) ;; space.sub.k = A
del space.sub.k ;; space.sub.items.append(A) ;; space.sub.items = [A]
sys.modules['states_space'] = types.SimpleNamespace(a=9, f=torch.cos)
sys.modules['states_space'] = space ;; del sys.modules['states_space']
class V(types.ModuleType):
|     @property
|     def a(self):
|         return 77
| space.__class__ = V
space.__class__ = types.ModuleType ;; space.t = torch.ones(3, dtype=torch.float64)
space.t.mul_(A)
space = types.ModuleType('other')
| space.a = 5
| space.sub = None
""",
    names=["space"],
    restore="sys.modules.pop('states_space', None)",
)

CLASSES = Part(
    setup="""
class Root:
    kind = "root"
    shared = [1]

    def __init__(self):
        self.a = 1

    def value(self):
        return self.a + 1

    @property
    def double(self):
        return self.a * 2

    @double.setter
    def double(self, v):
        self.a = v // 2

    @classmethod
    def make(cls):
        return cls.kind

    @staticmethod
    def plain(k=2):
        return k * 3


class Mixin:
    def value(self):
        return super().value() * 10


class Leaf(Root):
    kind = "leaf"

    def value(self):
        return super().value() + 5

    def __len__(self):
        return self.a


class Apart:
    kind = "apart"
    a = 4

    def value(self):
        return -1


class Elder:
    elder = 1

    def plain(self):
        return 99


class Young(Elder):
    pass


obj = Leaf()
other = Root()
held = obj.value
young = Young()
""",
    reads="""
obj.a ;; obj.kind ;; obj.value() ;; held() ;; obj.double ;; obj.make() ;; Leaf.make() ;; obj.plain()
obj.shared ;; obj.shared is Root.shared ;; getattr(obj, 'zz', A) ;; hasattr(obj, 'zz')
hasattr(Leaf, 'zz') ;; obj.zz ;; isinstance(obj, Leaf) ;; isinstance(obj, (Mixin, Apart))
issubclass(Leaf, Mixin) ;; type(obj).__name__ ;; type(obj) is Leaf
[c.__name__ for c in type(obj).__mro__] ;; Leaf.__bases__[0].__name__ ;; 'kind' in Leaf.__dict__
'kind' in vars(obj) ;; dict(vars(obj)) ;; len(obj) ;; bool(obj) ;; bool(other) ;; callable(obj)
obj == other ;; obj != obj ;; obj == A ;; other in [obj, other] ;; obj is other
super(Leaf, obj).value() ;; Root.value(obj) ;; held.__self__ is obj ;; held.__func__ is Leaf.value
held == obj.value ;; obj.value == held ;; sorted(n for n in dir(obj) if n[0] != '_')
operator.methodcaller('value')(obj) ;; operator.attrgetter('a', 'kind')(obj)
copy.copy(obj).__dict__ ;; copy.deepcopy(obj).value() ;; obj.__class__.__name__
Root.__subclasses__()[0].__name__ ;; young.elder ;; young.plain() ;; [*obj] ;; obj[A] ;; obj + A
A + other ;; -obj ;; obj < A ;; A in obj ;; str(obj)[:4] ;; f'{obj}'[:4] ;; hash(obj) == hash(obj)
obj(A) ;; {obj: 1}.get(obj) ;; int(obj) ;; [0, 1, 2, 3, 4, 5, 6, 7][obj] ;; abs(other)
Leaf.value.__name__ ;; Leaf.value.__qualname__ ;; Leaf().value() ;; Leaf().a ;; inspect.isclass(obj)
round(obj)
""",
    tensors="""
x * obj.a ;; x + obj.value() ;; x - held() ;; x * Leaf().a ;; x + young.elder
""",
    writes="""
obj.a += A ;; obj.a = n ;; obj.kind = 'W' ;; del obj.kind ;; obj.double = A ;; obj.shared.append(n)
obj.shared = [n] ;; Leaf.kind = 'W' ;; del Leaf.kind ;; Root.zz = n ;; obj.zz = n ;; del obj.zz
setattr(other, 'a', A) ;; other.a = obj.a + 1 ;; obj.__dict__['a'] = A
obj.__dict__.pop('kind', None) ;; vars(obj).update(q=n) ;; obj.__class__ = Root
Root.shared = Root.shared + [A]
V = Leaf()
| V.a = n
| log.append(V.value())
V = copy.copy(obj)
| V.shared.append(A)
V = copy.copy(obj)
| V.a = A
| log.append((V.a, obj.a))
V, obj.a = obj.a, A
| log.append(V)
obj.me = obj ;; Elder.elder += 1 ;; young.elder += 1 ;; object.__setattr__(obj, 'a', A)
match obj:
|     case Leaf(a=1):
|         log.append('one')
|     case Root(a=V):
|         log.append(V)
|     case _:
|         log.append('none')
""",
    changes="""
obj.a = A ;; obj.a = 1 ;; obj.a = 1.0 ;; obj.a = True ;; obj.a = torch.tensor(2) ;; del obj.a
obj.kind = 'own' ;; del obj.kind ;; obj.value = lambda: A ;; del obj.value ;; Leaf.kind = 'W'
Leaf.kind = property(lambda self: self.a + 100) ;; Leaf.a = 50 ;; Leaf.a = property(lambda self: 60)
del Leaf.a ;; del Leaf.kind ;; Leaf.value = lambda self: 1000 + self.a ;; del Leaf.value
Root.value = lambda self: A ;; Root.value = staticmethod(lambda *a: len(a))
Root.value = classmethod(lambda cls: len(cls.__name__)) ;; Root.zz = A ;; del Root.zz
Root.double = 3 ;; Root.double = property(lambda self: -self.a) ;; Leaf.__bases__ = (Mixin, Root)
Leaf.__bases__ = (Root,) ;; Mixin.value = lambda self: -7 ;; Mixin.kind = 'mixin'
Leaf.__len__ = lambda self: 2 ;; del Leaf.__len__ ;; Leaf.__bool__ = lambda self: False
del Leaf.__bool__ ;; Root.__bool__ = lambda self: False ;; Root.__eq__ = lambda self, o: True
del Root.__eq__ ;; Leaf.__eq__ = lambda self, o: NotImplemented ;; Leaf.__hash__ = lambda self: 3
Leaf.__call__ = lambda self, k: k + 1 ;; del Leaf.__call__
Leaf.__getitem__ = lambda self, i: [1, 2, 3][i] ;; Leaf.__iter__ = lambda self: iter([self.a])
del Leaf.__iter__ ;; Leaf.__add__ = lambda self, k: k + 1 ;; Root.__radd__ = lambda self, k: k + 2
Leaf.__neg__ = lambda self: 3 ;; Leaf.__lt__ = lambda self, o: True
Leaf.__contains__ = lambda self, o: o > 2 ;; Leaf.__str__ = lambda self: 'text'
Leaf.__format__ = lambda self, spec: 'formatted' ;; Leaf.__index__ = lambda self: 2
Leaf.__int__ = lambda self: 4 ;; Root.__abs__ = lambda self: 4 ;; Leaf.__round__ = lambda self: 4
Root.__getattr__ = lambda self, name: len(name) ;; del Root.__getattr__
Leaf.__getattribute__ = lambda self, name: 5
Leaf.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
del Leaf.__getattribute__
Root.__setattr__ = lambda self, name, v: object.__setattr__(self, name, 8)
del Root.__setattr__ ;; Root.__delattr__ = lambda self, name: None
Root.__init__ = lambda self: setattr(self, 'a', 9)
Root.__new__ = lambda cls: object.__new__(Apart) ;; del Root.__new__
Leaf.__copy__ = lambda self: self ;; Leaf.__deepcopy__ = lambda self, memo: other
Leaf.__class__ = Leaf.__class__ ;; obj.__class__ = Root ;; obj.__class__ = Apart
obj.__class__ = Leaf ;; obj.__dict__ = {'a': A} ;; obj.__dict__ = {'a': 1, 'kind': 'd'}
obj = Leaf() ;; obj = Root() ;; obj = Apart() ;; obj = None ;; held = Leaf().value
held = types.MethodType(lambda self: self.a - 1, obj) ;; held = lambda: 4 ;; other = obj
Root.shared = [1, 2] ;; Root.make = classmethod(lambda cls: cls) ;; Root.plain = lambda self, k=1: k
Leaf.value.__code__ = (lambda self: 42).__code__ ;; Root.plain.__defaults__ = (5,)
Leaf.__match_args__ = ('a',) ;; class V(Root): pass
class V:
|     elder = 7
|     def plain(self):
|         return 98
| Young.__bases__ = (V,)
Young.__bases__ = (Elder,) ;; Elder.elder = A ;; Young.elder = A ;; del Young.elder
young.elder = A ;; del young.elder
""",
    names=["obj", "other", "held", "Leaf", "young"],
)

DESCRIPTORS = Part(
    setup="""
class Typed:
    def __init__(self, at):
        self.at = at

    def __get__(self, o, owner=None):
        if o is None:
            return self
        return o.__dict__.get(self.at, 3)

    def __set__(self, o, v):
        o.__dict__[self.at] = v + 1


class Weak:
    def __get__(self, o, owner=None):
        return 5 if o is None else o.base


class Holder:
    typed = Typed("_t")
    weak = Weak()

    def __init__(self):
        self.base = 2

    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(name)
        return len(name)

    @functools.cached_property
    def costly(self):
        self.base += 1
        return self.base * 10


class Slots:
    __slots__ = ("p", "q")

    def __init__(self):
        self.p = 1


class MoreSlots(Slots):
    __slots__ = ("r", "__dict__")


class Meta(type):
    level = 1

    def __getattr__(cls, name):
        if name == "virtual":
            return cls.level * 2
        raise AttributeError(name)

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.level
        return made

    def __len__(cls):
        return cls.level

    def __contains__(cls, o):
        return o == cls.level

    @property
    def seen(cls):
        return cls.__dict__.get("own", 4)


class OfMeta(metaclass=Meta):
    kind = 1


holder = Holder()
slots = Slots()
more = MoreSlots()
""",
    reads="""
holder.typed ;; Holder.typed is Holder.__dict__['typed'] ;; holder.weak ;; Holder.weak
holder.base ;; holder.missing ;; holder.nope ;; hasattr(holder, 'nope')
getattr(holder, 'nope', A) ;; holder.costly ;; 'costly' in holder.__dict__ ;; slots.p ;; slots.q
hasattr(slots, 'q') ;; getattr(slots, 'q', A) ;; more.p ;; more.r ;; more.z
[getattr(more, k, None) for k in ('p', 'q', 'r', 'z')] ;; OfMeta.virtual ;; OfMeta.kind
OfMeta.level ;; OfMeta().tag ;; hasattr(OfMeta, 'novirtual') ;; len(OfMeta) ;; A in OfMeta
OfMeta.seen ;; OfMeta().seen ;; isinstance(OfMeta(), OfMeta) ;; bool(OfMeta)
Slots.p.__get__(slots) ;; Holder.__dict__['typed'].at ;; vars(holder) ;; vars(slots)
inspect.getattr_static(holder, 'base') ;; Slots.__slots__ ;; list(OfMeta) ;; OfMeta[A] ;; OfMeta + A
OfMeta == A ;; holder.__dict__.get('weak', A)
""",
    tensors="""
x * holder.typed ;; x + holder.weak ;; x * slots.p ;; x + OfMeta.virtual ;; x * holder.costly
""",
    writes="""
holder.typed = n ;; holder.typed += A ;; holder.weak = A ;; del holder.weak ;; holder.base = n
del holder.costly ;; del holder.typed ;; slots.q = n ;; del slots.q ;; slots.p += 1 ;; slots.z = 1
more.r = [n] ;; more.z = A ;; OfMeta.kind += 1 ;; OfMeta.own = n ;; del OfMeta.own
OfMeta.seen = 1 ;; Meta.level = A ;; holder.__dict__['typed'] = 9 ;; holder.__dict__['weak'] = 9
V = Slots()
| V.q = slots.p
| log.append(V.q)
V = OfMeta()
| V.tag += A
| log.append(V.tag)
Slots.p.__set__(slots, A)
V = copy.copy(slots)
| V.p = 7
| log.append((slots.p, V.p))
""",
    changes="""
holder.__dict__['_t'] = A ;; holder.__dict__['typed'] = 70 ;; holder.__dict__['weak'] = 71
holder.__dict__.clear() ;; holder.base = A ;; holder.base = 2 ;; del holder.base
holder.missing = 1 ;; holder.nope = 1 ;; del holder.nope ;; holder.costly = 3 ;; del holder.costly
Typed.__get__ = lambda self, o, owner=None: 44 ;; del Typed.__set__
Typed.__set__ = lambda self, o, v: None ;; del Typed.__get__
Typed.__delete__ = lambda self, o: o.__dict__.pop('_t', None)
Weak.__set__ = lambda self, o, v: None ;; del Weak.__set__
Weak.__get__ = lambda self, o, owner=None: 6 ;; del Weak.__get__ ;; Holder.typed = Typed('base')
Holder.typed = 12 ;; Holder.__dict__['weak'].base = 3
vars(Holder)['costly'].func = lambda self: 33 ;; del Holder.weak ;; Holder.weak = Weak()
Holder.__getattr__ = lambda self, name: 0 ;; del Holder.__getattr__
Holder.missing = property(lambda self: self.absent) ;; slots.p = A ;; slots.p = 1 ;; del slots.p
slots.q = A ;; del slots.q ;; del Slots.q ;; Slots.p = 5 ;; more.r = 1 ;; more.z = 1 ;; del more.z
more.p = 2 ;; Meta.level = 3 ;; Meta.level = 1 ;; OfMeta.level = 5 ;; del OfMeta.level
OfMeta.virtual = 9 ;; del OfMeta.virtual ;; OfMeta.own = A ;; OfMeta.seen2 = 1 ;; Meta.kind = 8
Meta.kind = property(lambda cls: 80) ;; del Meta.kind ;; del Meta.__call__
Meta.__call__ = lambda cls, *a: type.__call__(cls, *a) ;; Meta.__iter__ = lambda cls: iter('mi')
Meta.__getitem__ = lambda cls, i: [4, 5][i] ;; Meta.__add__ = lambda cls, i: i
Meta.__eq__ = lambda cls, o: True
| Meta.__hash__ = type.__hash__
Meta.__bool__ = lambda cls: False ;; OfMeta.__class_getitem__ = classmethod(lambda cls, i: -i)
Meta.__instancecheck__ = lambda cls, o: False ;; del Meta.__instancecheck__ ;; del Meta.__getattr__
OfMeta.__init__ = lambda self: setattr(self, 'kind', 0) ;; holder = Holder() ;; slots = MoreSlots()
slots = Slots()
""",
    names=["holder", "slots", "more", "OfMeta"],
)

RECORDS = Part(
    setup="""
@dataclasses.dataclass
class Config:
    size: int = 2
    names: list = dataclasses.field(default_factory=list)
    rate: float = 0.5
    limit: typing.ClassVar[int] = 3

    def __post_init__(self):
        self.half = self.size // 2


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Key:
    name: str
    at: int = 0


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def weight(self):
        return self.value * 2


class Mode(enum.Flag):
    R = 1
    WW = 2


class Point(typing.NamedTuple):
    left: object
    right: int = 7


config = Config()
key = Key("k", 1)
color = Color.RED
mode = Mode.R
point = Point(1)
by_color = {Color.RED: 1, Color.GREEN: 2}
by_key = {Key("k", 1): [1], Key("z"): [2]}
""",
    reads="""
config ;; config.size ;; config.names ;; config.half ;; config == Config()
dataclasses.asdict(config) ;; dataclasses.astuple(config) ;; dataclasses.replace(config, rate=F)
[f.name for f in dataclasses.fields(config)] ;; Config.limit ;; Config().size ;; key ;; key.at
key < Key('k', 2) ;; key in by_key ;; by_key[Key('k', A)] ;; hash(key) == hash(Key('k', 1)) ;; color
color is Color.RED ;; color == Color.GREEN ;; color.value ;; color.name ;; color.weight
Color['RED'].value ;; Color(A).name ;; [c.name for c in Color] ;; len(Color) ;; color in Color
by_color[color] ;; by_color.get(Color.GREEN) ;; mode ;; Mode.WW in mode ;; mode | Mode.WW
bool(mode & Mode.WW) ;; point ;; point.left ;; point.right ;; point._replace(right=A)
point._asdict() ;; point == (1, 7) ;; dataclasses.is_dataclass(config) ;; repr(config)
f'{color}{mode!r}' ;; Config.__match_args__ ;; hash(color) == hash(Color.RED)
""",
    tensors="""
x * config.size ;; x * config.rate ;; x + color.value ;; x - key.at ;; x * point.right
""",
    writes="""
config.size += A ;; config.names.append(n) ;; config.extra = n ;; key.at = n
object.__setattr__(key, 'at', A) ;; globals()['color'] = Color(3 - color.value)
globals()['mode'] |= Mode.WW ;; globals()['mode'] ^= Mode.R
globals()['point'] = point._replace(left=n)
globals()['config'] = dataclasses.replace(config, size=n) ;; by_color[color] += A
by_color[Color.GREEN] = n ;; by_key[Key('W', n)] = [n] ;; by_key[key].append(n)
del by_key[Key('z')] ;; color.note = n
Color.RED.note = A
| log.append(Color.RED.note)
Config.limit += 1
match config:
|     case Config(2, names=[]):
|         log.append('fresh')
|     case Config(size=V):
|         log.append(V)
match point:
|     case (1, V) | (V, 7):
|         log.append(V)
|     case Point(left=V):
|         log.append(V)
match color:
|     case Color.RED:
|         log.append('red')
|     case Color.GREEN:
|         log.append('green')
V = copy.deepcopy(config)
| V.names.append(A)
| log.append(V)
""",
    changes="""
config.size = A ;; config.size = 2 ;; config.size = None ;; del config.size
config.names.append('W') ;; config.names = [] ;; config.rate = 1 ;; config.rate = 0.5
config = Config(A, ['W']) ;; config = Config() ;; config.extra = 1 ;; Config.size = 11
Config.limit = 4 ;; Config.__eq__ = lambda self, o: False ;; Config.__repr__ = lambda self: 'config'
Config.__post_init__ = lambda self: None
Config.__init__.__defaults__ = (5, *Config.__init__.__defaults__[1:])
object.__setattr__(key, 'at', A) ;; object.__setattr__(key, 'at', 1) ;; key = Key('k', 1)
key = Key('z') ;; Key.__hash__ = lambda self: 1 ;; Key.__lt__ = lambda self, o: False
color = Color.GREEN ;; color = Color.RED ;; color = 1 ;; Color.RED.note = A
Color.RED._value_ = 30 ;; Color.RED._value_ = 1 ;; Color.weight = 3
Color.weight = property(lambda self: 5) ;; Color.__str__ = lambda self: 'colour' ;; mode = Mode.WW
mode = Mode.R | Mode.WW ;; mode = Mode.R ;; mode = Mode(0) ;; point = Point(1, 8)
point = Point(1) ;; point = (1, 7) ;; point = collections.namedtuple('Point', 'left right')(1, 7)
Point.right = 3 ;; Point.__eq__ = lambda self, o: False ;; by_color = {Color.GREEN: 2, Color.RED: 1}
by_color[Color.RED] = A ;; del by_color[Color.GREEN] ;; by_color.clear()
by_key[Key('k', 1)] = [3] ;; del by_key[Key('k', 1)] ;; by_key[Key('k', 1)].append(A)
""",
    names=["config", "key", "color", "mode", "point", "by_color", "by_key"],
)

FUNCTIONS = Part(
    setup="""
def scaled(y, by=2, *, plus=1):
    return y * by + plus


def cells(k):
    seen = []

    def read(y=1):
        seen.append(y)
        return k + len(seen)

    def write(v):
        nonlocal k
        k += v

    return read, write


read, write = cells(2)


def decorated(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        inner.calls += 1
        return f(*args, **kwargs)

    inner.calls = 0
    return inner


@decorated
def wrapped(y):
    return y + 3


@functools.lru_cache(maxsize=4)
def cached(k):
    return [k, scaled(k)]


@functools.singledispatch
def describe(o):
    return "object"


@describe.register
def _(o: int):
    return "int"


def numbers(k):
    yield from range(k)


part = functools.partial(scaled, by=3)
part_of_list = functools.partial(list.append, [])
getter = operator.itemgetter(0)
adders = [lambda y, i=i: y + i for i in range(3)]
table_of = {"sin": torch.sin, "scaled": scaled}
running = numbers(9)
counter = itertools.count(3)
""",
    reads="""
scaled(A) ;; scaled(A, plus=B) ;; scaled.__defaults__ ;; scaled.__kwdefaults__ ;; scaled.__name__
scaled.__code__.co_argcount ;; scaled.__code__.co_name ;; getattr(scaled, 'mark', A)
hasattr(scaled, 'mark') ;; scaled.mark ;; vars(scaled) ;; read() ;; read(A)
read.__closure__[0].cell_contents ;; len(read.__closure__) ;; wrapped(A) ;; wrapped.calls
wrapped.__wrapped__(A) ;; cached(A) ;; cached(2)[1] ;; cached.cache_info().currsize ;; describe(A)
describe('W') ;; describe.dispatch(int)(A) ;; part(A) ;; part.keywords ;; part.func is scaled
getter([A, B]) ;; [f(A) for f in adders] ;; len(adders) ;; table_of['scaled'](A) ;; sorted(table_of)
list(numbers(A)) ;; next(running, None) ;; next(counter) ;; str(inspect.signature(scaled))
list(inspect.signature(scaled).parameters) ;; inspect.unwrap(wrapped).__name__ ;; callable(part)
scaled.__doc__ ;; scaled.__annotations__ ;; scaled.__get__(A)(B) ;; (lambda y=scaled: y(A))()
functools.reduce(lambda a, b: b(a), adders, A) ;; scaled is table_of['scaled']
scaled == part.func
""",
    tensors="""
scaled(x) ;; part(x) ;; wrapped(x) ;; adders[A % 3](x) ;; table_of['sin'](x) ;; x + read(A)
x * next(counter)
""",
    writes="""
write(A) ;; scaled.mark = n ;; del scaled.mark ;; scaled.__defaults__ = (A,)
scaled.__kwdefaults__['plus'] = A ;; wrapped.calls += A ;; cached.cache_clear()
cached(n).append(A) ;; cached(2).append(n) ;; part.keywords['by'] = A ;; part.note = n
adders.append(lambda y: y - A) ;; adders.append(scaled) ;; table_of['W'] = adders[0]
globals()['part'] = functools.partial(part, plus=n)
globals()['read'], globals()['write'] = cells(n) ;; read.__closure__[0].cell_contents = A
globals()['scaled'] = lambda y, by=1, *, plus=0: y - by
V = functools.partial(part, plus=n)
| log.append(V(A))
for V in running:
|     log.append(V)
|     break
log.append([V for V, _ in zip(counter, 'ab')])
""",
    changes="""
scaled.__defaults__ = (A,) ;; scaled.__defaults__ = (2,) ;; scaled.__defaults__ = None
scaled.__kwdefaults__ = {'plus': A} ;; scaled.__kwdefaults__['plus'] = A
scaled.__kwdefaults__ = None
scaled.__code__ = (lambda y, by=1, *, plus=1: y - by - plus).__code__
scaled.__code__ = (lambda y, by=1, *, plus=1: y * by + plus).__code__ ;; scaled.__name__ = 'W'
scaled.__doc__ = 'W' ;; scaled.mark = A ;; del scaled.mark ;; scaled.__dict__ = {'mark': 7}
scaled.__annotations__ = {'y': int} ;; scaled = lambda y, by=4, *, plus=4: y
def scaled(y, by=2, *, plus=1):
|     return y * by + plus + 1
write(A) ;; read.__closure__[0].cell_contents = A ;; read.__closure__[0].cell_contents = 2
del read.__closure__[0].cell_contents ;; read.__closure__[1].cell_contents.append(1)
read.__closure__[1].cell_contents = [] ;; read.__defaults__ = (9,) ;; read, write = cells(A)
wrapped.calls = 0 ;; wrapped.__wrapped__ = scaled ;; wrapped = decorated(scaled) ;; wrapped = scaled
cached.cache_clear() ;; cached(A) ;; cached(2).append(5)
cached = functools.lru_cache(lambda k: k) ;; describe.register(str, lambda o: 'text')
describe.register(int, lambda o: 'whole') ;; describe.register(bool, lambda o: 'flag')
part = functools.partial(scaled, by=3) ;; part = functools.partial(scaled, by=A, plus=A)
part = functools.partial(torch.add, alpha=A, other=1) ;; part.keywords['by'] = A
part.keywords.clear() ;; part.__setstate__((wrapped, (), {}, None))
getter = operator.itemgetter(1) ;; getter = operator.itemgetter(0, 1) ;; adders.pop()
adders.reverse() ;; adders[0] = scaled ;; adders[0].__defaults__ = (A,)
table_of['sin'] = torch.cos ;; table_of['scaled'] = part ;; del table_of['scaled']
running = numbers(A) ;; next(running, None) ;; running.close() ;; counter = itertools.count(A)
next(counter)
def numbers(k):
|     yield k
numbers.__code__ = (lambda k: [k]).__code__
""",
    names=["scaled", "read", "write", "wrapped", "cached", "part", "adders", "table_of"],
)

CONTAINERS = Part(
    setup="""
table = {"a": 1, "b": 2}
items = [1, 2, 3]
words = {"a", "b"}
frozen = frozenset({1, 2})
queue = collections.deque([1, 2, 3], maxlen=4)
groups = collections.defaultdict(list, {"a": [1]})
ordered = collections.OrderedDict(a=1, b=2, c=3)
counts = collections.Counter("aab")
chain = collections.ChainMap({"a": 1}, table)
nested = {"l": [items, [4]], "d": {"k": table}}
view = table.keys()
proxy = types.MappingProxyType(table)
user = collections.UserDict(a=1)
raw = bytearray(b"ab")
numbers_of = array.array("i", [1, 2])


class Named(dict):
    def __missing__(self, key):
        return len(key)


class Seq(list):
    def total(self):
        return sum(self)


named = Named(a=1)
seq = Seq([1, 2])
""",
    reads="""
table['a'] ;; table.get('c', A) ;; 'c' in table ;; len(table) ;; list(table) ;; list(table.items())
sum(table.values()) ;; {k: v for k, v in table.items()} ;; table == {'a': 1, 'b': 2} ;; table['zz']
table | {'n': n} ;; [*reversed(table)] ;; next(iter(table)) ;; max(table, key=table.get) ;; items[0]
items[-1] ;; items[1:] ;; len(items) ;; sum(items) ;; sorted(items) ;; A in items ;; items.index(2)
items.count(1) ;; items == [1, 2, 3] ;; items < [1, 2, 4] ;; [i * 2 for i in items if i]
max(items) ;; all(items) ;; tuple(items) ;; items[A] ;; list(zip(items, table))
list(enumerate(items)) ;; items + [n] ;; nested['l'][0] is items ;; nested['l'][1]
nested['d']['k'] is table ;; nested['d']['k'] ;; sorted(words) ;; 'c' in words ;; len(words)
words == {'a', 'b'} ;; words <= {'a', 'b', 'c'} ;; sorted(words | {'z'}) ;; A in frozen
frozen == {1, 2} ;; list(queue) ;; queue[0] ;; queue.maxlen ;; len(queue)
queue == collections.deque([1, 2, 3]) ;; groups['a'] ;; groups.get('q') ;; groups['q']
list(groups) ;; groups.default_factory is list ;; list(ordered) ;; ordered['b']
ordered == {'c': 3, 'b': 2, 'a': 1} ;; ordered == collections.OrderedDict(a=1, b=2, c=3)
counts['a'] ;; counts['zz'] ;; counts.most_common(1) ;; sum(counts.values())
sorted(counts.elements()) ;; chain['a'] ;; chain.get('b') ;; len(chain) ;; list(chain)
chain.maps[1] is table ;; list(view) ;; 'a' in view ;; len(view) ;; proxy['a'] ;; dict(proxy)
list(proxy) ;; user['a'] ;; list(user) ;; user.data ;; bytes(raw) ;; raw[0] ;; numbers_of[0]
list(numbers_of) ;; named['qqq'] ;; named.get('qqq') ;; dict(named) ;; seq.total() ;; seq[0]
len(seq) ;; copy.copy(table) ;; copy.deepcopy(nested) ;; copy.copy(queue)
operator.itemgetter('a', 'b')(table) ;; str(items) ;; f'{table}' ;; bool(words)
[y for y in nested.values()][0][1] ;; any(v is items for v in nested['l'])
""",
    tensors="""
x * table['a'] ;; x + sum(items) ;; x * len(queue) ;; x - items[0] ;; x + counts['a']
x * ordered['a'] ;; x + seq.total()
""",
    writes="""
table['a'] += A ;; table['W'] = n ;; table.setdefault('c', n) ;; table.pop('b', None)
log.append(table.pop('b')) ;; log.append(table.popitem()) ;; del table['a']
table.update(c=n, d=A) ;; table.clear() ;; table |= {'m': n} ;; items.append(n)
items.extend(items) ;; log.append(items.pop()) ;; items.insert(0, A) ;; items[0] = n
items[-1] += A ;; del items[0] ;; items[1:] = [n] ;; items.sort(reverse=True) ;; items.reverse()
items += [n] ;; items *= 2 ;; items.remove(2) ;; items.clear() ;; nested['l'].append(items)
nested['l'][0].append(A) ;; nested['d']['k']['z'] = n ;; nested['d']['new'] = {'t': n}
words.add('W') ;; words.discard('a') ;; words.remove('a') ;; words |= {'u'} ;; words.clear()
log.append(sorted(words)); words ^= {'a', 'x'} ;; queue.append(n) ;; queue.appendleft(n)
log.append(queue.popleft()) ;; queue.rotate(1) ;; queue[0] = n ;; queue.extend([n, A])
groups['q'].append(n) ;; groups['a'].append(n) ;; groups['W'] ;; ordered.move_to_end('a')
ordered.move_to_end('c', last=False) ;; log.append(ordered.popitem(last=False)) ;; ordered['z'] = n
del ordered['b'] ;; counts['a'] += A ;; counts.update('bc') ;; counts.subtract('a')
chain['a'] = n ;; chain['new'] = n ;; chain.maps.append({'y': A}) ;; del chain['a'] ;; user['W'] = n
user.update(q=A) ;; raw.append(65) ;; raw[0] = 66 ;; numbers_of.append(n) ;; numbers_of[0] = A
named['W'] = n ;; named.extra = n ;; seq.append(n) ;; seq.extra = [n]
V = copy.copy(nested)
| V['l'].append(n)
V = copy.deepcopy(nested)
| V['l'][0].append(n)
| log.append(V)
V = dict(table)
| V['a'] = n
| log.append(V)
for V in items:
|     log.append(V)
for V, _ in table.items():
|     log.append(V)
for V in list(table):
|     table[V] = n
match table:
|     case {'a': 1, **V}:
|         log.append(V)
|     case {'b': V}:
|         log.append(V)
|     case {}:
|         log.append('other')
match items:
|     case [1, *V]:
|         log.append(V)
|     case []:
|         log.append('none')
|     case [V, *_]:
|         log.append(V)
a, *V = items
| log.append((a, V))
""",
    changes="""
table['a'] = A ;; table['a'] = 1 ;; table['a'] = True ;; table['c'] = A ;; table.pop('c', None)
table = {'b': 2, 'a': 1} ;; table = {'a': 1, 'b': 2} ;; table = collections.OrderedDict(a=1, b=2)
table = Named(a=1, b=2) ;; table['b'] = table.pop('b') ;; table['a'] = table.pop('a')
table.clear() ;; items.append(A) ;; items.pop() ;; items[0] = A ;; items[0] = 1.0
items[:] = [1, 2, 3] ;; items = [1, 2, 3] ;; items = (1, 2, 3) ;; items = Seq([1, 2, 3])
items.reverse() ;; items = nested['l'][1] ;; nested['l'][0] = [9] ;; nested['l'][0] = items
nested['d']['k'] = {'a': 5} ;; nested['l'].reverse() ;; words.add('c') ;; words.discard('c')
words = {'b', 'a'} ;; words = {'a', 'q'} ;; words = frozenset({'a', 'b'})
frozen = frozenset({1, 2, 3}) ;; frozen = frozenset({1, 2}) ;; frozen = frozenset({1, True, 2.0})
queue.append(A) ;; queue.rotate() ;; queue.clear() ;; queue = collections.deque([1, 2, 3])
queue = collections.deque([1, 2, 3], maxlen=3) ;; groups['q'] = [A] ;; groups.pop('q', None)
groups.default_factory = None ;; groups.default_factory = list
groups.default_factory = lambda: [A] ;; ordered.move_to_end('b')
ordered = collections.OrderedDict(a=1, b=2, c=3) ;; ordered['a'] = A ;; counts['a'] = A
del counts['a'] ;; counts.clear() ;; chain.maps.reverse()
chain = collections.ChainMap({'a': 1}, table) ;; chain.maps[0]['a'] = A ;; chain.maps = [table]
view = table.keys() ;; view = {'a': 0}.keys() ;; proxy = types.MappingProxyType({'a': A})
user.data['a'] = A ;; user.data = {'z': 1} ;; raw[:] = b'cd' ;; numbers_of[0] = A
Named.__missing__ = lambda self, key: -1 ;; del Named.__missing__
Named.__getitem__ = lambda self, key: 55 ;; Seq.total = lambda self: 17
Seq.__len__ = lambda self: 41 ;; Seq.__iter__ = lambda self: iter([7]) ;; del Seq.__iter__
Seq.append = lambda self, v: None ;; seq.append(A) ;; seq.extra = 1 ;; named['qqq'] = A
seq = Seq([1, 2])
""",
    names=[
        "table",
        "items",
        "words",
        "queue",
        "groups",
        "ordered",
        "counts",
        "chain",
        "nested",
        "seq",
        "named",
    ],
)
