// Drops calls that nothing reads.
//
// Stands last: every other pass leaves what it has replaced to be swept here. Random draws and
// effects stay, as do inputs and attributes, whose number the caller knows. A mutation that writes
// an input's own value back is dropped with them, because only here is it nobody's concern which
// pass made it so. An operand that no region of its node reads goes too.
#pragma once

#include "ir/graph.h"

namespace oxy::passes {
bool dce(ir::Graph& g);
}
