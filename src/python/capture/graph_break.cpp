// Where a capture may stop, and what is left then.
#include <algorithm>

#include "python/capture/capture.h"
#include "python/cpython/locals.h"
#include "python/cpython/opcodes.h"

namespace oxy::python {
namespace {

// The table of copy.deepcopy has ids as its keys, and what is left behind gets other ones when it
// is made again.
bool keeps_ids(const TracedFrame& f) {
  return is_text(as_function(f.function)->func_module, "copy");
}

bool reads_own_frame(PyCodeObject* code) {
  for (const char* name : {"locals", "vars", "dir", "eval", "exec", "_getframe"})
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++)
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_names, i), name) == 0)
        return true;
  return false;
}

}  // namespace

// A frame can be left unless it is a generator's or the body of a class, and its callers as well,
// if the frame's result is just what their call gives.
std::vector<size_t> Frames::places_to_stop() const {
  std::vector<size_t> out;
  for (const TracedFrame* f : frames_) {
    if (!out.empty() && !f->direct) break;
    if ((f->code->co_flags & CO_GENERATOR) || f->names || keeps_ids(*f) ||
        is_array_code(as_function(f->function)))
      break;
    out.insert(out.begin(), f->step);
  }
  return out;
}

// Where the code stands and what could be done there.
void Frames::place(Break& b) const {
  b.stack = user_stack().frames();
  if (b.id != BreakId::frame_access && b.id != BreakId::too_long) b.steps = places_to_stop();
  if (b.of_sizes) choose_loop(b);
}

// The outermost loop of the innermost frame that a break stands in, if that frame can be left.
void Frames::choose_loop(Break& b) const {
  const TracedFrame& f = *frames_.back();
  if (b.steps.empty() || b.steps.front() != f.step || f.next == 0) return;
  const auto& code = f.bytecode->instructions;
  const auto at = static_cast<int>(f.next) - 1;
  for (int head = 0; head <= at && b.loop < 0; head++)
    if (code[static_cast<size_t>(head)].op == FOR_ITER &&
        code[static_cast<size_t>(head)].target > at)
      b.loop = head;
  if (b.loop < 0) return;
  if (auto it = f.loops.find(static_cast<size_t>(b.loop)); it != f.loops.end())
    b.steps.insert(b.steps.begin(), it->second);
}

// The stack of a frame that is left, and the locals that live on, by `live` or since something runs
// when they die; their values are added to `values`.
FrameState Frames::state_left(const TracedFrame& f, const std::vector<bool>& live,
                              std::vector<py::object>& values, std::vector<int>& with_finalizer) {
  FrameState state;
  auto handled = f.handled.begin();
  for (const py::object& o : f.stack) {
    const size_t place = state.null_on_stack.size();
    state.null_on_stack.push_back(!o);
    if (handled != f.handled.end() && handled->place == place) {
      state.handling.push_back(static_cast<int>(place));
      values.push_back((handled++)->exception);
    } else if (o) {
      values.push_back(o);
    }
  }
  const bool shows_all = reads_own_frame(f.code);
  for (int slot = 0; slot < f.code->co_nlocalsplus; slot++) {
    const py::object& o = f.fast[static_cast<size_t>(slot)];
    if (!o) continue;
    // What Python runs when such a value dies, the end of a generator's body above all, comes when
    // the frame ends. And `locals()` behind the break sees them all.
    const bool lives = live[static_cast<size_t>(slot)] || is_cell(f.code, slot);
    const bool finalizer = shows_all || Py_TYPE(o.ptr())->tp_finalize != nullptr ||
                           ends_late(o.ptr()) || iterators().reaches_unfinished(o.ptr());
    if (!lives && !finalizer) continue;
    if (finalizer) with_finalizer.push_back(slot);
    state.locals.push_back(slot);
    values.push_back(o);
  }
  return state;
}

void Frames::stop() {
  std::vector<py::object> values;
  iterators().forget_reached();  // what is made here has changed, but does so no more
  for (const TracedFrame* f : frames_) {
    LeftFrame frame{f->function, f->code, f->bytecode, static_cast<int>(f->next), {}, {}, {}};
    if (f != frames_.back()) frame.index--;  // it is in its call
    const int first = group_of(*f->bytecode, frame.index).first;
    frame.live = live_locals(*f->bytecode, f->code);
    frame.state =
        state_left(*f, frame.live[static_cast<size_t>(first)], values, frame.with_finalizer);
    const auto& code = f->bytecode->instructions;
    const bool in_loop = f == frames_.back() && loop_left >= 0 && loop_left <= frame.index &&
                         code.size() > static_cast<size_t>(loop_left) &&
                         code[static_cast<size_t>(loop_left)].op == FOR_ITER &&
                         code[static_cast<size_t>(loop_left)].target > frame.index;
    if (in_loop) frame.loop = loop_left;
    left.push_back(std::move(frame));
  }
  graphs().finish(values);
  throw Stopped();
}

}  // namespace oxy::python
