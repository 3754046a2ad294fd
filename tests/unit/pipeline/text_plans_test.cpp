// The graphs of the text tests as plans: compiled and run here, then saved, loaded and run again,
// and by oxy-run in a process of its own. Equal results, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "../../../tools/npy.h"
#include "ir/graph.h"
#include "ir/text.h"
#include "pipeline/pipeline.h"
#include "runtime/run_plan.h"

namespace oxy::pipeline {
namespace {

namespace fs = std::filesystem;
using runtime::Array;

// The ATen graph of a text test, where it has one of known sizes.
std::optional<ir::Graph> graph_of(const fs::path& path) {
  const std::string text = npy::read_file(path);
  const std::string input = text.substr(0, text.find("# ----\n"));
  if (input.find("graph aten") == std::string::npos || input.find("symbol ") != std::string::npos)
    return std::nullopt;
  try {
    ir::Graph graph = ir::parse(input);
    ir::verify(graph);
    return graph;
  } catch (const std::exception&) {
    return std::nullopt;  // of tests of errors
  }
}

std::vector<fs::path> text_tests() {
  std::vector<fs::path> out;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(OXY_SOURCE_DIR) / "tests/text"))
    if (entry.path().extension() == ".txt") out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// Small numbers, which are indices in range too.
Array random_array(const runtime::TensorMeta& meta, std::mt19937& random) {
  if (meta.dtype == DType::None) return {meta, {}};
  Array a = runtime::make_array(meta);
  const int64_t bytes = runtime::span_bytes(meta);
  std::fill_n(a.memory.data, bytes, 0);
  for (int64_t i = 0; i < bytes / byte_size(meta.dtype); i++) {
    if (meta.dtype == DType::F32)
      reinterpret_cast<float*>(a.memory.data)[i] =
          std::uniform_real_distribution<float>(-2, 2)(random);
    else if (meta.dtype == DType::I64)
      reinterpret_cast<int64_t*>(a.memory.data)[i] = static_cast<int64_t>(random() % 2);
  }
  return a;
}

Array copy_of(const Array& a) {
  if (a.meta.dtype == DType::None) return a;
  Array copy = runtime::make_array(a.meta);
  std::copy_n(a.memory.data, runtime::span_bytes(a.meta), copy.memory.data);
  return copy;
}

std::string elements(const std::vector<Array>& arrays) {
  std::string out;
  for (const Array& a : arrays)
    if (a.meta.dtype != DType::None) out += runtime::gather(a);
  return out;
}

class TextPlans : public ::testing::Test {
 protected:
  TextPlans() : folder_(fs::temp_directory_path() / cat("oxy_text_plans_", getpid())) {
    fs::create_directories(folder_);
    clang_ = (fs::path(OXY_SOURCE_DIR) / "python/oxyfuel").string();
    oxy_run_ = fs::read_symlink("/proc/self/exe").parent_path() / "oxy-run";
    compiler_ = compiler_for(settings_, clang_, why_);
  }
  ~TextPlans() override { fs::remove_all(folder_); }

  struct Case {
    runtime::SizedPlan sizes;
    std::vector<Array> inputs, attributes;
  };

  Case case_of(const runtime::Plan& p) {
    Case c{runtime::at_sizes(p, std::vector<runtime::KernelFn>(p.kernels.size()),
                             runtime::evaluate(p.sizes)),
           {},
           {}};
    for (const runtime::TensorMeta& m : c.sizes.inputs)
      c.inputs.push_back(random_array(m, random_));
    for (size_t b = 0; b < p.buffers.size(); b++) {
      if (p.buffers[b].kind != runtime::PlanBuffer::Kind::Attribute) continue;
      c.attributes.resize(std::max<size_t>(c.attributes.size(), p.buffers[b].source + 1));
      c.attributes[p.buffers[b].source] = random_array(c.sizes.buffers[b].meta, random_);
    }
    return c;
  }

