// Instructions to bytes and tables, and the code object around them.
#include "python/bytecode/assemble.h"

#include <cstdlib>

#include "python/bytecode/flow.h"
#include "support/check.h"

namespace oxy::python {

namespace {

std::string bytes_of(const Layout& layout) {
  std::string bytes;
  auto unit = [&](int op, uint32_t arg) {
    bytes.push_back(static_cast<char>(op));
    bytes.push_back(static_cast<char>(arg & 255));
  };
  for (size_t i = 0; i < layout.ops.size(); ++i) {
    for (int left = layout.prefixes[i]; left > 0; --left)
      unit(EXTENDED_ARG, layout.args[i] >> 8 * left);
    unit(layout.ops[i], layout.args[i]);
    bytes.append(2 * opcode_info(layout.ops[i]).caches, '\0');
  }
  return bytes;
}

std::string locations_of(const Bytecode& bytecode, const Layout& layout, int first_line) {
  Locations entries;
  for (size_t i = 0; i < bytecode.instructions.size(); ++i) {
    const Location& location = bytecode.instructions[i].location;
    const int units = layout.start[i + 1] - layout.start[i];
    if (kMergesLocations && !entries.empty() && entries.back().first == location)
      entries.back().second += units;
    else
      entries.emplace_back(location, units);
  }
  return write_locations(entries, first_line);
}

std::string ranges_of(const Bytecode& bytecode, const Layout& layout) {
  std::vector<ExceptionRange> ranges = bytecode.ranges;
  for (ExceptionRange& range : ranges) {
    range.start = layout.start[range.start];
    range.end = layout.start[range.end];
    range.target = layout.start[range.target];
  }
  return write_ranges(ranges);
}

Reference to_python(const std::string& bytes) {
  return Reference(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
}

}  // namespace

// A distance decides how many EXTENDED_ARGs its jump needs, and these move what lies between. So
// sizes start small and only grow until nothing changes.
Layout lay_out(const Bytecode& bytecode) {
  const std::vector<Instruction>& code = bytecode.instructions;
  const int count = static_cast<int>(code.size());
  Layout out{std::vector<int>(count + 1), std::vector<int>(count), {}, {}};
  for (int i = 0; i < count; ++i) {
    const Instruction& in = code[i];
    const bool jump = is_jump(in.op);
    OXY_CHECK(!jump || (in.target >= 0 && in.target < count), "a jump to ", in.target);
    OXY_CHECK(!jump || named_target(in) == in.target || code[named_target(in)].op == END_FOR,
              "the end of a loop");
    out.ops.push_back(jump ? jump_towards(in.op, in.target <= i) : in.op);
    const bool cell = opcode_info(in.op).argument == Argument::cell;
    out.args.push_back(jump ? 0 : in.arg - (cell ? bytecode.first_cell : 0));
  }
  auto behind = [&](int at) {
    return out.start[at] + out.prefixes[at] + 1 + opcode_info(out.ops[at]).caches;
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (int i = 0; i < count; ++i) out.start[i + 1] = behind(i);
    for (int i = 0; i < count; ++i) {
      uint32_t& arg = out.args[i];
      if (const Jump jump = opcode_info(out.ops[i]).jump; jump != Jump::none) {
        const int target = out.start[named_target(code[i])];
        arg = jump == Jump::absolute ? target : std::abs(target - behind(i));
      }
      const int needed = (arg > 0xff) + (arg > 0xffff) + (arg > 0xffffff);
      grown |= needed > out.prefixes[i];
      out.prefixes[i] = std::max(out.prefixes[i], needed);
    }
  }
  return out;
}

PyCodeObject* make_code(const Bytecode& bytecode, CodeParts parts, PyCodeObject* like) {
  Layout layout = lay_out(bytecode);
  Reference bytes = to_python(bytes_of(layout));
  Reference locations = to_python(locations_of(bytecode, layout, like->co_firstlineno));
  Reference ranges = to_python(ranges_of(bytecode, layout));
  if (!bytes || !locations || !ranges) return nullptr;
  parts.stack_size = stack_depths(bytecode, parts.flags).most;
  parts.first_line = like->co_firstlineno;
  parts.file_name = like->co_filename;
  parts.bytes = bytes.get();
  parts.locations = locations.get();
  parts.ranges = ranges.get();
  return new_code(parts);
}

PyCodeObject* assemble(const Bytecode& bytecode, PyCodeObject* like) {
  Reference variables = variable_names(like), cells = cell_names(like), frees = free_names(like);
  if (!variables || !cells || !frees) return nullptr;
  CodeParts shape = parts_like(like, cells.get(), frees.get());
  shape.arguments = like->co_argcount;
  shape.positional_only = like->co_posonlyargcount;
  shape.keyword_only = like->co_kwonlyargcount;
  shape.constants = like->co_consts;
  shape.variables = variables.get();
  return make_code(bytecode, shape, like);
}

}  // namespace oxy::python
