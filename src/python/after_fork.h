// What a forked process has to forget: captures and compilations of threads that it does not have.
#pragma once

namespace oxy::python {

// Once, when the extension is loaded.
void forget_other_threads_after_forks();

}  // namespace oxy::python
