// Opcodes by name that our code mentions and some version of CPython lacks. Such a name has a number there that no code
// object contains, so that a switch may name them all.
#pragma once

#include <Python.h>
#include <opcode.h>

// Numbers above 255 are of CPython's own compiler.
#if defined(LOAD_METHOD) && LOAD_METHOD > 255
#undef LOAD_METHOD
#endif
#if defined(LOAD_CLOSURE) && LOAD_CLOSURE > 255
#undef LOAD_CLOSURE
#endif
#if defined(POP_BLOCK) && POP_BLOCK > 255
#undef POP_BLOCK
#endif
#if defined(SETUP_FINALLY) && SETUP_FINALLY > 255
#undef SETUP_FINALLY
#endif
#if defined(SETUP_WITH) && SETUP_WITH > 255
#undef SETUP_WITH
#endif

#ifndef LOAD_METHOD
#define LOAD_METHOD 200
#endif
#ifndef PRECALL
#define PRECALL 201
#endif
#ifndef UNARY_POSITIVE
#define UNARY_POSITIVE 202
#endif
#ifndef LIST_TO_TUPLE
#define LIST_TO_TUPLE 203
#endif
#ifndef LOAD_CLASSDEREF
#define LOAD_CLASSDEREF 204
#endif
#ifndef JUMP_IF_FALSE_OR_POP
#define JUMP_IF_FALSE_OR_POP 205
#endif
#ifndef JUMP_IF_TRUE_OR_POP
#define JUMP_IF_TRUE_OR_POP 206
#endif
#ifndef POP_JUMP_FORWARD_IF_FALSE
#define POP_JUMP_FORWARD_IF_FALSE 207
#endif
#ifndef POP_JUMP_FORWARD_IF_TRUE
#define POP_JUMP_FORWARD_IF_TRUE 208
#endif
#ifndef POP_JUMP_FORWARD_IF_NONE
#define POP_JUMP_FORWARD_IF_NONE 209
#endif
#ifndef POP_JUMP_FORWARD_IF_NOT_NONE
#define POP_JUMP_FORWARD_IF_NOT_NONE 210
#endif
#ifndef POP_JUMP_BACKWARD_IF_FALSE
#define POP_JUMP_BACKWARD_IF_FALSE 211
#endif
#ifndef POP_JUMP_BACKWARD_IF_TRUE
#define POP_JUMP_BACKWARD_IF_TRUE 212
#endif
#ifndef POP_JUMP_BACKWARD_IF_NONE
#define POP_JUMP_BACKWARD_IF_NONE 213
#endif
#ifndef POP_JUMP_BACKWARD_IF_NOT_NONE
#define POP_JUMP_BACKWARD_IF_NOT_NONE 214
#endif
#ifndef POP_JUMP_IF_FALSE
#define POP_JUMP_IF_FALSE 215
#endif
#ifndef POP_JUMP_IF_TRUE
#define POP_JUMP_IF_TRUE 216
#endif
#ifndef POP_JUMP_IF_NONE
#define POP_JUMP_IF_NONE 217
#endif
#ifndef POP_JUMP_IF_NOT_NONE
#define POP_JUMP_IF_NOT_NONE 218
#endif
#ifndef RETURN_CONST
#define RETURN_CONST 219
#endif
#ifndef LOAD_FAST_CHECK
#define LOAD_FAST_CHECK 220
#endif
#ifndef LOAD_FAST_AND_CLEAR
#define LOAD_FAST_AND_CLEAR 221
#endif
#ifndef LOAD_SUPER_ATTR
#define LOAD_SUPER_ATTR 222
#endif
#ifndef BINARY_SLICE
#define BINARY_SLICE 223
#endif
#ifndef STORE_SLICE
#define STORE_SLICE 224
#endif
#ifndef END_FOR
#define END_FOR 225
#endif
#ifndef END_SEND
#define END_SEND 226
#endif
#ifndef CLEANUP_THROW
#define CLEANUP_THROW 227
#endif
#ifndef CALL_INTRINSIC_1
#define CALL_INTRINSIC_1 228
#endif
#ifndef JUMP_ABSOLUTE
#define JUMP_ABSOLUTE 229
#endif
#ifndef POP_BLOCK
#define POP_BLOCK 230
#endif
#ifndef SETUP_FINALLY
#define SETUP_FINALLY 231
#endif
#ifndef SETUP_WITH
#define SETUP_WITH 232
#endif
#ifndef SETUP_ASYNC_WITH
#define SETUP_ASYNC_WITH 233
#endif
#ifndef JUMP_BACKWARD
#define JUMP_BACKWARD 234
#endif
#ifndef JUMP_BACKWARD_NO_INTERRUPT
#define JUMP_BACKWARD_NO_INTERRUPT 235
#endif
#ifndef FORMAT_VALUE
#define FORMAT_VALUE 236
#endif
#ifndef CONVERT_VALUE
#define CONVERT_VALUE 237
#endif
#ifndef SET_FUNCTION_ATTRIBUTE
#define SET_FUNCTION_ATTRIBUTE 238
#endif
#ifndef LOAD_FAST_LOAD_FAST
#define LOAD_FAST_LOAD_FAST 239
#endif
#ifndef STORE_FAST_LOAD_FAST
#define STORE_FAST_LOAD_FAST 240
#endif
#ifndef STORE_FAST_STORE_FAST
#define STORE_FAST_STORE_FAST 241
#endif
#ifndef LOAD_CLOSURE
#define LOAD_CLOSURE 242
#endif
#ifndef LOAD_LOCALS
#define LOAD_LOCALS 243
#endif
#ifndef LOAD_FROM_DICT_OR_GLOBALS
#define LOAD_FROM_DICT_OR_GLOBALS 244
#endif
#ifndef LOAD_FROM_DICT_OR_DEREF
#define LOAD_FROM_DICT_OR_DEREF 245
#endif
#ifndef CALL_INTRINSIC_2
#define CALL_INTRINSIC_2 246
#endif
#ifndef PREP_RERAISE_STAR
#define PREP_RERAISE_STAR 247
#endif
#ifndef CHECK_EG_MATCH
#define CHECK_EG_MATCH 248
#endif
