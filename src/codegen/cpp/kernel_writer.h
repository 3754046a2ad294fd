// Writes one kernel: walks the tree of statements and prints each as C++ for the scope that it
// stands in.
//
// A scope is either scalar (one value a statement) or several lanes of one Vector or VectorReduce
// variable. In a vector scope a value that does not depend on that variable stays scalar
// ("uniform") and is computed before the loop where it can be. All vectors of a kernel have the
// same number of lanes, whatever their element. Split over files: kernel_writer.cpp (function,
// loops), memory_statements.cpp, table_gathers.cpp, selections.cpp, accumulators.cpp,
// transposed_tiles.cpp, row_lanes.cpp, interleaved_rows.cpp.
#pragma once

#include <functional>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "codegen/cpp/operator_text.h"
#include "schedule/cpu/annotations.h"

namespace oxy::codegen::cpp {

using ir::DType;
using ops::LoopOp;
using schedule::Accumulate;
using schedule::Block;
using schedule::Compute;
using schedule::For;
using schedule::ForKind;
using schedule::Hint;
using schedule::Init;
using schedule::is_streaming;
using schedule::is_tiled;
using schedule::kRowLanes;
using schedule::Result;
using schedule::Stmt;
using sym::Expr;

inline constexpr int kLine = 64;  // bytes of a cache line

// Calls `f` on each statement of a tree.
template <class F>
void walk(const Block& block, F&& f) {
  for (const Stmt& s : block) {
    f(s);
    if (const For* loop = std::get_if<For>(&s.v)) walk(loop->body, f);
  }
}

// The statements of one kind in a block, without those inside of its loops.
template <class T>
auto all(const Block& block) {
  return block | std::views::filter([](const Stmt& s) { return std::holds_alternative<T>(s.v); }) |
         std::views::transform([](const Stmt& s) -> const T& { return std::get<T>(s.v); });
}

struct Scope {
  int lanes = 1;
  Expr var = 0;            // the vector variable, where lanes > 1
  std::string first;       // its value in lane 0
  std::string active;      // a number: how many lanes are in use; empty: all
  std::string copy = "0";  // VectorReduce: which of the accumulator's copies

  bool vector() const { return lanes > 1; }
  std::string active_lanes() const { return active.empty() ? cat(lanes) : active; }
};

// Whether something that `varies` is divided by a number that is known at run time alone.
bool divides_by_size(Expr e, const std::function<bool(Expr)>& varies);

// How an index moves with the lanes.
struct Access {
  enum class Kind : uint8_t { Uniform, Contiguous, Strided, Gather };
  Kind kind = Kind::Uniform;
  std::string offset;  // Uniform, Contiguous, Strided: of lane 0. Gather: of lane `l`
  std::string stride;
};

// Gathers of rows at places that a table has: how near to each other these are is the same for all
// rows, so it is found out once, in front of them, and not at each gather.
//
// A table is an i32 Local buffer that one Vector loop fills; a gather's index is its entry of the
// lane and something that all lanes share. The loop of the gather runs over the whole table, so
// that a row's memory between the smallest and the largest place may be read.
struct TableGathers {
  struct Place {
    uint32_t entry = 0;  // the value loaded from the table
    Expr shared = 0;     // what comes to it
  };
  std::unordered_map<const Compute*, Place> places;          // by gather
  std::unordered_set<const Compute*> entries;                // the loads of the tables' values
  std::set<uint32_t> tables;                                 // their buffers
  std::unordered_map<const For*, std::set<uint32_t>> loops;  // by loop with such gathers
};

// Of tables that have at least two vectors of `lanes` entries.
TableGathers find_table_gathers(const schedule::Kernel& kernel, int lanes);

// Selections with operands that are long and that nothing else needs.
struct Selections {
  struct Operands {  // what is computed for one of them alone, in order; empty: nothing is
    std::vector<const Compute*> held;   // where the mask holds
    std::vector<const Compute*> other;  // where it does not
  };
  std::unordered_map<const Compute*, Operands> operands;  // by selection
  std::unordered_set<const Compute*> moved;               // written with their selection
};

Selections find_selections(const schedule::Kernel& kernel);

// Accesses of a Vector loop to neighbours, in order, that all step alike with the lanes: rows of
// as many elements, one a lane.
using Rows = std::vector<const Compute*>;
// Stores of whole rows, by the one that is written last; of the others, nothing.
std::unordered_map<const Compute*, Rows> find_stored_rows(const schedule::Kernel& kernel);

// A kernel that only moves elements of one or two bytes, with bytes for bools.
struct NarrowMoves {
  int bytes = 0;
  schedule::Kernel kernel;
};

std::optional<NarrowMoves> find_narrow_moves(const schedule::Kernel& kernel);
// Whether all values are bytes, of operations that are as good on many as on a few.
bool combines_bytes(const schedule::Kernel& kernel);

class KernelWriter {
 public:
  // `lane_bytes`: of a vector for each lane; 0: as its elements need.
  KernelWriter(const schedule::Kernel& kernel, const Machine& target, int lane_bytes = 0);
  std::string write();

