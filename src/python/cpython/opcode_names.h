// The names of all opcodes that the versions of CPython have between them. A name that this version lacks has a number
// that no code object contains, so that a switch may name them all.
#pragma once

#include <Python.h>
#include <opcode.h>

#if PY_VERSION_HEX >= 0x030C0000
// Some of these are numbers above 255 for CPython's own compiler.
#undef LOAD_METHOD
#define LOAD_METHOD 200
#define PRECALL 201
#define UNARY_POSITIVE 202
#define LIST_TO_TUPLE 203
#define LOAD_CLASSDEREF 204
#define JUMP_IF_FALSE_OR_POP 205
#define JUMP_IF_TRUE_OR_POP 206
#define POP_JUMP_FORWARD_IF_FALSE 207
#define POP_JUMP_FORWARD_IF_TRUE 208
#define POP_JUMP_FORWARD_IF_NONE 209
#define POP_JUMP_FORWARD_IF_NOT_NONE 210
#define POP_JUMP_BACKWARD_IF_FALSE 211
#define POP_JUMP_BACKWARD_IF_TRUE 212
#define POP_JUMP_BACKWARD_IF_NONE 213
#define POP_JUMP_BACKWARD_IF_NOT_NONE 214
#else
#define POP_JUMP_IF_FALSE 200
#define POP_JUMP_IF_TRUE 201
#define POP_JUMP_IF_NONE 202
#define POP_JUMP_IF_NOT_NONE 203
#define RETURN_CONST 204
#define LOAD_FAST_CHECK 205
#define LOAD_FAST_AND_CLEAR 206
#define LOAD_SUPER_ATTR 207
#define BINARY_SLICE 208
#define STORE_SLICE 209
#define END_FOR 210
#define END_SEND 211
#define CLEANUP_THROW 212
#define CALL_INTRINSIC_1 213
#endif
