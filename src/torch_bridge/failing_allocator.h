// An allocator of tensors' memory that has none at a chosen moment, for tests of what a failure leaves behind.
#pragma once

#include <cstdint>

namespace oxy::bridge {

// The n-th allocation from now on (0: the next one) raises; those after it do not. A negative number: none does. Stands in
// front of torch's own allocator for the CPU from its first use on.
void fail_allocation(int64_t n);
// Whether it has raised since it was last told to.
bool allocation_has_failed();

}  // namespace oxy::bridge
