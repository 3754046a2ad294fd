// One description of each struct (`fields`) serves writing and reading. Integers are written seven
// bits a byte, the lowest first, with the sign in the lowest bit of all.
#include "runtime/plan_file.h"

#include <cstring>
#include <set>
#include <tuple>
#include <utility>

namespace oxy::runtime {
namespace {

constexpr std::string_view kMagic = "OXYPLAN\n";
constexpr uint32_t kVersion = 9;

[[noreturn]] void refuse(const char* what) { throw UserError(cat("not a saved plan: ", what)); }

struct Header {
  uint32_t version = kVersion;
  size_t bytes = 0;
  ContentHash hash;
};

// What each struct consists of, in the order of the file.
auto fields(ContentHash& h) {
  auto& [high, low] = h;
  return std::tie(reinterpret_cast<int64_t&>(high), reinterpret_cast<int64_t&>(low));
}
auto fields(std::complex<double>& c) {
  auto& parts = reinterpret_cast<double(&)[2]>(c);
  return std::tie(parts[0], parts[1]);
}
template <class Tag>
auto fields(Id<Tag>& id) {
  return std::tie(id.index);
}
auto fields(Device& d) { return std::tie(d.kind, d.index); }
auto fields(Layout& l) { return std::tie(l.value); }
auto fields(MemoryFormat& m) { return std::tie(m.value); }
auto fields(SizeInstruction& i) { return std::tie(i.op, i.a, i.b); }
auto fields(TensorSlots& t) { return std::tie(t.dtype, t.device, t.sizes, t.strides, t.offset); }
auto fields(PlanBuffer& b) {
  return std::tie(b.kind, b.meta, b.source, b.arena_offset, b.bytes, b.name);
}
auto fields(PlanKernel& k) {
  return std::tie(k.name, k.code, k.range, k.grain, k.scratch_bytes, k.moved_bytes, k.parameters);
}
auto fields(LaunchStep& s) { return std::tie(s.kernel, s.buffers); }
auto fields(GemmStep& s) { return std::tie(s.gemm, s.epilogue); }
auto fields(BufferArg& b) { return std::tie(b.buffer); }
auto fields(PlanArg& x) { return std::tie(x.v); }
auto fields(ExternStep& s) {
  return std::tie(s.op, s.args, s.returns, s.outputs, s.random, s.origin);
}
auto fields(RegionStep& s) { return std::tie(s.kind, s.plans, s.operands, s.results, s.numbers); }
auto fields(FreeStep& s) { return std::tie(s.buffer); }
auto fields(PlanCheck& c) { return std::tie(c.holds, c.what); }
auto fields(SizeStep& s) { return std::tie(s.reads, s.checks); }
auto fields(PlanOutput& o) {
  return std::tie(o.kind, o.buffer, o.index, o.meta, o.number, o.conj, o.neg, o.piece, o.detached,
                  o.itself, o.unseen, o.no_grad, o.derived, o.alias);
}
auto fields(PlanMutation& m) {
  return std::tie(m.input, m.buffer, m.in_place, m.layout, m.same_data, m.unseen);
}
auto fields(PlanPacking& k) {
  return std::tie(k.from, k.to, k.batch, k.k, k.n, k.batch_stride, k.k_stride, k.n_stride, k.offset,
                  k.width);
}
auto fields(Plan& p) {
  return std::tie(p.sizes.instructions, p.inputs, p.buffers, p.kernels, p.regions, p.steps,
                  p.outputs, p.mutations, p.frozen, p.packings, p.arena_bytes);
}
auto fields(PlanFile& f) { return std::tie(f.machine, f.plan, f.texts); }
auto fields(Header& h) { return std::tie(h.version, h.bytes, h.hash); }

template <class T>
concept Number = std::is_integral_v<T> && !std::same_as<T, bool>;

class Writer {
 public:
  template <class... T>
  void operator()(T&... items) {
    (item(items), ...);
  }
  std::string take() { return std::move(out_); }

 private:
  template <Number T>
  void item(T n) {
    const auto wide = static_cast<int64_t>(n);  // NOLINT(bugprone-signed-char-misuse): a number
    auto bits = (static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63);
    for (; bits >= 0x80; bits >>= 7) out_.push_back(static_cast<char>(bits | 0x80));
    out_.push_back(static_cast<char>(bits));
  }
  void item(bool b) { out_.push_back(b ? 1 : 0); }
  void item(double d) { out_.append(reinterpret_cast<const char*>(&d), sizeof d); }
  void item(std::string& s) {
    item(s.size());
    out_.append(s);
  }
  template <class T>
    requires std::is_enum_v<T>
  void item(T e) {
    out_.push_back(static_cast<char>(e));
  }
  template <class T>
  void item(std::vector<T>& list) {
    item(list.size());
    for (T& x : list) item(x);
  }
  template <class T>
  void item(std::optional<T>& o) {
    item(o.has_value());
    if (o) item(*o);
  }
  template <class... T>
  void item(std::variant<T...>& v) {
    item(v.index());
    std::visit([this](auto& x) { this->item(x); }, v);
  }
  void item(std::monostate) {}
  template <class T>
    requires std::is_class_v<T>
  void item(T& t) {
    std::apply(*this, fields(t));
  }

  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <class... T>
  void operator()(T&... items) {
    (item(items), ...);
  }
  std::string_view rest() const { return in_; }

