#include "schedule/index_copy.h"

#include "ops/promote.h"
#include "schedule/emit_kernel.h"

namespace oxy::schedule {

using loops::Buffer;
using loops::BufferId;

namespace {

class IndexCopyKernels {
 public:
  IndexCopyKernels(const loops::Program& p, const loops::ExternStep& e, size_t dim)
      : program_(p), step_(e), dim_(dim), scope_(*p.variables) {
    const auto& sizes = buffer(e.reads[0]).type.sizes;
    row_ = scope_.get('r', buffer(e.reads[1]).type.sizes[0]);
    place_ = scope_.get('i', sizes[dim]);
    for (size_t d = 0; d < sizes.size(); ++d)
      at_.push_back(d == dim ? row_ : sizes[d].is_const(1) ? Expr(0) : scope_.get('p', sizes[d]));
  }

  Kernel check() {
    Kernel k;
    k.name = cat("index_copy_check_", step_.node.index);
    k.buffers = {memory(step_.reads[1], KernelBuffer::Kind::Read)};
    k.value_count = 1;
    Compute check{.op = LoopOp::Check, .dtype = DType::I64, .args = {0}};
    check.index = buffer(step_.reads[0]).type.sizes[dim_];
    For rows{ForKind::Serial, row_, row_count(), false, {}};
    rows.body.push_back(Stmt{load_position(0)});
    rows.body.push_back(Stmt{std::move(check)});
    k.body.push_back(Stmt{std::move(rows)});
    return finish(std::move(k));
  }

  // Rows in order: of equal positions the last one stays, as in ATen.
  Kernel write() {
    Kernel k;
    k.name = cat("index_copy_", step_.node.index);
    k.buffers = {memory(step_.reads[1], KernelBuffer::Kind::Read),
                 memory(step_.reads[2], KernelBuffer::Kind::Read),
                 memory(step_.writes[0], KernelBuffer::Kind::Write)};
    // Positions and rows may come from one buffer.
    uint32_t source = 1;
    if (k.buffers[0].buffer == k.buffers[1].buffer) {
      k.buffers.erase(k.buffers.begin());
      source = 0;
    }
    k.value_count = 3;
    Block body = row_body(source, source + 1);
    wrap(body, dim_ + 1, at_.size(), ForKind::Serial, ForKind::Vector);
    body.insert(
        body.begin(),
        Stmt{Compute{
            .value = 1, .op = LoopOp::Symbol, .dtype = DType::I64, .args = {0}, .index = place_}});
    body.insert(body.begin(), Stmt{load_position(0)});
    For rows{ForKind::Serial, row_, row_count(), false, std::move(body)};
    Block all;
    all.push_back(Stmt{std::move(rows)});
    wrap(all, 0, dim_, ForKind::Parallel, ForKind::Parallel);
    k.body = std::move(all);
    return finish(std::move(k));
  }

 private:
  const Buffer& buffer(BufferId b) const { return program_.buffers[b]; }
  Expr row_count() const { return buffer(step_.reads[1]).type.sizes[0]; }

  KernelBuffer memory(BufferId b, KernelBuffer::Kind kind) const {
    const BufferId m = memory_of(program_, b);
    const ir::TensorType& type = buffer(m).type;
    Expr elements = sym::floordiv(loops::byte_extent(type), ir::byte_size(type.dtype));
    return {buffer(m).name, kind, type.dtype, elements, m};
  }

  Compute load_position(uint32_t entry) const {
    Compute c;
    c.op = LoopOp::Load;
    c.dtype = DType::I64;
    c.buffer = entry;
    c.index = loops::flat_offset(buffer(step_.reads[1]), {row_});
    return c;
  }

  Block row_body(uint32_t source, uint32_t target) const {
    const DType dtype = buffer(step_.writes[0]).type.dtype;
    ops::Index from(at_.begin(), at_.end()), to = from;
    to[dim_] = place_;
    Compute load;
    load.value = 2;
    load.op = LoopOp::Load;
    load.dtype = dtype;
    load.buffer = source;
    load.index = loops::flat_offset(buffer(step_.reads[2]), from);
    Compute store{.op = LoopOp::Store, .dtype = dtype, .args = {2}, .buffer = target};
    store.index = loops::flat_offset(buffer(step_.reads[0]), to);
    Block body;
    body.push_back(Stmt{std::move(load)});
    body.push_back(Stmt{std::move(store)});
    return body;
  }

  // Loops over the dimensions [from, to) around the block.
  void wrap(Block& block, size_t from, size_t to, ForKind kind, ForKind innermost) const {
    for (size_t d = to; d-- > from;) {
      if (at_[d].is_const()) continue;
      For loop{innermost, at_[d], buffer(step_.reads[0]).type.sizes[d], false, std::move(block)};
      block.clear();
      block.push_back(Stmt{std::move(loop)});
      innermost = kind;
    }
  }

  Kernel finish(Kernel k) const {
    k.origins = {step_.node};
    k.cost = point_cost(k);
    return k;
  }

  const loops::Program& program_;
  const loops::ExternStep& step_;
  size_t dim_;
  loops::VariableScope scope_;
  Expr row_, place_;  // of the source, of the target
  std::vector<Expr> at_;
};

}  // namespace

std::optional<IndexCopy> index_copy(const loops::Program& p, const loops::ExternStep& e) {
  if (!p.graph || !e.node.valid()) return std::nullopt;
  const ir::Node& n = p.graph->node(e.node);
  if (n.target != "aten.index_copy.default" || e.reads.size() != 3) return std::nullopt;
  const ir::TensorType &self = p.buffers[e.reads[0]].type, &index = p.buffers[e.reads[1]].type,
                       &source = p.buffers[e.reads[2]].type;
  const Expr* dim = n.arg(1).get_if<ir::Expr>();
  if (!dim || !dim->is_const() || self.sizes.empty() || self.sizes.size() != source.sizes.size())
    return std::nullopt;
  auto rank = static_cast<int64_t>(self.sizes.size());
  int64_t d = dim->value() < 0 ? dim->value() + rank : dim->value();
  if (d < 0 || d >= rank || index.sizes.size() != 1 || index.dtype != DType::I64)
    return std::nullopt;
  for (int64_t k = 0; k < rank; ++k) {
    const auto at = static_cast<size_t>(k);
    Expr wanted = k == d ? index.sizes[0] : self.sizes[at];
    if (!(source.sizes[at] == wanted) || wanted.is_const(0)) return std::nullopt;
  }
  if (self.dtype != source.dtype || !ops::is_computable(self.dtype)) return std::nullopt;
  IndexCopyKernels kernels(p, e, static_cast<size_t>(d));
  return IndexCopy{kernels.check(), kernels.write()};
}

}  // namespace oxy::schedule
