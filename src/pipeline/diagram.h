// A picture of a schedule in graphviz's language: kernels and extern calls, with the buffers
// between them.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace oxy::pipeline {
std::string diagram(const ir::Graph& graph, const schedule::Schedule& schedule);
}
