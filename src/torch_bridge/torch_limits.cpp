// Recognises such errors by their texts.
#include "torch_bridge/torch_limits.h"

#include <utility>

namespace oxy::bridge {
namespace {

constexpr const char* kReadsData =
    "an op that reads the data of its input to find its result's shape";

constexpr std::pair<std::string_view, const char*> kLimits[] = {
    {"there was no fake impl or Meta kernel", "an op without a shape rule in torch"},
    {"data is not allocated yet", kReadsData},
    {"data does not exist yet", kReadsData},
    {"a tensor being mutated that has internal overlap",
     "a write to a tensor that overlaps itself"},
    {"a mutation on a view chain", "a write to as_strided of a view"},
    {"attribute '__dynamo_disable'",
     "an op whose rule in Python torch's own decorator cannot call"},
    {"doesn't match the broadcast shape", "an op in place whose result has another shape"},
    {"view size is not compatible with input tensor's size and stride",
     "a view of a tensor whose strides do not allow it, or one that eager copies"},
    {"cond must be a bool", "an op whose rule in Python torch cannot run"},
    {"cannot be converted to type int64_t without overflow",
     "a number beyond 64 bits where an op takes one"},
    {"output has alias annotations", "an op in place that torch cannot functionalise"},
};

}  // namespace

const char* torch_limit(std::string_view message) {
  for (const auto& [words, meaning] : kLimits)
    if (message.find(words) != std::string_view::npos) return meaning;
  return nullptr;
}

}  // namespace oxy::bridge
