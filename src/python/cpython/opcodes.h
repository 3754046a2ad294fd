// What of an opcode depends on the version of CPython. The numbers are <opcode.h>'s; the rest tells
// Python's own module `opcode`, and the constants here.
#pragma once

#include <Python.h>

#include <cstdint>

// The version whose bytecode is meant: the running interpreter's, unless a test looks at what
// another one has made.
#ifndef OXY_BYTECODE_HEX
#define OXY_BYTECODE_HEX PY_VERSION_HEX
#endif

// Opcodes by name that our code mentions and some version of CPython lacks. Such a name has a
// number there that no code object contains, so that a switch may name them all. Where a version
// has the opcode, its macro hides ours.
namespace oxy::python {

inline constexpr int LOAD_METHOD = 200, PRECALL = 201, UNARY_POSITIVE = 202, LIST_TO_TUPLE = 203,
                     LOAD_CLASSDEREF = 204, JUMP_IF_FALSE_OR_POP = 205, JUMP_IF_TRUE_OR_POP = 206,
                     POP_JUMP_FORWARD_IF_FALSE = 207, POP_JUMP_FORWARD_IF_TRUE = 208,
                     POP_JUMP_FORWARD_IF_NONE = 209, POP_JUMP_FORWARD_IF_NOT_NONE = 210,
                     POP_JUMP_BACKWARD_IF_FALSE = 211, POP_JUMP_BACKWARD_IF_TRUE = 212,
                     POP_JUMP_BACKWARD_IF_NONE = 213, POP_JUMP_BACKWARD_IF_NOT_NONE = 214,
                     POP_JUMP_IF_FALSE = 215, POP_JUMP_IF_TRUE = 216, POP_JUMP_IF_NONE = 217,
                     POP_JUMP_IF_NOT_NONE = 218, RETURN_CONST = 219, LOAD_FAST_CHECK = 220,
                     LOAD_FAST_AND_CLEAR = 221, LOAD_SUPER_ATTR = 222, BINARY_SLICE = 223,
                     STORE_SLICE = 224, END_FOR = 225, END_SEND = 226, CLEANUP_THROW = 227,
                     CALL_INTRINSIC_1 = 228, JUMP_ABSOLUTE = 229, POP_BLOCK = 230,
                     SETUP_FINALLY = 231, SETUP_WITH = 232, SETUP_ASYNC_WITH = 233,
                     JUMP_BACKWARD = 234, JUMP_BACKWARD_NO_INTERRUPT = 235, FORMAT_VALUE = 236,
                     CONVERT_VALUE = 237, SET_FUNCTION_ATTRIBUTE = 238, LOAD_FAST_LOAD_FAST = 239,
                     STORE_FAST_LOAD_FAST = 240, STORE_FAST_STORE_FAST = 241, LOAD_CLOSURE = 242,
                     LOAD_LOCALS = 243, LOAD_FROM_DICT_OR_GLOBALS = 244,
                     LOAD_FROM_DICT_OR_DEREF = 245, CALL_INTRINSIC_2 = 246, PREP_RERAISE_STAR = 247,
                     CHECK_EG_MATCH = 248, BINARY_OP = 249, KW_NAMES = 250, TO_BOOL = 251,
                     CALL_KW = 252, FORMAT_SIMPLE = 253, FORMAT_WITH_SPEC = 254;

// Those that 3.10 alone has, and those that it alone lacks.
inline constexpr int DUP_TOP = 177, DUP_TOP_TWO = 178, ROT_TWO = 179, ROT_THREE = 180,
                     ROT_FOUR = 181, ROT_N = 182, CALL_FUNCTION = 183, CALL_FUNCTION_KW = 184,
                     CALL_METHOD = 185, GEN_START = 186, YIELD_FROM = 187,
                     JUMP_IF_NOT_EXC_MATCH = 188, COPY_DICT_WITHOUT_KEYS = 189;
inline constexpr int CACHE = 166, PUSH_NULL = 167, PUSH_EXC_INFO = 168, CHECK_EXC_MATCH = 169,
                     BEFORE_WITH = 170, RETURN_GENERATOR = 171, COPY = 172, SWAP = 173, SEND = 174,
                     MAKE_CELL = 175, COPY_FREE_VARS = 176, RESUME = 190, CALL = 192;

// Those that 3.14 alone lacks, and those that it alone has.
inline constexpr int BINARY_SUBSCR = 150, BEFORE_ASYNC_WITH = 151, BUILD_CONST_KEY_MAP = 152,
                     LOAD_ASSERTION_ERROR = 153;
inline constexpr int LOAD_FAST_BORROW = 193, LOAD_FAST_BORROW_LOAD_FAST_BORROW = 194,
                     NOT_TAKEN = 195, POP_ITER = 196, LOAD_COMMON_CONSTANT = 197;

}  // namespace oxy::python

