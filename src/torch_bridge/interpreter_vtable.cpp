// Torch's own interpreter table with dispatch and detach replaced.
#include "torch_bridge/interpreter_vtable.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/PythonDispatcherTLS.h>

#include <atomic>
#include <memory>
#include <vector>

#include "support/check.h"
#include "support/fork_mutex.h"
#include "torch_bridge/foreach.h"
#include "torch_bridge/op_recorder.h"

namespace oxy::bridge {
namespace {

using c10::TensorImpl;
using c10::impl::getGlobalPyInterpreter;
using c10::impl::PyInterpreterVTable;
using c10::impl::TorchDispatchModeTLS;

struct ListeningMode : Mode {
  ListeningMode(PyObject* object, OpRecorder* l)
      : Mode(object, getGlobalPyInterpreter()), listener(l) {}
  OpRecorder* listener;
};
thread_local std::vector<std::weak_ptr<Mode>> modes_of_this_thread;

// Its type tells our modes from others.
struct ListeningDeleter {
  void operator()(Mode* m) const { delete static_cast<ListeningMode*>(m); }
};

// torch's own vtable, while ours stands in its place.
const PyInterpreterVTable* torch_vtable_found = nullptr;
int installed = 0;
thread_local int installed_here = 0;
ForkMutex& install_mutex = *new ForkMutex();  // used at the process's end

const PyInterpreterVTable& torch_vtable() { return *torch_vtable_found; }

// The mode on top of the stack, if it is one of ours.
ListeningMode* listening_on_top() {
  const int64_t depth = TorchDispatchModeTLS::stack_len();
  if (depth == 0) return nullptr;
  const auto& top = TorchDispatchModeTLS::get_stack_at(depth - 1);
  if (std::get_deleter<ListeningDeleter>(top)) return static_cast<ListeningMode*>(top.get());
  // Python code that pops a mode and pushes it again makes another holder of the same object.
  PyObject* object = top->ptr(&top->pyinterpreter());
  for (const std::weak_ptr<Mode>& made : modes_of_this_thread) {
    const std::shared_ptr<Mode> mode = made.lock();
    if (mode && mode->ptr(getGlobalPyInterpreter()) == object)
      return static_cast<ListeningMode*>(mode.get());
  }
  return nullptr;
}

// The handler of a mode runs without that mode.
class ModeOff {
 public:
  ModeOff() : mode_(TorchDispatchModeTLS::pop_stack()) {}
  ~ModeOff() { TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode_); }
  C10_DISABLE_COPY_AND_ASSIGN(ModeOff);

