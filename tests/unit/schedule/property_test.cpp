// Random programs: what the schedule computes is what the program computes, and every text reads
// back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "interpret.h"
#include "random_program.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::test {

namespace {

void expect_equal(const loops::Program& p, const Memory& want, const Memory& got,
                  const std::string& text) {
  for (const auto& [b, data] : want) {
    if (p.buffers[b].kind != loops::Buffer::Kind::Output) continue;
    const std::vector<double>& other = got.at(b);
    for (size_t i = 0; i < data.size(); ++i) {
      bool close = std::abs(data[i] - other[i]) <= 1e-9 * (1 + std::abs(data[i]));
      bool same = close || data[i] == other[i] || (std::isnan(data[i]) && std::isnan(other[i]));
      ASSERT_TRUE(same) << p.buffers[b].name << "[" << i << "]: " << data[i] << " became "
                        << other[i] << "\n"
                        << text;
    }
  }
}

// All run, or fusion and one more pass do not.
std::vector<std::string_view> disabled_passes(bool some, uint32_t seed) {
  if (!some) return {};
  const std::span<const schedule::Pass> all = schedule::cpu_passes();
  return {"inline_loops", "fuse_nests", all[seed % all.size()].name};
}

Sizes sizes_of(const loops::Program& p, const RandomOptions& options,
               const std::vector<int64_t>& call) {
  Sizes sizes;
  for (size_t i = 0; i < call.size(); ++i)
    sizes[*p.pool->find_symbol(options.symbols[i].name)] = call[i];
  return sizes;
}

void check_call(const loops::Program& p, const schedule::Schedule& s, uint32_t seed,
                const Sizes& sizes, const Memory& want, const std::string& text) {
  for (bool arena : {false, true}) {
    Memory got = initial_memory(s.program, seed, sizes);
    try {
      run(s, got, arena, sizes);
    } catch (const std::exception& e) {
      FAIL() << e.what() << "\n" << text;
    }
    expect_equal(p, want, got, text);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void check(uint32_t seed, const RandomOptions& options) {
  loops::Program p = random_program(seed, options);
  loops::verify(p);
  std::string text = loops::print(p);
  // The order of a sum's terms follows the order in which a pool met its symbols: that of the text,
  // from here on.
  std::string again = loops::print(loops::parse(text));
  ASSERT_EQ(loops::print(loops::parse(again)), again);
  loops::Program inlined = p;
  schedule::inline_loops(inlined);
  loops::verify(inlined);
  std::vector<schedule::Schedule> schedules;
  std::vector<std::string> texts;
  const Machine machines[] = {parse_machine(""),
                              parse_machine("plain, avx2, l1 4K, l2 8K, l3 16K, page 64, line 16")};
  for (int variant = 0; variant < 4; ++variant) {
    schedule::ScheduleOptions o;
    o.machine = machines[variant / 2];
    o.epilogues = options.gemms;
    schedule::RunOptions run_options;
    run_options.verify = true;
    const std::vector<std::string_view> disabled = disabled_passes(variant % 2, seed);
    run_options.disabled = [&](std::string_view pass) {
      return std::ranges::find(disabled, pass) != disabled.end();
    };
    const schedule::Schedule& s =
        schedules.emplace_back(schedule::make_schedule(p, o, run_options));
    texts.push_back(cat("seed ", seed, " on ", print(o.machine), " without ",
                        join(disabled, ", ", [](std::string& x, std::string_view d) { x += d; }),
                        "\n", text, schedule::print(s)));
    for (const schedule::Kernel& k : s.kernels) {
      ASSERT_NO_THROW(schedule::verify(k)) << texts.back();
      std::string kernel = schedule::print(k);
      ASSERT_EQ(schedule::print(schedule::parse(kernel, *s.program.pool)), kernel);
    }
  }
  for (const std::vector<int64_t>& call : options.calls) {
    const Sizes sizes = sizes_of(p, options, call);
    const std::string at = join(call, ", ", [](std::string& out, int64_t n) { cat_to(out, n); });
    Memory want = initial_memory(p, seed, sizes), got = want;
    run(p, want, sizes);
    run(inlined, got, sizes);
    expect_equal(p, want, got,
                 cat("seed ", seed, " at ", at, " after inlining\n", text, loops::print(inlined)));
    if (testing::Test::HasFatalFailure()) return;
    for (size_t k = 0; k < schedules.size(); ++k) {
      check_call(p, schedules[k], seed, sizes, want, cat("at ", at, " ", texts[k]));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// OXYFUEL_FUZZ=n: n times as many programs.
uint32_t rounds() {
  const char* n = std::getenv("OXYFUEL_FUZZ");
  return n ? static_cast<uint32_t>(std::atoi(n)) : 1;
}

}  // namespace

TEST(RandomPrograms, Small) {
  for (uint32_t seed = 0; seed < 1500 * rounds() && !HasFatalFailure(); ++seed) check(seed, {});
}

TEST(RandomPrograms, Empty) {
  RandomOptions o;
  o.sizes = {0, 1, 2, 4};
  for (uint32_t seed = 0; seed < 300 * rounds() && !HasFatalFailure(); ++seed) check(seed, o);
}

// Matrices whose finished blocks an epilogue takes.
TEST(RandomPrograms, Gemms) {
  RandomOptions o;
  o.gemms = true;
  o.sizes = {1, 2, 3, 4, 20};
  for (uint32_t seed = 0; seed < 800 * rounds() && !HasFatalFailure(); ++seed) check(seed, o);
}

// Sizes that are known with each call alone, others than those that the schedule was made for too.
TEST(RandomPrograms, Symbolic) {
  RandomOptions o;
  o.symbols = {{"s0", {0, INT64_MAX}, 5}, {"s1", {1, INT64_MAX}, 3}};
  o.calls = {{5, 3}, {1, 1}, {0, 2}, {9, 4}};
  for (uint32_t seed = 0; seed < 600 * rounds() && !HasFatalFailure(); ++seed) check(seed, o);
}

TEST(RandomPrograms, LargeSymbolic) {
  const RandomOptions o = large_symbolic();
  for (uint32_t seed = 0; seed < 40 * rounds() && !HasFatalFailure(); ++seed) check(seed, o);
}

// Sizes at which axes are cut, tiled and folded in parts.
TEST(RandomPrograms, Large) {
  RandomOptions o;
  o.steps = 5;
  o.sizes = {1, 3, 16, 70, 128, 700, 1500};
  o.max_dims = 2;
  o.max_elements = 1 << 17;
  for (uint32_t seed = 0; seed < 40 * rounds() && !HasFatalFailure(); ++seed) check(seed, o);
}

}  // namespace oxy::test
