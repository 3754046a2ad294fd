// Extern copies that are loops after all: aten.copy of a value into the layout of a slice is
// refused by the op's loop rule, since its result would be a strided view of memory that nobody
// else has; ATen clones all of the memory around the slice for it. Where only loops read the
// result, no layout is seen, and it is a loop over the elements.
#pragma once

#include "loops/loop_ir.h"

namespace oxy::schedule {

void copies_to_loops(loops::Program& p);

}  // namespace oxy::schedule