 private:
  struct Value {
    std::string name;
    DType dtype = DType::F32;
    bool vector = false;
  };
  // How the partial results of an accumulator are kept.
  struct Accumulator {
    enum class Form : uint8_t { Scalar, Copies, PerLane };
    Form form = Form::Scalar;
    Init init;  // its dtype is the one it is kept in
    DType result = DType::F32;
    std::string name;
    int copies = 1;         // Copies: so many vectors
    bool in_order = false;  // ArgMax, ArgMin: positions grow from step to step
    DType at = DType::I64;  // ArgMax, ArgMin: of the positions
  };
  struct Span {
    std::string from, to;
  };
  // An index that differs by lane: C++ of the lanes' own parts, a vector, and of what they share.
  struct LaneOffsets {
    std::string own, shared;
  };
  // The lanes for which an operand of a selection is written; "": all.
  struct Taken {
    std::string mask;
    int lanes = 1;
  };
  // A tile of a buffer, transposed, on the stack.
  struct Tile {
    std::string name;
    std::string row, column;  // the tile's first iteration
  };

  // kernel_writer.cpp
  void write_signature_buffers();
  void write_quotients(Expr e);
  void write_parallel(const For& outer);
  void write_before(const For& outer, const std::vector<std::string>& inner);
  void write_block(const Block& block, const Scope& scope);
  void write_for(const For& loop, const Scope& scope);
  void write_tiled_rows(const For& loop);
  void write_plain_loop(const For& loop, const Scope& scope);
  void write_vector_loop(const For& loop, const std::string& from, const std::string& to);
  void write_vector_reduce(const For& loop);
  void write_vectors(const For& loop, const std::string& var, const std::string& to);
  void write_remainder(const For& loop, const std::string& var, const std::string& to);
  void write_some(const For& loop, const std::string& var, const std::string& name,
                  const std::string& count);
  bool streams(const Compute& c) const;
  bool is_unaligned(const Compute& store, const For& loop) const;
  const Compute* unaligned_stream(const For& loop) const;
  void keep_ragged_rows(const For& loop);
  bool streams_or_only_reads(const For& loop) const;
  bool is_bf16(const Compute& c) const;
  std::optional<uint32_t> widened_flag(const Compute& c) const;
  void write_head(const For& loop, const Compute& store, const std::string& var,
                  const std::string& to);
  void hoist_uniform(const For& loop);
  bool is_long_division(const Compute& c, const Scope& scope) const;
  void write_compute(const Compute& c, const Scope& scope);
  int lanes_of_kernel() const;
  void find_padded_locals();
  std::string new_loop_var();
  // Of a symbol, or a quotient that has been divided; empty for another quotient.
  std::string name_of(Expr part) const;
  std::string index(Expr e) const;