  // Results, then the inputs as they are afterwards.
  std::string run(const Compiled& made, const Case& c) {
    const runtime::PlanRunner runner(made.plan, made.code, c.attributes, cpu_);
    std::vector<Array> inputs;
    for (const Array& a : c.inputs) inputs.push_back(copy_of(a));
    const std::string results = elements(runner.run(inputs));
    return results + elements(inputs);
  }

  // What another process gives: the results that are arrays, and the inputs that the plan writes.
  std::string run_apart(const std::string& saved, const runtime::Plan& p, const Case& c) {
    npy::write_file(folder_ / "plan", saved);
    std::string command = cat(oxy_run_.string(), " ", (folder_ / "plan").string(),
                              " --out=", (folder_ / "out").string(), " --clang=", clang_);
    auto add = [&](const char* option, const Array& a, size_t i) {
      const std::string file = (folder_ / cat("in", option[0] ? "a" : "", i, ".npy")).string();
      if (a.meta.dtype == DType::None) return cat_to(command, " ", a.meta.offset);
      npy::write(file, a);
      cat_to(command, " ", option, file);
    };
    for (size_t i = 0; i < c.inputs.size(); i++) add("", c.inputs[i], i);
    for (size_t i = 0; i < c.attributes.size(); i++) add("--attribute=", c.attributes[i], i);
    EXPECT_EQ(std::system((command + " > /dev/null").c_str()), 0) << command;
    std::string out;
    for (size_t i = 0; i < p.outputs.size(); i++) {
      const fs::path file = folder_ / cat("out", i, ".npy");
      if (!p.outputs[i].number && p.outputs[i].kind != runtime::PlanOutput::Kind::None)
        out += runtime::gather(npy::read(file));
    }
    return out;
  }

  static bool runs_here(const runtime::Plan& p, const Compiled& made) {
    for (const runtime::PlanStep& s : p.steps)
      if (std::holds_alternative<runtime::ExternStep>(s) ||
          std::holds_alternative<runtime::RegionStep>(s))
        return false;
    for (const runtime::PlanKernel& k : p.kernels)
      if (made.code.find(k.code)->text->find("math[") != std::string::npos) return false;
    return std::ranges::none_of(p.mutations, [](const auto& m) { return m.layout.has_value(); });
  }

  const Settings settings_ = Settings::from_env();
  const runtime::CpuDevice cpu_{runtime::serial_host()};
  std::string clang_, why_;
  fs::path folder_, oxy_run_;
  std::shared_ptr<jit::Compiler> compiler_;
  std::mt19937 random_{11};
};

TEST_F(TextPlans, SavedAndLoadedGiveTheSame) {
  ASSERT_TRUE(compiler_) << why_;
  int plans = 0, run_here = 0;
  for (const fs::path& path : text_tests()) {
    SCOPED_TRACE(path.string());
    std::optional<ir::Graph> graph = graph_of(path);
    if (!graph) continue;
    Trace trace(settings_, "text");
    Report report;
    Compiled made;
    try {
      made = compile(std::move(*graph), settings_, compiler_.get(), trace, report);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    const std::string text = runtime::print(made.plan);
    EXPECT_EQ(runtime::print(runtime::parse_plan(text)), text);
    const std::string saved = save_plan(made.plan, made.code);
    const Compiled loaded = load_plan(saved, settings_, [&] { return compiler_; });
    EXPECT_EQ(runtime::print(loaded.plan), text);
    EXPECT_EQ(save_plan(loaded.plan, loaded.code), saved);
    plans++;
    if (!runs_here(made.plan, made)) continue;
    const Case c = case_of(made.plan);
    const std::string expected = run(made, c);
    EXPECT_TRUE(run(loaded, c) == expected);
    if (fs::exists(oxy_run_)) {
      const std::string apart = run_apart(saved, made.plan, c);
      EXPECT_TRUE(apart == expected.substr(0, apart.size())) << "in another process";
    }
    run_here++;
  }
  EXPECT_GE(plans, 60);
  EXPECT_GE(run_here, 30);
}

}  // namespace
}  // namespace oxy::pipeline
