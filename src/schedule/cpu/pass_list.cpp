// The CPU's lists of passes.
#include "schedule/cpu/pass_list.h"

#include "schedule/cpu/annotations.h"
#include "schedule/cpu/epilogues.h"

namespace oxy::schedule {
namespace {

constexpr auto kLoops = static_cast<unsigned>(KernelForm::Loops);
constexpr auto kScan = static_cast<unsigned>(KernelForm::Scan);
constexpr auto kEpilogue = static_cast<unsigned>(KernelForm::Epilogue);

// A pass on each kernel of these forms.
template <auto run, unsigned forms>
void on_kernels(Draft& d) {
  for (size_t i = 0; i < d.schedule.kernels.size(); ++i) {
    if ((forms & static_cast<unsigned>(d.forms[i])) == 0) continue;
    Kernel& k = d.schedule.kernels[i];
    loops::Variables& variables = *d.schedule.program.variables;
    if constexpr (std::is_invocable_v<decltype(run), Kernel&>)
      run(k);
    else if constexpr (std::is_invocable_v<decltype(run), Kernel&, const ScheduleOptions&>)
      run(k, d.options);
    else if constexpr (std::is_invocable_v<decltype(run), Kernel&, loops::Variables&>)
      run(k, variables);
    else
      run(k, variables, d.options);
  }
}

constexpr Pass kKernelPasses[] = {
    {"make_kernels", make_kernels, "first: groups become loops in an order", true},
    {"interleave_rows", on_kernels<interleave_rows, kLoops>,
     "while loops are as they were ordered: split_ranges folds what its copies compare"},
    {"split_ranges", on_kernels<split_ranges, kLoops>,
     "while a loop is one: its pieces have no masks, and less to unroll and jam, or to keep"},
    {"strip_mine", on_kernels<strip_mine, kLoops>,
     "behind split_ranges, which knows where an index wraps around once"},
    {"share_invariants", on_kernels<share_invariants, kLoops>,
     "behind split_ranges: where nothing is compared any more, more is alike"},
    {"unroll_and_jam", on_kernels<unroll_and_jam, kLoops>,
     "when loops are final: statements of rows side by side"},
    {"make_lane_tables", on_kernels<make_lane_tables, kLoops | kEpilogue>,
     "what several rows still compute alike"},
    {"stream_stores", on_kernels<stream_stores, kLoops | kScan>,
     "when stores are final, before steps share memory"},
};

constexpr Pass kStepPasses[] = {
    {"attach_epilogues", [](Draft& d) { attach_epilogues(d.schedule); },
     "behind write_in_place: what is written there is no epilogue"},
    {"keep_what_is_changed", [](Draft& d) { keep_what_is_changed(d.schedule.kernels, d.options); },
     "the order of the kernels is final"},
    {"prefetch",
     [](Draft& d) {
       for (Kernel& k : d.schedule.kernels) prefetch(k, *d.schedule.program.variables, d.options);
     },
     "after all that moves statements, before memory is shared by what reads early"},
};

}  // namespace

std::span<const Pass> cpu_passes() {
  static const std::vector<Pass> all = [] {
    std::vector<Pass> out;
    for (std::span<const Pass> part :
         {program_passes(), std::span<const Pass>(kKernelPasses), step_passes(),
          std::span<const Pass>(kStepPasses), memory_passes()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return all;
}

Schedule make_schedule(loops::Program program, const ScheduleOptions& options,
                       const RunOptions& run) {
  Draft d;
  d.schedule.program = std::move(program);
  d.options = options;
  run_passes(d, cpu_passes(), run);
  if (run.verify)
    for (const Kernel& k : d.schedule.kernels) verify_annotations(k);
  return std::move(d.schedule);
}

}  // namespace oxy::schedule