  // memory_statements.cpp
  Access access_of(Expr e, const Scope& scope) const;
  bool varies(Expr e, const Scope& scope) const;
  bool varies(const Compute& c, const Scope& scope) const;
  std::string lane_index(Expr e, const Scope& scope) const;
  void write_load(const Compute& c, const Scope& scope);
  void write_scalar_load(const Compute& c);
  void write_masked_load(const Compute& c, const Scope& scope);
  std::string vector_load(const Compute& c, const Access& a, const Scope& scope);
  std::string stored_value(const Compute& c, const Scope& scope);
  std::optional<std::string> lane_vector(Expr e, int bytes, const Scope& scope);
  std::optional<LaneOffsets> lane_offsets(Expr e, int bytes, const Scope& scope);
  std::string gathered(const Compute& c, const Scope& scope, const std::string& mask);
  bool has_gather(DType dtype, const Scope& scope) const;
  bool has_masked_load(DType dtype, const Scope& scope) const;
  std::string gather_text(DType dtype, const std::string& base, const std::string& at,
                          const std::string& mask, const Scope& scope);
  bool write_run(const Compute& c, const Scope& scope, const std::string& mask,
                 const std::string& other);
  void open_lanes(const Scope& scope, Expr at = 0);
  void write_gather(const Compute& c, const Access& a, const Scope& scope,
                    const std::string& initial, const std::string& condition);
  void write_store(const Compute& c, const Scope& scope);
  void write_store_add(const Compute& c, const Scope& scope);
  void write_check(const Compute& c, const Scope& scope);
  void write_hint(const Hint& h, const Scope& scope);
  void write_symbol(const Compute& c, const Scope& scope);
  void write_index(const Compute& c, const Scope& scope);
  std::vector<Operand> narrow_places(const Compute& c, const Scope& scope);

  // table_gathers.cpp
  bool is_same_everywhere(const Compute& c, Expr var,
                          const std::unordered_set<uint32_t>& known) const;
  bool fills_tables(const For& loop, std::unordered_set<uint32_t> known) const;
  void hoist_tables(const Block& iteration);
  void write_tables(const For& fill);
  void write_distances(const Compute& c, const Value& entries, const Scope& scope);
  std::string table_gathered(const Compute& c, const Scope& scope);

  // selections.cpp
  bool selects_by_lane(const Compute& c, const Scope& scope) const;
  void write_selection(const Compute& c, const Selections::Operands& operands, const Scope& scope);

  // accumulators.cpp
  void write_init(const Init& init, const Block& block, const Scope& scope);
  void write_accumulate(const Accumulate& a, const Scope& scope);
  void write_result(const Result& r, const Scope& scope);
  void write_fold(const Accumulator& acc, const std::string& target, const std::string& target_at,
                  const std::string& value, const std::string& at, int lanes, bool later);
  std::string wide_positions(const Accumulator& acc);
  std::vector<uint32_t> long_sums(const For& loop, int64_t steps) const;
  int64_t chain_of(const Block& body) const;
  int64_t chain_of(const For& loop) const;
  int block_of_sums(const std::vector<uint32_t>& sums) const;
  void open_totals(const std::vector<uint32_t>& sums);
  void add_to_totals(const std::vector<uint32_t>& sums);
  void close_totals(const std::vector<uint32_t>& sums);
  int lanes_of(const Accumulator& acc) const;
  std::string identity(const Init& init, int lanes);
  std::string folded(const Init& init, const std::string& vector);
  int copies_of(const For& loop) const;
  std::string element_of(const Accumulator& acc, const std::string& copy) const;

  // transposed_tiles.cpp
  bool can_tile(const For& outer) const;
  void write_tiled(const For& outer, const std::string& rows_from, const std::string& rows_to);
  void write_square(const For& outer, const Span& rows, const Span& columns);
  void prefetch_next(const For& outer, const Span& rows, const Span& columns,
                     const std::string& row);
  std::optional<std::string> in_tile(const Compute& c, const Scope& scope) const;

  // interleaved_rows.cpp
  void write_rows(const Rows& rows, const Scope& scope);
  std::vector<std::string> interleaved(std::vector<std::string> rows, DType dtype,
                                       const Scope& scope);