 private:
  std::shared_ptr<Mode> mode_;
};

// A method that is torch's own.
#define OXY_TO_TORCH(Result, name, parameters, ...) \
  Result name parameters const override { return torch_vtable().name(__VA_ARGS__); }

struct RecordingVTable : PyInterpreterVTable {
  void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack) const override {
    ListeningMode* mode = listening_on_top();
    if (!mode) return torch_vtable().dispatch(op, stack);
    if (run_for_each(op, *stack)) return;
    ModeOff off;
    listener_of(*mode).on_op(op, *stack);
  }
  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl* self) const override {
    ListeningMode* mode = listening_on_top();
    if (!mode) return torch_vtable().detach(self);
    ModeOff off;  // with the mode on this would call itself
    auto copy =
        self->shallow_copy_and_detach(/*version_counter=*/0, /*allow_tensor_metadata_change=*/true);
    listener_of(*mode).on_copy(*self, copy);
    return copy;
  }
  static OpRecorder& listener_of(ListeningMode& mode) {
    if (!mode.listener) throw Unsupported("an op ran under a recording that has ended");
    return *mode.listener;
  }

  OXY_TO_TORCH(std::string, name, ())
  OXY_TO_TORCH(void, incref, (PyObject * o), o)
  OXY_TO_TORCH(void, decref, (PyObject * o), o)
  OXY_TO_TORCH(bool, try_incref, (const c10::impl::PyObjectSlot& s), s)
  OXY_TO_TORCH(size_t, refcnt, (PyObject * o), o)
  OXY_TO_TORCH(void, reportErrorCallback, (PyObject * callback, c10::DispatchKey key), callback,
               key)
  OXY_TO_TORCH(void, python_op_registration_trampoline,
               (const c10::OperatorHandle& op, c10::DispatchKey key, c10::DispatchKeySet keys,
                torch::jit::Stack* stack, bool with_keyset, bool with_op),
               op, key, keys, stack, with_keyset, with_op)
  OXY_TO_TORCH(void, throw_abstract_impl_not_imported_error,
               (std::string op, const char* module, const char* context), std::move(op), module,
               context)
  OXY_TO_TORCH(void, python_dispatcher,
               (const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack),
               op, keys, stack)
  OXY_TO_TORCH(bool, is_contiguous, (const TensorImpl* t, at::MemoryFormat f), t, f)
  OXY_TO_TORCH(c10::SymBool, sym_is_contiguous, (const TensorImpl* t, at::MemoryFormat f), t, f)
  OXY_TO_TORCH(bool, is_strides_like, (const TensorImpl* t, at::MemoryFormat f), t, f)
  OXY_TO_TORCH(bool, is_non_overlapping_and_dense, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::Device, device, (const TensorImpl* t), t)
  OXY_TO_TORCH(int64_t, dim, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::IntArrayRef, strides, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::IntArrayRef, sizes, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::SymIntArrayRef, sym_sizes, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::Layout, layout, (const TensorImpl* t), t)
  OXY_TO_TORCH(int64_t, numel, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::SymInt, sym_numel, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::SymIntArrayRef, sym_strides, (const TensorImpl* t), t)
  OXY_TO_TORCH(c10::SymInt, sym_storage_offset, (const TensorImpl* t), t)
  OXY_TO_TORCH(void, trace_gpu_event_creation, (c10::DeviceType d, uintptr_t e), d, e)
  OXY_TO_TORCH(void, trace_gpu_event_deletion, (c10::DeviceType d, uintptr_t e), d, e)
  OXY_TO_TORCH(void, trace_gpu_event_record, (c10::DeviceType d, uintptr_t e, uintptr_t s), d, e, s)
  OXY_TO_TORCH(void, trace_gpu_event_wait, (c10::DeviceType d, uintptr_t e, uintptr_t s), d, e, s)
  OXY_TO_TORCH(void, trace_gpu_memory_allocation, (c10::DeviceType d, uintptr_t p), d, p)
  OXY_TO_TORCH(void, trace_gpu_memory_deallocation, (c10::DeviceType d, uintptr_t p), d, p)
  OXY_TO_TORCH(void, trace_gpu_stream_creation, (c10::DeviceType d, uintptr_t s), d, s)
  OXY_TO_TORCH(void, trace_gpu_device_synchronization, (c10::DeviceType d), d)
  OXY_TO_TORCH(void, trace_gpu_stream_synchronization, (c10::DeviceType d, uintptr_t s), d, s)
  OXY_TO_TORCH(void, trace_gpu_event_synchronization, (c10::DeviceType d, uintptr_t e), d, e)
  OXY_TO_TORCH(void, reset_backward_hooks, (const TensorImpl* t), t)
};

// For a tag of our own, which hears every op on a thread (hear_meta_tensors).
struct SymbolicVTable final : RecordingVTable {
  void python_dispatcher(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) const override {
    if (keys.highestPriorityTypeId() == c10::DispatchKey::Meta &&
        has_symbolic_sizes(*stack, op.schema().arguments().size())) {
      return run_on_hints(op, *stack);
    }
    op.redispatchBoxed(keys, stack);
  }
};

// Leaked on purpose, as torch leaks its own: another thread may be inside when the process ends.
const PyInterpreterVTable& recording_vtable() {
  static auto* vtable = new RecordingVTable();
  return *vtable;
}

std::atomic_ref<const PyInterpreterVTable*> vtable_slot() {
  return std::atomic_ref<const PyInterpreterVTable*>(getGlobalPyInterpreter()->vtable_);
}

}  // namespace

VtableGuard::VtableGuard() {
  std::lock_guard lock(install_mutex);
  ++installed_here;
  if (installed++ > 0) return;
  torch_vtable_found = vtable_slot().load();
  vtable_slot().store(&recording_vtable());
}

VtableGuard::~VtableGuard() {
  std::lock_guard lock(install_mutex);
  --installed_here;
  if (--installed == 0) vtable_slot().store(torch_vtable_found);
}

void forget_recordings_of_other_threads() {
  if (installed > 0 && installed_here == 0) vtable_slot().store(torch_vtable_found);
  installed = installed_here;
}

std::shared_ptr<Mode> make_mode(PyObject* python_object, OpRecorder& listener) {
  (*getGlobalPyInterpreter())->incref(python_object);  // the mode takes over one reference
  std::shared_ptr<Mode> mode(new ListeningMode(python_object, &listener), ListeningDeleter());
  std::erase_if(modes_of_this_thread, [](const auto& made) { return made.expired(); });
  modes_of_this_thread.push_back(mode);
  return mode;
}

void hear_meta_tensors() {
  static auto* tag = new c10::impl::PyInterpreter(new SymbolicVTable());
  c10::impl::PythonDispatcherTLS::set_state(tag);
}

void silence(Mode& mode) { static_cast<ListeningMode&>(mode).listener = nullptr; }

}  // namespace oxy::bridge
