// The same text as dis.dis, but without EXTENDED_ARG, which is no instruction here.
#include "support/text.h"
#include "python/bytecode/assemble.h"
#include "python/bytecode/code.h"
#include "python/cpython/code_object.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/reference.h"

namespace oxy::python {

namespace {

std::string padded(std::string text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// Of something that a tuple of the code object holds; "?" where it has no text.
std::string item_text(PyObject* tuple, uint32_t index, bool repr) {
  if (index >= static_cast<size_t>(PyTuple_GET_SIZE(tuple))) return "?";
  PyObject* item = PyTuple_GET_ITEM(tuple, index);
  if (PyCFunction_Check(item)) return reinterpret_cast<PyCFunctionObject*>(item)->m_ml->ml_name;
  Reference text(repr ? PyObject_Repr(item) : PyObject_Str(item));
  const char* chars = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (chars) return chars;
  PyErr_Clear();
  return "?";
}

std::string binary_text(uint32_t arg) {
  static const char* const operators[] = {"+", "&",  "//", "<<", "@", "*", "%",
                                          "|", "**", ">>", "-",  "/", "^"};
  constexpr uint32_t count = std::size(operators);
  if (arg == 2 * count) return "[]";
  if (arg > 2 * count) return "?";
  return arg < count ? operators[arg] : cat(operators[arg - count], "=");
}

std::string compare_text(uint32_t arg) {
  static const char* const operators[] = {"<", "<=", "==", "!=", ">", ">="};
  const uint32_t index = compared_as(arg);
  if (index >= std::size(operators)) return "?";
  return compares_to_bool(arg) ? cat("bool(", operators[index], ")") : operators[index];
}

std::string format_text(uint32_t arg) {
  static const char* const conversions[] = {"", "str", "repr", "ascii"};
  std::string text = conversions[arg & 3];
  if (arg & 4) text += text.empty() ? "with format" : ", with format";
  return text;
}

std::string function_text(uint32_t arg) {
  static const char* const parts[] = {"defaults", "kwdefaults", "annotations", "closure",
                                      "annotate"};
  std::string text;
  for (size_t bit = 0; bit < std::size(parts); ++bit)
    if (arg >> bit & 1) cat_to(text, text.empty() ? "" : ", ", parts[bit]);
  return text;
}

std::string name_text(PyCodeObject* code, const Instruction& in) {
  return item_text(code->co_names, name_index(in.op, in.arg), false);
}

std::string slot_text(PyCodeObject* code, uint32_t slot) {
  if (slot >= static_cast<uint32_t>(slot_count(code))) return "?";
  return PyUnicode_AsUTF8(slot_name(code, static_cast<int>(slot)));
}

// In the order in which the two come onto the stack.
std::string with_second(PyCodeObject* code, const Instruction& in, const char* second) {
  const std::string name = name_text(code, in);
  if ((in.arg & 1) == 0) return name;
  return kNullFollows ? cat(name, " + ", second) : cat(second, " + ", name);
}

std::string argument_text(PyCodeObject* code, const Instruction& in, const Layout& layout) {
  switch (opcode_info(in.op).argument) {
    case Argument::constant:
      return item_text(code->co_consts, in.arg, true);
    case Argument::name:
      return name_text(code, in);
    case Argument::global_name:
      return with_second(code, in, "NULL");
    case Argument::attribute:
    case Argument::super_attribute:
      return with_second(code, in, "NULL|self");
    case Argument::local:
    case Argument::cell:
      return slot_text(code, in.arg);
    case Argument::two_locals:
      return cat(slot_text(code, in.arg >> 4), ", ", slot_text(code, in.arg & 15));
    case Argument::compare:
      return compare_text(in.arg);
    case Argument::binary:
      return binary_text(in.arg);
    case Argument::jump:
      return cat(in.op == END_ASYNC_FOR ? "from " : "to ", 2 * layout.start[named_target(in)]);
    default:
      break;
  }
  switch (in.op) {
    case FORMAT_VALUE:
      return format_text(in.arg);
    case CONVERT_VALUE:
      return format_text(in.arg & 3);
    case MAKE_FUNCTION:
    case SET_FUNCTION_ATTRIBUTE:
      return function_text(in.arg);
    default:
      return "";
  }
}

}  // namespace

std::string to_text(const Bytecode& bytecode, PyCodeObject* code) {
  const Layout layout = lay_out(bytecode);
  const int count = static_cast<int>(bytecode.instructions.size());
  std::vector<bool> is_target(count);
  size_t widest_line = 3, widest_offset = 4;
  for (const Instruction& in : bytecode.instructions) {
    if (in.target >= 0) is_target[named_target(in)] = true;
    widest_line = std::max(widest_line, cat(in.location.line).size());
  }
  for (const ExceptionRange& range : bytecode.ranges) is_target[range.target] = true;
  if (count > 0) widest_offset = std::max(widest_offset, cat(layout.offset(count - 1)).size());
  std::string text;
  int last_line = -1;
  for (int at = 0; at < count; ++at) {
    const Instruction& in = bytecode.instructions[at];
    const bool starts = in.location.line >= 0 && in.location.line != last_line;
    if (starts) last_line = in.location.line;
    if (starts && at > 0) text += "\n";
    std::string line = padded(starts ? cat(last_line) : "", widest_line);
    cat_to(line, "     ", is_target[at] ? ">> " : "   ");
    cat_to(line, padded(cat(layout.offset(at)), widest_offset), " ");
    const size_t name_end = line.size() + 20;
    line += opcode_info(layout.ops[at]).name;
    if (line.size() < name_end) line.resize(name_end, ' ');
    if (in.op >= HAVE_ARGUMENT) cat_to(line, " ", padded(cat(layout.args[at]), 5));
    if (std::string argument = argument_text(code, in, layout); !argument.empty())
      cat_to(line, " (", argument, ")");
    line.resize(line.find_last_not_of(' ') + 1);
    cat_to(text, line, "\n");
  }
  if (!bytecode.ranges.empty()) text += "ExceptionTable:\n";
  for (const ExceptionRange& range : bytecode.ranges)
    cat_to(text, "  ", 2 * layout.start[range.start], " to ", 2 * layout.start[range.end] - 2,
           " -> ", 2 * layout.start[range.target], " [", range.depth, "]",
           range.push_lasti ? " lasti" : "", "\n");
  return text;
}

}  // namespace oxy::python
