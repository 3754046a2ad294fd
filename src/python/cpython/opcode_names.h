// Opcodes by name that our code mentions and some version of CPython lacks. Such a name has a
// number there that no code object contains, so that a switch may name them all. Where a version
// has the opcode, its macro hides ours.
#pragma once

#include <Python.h>

#include <cstdint>

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
                     CHECK_EG_MATCH = 248, BINARY_OP = 249;

}  // namespace oxy::python

#include <opcode.h>

// Numbers above 255 are of CPython's own compiler.
#if PY_VERSION_HEX >= 0x030C0000
#undef LOAD_METHOD
#undef POP_BLOCK
#undef SETUP_FINALLY
#undef SETUP_WITH
#endif
#if PY_VERSION_HEX >= 0x030D0000
#undef LOAD_CLOSURE
#endif