  // row_lanes.cpp
  bool lies_along(const Compute& c, const For& loop, const Scope& scope) const;
  bool has_row_lanes(const For& loop, const Scope& scope) const;
  void write_row_lanes(const For& loop, const Scope& scope);
  void write_columns(const For& loop, const Scope& scope, const std::string& var, int64_t blocks,
                     const std::string& some);
  std::vector<const Compute*> hoist_from_rows(const For& loop, const Scope& scope);
  std::string row_of_lane(const Compute& c, const For& loop, const Scope& scope,
                          const std::string& at, const std::string& lane);

  // Values.
  const Value& define(uint32_t value, DType dtype, bool vector);
  // Defines a value of so many lanes, and writes its statement where all of it is one text.
  const Value& define(const Compute& c, bool vector) { return define(c.value, c.dtype, vector); }
  const Value& write_value(uint32_t value, DType dtype, int lanes, const std::string& text);
  const Value& write_value(const Compute& c, int lanes, const std::string& text) {
    return write_value(c.value, c.dtype, lanes, text);
  }
  const Value& value(uint32_t id) const;
  // Whether a statement has been written, or will be with the selection that it belongs to.
  bool stands_elsewhere(const Compute& c) const {
    return hoisted_.contains(&c) || selections_.moved.contains(&c);
  }
  bool are_known(const std::vector<uint32_t>& values) const;
  Operand operand(uint32_t id, const Scope& scope);
  OperatorText operators(const Scope& scope);
  OperatorText operators(int lanes) { return operators(Scope{.lanes = lanes}); }
  // A function of the prelude for vectors of the scope, on what has this dtype in memory.
  std::string fn(std::string_view piece, DType dtype, const Scope& scope);
  // The same call on the lanes in use: of `piece`, or of its part where they are not all.
  std::string partly(std::string_view piece, DType dtype, const std::string& args,
                     const Scope& scope);
  // The lanes of a buffer that are loaded and stored: all of them, where there is room.
  Scope touched(uint32_t id, Scope scope) const;
  // The lanes of a mask that are in use; "": all of them.
  std::string in_use(const std::string& mask, const Scope& scope);
  std::string value_type_name(DType dtype, int lanes);
  const std::string& buffer(uint32_t id) const;
  DType buffer_dtype(uint32_t id) const;

  const schedule::Kernel& kernel_;
  Prelude prelude_;
  const int register_bytes_;
  SourceWriter out_;
  int lanes_ = 1;
  TableGathers table_gathers_;
  Selections selections_;
  std::unordered_map<const Compute*, Rows> stored_rows_;
  Taken taken_;
  bool near_ = false;                        // in a loop whose tables have been found to be near
  std::vector<const Compute*> definitions_;  // of each value; null: no Compute's
  std::vector<Value> values_;
  std::vector<int> numbers_;  // canonical number of a value
  int next_number_ = 0;
  std::vector<Accumulator> accumulators_;
  int next_accumulator_ = 0;
  std::vector<std::string> buffers_;
  // Loop variables, uniform symbols, and quotients of sizes.
  std::unordered_map<Expr, std::string> names_;
  size_t quotients_ = 0;
  Expr iteration_;  // the innermost parallel loop's variable; a constant: there is none
  std::unordered_map<Expr, std::string>
      lane_names_;  // symbols that differ by lane: a vector of i64
  std::unordered_set<const Compute*> hoisted_;
  std::unordered_set<uint32_t> padded_;      // locals whose last vectors are whole
  std::unordered_set<uint32_t> bf16_;        // values for which is_bf16 says so
  bool hints_ = true;                        // prefetches are written
  std::unordered_set<const Compute*> kept_;  // stores that do not stream although they are large
  std::unordered_set<const For*> filled_;    // loops written in front of the iterations
  std::unordered_map<const Compute*, Tile> tiles_;
  std::unordered_map<const Compute*, std::string> columns_;  // of rows that are lanes: a register
  size_t next_loop_ = 0;
  size_t next_rows_ = 0;
  bool streams_ = false;
};

}  // namespace oxy::codegen::cpp
