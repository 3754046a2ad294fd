// Runs the stages one after the other, from graph passes to machine code.
#include "pipeline/pipeline.h"

#include <unordered_set>

#include "ir/python_text.h"
#include "ir/text.h"
#include "loops/build.h"
#include "passes/pass_list.h"
#include "pipeline/assemble.h"
#include "pipeline/plan_writer.h"
#include "schedule/cpu/pass_list.h"

namespace oxy::pipeline {

Machine machine_of(const Settings& settings) {
  const Machine m = settings.machine.empty() ? host_machine() : host_machine_with(settings.machine);
  return settings.vector_bytes < 0 ? m : m.with_vectors(settings.vector_bytes);
}

namespace {

// Of one compilation.
struct Context {
  const Settings& settings;
  const Machine& machine;
  const ops::Providers& providers;
  Trace& trace;
  Report& report;
};

bool is_wanted(const passes::Pass& pass, const Context& c) {
  if (c.settings.pass_disabled(pass.name)) return false;
  if (pass.name == "decompose") return c.settings.decompose;
  if (pass.name == "choose_layouts" || pass.name == "copy_operands" ||
      pass.name == "expand_attention")
    return c.providers.own;
  if (pass.name == "thin_gemms" || pass.name == "thin_convolutions")
    return c.providers.own || c.providers.onednn;
  return true;
}

void run_passes(ir::Graph& graph, const Context& c) {
  Phase all(c.trace.timeline(), "passes");
  if (c.settings.verify) ir::verify(graph);
  passes::RunOptions options{c.machine, c.settings.verify, &c.trace.timeline(), {}, {}};
  options.wanted = [&](const passes::Pass& p) { return is_wanted(p, c); };
  options.after = [&](const passes::Pass& p, const ir::Graph& g, bool changed, double) {
    c.trace.after_pass(p.name, changed, [&] { return ir::print(g); });
  };
  passes::run_passes(graph, passes::standard_passes(), options);
  graph.compact();
}

void freeze_batch_norm(ir::Graph& graph, const Freezing& freezing, const Context& c) {
  if (c.settings.pass_disabled("fold_batch_norm")) return;
  Phase phase(c.trace.timeline(), "fold_batch_norm");
  if (!passes::fold_batch_norm(graph, freezing.inputs)) phase.note("(unchanged)");
  if (c.settings.verify) ir::verify(graph);
}

void freeze(ir::Graph& graph, const Freezing& freezing, const Context& c) {
  if (c.settings.pass_disabled("lift_constants")) return;
  Phase phase(c.trace.timeline(), "lift_constants");
  ir::Graph constants = passes::lift_constants(graph, freezing.inputs);
  if (c.settings.verify) ir::verify(graph);
  c.trace.show(std::nullopt, "constants.txt", [&] { return ir::print(constants); });
  phase.note(cat(constants.outputs.size(), " constants"));
  freezing.evaluate(std::move(constants));
}

void run_user_passes(ir::Graph& graph, std::span<const UserPass> user_passes, bool in_front,
                     const Context& c) {
  for (const UserPass& pass : user_passes) {
    if (pass.in_front != in_front || c.settings.pass_disabled(pass.name)) continue;
    Phase phase(c.trace.timeline(), pass.name.c_str());
    pass.run(graph);
    ir::verify(graph);
  }
  graph.compact();
}

// The schedule's passes as the settings want them; the trace folder gets what each of them has
// changed.
schedule::RunOptions run_options(const Settings& settings, Trace& trace) {
  schedule::RunOptions run{settings.verify, &trace.timeline(), {}, {}};
  run.disabled = [&](std::string_view pass) {
    const bool fuses = pass == "inline_loops" || pass == "fuse_nests";
    return (fuses && !settings.fusion) || settings.pass_disabled(pass);
  };
  if (trace.folder().empty()) return run;
  run.after = [&trace, before = std::string()](const schedule::Pass& pass,
                                               const schedule::Draft& d) mutable {
    std::string text = schedule::print(d);
    trace.after_pass(pass.name, text != before, [&] { return text; });
    before = std::move(text);
  };
  return run;
}

std::string fusion_text(const schedule::Schedule& s) {
  std::string out;
  for (const schedule::FusionNote& n : s.notes)
    cat_to(out, n.first, " | ", n.second, ": ", n.reason, "\n");
  for (const schedule::ScheduledStep& step : s.steps) {
    const auto* call = std::get_if<schedule::ContractionCall>(&step);
    if (call && call->epilogue)
      cat_to(out, s.program.graph->node(call->step.node).target, " | ",
             s.kernels[*call->epilogue].name, ": its epilogue\n");
  }
  return out;
}

// The texts of the regions' kernels stand behind those of the plan's own. `prefix`: of the names of
// files.
Assembly lower(const ir::Graph& graph, const Context& c, const std::vector<bool>& frozen,
               const std::string& prefix, std::span<const sym::Expr> numbers = {},
               std::span<const sym::ShapeFacts::Fact> checks = {}) {
  RegionPlans regions;
  std::vector<KernelText> texts;
  for (ir::NodeId id : graph.order()) {
    const ir::Node& n = graph.node(id);
    const size_t number = regions.size();
    const std::vector<sym::Expr> inner_numbers = symbols_of_regions(n);
    for (size_t i = 0; !n.dead && i < n.regions.size(); i++) {
      const std::string name = cat(prefix, n.target, number, '_', ir::region_op(n).regions[i], '_');
      Assembly inner = lower(n.regions[i], c, {}, name, inner_numbers);
      regions[id.index].push_back(std::move(inner.plan));
      for (KernelText& t : inner.texts) texts.push_back({name + t.name, std::move(t.text)});
    }
  }
  loops::Program program;
  {
    Phase phase(c.trace.timeline(), "build loops");
    program = loops::build_program(graph, {.kernels = true, .providers = c.providers});
    if (c.settings.verify) loops::verify(program);
    if (prefix.empty()) {
      c.report.exact = loops::is_exact(program);
      c.report.iterated = loops::has_iterated(program);
    }
  }
  c.trace.show(Artifact::ir_pre_fusion, (prefix + "ir_pre_fusion.txt").c_str(),
               [&] { return loops::print(program); });

  schedule::Schedule schedule;
  {
    Phase phase(c.trace.timeline(), "schedule");
    schedule::ScheduleOptions options;
    options.machine = c.machine;
    options.epilogues = c.settings.fusion && c.settings.epilogues && c.providers.own;
    options.streaming = c.settings.streaming_stores;
    schedule =
        schedule::make_schedule(std::move(program), options, run_options(c.settings, c.trace));
  }
  c.trace.show(Artifact::ir_post_fusion, (prefix + "ir_post_fusion.txt").c_str(), [&] {
    return join(schedule.kernels, "\n",
                [](std::string& out, const schedule::Kernel& k) { out += schedule::print(k); });
  });
  c.trace.show(Artifact::fusion, (prefix + "fusion.txt").c_str(),
               [&] { return fusion_text(schedule); });
  c.trace.show(Artifact::schedule, (prefix + "schedule.txt").c_str(),
               [&] { return schedule::print(schedule); });
  if (prefix.empty()) c.trace.draw(graph, schedule);

  Assembly assembly;
  {
    Phase phase(c.trace.timeline(), "emit");
    assembly = assemble(graph, schedule, c.machine, frozen, std::move(regions), numbers, checks);
  }
  assembly.texts.insert(assembly.texts.end(), std::make_move_iterator(texts.begin()),
                        std::make_move_iterator(texts.end()));
  return assembly;
}

runtime::CodeTable compile_kernels(const Assembly& assembly, jit::Compiler& compiler,
                                   const Settings& settings, Trace& trace, Report& report) {
  std::unordered_set<std::string_view> distinct;
  std::vector<std::string> texts;
  for (const KernelText& t : assembly.texts) {
    trace.show(Artifact::kernel_code, cat("kernels/", t.name, ".cpp").c_str(),
               [&] { return t.text; });
    distinct.insert(t.text);
    texts.push_back(t.text);
  }
  Phase phase(trace.timeline(), "compile kernels");
  phase.note(cat(distinct.size(), " of ", assembly.texts.size(), " kernels, ", compiler.name()));
  report.kernels = static_cast<int>(distinct.size());
  return compile_texts(texts, settings, compiler);
}

}  // namespace

void count_steps(const runtime::Plan& plan, Report& report) {
  for (const runtime::Plan& region : plan.regions) count_steps(region, report);
  for (const runtime::PlanStep& s : plan.steps) {
    report.kernel_calls += std::holds_alternative<runtime::LaunchStep>(s) ||
                           std::holds_alternative<runtime::GemmStep>(s);
    report.extern_calls += std::holds_alternative<runtime::ExternStep>(s);
  }
}

Compiled compile(ir::Graph aten, const Settings& settings, jit::Compiler* compiler, Trace& trace,
                 Report& report, std::span<const UserPass> user_passes, const Freezing* freezing,
                 const sym::ShapeFacts* facts) {
  Phase all(trace.timeline(), "compile");
  std::optional<sym::KnowFacts> known;
  if (facts) known.emplace(*facts);
  trace.show(std::nullopt, "aten_graph.txt", [&] { return ir::print(aten); });
  trace.show(std::nullopt, "fx_graph_readable.py", [&] { return ir::python_module(aten); });
  trace.show(std::nullopt, "fx_graph_runnable.py", [&] { return ir::python_program(aten); });
  const bool kernels = compiler && settings.kernels;
  const Machine machine = machine_of(settings);
  const ops::Providers providers = ops::providers_on(machine, settings.gemm_backend);
  const Context c{settings, machine, providers, trace, report};
  run_user_passes(aten, user_passes, true, c);
  if (kernels) {
    if (freezing) freeze_batch_norm(aten, *freezing, c);
    run_passes(aten, c);
    if (freezing) freeze(aten, *freezing, c);
  }
  run_user_passes(aten, user_passes, false, c);
  trace.show(Artifact::aot_graphs, "aten_graph_transformed.txt", [&] { return ir::print(aten); });
  trace.show(std::nullopt, "fx_graph_transformed.py", [&] { return ir::python_module(aten); });
  for (size_t i = 0; i < aten.outputs.size(); i++)
    if (aten.outputs[i].any_layout)
      report.layouts[i] = aten.tensor_type(aten.outputs[i].value).strides;
  const std::vector<sym::ShapeFacts::Fact> checks =
      facts ? facts->checked_facts() : std::vector<sym::ShapeFacts::Fact>();
  Compiled out;
  if (kernels) {
    const std::vector<bool> frozen = freezing ? freezing->inputs : std::vector<bool>();
    Assembly assembly = lower(aten, c, frozen, "", {}, checks);
    out.code = compile_kernels(assembly, *compiler, settings, trace, report);
    out.plan = std::move(assembly.plan);
  } else {
    out.plan = make_extern_plan(aten, {}, checks);
  }
  trace.show(Artifact::output_code, "output_code.txt", [&] { return runtime::print(out.plan); });
  count_steps(out.plan, report);
  return out;
}

}  // namespace oxy::pipeline
