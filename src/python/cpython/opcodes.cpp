// The table of the running version's opcodes, and questions that it answers.
#include "python/cpython/opcodes.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "python/cpython/reference.h"
#include "support/check.h"

namespace oxy::python {

namespace {

// Python's own module `opcode`, which says what its opcodes are.
class OpcodeModule {
 public:
  OpcodeModule() : module_(PyImport_ImportModule("opcode")), names_(member("opname")) {
    if (PyObject_HasAttrString(module_.get(), "_inline_cache_entries"))
      caches_ = member("_inline_cache_entries");
  }

  Opcode describe(int op) const {
    PyObject* name = PyList_GetItem(names_.get(), op);
    const char* text = PyUnicode_AsUTF8(Py_XNewRef(name));  // its text is kept
    OXY_CHECK(text, "the name of an opcode");
    if (text[0] == '<') return {};
    return {text, caches(op, name), argument(op), jump(op, text)};
  }

 private:
  Reference member(const char* name) const {
    Reference found(module_.get() ? PyObject_GetAttrString(module_.get(), name) : nullptr);
    OXY_CHECK(found.get(), "opcode.", name);
    return found;
  }

  // By number up to 3.12, by name from 3.13 on.
  uint8_t caches(int op, PyObject* name) const {
    if (!caches_) return 0;
    PyObject* found = PyDict_Check(caches_.get()) ? PyDict_GetItem(caches_.get(), name)
                                                  : PyList_GetItem(caches_.get(), op);
    return found ? static_cast<uint8_t>(PyLong_AsLong(found)) : 0;
  }

  bool is_in(const char* set, int op) const {
    const Reference number(PyLong_FromLong(op));
    return PySequence_Contains(member(set).get(), number.get()) == 1;
  }

  Jump jump(int op, std::string_view name) const {
    if (is_in("hasjabs", op)) return Jump::absolute;
    if (!is_in("hasjrel", op)) return Jump::none;
    const bool back = name.find("BACKWARD") != name.npos || op == END_ASYNC_FOR;
    return back ? Jump::backward : Jump::forward;
  }

  Argument argument(int op) const {
    if (op == BINARY_OP) return Argument::binary;
    if (op == LOAD_GLOBAL && kGlobalsPushNull) return Argument::global_name;
    if (op == LOAD_ATTR && kAttributesCall) return Argument::attribute;
    if (op == LOAD_SUPER_ATTR) return Argument::super_attribute;
    if (op == LOAD_FAST_LOAD_FAST || op == LOAD_FAST_BORROW_LOAD_FAST_BORROW ||
        op == STORE_FAST_LOAD_FAST || op == STORE_FAST_STORE_FAST)
      return Argument::two_locals;
    constexpr std::pair<const char*, Argument> kSets[] = {
        {"hasjrel", Argument::jump},      {"hasjabs", Argument::jump},
        {"hasconst", Argument::constant}, {"hasname", Argument::name},
        {"haslocal", Argument::local},    {"hasfree", Argument::cell},
        {"hascompare", Argument::compare}};
    for (const auto& [set, kind] : kSets)
      if (is_in(set, op)) return kind;
    return Argument::none;
  }

