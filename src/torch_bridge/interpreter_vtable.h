// A dispatch mode written in C++: what a torch.utils._python_dispatch.TorchDispatchMode is, without
// Python per op.
//
// torch finds a mode's handler through the interpreter tag of the mode object, and insists that all
// tags are its own. So while a recording runs, torch's tag has our vtable: `dispatch` and `detach`
// go to the recorder of ops if the mode on top of the stack is ours, and to torch otherwise; every
// other method is torch's own, because Python kernels of custom ops
// (python_op_registration_trampoline) arrive there as well. The mode carries a real Python object,
// so Python code may read the stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace oxy::bridge {

class OpRecorder;
using Mode = c10::impl::PyObject_TorchDispatchMode;

// Has our vtable in place while it lives; guards nest, on any threads.
class VtableGuard {
 public:
  VtableGuard();
  ~VtableGuard();
  C10_DISABLE_COPY_AND_ASSIGN(VtableGuard);
};

// In a process that was forked, which has no other threads.
void forget_recordings_of_other_threads();

// A mode for the stack, with this recorder's ears. `python_object`: what Python sees of it (a
// reference is taken). The mode can outlive the recorder: call `silence` when that goes.
std::shared_ptr<Mode> make_mode(PyObject* python_object, OpRecorder& ops);
void silence(Mode& mode);

// From now on, until the thread's state is put back, ops on meta tensors of symbolic sizes are
// answered by run_on_hints: functionalisation runs every in-place op once on such tensors, where
// torch's meta kernels, which want numbers, would refuse.
void hear_meta_tensors();

}  // namespace oxy::bridge