#include <opcode.h>

// Numbers above 255 are of CPython's own compiler.
#if OXY_BYTECODE_HEX >= 0x030C0000
#undef LOAD_METHOD
#undef POP_BLOCK
#undef SETUP_FINALLY
#undef SETUP_WITH
#endif
#if OXY_BYTECODE_HEX >= 0x030D0000
#undef LOAD_CLOSURE
#endif

namespace oxy::python {

enum class Argument : uint8_t {
  none,  // or a number
  constant,
  name,
  global_name,  // a name in the bits above the lowest, which says whether a NULL is pushed first
  attribute,    // a name in the bits above the lowest, which says whether a method is loaded for a
                // call
  super_attribute,  // the same above two bits; the second says that super() has its arguments
                    // written out
  local,            // an index into localsplus; in 3.14 also LOAD_DEREF's
  two_locals,       // two of them below 16, the first in the higher bits
  cell,             // the same, of a cell or free variable; slot_of() gives the index
  compare,
  binary,
  jump,
};

enum class Jump : uint8_t { none, forward, backward, absolute };

struct Opcode {
  const char* name = "<unknown>";
  uint8_t caches = 0;  // code units behind the instruction
  Argument argument = Argument::none;
  Jump jump = Jump::none;
};

const Opcode& opcode_info(uint8_t op);

inline bool is_jump(uint8_t op) { return opcode_info(op).jump != Jump::none; }

// False where the next instruction never follows: returns, raises, unconditional jumps.
bool falls_through(uint8_t op);

// The loop's iterator is exhausted: FOR_ITER of 3.12 jumps to END_FOR, and skips it, that of 3.13
// also the POP_TOP that follows. Here its target is what lies behind.
inline constexpr int kForIterSkips = OXY_BYTECODE_HEX >= 0x030E0000   ? 1
                                     : OXY_BYTECODE_HEX >= 0x030D0000 ? 2
                                     : OXY_BYTECODE_HEX >= 0x030C0000 ? 1
                                                                      : 0;

// It leaves the iterator on the stack: POP_ITER, where it goes on, takes that away.
inline constexpr bool kForIterKeepsIterator = OXY_BYTECODE_HEX >= 0x030E0000;

// What a handler finds on the stack above the values that are kept: the exception; before 3.11 the
// exception that was being handled and the new one, with three values each.
inline constexpr int kRaisedValues = OXY_BYTECODE_HEX >= 0x030B0000 ? 1 : 6;

// The line table has one entry for neighbours at the same place. CPython 3.11 writes one an
// instruction.
inline constexpr bool kMergesLocations =
    OXY_BYTECODE_HEX >= 0x030C0000 || OXY_BYTECODE_HEX < 0x030B0000;

// What SEND leaves below the result when the inner iterator has returned: END_SEND takes it away.
inline constexpr bool kSendKeepsIterator = OXY_BYTECODE_HEX >= 0x030C0000;

// A generator's code begins with the value on the stack that it is sent, where no instruction
// pushes that.
inline constexpr bool kEntersWithSent = OXY_BYTECODE_HEX < 0x030D0000;

// The evaluator makes a frame's cells and copies its free variables, and no instructions do so.
inline constexpr bool kCellsMadeAtEntry = OXY_BYTECODE_HEX < 0x030B0000;

// A call of a function takes a NULL below it, or self above.
inline constexpr bool kCallsTakeNull = OXY_BYTECODE_HEX >= 0x030B0000;

// Code begins with RESUME, that of a generator with RETURN_GENERATOR; in 3.10 with GEN_START.
inline constexpr bool kHasResume = OXY_BYTECODE_HEX >= 0x030B0000;

// MATCH_KEYS and MATCH_CLASS say above the values whether it matched; with none of them MATCH_CLASS
// leaves the subject.
inline constexpr bool kMatchesPushBool = OXY_BYTECODE_HEX < 0x030B0000;

// A call is announced by an instruction of its own.
inline constexpr bool kHasPrecall = OXY_BYTECODE_HEX >= 0x030B0000 && OXY_BYTECODE_HEX < 0x030C0000;

// What is called lies below the NULL or self that is pushed for it, not above.
inline constexpr bool kNullFollows = OXY_BYTECODE_HEX >= 0x030D0000;

// CALL_FUNCTION_EX takes a dict of keywords in any case, or a NULL for none.
inline constexpr bool kKeywordsOrNull = OXY_BYTECODE_HEX >= 0x030E0000;

// Jumps and `not` take bools; TO_BOOL makes them.
inline constexpr bool kConditionsAreBools = OXY_BYTECODE_HEX >= 0x030D0000;
inline bool takes_bool(uint8_t op) {
  return kConditionsAreBools &&
         (op == POP_JUMP_IF_TRUE || op == POP_JUMP_IF_FALSE || op == UNARY_NOT);
}

// The handler of what a called frame raises is that of the code unit in front of the call.
inline constexpr bool kRaisesInFront = OXY_BYTECODE_HEX >= 0x030D0000;

// The lowest bit of the arguments of LOAD_GLOBAL and LOAD_ATTR says whether a call follows.
inline constexpr bool kGlobalsPushNull = OXY_BYTECODE_HEX >= 0x030B0000;
inline constexpr bool kAttributesCall = OXY_BYTECODE_HEX >= 0x030C0000;

// The index of the name that an instruction's argument holds.
inline uint32_t name_index(uint8_t op, uint32_t arg) {
  switch (opcode_info(op).argument) {
    case Argument::global_name:
    case Argument::attribute:
      return arg >> 1;
    case Argument::super_attribute:
      return arg >> 2;
    default:
      return arg;
  }
}

// An instruction whose argument says what it does, as the one of 3.11 that it stands for. A
// generator that lets a StopIteration out is found by whoever runs it, so turning that into an
// error is nothing to do.
inline uint8_t plain_opcode(uint8_t op, uint32_t arg) {
  constexpr uint32_t kStopIterationError = 3, kUnaryPositive = 5, kListToTuple = 6;
  constexpr uint32_t kPrepareReraiseStar = 1, kSubscript = 26, kAssertionError = 0;
  if (op == CALL_INTRINSIC_2 && arg == kPrepareReraiseStar) return PREP_RERAISE_STAR;
  if (op == BINARY_OP && arg == kSubscript) return BINARY_SUBSCR;
  if (op == LOAD_COMMON_CONSTANT && arg == kAssertionError) return LOAD_ASSERTION_ERROR;
  if (op != CALL_INTRINSIC_1) return op;
  return arg == kStopIterationError ? NOP
         : arg == kUnaryPositive    ? UNARY_POSITIVE
         : arg == kListToTuple      ? LIST_TO_TUPLE
                                    : op;
}

// The operator of an instruction as the argument of BINARY_OP tells it; -1 for one that has none.
int binary_operator_of(uint8_t op, uint32_t arg);

// How many values, the top one among them, an instruction moves round: the top one below the
// others. 0 for one that does something else.
constexpr uint32_t rotated_by(uint8_t op, uint32_t arg) {
  return op == ROT_TWO ? 2 : op == ROT_THREE ? 3 : op == ROT_FOUR ? 4 : op == ROT_N ? arg : 0;
}

// Opens a block: its target is the block's handler, and no jump goes there.
constexpr bool opens_block(uint8_t op) {
  return op == SETUP_FINALLY || op == SETUP_WITH || op == SETUP_ASYNC_WITH;
}

// The comparison (Py_LT ...) that a COMPARE_OP makes.
inline uint32_t compared_as(uint32_t arg) {
  return OXY_BYTECODE_HEX >= 0x030D0000   ? arg >> 5
         : OXY_BYTECODE_HEX >= 0x030C0000 ? arg >> 4
                                          : arg;
}

// The comparison's result is turned into a bool.
inline bool compares_to_bool(uint32_t arg) { return OXY_BYTECODE_HEX >= 0x030D0000 && (arg & 16); }

// Pushes two values for a call: a NULL and the attribute, or a function and its self.
inline bool loads_method(uint8_t op, uint32_t arg) {
  const Argument kind = opcode_info(op).argument;
  return op == LOAD_METHOD ||
         ((kind == Argument::attribute || kind == Argument::super_attribute) && (arg & 1));
}

// The locals whose value from before an instruction it reads, and those that it writes (not:
// clears); -1 for none.
struct LocalUse {
  int read[2] = {-1, -1}, written[2] = {-1, -1};
};
LocalUse local_use(uint8_t op, uint32_t arg);

// The plain instructions that one of 3.13 or 3.14 stands for: itself, another, or two.
struct PlainSteps {
  uint8_t op[2];
  uint32_t arg[2];
  int count;
};
PlainSteps plain_steps(uint8_t op, uint32_t arg);

// The same jump in the given direction; fails where CPython has none.
uint8_t jump_towards(uint8_t op, bool backward);

// What the instruction adds to the stack, when it jumps and when it does not.
int stack_effect(uint8_t op, uint32_t arg, bool jumps);

}  // namespace oxy::python
