// The same text as dis.dis, but without EXTENDED_ARG, which is no instruction here.
#include <algorithm>

#include "python/bytecode/assemble.h"
#include "python/cpython/locals.h"
#include "support/text.h"

namespace oxy::python {

namespace {

std::string padded_left(std::string text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string padded_right(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
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
  if (arg >= 2 * count) return "?";
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
  static const char* const parts[] = {"defaults", "kwdefaults", "annotations", "closure"};
  std::string text;
  for (int bit = 0; bit < 4; ++bit)
    if (arg >> bit & 1) cat_to(text, text.empty() ? "" : ", ", parts[bit]);
  return text;
}

class Printer {
 public:
  Printer(const Bytecode& bytecode, PyCodeObject* code)
      : bytecode_(bytecode), code_(code), layout_(lay_out(bytecode)) {
    size_t count = bytecode.instructions.size();
    is_target_.resize(count);
    for (const Instruction& in : bytecode.instructions) {
      if (in.target >= 0) is_target_[named_target(in)] = true;
      widest_line_ = std::max(widest_line_, cat(in.location.line).size());
    }
    for (const ExceptionRange& range : bytecode.ranges) is_target_[range.target] = true;
    if (count) widest_offset_ = std::max<size_t>(4, cat(layout_.offset(count - 1)).size());
  }

  std::string run() {
    for (size_t i = 0; i < bytecode_.instructions.size(); ++i) instruction(static_cast<int>(i));
    if (!bytecode_.ranges.empty()) text_ += "ExceptionTable:\n";
    for (const ExceptionRange& range : bytecode_.ranges)
      cat_to(text_, "  ", 2 * layout_.start[range.start], " to ", 2 * layout_.start[range.end] - 2,
             " -> ", 2 * layout_.start[range.target], " [", range.depth, "]",
             range.push_lasti ? " lasti" : "", "\n");
    return std::move(text_);
  }

 private:
  std::string name_text(const Instruction& in) const {
    return item_text(code_->co_names, name_index(in.op, in.arg), false);
  }

  std::string slot_text(uint32_t slot) const {
    if (slot >= static_cast<uint32_t>(slot_count(code_))) return "?";
    return PyUnicode_AsUTF8(slot_name(code_, static_cast<int>(slot)));
  }

  // In the order in which the two come onto the stack.
  std::string with_second(const Instruction& in, const char* second) const {
    if ((in.arg & 1) == 0) return name_text(in);
    return kNullFollows ? cat(name_text(in), " + ", second) : cat(second, " + ", name_text(in));
  }

  std::string argument_text(int at) const {
    const Instruction& in = bytecode_.instructions[at];
    switch (opcode_info(in.op).argument) {
      case Argument::constant:
        return item_text(code_->co_consts, in.arg, true);
      case Argument::name:
        return name_text(in);
      case Argument::global_name:
        return with_second(in, "NULL");
      case Argument::attribute:
      case Argument::super_attribute:
        return with_second(in, "NULL|self");
      case Argument::local:
      case Argument::cell:
        return slot_text(slot_of(code_, opcode_info(in.op).argument, in.arg));
      case Argument::two_locals:
        return cat(slot_text(in.arg >> 4), ", ", slot_text(in.arg & 15));
      case Argument::compare:
        return compare_text(in.arg);
      case Argument::binary:
        return binary_text(in.arg);
      case Argument::jump:
        return cat("to ", 2 * layout_.start[named_target(in)]);
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

  // The number of the line that starts here, else nothing.
  std::string line_text(int at) {
    int line = bytecode_.instructions[at].location.line;
    if (line < 0 || line == line_) return "";
    line_ = line;
    if (at > 0) text_ += "\n";
    return cat(line);
  }

  void instruction(int at) {
    const Instruction& in = bytecode_.instructions[at];
    std::string line = padded_left(line_text(at), std::max<size_t>(3, widest_line_));
    cat_to(line, "     ", is_target_[at] ? ">> " : "   ");
    cat_to(line, padded_left(cat(layout_.offset(at)), widest_offset_), " ");
    line += padded_right(opcode_info(layout_.ops[at]).name, 20);
    if (in.op >= HAVE_ARGUMENT) cat_to(line, " ", padded_left(cat(layout_.args[at]), 5));
    if (std::string argument = argument_text(at); !argument.empty())
      cat_to(line, " (", argument, ")");
    line.resize(line.find_last_not_of(' ') + 1);
    cat_to(text_, line, "\n");
  }

  const Bytecode& bytecode_;
  PyCodeObject* code_;
  Layout layout_;
  std::vector<bool> is_target_;
  size_t widest_line_ = 3, widest_offset_ = 4;
  int line_ = -1;
  std::string text_;
};

}  // namespace

std::string to_text(const Bytecode& bytecode, PyCodeObject* code) {
  return Printer(bytecode, code).run();
}

}  // namespace oxy::python
