// Every difference between the torch versions that we build against (2.11 to 2.13) stands here.
#pragma once

#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <utility>

namespace oxy::bridge::compat {

// The interpreter that torch made for CPython; every method of ours that is not about recording
// ends there.
inline c10::impl::PyInterpreter& torch_interpreter() {
  return *c10::impl::getGlobalPyInterpreter();
}

}  // namespace oxy::bridge::compat
