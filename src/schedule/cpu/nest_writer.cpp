// Writes the statements of one nest, each value once.
#include "schedule/cpu/nest_writer.h"

#include "schedule/cost.h"
#include "schedule/kernel_access.h"

namespace oxy::schedule {

NestWriter::NestWriter(const loops::Program& p, const Nest& n, std::string name)
    : program_(p), nest_(n), scope_(*p.variables) {
  kernel_.name = std::move(name);
  kernel_.origins = n.origins;
  for (const Axis& a : n.axes) scope_.take(a.var);
}

Block wrap(ForKind kind, const std::vector<Axis>& axes, Block body) {
  for (const Axis& a : axes | std::views::reverse) {
    Block outer;
    outer.push_back(Stmt{For{kind, a.var, a.size, {}, std::move(body)}});
    body = std::move(outer);
  }
  return body;
}

Kernel NestWriter::finish(const std::vector<Axis>& parallel, Block body) {
  kernel_.body = wrap(ForKind::Parallel, parallel, std::move(body));
  kernel_.cost = iteration_cost(kernel_);
  return std::move(kernel_);
}

uint32_t NestWriter::entry(BufferId b, KernelBuffer::Kind kind) {
  auto [it, fresh] = entries_.try_emplace(b, static_cast<uint32_t>(kernel_.buffers.size()));
  if (fresh) kernel_.buffers.push_back(make_entry(program_, b, kind));
  return it->second;
}

uint32_t NestWriter::add(Block& out, Compute c) {
  c.value = kernel_.value_count++;
  out.push_back(Stmt{std::move(c)});
  return kernel_.value_count - 1;
}

Compute NestWriter::compute_of(const Inst& i, const std::vector<uint32_t>& value,
                               const Substitution& subst) {
  Compute c{.op = i.op, .dtype = i.dtype, .number = i.number, .integer = i.integer};
  for (uint32_t a : i.args) c.args.push_back(value[a]);
  if (!i.index.empty()) c.index = replace(i.index[0], subst);
  if (i.op == LoopOp::Load) c.buffer = entry(i.buffer, KernelBuffer::Kind::Read);
  return c;
}

}  // namespace oxy::schedule