 private:
  unsigned char byte() {
    if (in_.empty()) refuse("it ends too early");
    const char c = in_.front();
    in_.remove_prefix(1);
    return static_cast<unsigned char>(c);
  }
  template <Number T>
  void item(T& n) {
    uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
      const uint64_t part = byte();
      if (shift > 63 || (shift == 63 && part > 1)) refuse("a number of more than 64 bits");
      bits |= (part & 0x7f) << shift;
      if (part < 0x80) break;
    }
    const auto wide = static_cast<int64_t>(bits >> 1) ^ -static_cast<int64_t>(bits & 1);
    if (!std::in_range<T>(wide)) refuse("a number out of range");
    n = static_cast<T>(wide);
  }
  void item(bool& b) {
    const unsigned char c = byte();
    if (c > 1) refuse("a truth value that is none");
    b = c != 0;
  }
  void item(double& d) {
    if (in_.size() < sizeof d) refuse("it ends too early");
    std::memcpy(&d, in_.data(), sizeof d);
    in_.remove_prefix(sizeof d);
  }
  void item(std::string& s) {
    const size_t n = length();
    s = in_.substr(0, n);
    in_.remove_prefix(n);
  }
  template <class T>
    requires std::is_enum_v<T>
  void item(T& e) {
    e = static_cast<T>(byte());
  }
  template <class T>
  void item(std::vector<T>& list) {
    const size_t n = length();
    for (size_t i = 0; i < n; i++) item(list.emplace_back());
  }
  // Nothing in a list takes no byte.
  size_t length() {
    size_t n = 0;
    item(n);
    if (n > in_.size()) refuse("a list that is longer than the file");
    return n;
  }
  template <class T>
  void item(std::optional<T>& o) {
    bool has = false;
    item(has);
    if (has) item(o.emplace());
  }
  template <class... T>
  void item(std::variant<T...>& v) {
    size_t index = 0;
    item(index);
    if (index >= sizeof...(T)) refuse("an unknown kind of item");
    const Level level(*this);
    [&]<size_t... I>(std::index_sequence<I...>) {
      (void)((I == index && (item(v.template emplace<I>()), true)) || ...);
    }(std::index_sequence_for<T...>());
  }
  void item(std::monostate&) {}
  template <class T>
    requires std::is_class_v<T>
  void item(T& t) {
    const Level level(*this);
    std::apply(*this, fields(t));
  }

  // What nests without end would end the stack.
  struct Level {
    explicit Level(Reader& r) : depth(r.depth_) {
      if (++depth > 4 * kMaxPlanDepth) refuse("it is nested too deeply");
    }
    ~Level() { --depth; }
    int& depth;
  };

  std::string_view in_;
  int depth_ = 0;
};

void collect(const Plan& p, const CodeTable& code, std::set<ContentHash>& seen,
             std::vector<std::string>& texts) {
  for (const PlanKernel& k : p.kernels) {
    if (!seen.insert(k.code).second) continue;
    const CodeTable::Entry* entry = code.find(k.code);
    OXY_CHECK(entry && entry->text, "no text for ", k.name);
    texts.push_back(*entry->text);
  }
  for (const Plan& r : p.regions) collect(r, code, seen, texts);
}

void require_texts(const Plan& p, const std::set<ContentHash>& texts) {
  for (const PlanKernel& k : p.kernels)
    if (!texts.contains(k.code)) refuse("a kernel's text is missing");
  for (const Plan& r : p.regions) require_texts(r, texts);
}

}  // namespace

std::string save_body(const Plan& plan, const CodeTable& code, std::string machine) {
  PlanFile file{std::move(machine), plan, {}};
  std::set<ContentHash> seen;
  collect(plan, code, seen, file.texts);
  Writer body;
  body(file);
  return body.take();
}

std::string save(const Plan& plan, const CodeTable& code, std::string machine) {
  const std::string body = save_body(plan, code, std::move(machine));
  Header header{kVersion, body.size(), content_hash(body)};
  Writer head;
  head(header);
  return cat(kMagic, head.take(), body);
}

PlanFile load_body(std::string_view bytes) {
  PlanFile file;
  Reader body(bytes);
  body(file);
  if (!body.rest().empty()) refuse("something stands behind it");
  verify(file.plan);
  std::set<ContentHash> hashes;
  for (const std::string& t : file.texts) hashes.insert(content_hash(t));
  require_texts(file.plan, hashes);
  return file;
}

PlanFile load(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) refuse("it begins in another way");
  bytes.remove_prefix(kMagic.size());
  Header header;
  Reader head(bytes);
  head(header);
  if (header.version != kVersion) refuse("another version has written it");
  if (header.bytes != head.rest().size()) refuse("it has another length");
  if (content_hash(head.rest()) != header.hash) refuse("it has been changed");
  return load_body(head.rest());
}

}  // namespace oxy::runtime