  Reference module_, names_, caches_;
};

std::array<Opcode, 256> make_table() {
  const OpcodeModule module;
  std::array<Opcode, 256> table;
  for (int op = 0; op < 256; ++op) table[op] = module.describe(op);
  return table;
}

}  // namespace

const Opcode& opcode_info(uint8_t op) {
  static const std::array<Opcode, 256> table = make_table();
  return table[op];
}

bool falls_through(uint8_t op) {
  constexpr int kLeaves[] = {RETURN_VALUE,
                             RETURN_CONST,
                             RAISE_VARARGS,
                             RERAISE,
                             JUMP_FORWARD,
                             JUMP_BACKWARD,
                             JUMP_BACKWARD_NO_INTERRUPT,
                             JUMP_ABSOLUTE};
  return std::ranges::find(kLeaves, op) == std::end(kLeaves);
}

uint8_t jump_towards(uint8_t op, bool backward) {
  const Opcode& info = opcode_info(op);
  if (info.jump == Jump::absolute || (info.jump == Jump::backward) == backward) return op;
  if (op == JUMP_BACKWARD_NO_INTERRUPT) return JUMP_FORWARD;
  const std::string_view from = backward ? "FORWARD" : "BACKWARD";
  std::string opposite = info.name;
  if (size_t at = opposite.find(from); at != opposite.npos)
    opposite.replace(at, from.size(), backward ? "BACKWARD" : "FORWARD");
  for (int other = 0; other < 256; ++other)
    if (other != op && opcode_info(static_cast<uint8_t>(other)).name == opposite)
      return static_cast<uint8_t>(other);
  OXY_FAIL(info.name, " jumps in one direction only");
}

int binary_operator_of(uint8_t op, uint32_t arg) {
  if (plain_opcode(op, arg) == BINARY_OP) return static_cast<int>(arg);
#ifdef BINARY_ADD  // 3.10 has an opcode for each
  constexpr int kOperators[] = {BINARY_ADD,
                                BINARY_AND,
                                BINARY_FLOOR_DIVIDE,
                                BINARY_LSHIFT,
                                BINARY_MATRIX_MULTIPLY,
                                BINARY_MULTIPLY,
                                BINARY_MODULO,
                                BINARY_OR,
                                BINARY_POWER,
                                BINARY_RSHIFT,
                                BINARY_SUBTRACT,
                                BINARY_TRUE_DIVIDE,
                                BINARY_XOR,
                                INPLACE_ADD,
                                INPLACE_AND,
                                INPLACE_FLOOR_DIVIDE,
                                INPLACE_LSHIFT,
                                INPLACE_MATRIX_MULTIPLY,
                                INPLACE_MULTIPLY,
                                INPLACE_MODULO,
                                INPLACE_OR,
                                INPLACE_POWER,
                                INPLACE_RSHIFT,
                                INPLACE_SUBTRACT,
                                INPLACE_TRUE_DIVIDE,
                                INPLACE_XOR};
  if (const auto* at = std::ranges::find(kOperators, op); at != std::end(kOperators))
    return static_cast<int>(at - std::begin(kOperators));
#endif
  return -1;
}

LocalUse local_use(uint8_t op, uint32_t arg) {
  const int slot = static_cast<int>(arg), high = slot >> 4, low = slot & 15;
  switch (op) {
    case STORE_FAST:
      return {.written = {slot, -1}};
    case LOAD_FAST:
    case LOAD_FAST_BORROW:
    case LOAD_FAST_CHECK:
    case LOAD_FAST_AND_CLEAR:
    case DELETE_FAST:  // it raises where there is nothing to delete
      return {.read = {slot, -1}};
    case LOAD_FAST_LOAD_FAST:
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
      return {.read = {high, low}};
    case STORE_FAST_STORE_FAST:
      return {.written = {high, low}};
    case STORE_FAST_LOAD_FAST:
      return {.read = {low == high ? -1 : low, -1}, .written = {high, -1}};
    default:
      return {};
  }
}

PlainSteps plain_steps(uint8_t op, uint32_t arg) {
  const uint32_t high = arg >> 4, low = arg & 15;
  switch (op) {
    case LOAD_FAST_BORROW:
      return {{LOAD_FAST}, {arg}, 1};
    case NOT_TAKEN:
      return {{NOP}, {0}, 1};
    case POP_ITER:
      return {{POP_TOP}, {0}, 1};
    case LOAD_FAST_LOAD_FAST:
    case LOAD_FAST_BORROW_LOAD_FAST_BORROW:
      return {{LOAD_FAST, LOAD_FAST}, {high, low}, 2};
    case STORE_FAST_LOAD_FAST:
      return {{STORE_FAST, LOAD_FAST}, {high, low}, 2};
    case STORE_FAST_STORE_FAST:
      return {{STORE_FAST, STORE_FAST}, {high, low}, 2};
    case COMPARE_OP:
      if (compares_to_bool(arg)) return {{COMPARE_OP, TO_BOOL}, {arg & ~16U, 0}, 2};
      [[fallthrough]];
    default:
      return {{op, 0}, {arg, 0}, 1};
  }
}

int stack_effect(uint8_t op, uint32_t arg, bool jumps) {
  if (kForIterSkips > 0 && op == FOR_ITER && jumps) return kForIterKeepsIterator ? 0 : -1;
  // An argument where there should be none is refused.
  int operand = op >= HAVE_ARGUMENT ? static_cast<int>(arg) : 0;
  int effect = PyCompile_OpcodeStackEffectWithJump(op, operand, jumps);
  OXY_CHECK(effect != PY_INVALID_STACK_EFFECT, opcode_info(op).name);
  return effect;
}

}  // namespace oxy::python
