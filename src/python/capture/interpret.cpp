// Frames: running one to its end, handling its exceptions, finding its global names.
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <ranges>

#include "python/capture/instructions.h"
#include "python/capture/question.h"
#include "python/cpython/boundary.h"
#include "python/cpython/code_object.h"
#include "python/cpython/frames.h"
#include "python/cpython/opcodes.h"
#include "python/cpython/thread_state.h"
#include "python/cpython/types.h"
#include "python/inner_frames.h"
#include "support/log.h"
#include "torch_bridge/fake_tensor.h"

namespace oxy::python {
namespace {

// Somebody has looked at the memory of a tensor that is recorded.
bool asks_for_data(const py::error_already_set& e) {
  return e.matches(PyExc_RuntimeError) &&
         py::str(e.value()).cast<std::string>().starts_with(bridge::kNoData);
}

// The frame's cells are made.
bool is_behind_entry(const TracedFrame& f) {
  const uint8_t op = f.bytecode->instructions[f.next].op;
  return op != MAKE_CELL && op != COPY_FREE_VARS && op != RETURN_GENERATOR && op != RESUME &&
         op != GEN_START;
}

// Where the frame stands once the instruction at `at` has raised: behind a clean-up where it began.
size_t left_at(const TracedFrame& f, size_t at) {
  const Instruction& i = f.bytecode->instructions[at];
  if (i.op != RERAISE || i.arg == 0 || f.stack.size() < i.arg) return at;
  if (kHasBlocks) return f.handled.empty() ? at : f.handled.back().raised_at;
  PyObject* from = f.stack[f.stack.size() - i.arg].ptr();
  const size_t back = from != nullptr && PyLong_CheckExact(from) ? PyLong_AsSize_t(from) : SIZE_MAX;
  PyErr_Clear();
  return back < f.bytecode->instructions.size() ? back : at;
}

// The stack as a handler finds it.
void enter_handler(TracedFrame& f, const ExceptionRange& range, size_t at, size_t left,
                   const py::object& value) {
  const auto depth = static_cast<size_t>(range.depth);
  f.next = static_cast<size_t>(range.target);
  if (!kHasBlocks) {
    f.stack.resize(depth);
    if (range.push_lasti) f.stack.push_back(py::int_(left));
    f.stack.push_back(value);
    return;
  }
  // No instruction ends the handlers that it leaves.
  while (!f.handled.empty() && f.handled.back().place >= depth) f.handled.pop_back();
  f.stack.resize(depth);
  f.stack.resize(depth + 2);
  f.stack.push_back(f.handled.empty() ? py::none() : f.handled.back().exception);
  f.handled.push_back({depth + 2, value, at});
  set_handled_exception(value.ptr());
  f.stack.push_back(traceback_mark());
  f.stack.push_back(value);
  f.stack.push_back(py::type::of(value));
}

// What a context manager of torch's is left by goes on.
bool is_exit_of_torch(const TracedFrame& f, size_t place) {
  if (place >= f.stack.size() || !f.stack[place]) return false;
  const py::object self = py::getattr(f.stack[place], "__self__", py::none());
  // Of a generator, by contextlib.contextmanager.
  const py::object made_of = py::getattr(self, "func", py::type::of(self));
  const py::object module = py::getattr(made_of, "__module__", py::none());
  return py::isinstance<py::str>(module) && module.cast<std::string>().starts_with("torch.");
}

// Whether a handler raises what it is for again, as that of `finally` does.
bool raises_again(const std::vector<Instruction>& code, size_t at) {
  for (; at < code.size(); at++) {
    const uint8_t op = code[at].op;
    if (op == RERAISE) return true;
    if (op == POP_EXCEPT || op == CHECK_EXC_MATCH || op == CHECK_EG_MATCH ||
        op == JUMP_IF_NOT_EXC_MATCH)
      return false;
  }
  return false;
}

// Whether what the instruction raises comes to code that may deal with it.
bool may_deal_with(const TracedFrame& f, size_t at) {
  const auto& code = f.bytecode->instructions;
  for (const auto* r = f.bytecode->range_at(at); r != nullptr;) {
    const auto target = static_cast<size_t>(r->target);
    const size_t first = code[target].op == PUSH_EXC_INFO ? target + 1 : target;
    const bool cleans_up =
        first == target && (code[first].op == COPY || code[first].op == POP_EXCEPT);
    const bool goes_on = cleans_up || (code[first].op == WITH_EXCEPT_START
                                           ? is_exit_of_torch(f, static_cast<size_t>(r->depth) - 1)
                                           : raises_again(code, first));
    const auto* next = f.bytecode->range_at(target);
    if (!goes_on || next == r) return true;
    r = next;
  }
  return false;
}

}  // namespace

const py::object& traceback_mark() {
  static const py::object& mark = *new py::object(member_of<"builtins", "object">()());
  return mark;
}

std::shared_ptr<const Bytecode> bytecode_of(PyCodeObject* code) {
  using Kept = std::shared_ptr<const Bytecode>;
  static const CodeExtra extra(
      [](void* kept) { boundary([=] { delete static_cast<Kept*>(kept); }); });
  if (void* found = extra.get(code)) return *static_cast<Kept*>(found);
  auto kept = std::make_unique<Kept>(std::make_shared<const Bytecode>(plain_bytecode(code)));
  Kept out = *kept;
  if (extra.set(code, kept.get())) {
    [[maybe_unused]] const Kept* released = kept.release();
  }
  return out;
}

TracedFrame::TracedFrame(py::handle called)
    : function(borrow(called)),
      code(code_of(called)),
      bytecode(bytecode_of(code)),
      fast(static_cast<size_t>(slot_count(code))) {}

// Where no instructions do.
void Frames::make_cells(TracedFrame& f) {
  const int frees = free_count(f.code), slots = slot_count(f.code);
  for (int slot = f.code->co_nlocals; slot < slots - frees; ++slot)
    f.fast[static_cast<size_t>(slot)] = steal(PyCell_New(nullptr));
  for (int slot = 0; slot < parameter_count(f.code); ++slot) {
    const int cell = cell_of_parameter(f.code, slot);
    py::object& given = f.fast[static_cast<size_t>(slot)];
    if (cell < 0) continue;
    if (!numbers().is_packed(given)) given = numbers().carried(given);
    check(PyCell_Set(f.fast[static_cast<size_t>(cell)].ptr(), given.ptr()));
    given = py::object();
  }
  for (int slot = f.code->co_nlocals; slot < slots - frees; ++slot)
    heap().hold(f.fast[static_cast<size_t>(slot)]);
  if (frees > 0) instructions::copy_free_vars(capture_, f, {.arg = static_cast<uint32_t>(frees)});
}

bool Frames::is_in_try() const {
  return std::ranges::any_of(frames_, [](const TracedFrame* f) {
    return f->next > 0 && !is_library_code(f->code) && may_deal_with(*f, f->next - 1);
  });
}

void Frames::begin(size_t stop_at) {
  stop_at_ = stop_at;
  traces_source_ = log_enabled(Artifact::trace_source);
  handled_outside = static_cast<bool>(owned(handled_exception()));
}

bool Frames::keeps_arguments() const {
  if (frames_.empty()) return false;
  const auto& now = frames_.front()->fast;
  for (size_t i = 0; i < arguments_.size(); i++) {
    if (!arguments_[i] || arguments_[i].is(now[i])) continue;
    if (!now[i] || !PyCell_Check(now[i].ptr()) || PyCell_GET(now[i].ptr()) != arguments_[i].ptr())
      return false;
  }
  return true;
}

bool Frames::holds(py::handle o) const {
  const auto has = [&](const py::object& held) {
    return held && (held.is(o) || (PyCell_Check(held.ptr()) && !heap().exists(held) &&
                                   PyCell_GET(held.ptr()) == o.ptr()));
  };
  return std::ranges::any_of(frames_, [&](const TracedFrame* f) {
    return std::ranges::any_of(f->fast, has) || std::ranges::any_of(f->stack, has);
  });
}

// Pushes the frame, runs it to its return or its next yield, and pops it. Where it stands at a
// yield, `sent` comes back from there, or `thrown` is raised.
//
// What its handlers deal with is what CPython sees as well, so that exceptions get their contexts.
py::object Frames::interpret(TracedFrame& frame, py::object sent, py::object thrown) {
  numbers().takes = Takes::Read;
  iterators().took_iterator = false;
  frame.caller = user_stack();
  frame.placed = SIZE_MAX;
  frames_.push_back(&frame);
  if (codes_.insert(frame.code).second)
    heap().hold(borrow(reinterpret_cast<PyObject*>(frame.code)));
  frame.handled_outside = owned(handled_exception());
  const auto leave = c10::make_scope_exit([this, outside = frame.handled_outside] {
    set_handled_exception(outside.ptr());
    frames_.pop_back();
  });
  if (!frame.handled.empty()) set_handled_exception(frame.handled.back().exception.ptr());
  frame.direct = std::exchange(direct, false);
  if (kCellsMadeAtEntry && frame.next == 0) make_cells(frame);
  if (frame.yielded) frame.stack.push_back(sent ? sent : py::none());
  frame.yielded = false;
  while (true) {
    const size_t at = thrown ? suspended_at(frame) : frame.next;
    frame.step = steps_;
    if (steps_ == stop_at_) stop();
    try {
      if (thrown) reraise_value(std::exchange(thrown, {}));
      if (steps_ >= break_at && is_behind_entry(frame)) throw Break(BreakId::asked, "");
      if (numbers().any_deferred()) numbers().read_arguments(frame);
      numbers().item_asked = sizes().of_data().numbers && numbers().asks_for_item(frame);
      if (iterators().ends_iterator(frame)) iterators().break_at_end_of_iterator();
      if (traces_source_) trace_source(frame);
      step(frame);
      if (graphs().has_hook_ids()) graphs().refuse_hook_ids(frame);
      if (frame.result) return std::exchange(frame.result, {});
      if (!iterators().empty()) iterators().close_dropped_iterators();
    } catch (py::error_already_set& e) {
      if (e.matches(PyExc_KeyboardInterrupt)) throw;  // of the capture, not of the code
      if (is_raised_by_signal(e)) throw Interrupted{std::move(e)};
      py::object value = e.value();
      if (e.trace()) PyException_SetTraceback(value.ptr(), e.trace().ptr());
      note_raised(frame, at, value);
      heap().hold(value);
      frame.kwnames = py::object();
      const size_t left = left_at(frame, at);
      const ExceptionRange* range = frame.bytecode->range_at(at);
      const size_t depth = range ? static_cast<size_t>(range->depth) : 0;
      if ((range || frames_.size() > 1) && iterators().unwinding_ends_iterator(frame, depth))
        iterators().break_at_end_of_iterator();
      if (!range) throw;
      enter_handler(frame, *range, at, left, value);
      if (kHasBlocks) frame.handled.back().caught_with = known_traceback(value);
    } catch (Break& b) {
      if (b.stack.empty()) {
        place(b);
        leave_package(b);
      }
      throw;
    }
  }
}

// Where code of pandas, SymPy and their like breaks, there is one break in front of its call.
void Frames::leave_package(Break& b) const {
  const auto found = std::find_if(frames_.begin() + 1, frames_.end(),
                                  [](const TracedFrame* f) { return is_without_tensors(f->code); });
  if (found == frames_.end()) return;
  leave_call(reinterpret_cast<PyObject*>((*found)->code));
  b.leaves_call = true;
}

// One instruction. Where code written in C wants to call a function of the user's, it breaks.
void Frames::step(TracedFrame& f) {
  auto check = [this] {
    const std::string name = take_refused();
    if (name.empty()) return;
    if (failed_answer_) std::rethrow_exception(std::exchange(failed_answer_, nullptr));
    throw Break(BreakId::builtin_call, "it calls ", name);
  };
  const bool outside = std::exchange(iterators().took_iterator, false);
  try {
    instruction(f);
  } catch (py::error_already_set& e) {
    check();
    if (is_undecided(e)) throw Break(BreakId::undecided, question_of(e));
    if (asks_for_data(e)) throw Break(BreakId::data_dependent, "code written in C reads it");
    if (Arrays::is_refusal(e)) throw Break(BreakId::numpy, py::str(e.value()).cast<std::string>());
    // Code written in C may have stopped before the iterator's end.
    if (std::exchange(iterators().took_iterator, outside))
      throw Break(BreakId::builtin_call, "an error, of what an iterator was given to");
    throw;
  } catch (const sym::Undecided& e) {
    throw Break(BreakId::undecided, e.what());
  }
  iterators().took_iterator = outside;
  check();
}

// Handlers of 3.10 still have the traceback that they have caught the exception with.
static void note_other_traceback(const std::vector<TracedFrame*>& frames, py::handle exception) {
  for (TracedFrame* f : frames)
    for (TracedFrame::Handled& h : f->handled)
      if (h.exception.is(exception)) h.has_other_traceback = true;
}

// What its traceback will say. An exception that is raised again has the place already.
void Frames::note_raised(const TracedFrame& frame, size_t at, py::handle value) {
  const Instruction& i = frame.bytecode->instructions[at];
  if (i.op == RERAISE || (i.op == RAISE_VARARGS && i.arg == 0)) {
    auto known = raised_.find(value.ptr());
    if (known == raised_.end() || known->second.empty())
      return;  // of one from before the call nothing is known
    RaisedAt& last = known->second.back();
    if (last.code.ptr() == reinterpret_cast<PyObject*>(frame.code))
      last.left = frame.bytecode->instructions[left_at(frame, at)].offset;
    return;
  }
  note_other_traceback(frames_, value);
  std::vector<RaisedAt>& places = raised_[value.ptr()];
  if (places.empty()) raised_steps_ = places_to_stop();
  auto* function = as_function(frame.function);
  places.push_back({borrow(reinterpret_cast<PyObject*>(frame.code)), borrow(function->func_globals),
                    i.offset, i.location.line, i.offset});
}

// The artefact trace_source: each line as capture comes to it.
void Frames::trace_source(TracedFrame& f) {
  const int32_t line = f.bytecode->instructions[f.next].location.line;
  if (line <= 0 || line == f.traced_line) return;
  f.traced_line = line;
  py::handle file = f.code->co_filename;
  log(Artifact::trace_source,
      cat(file.cast<std::string>(), ":", line, " in ",
          py::handle(f.code->co_name).cast<std::string>()),
      py::module_::import("linecache").attr("getline")(file, line).cast<std::string>());
}

py::object Frames::globals_of(const TracedFrame& f) {
  PyObject* globals = as_function(f.function)->func_globals;
  return objects().existing_dict(globals, heap().sources.pinned(globals, "G"));
}

py::object Frames::load_global(TracedFrame& f, py::handle name) {
  auto* function = as_function(f.function);
  if (py::object found = effects().dict_get(globals_of(f), name)) return found;
  PyObject* builtins = function->func_builtins;
  const SourceId source = heap().sources.pinned(builtins, "builtins");
  if (py::object found = effects().dict_get(objects().existing_dict(builtins, source), name))
    return found;
  name_error(name);
}

py::object Frames::frame_object(const py::object& depth) {
  if (!PyLong_CheckExact(depth.ptr())) throw Break(BreakId::frame_access, "_getframe");
  return frame_object(frames_, PyLong_AsLong(depth.ptr()));
}

// What stands for functions written in C has no frame there. Of the captured function's callers
// nothing is known.
py::object Frames::frame_object(std::span<TracedFrame* const> frames, long depth) {
  for (TracedFrame* f : frames | std::views::reverse) {
    if (is_polyfill(f->function) || is_array_code(as_function(f->function)) || depth-- > 0)
      continue;
    if (!f->shown) {
      f->shown = steal(frame_at(f->code, as_function(f->function)->func_globals, 0));
      heap().hold(f->shown);
      shown_.insert(f->shown.ptr());
    }
    return f->shown;
  }
  throw Break(BreakId::frame_access, "_getframe");
}

std::optional<py::object> Frames::frame_attr(py::handle frame, py::handle name) {
  if (!shown_.contains(frame.ptr())) return std::nullopt;
  const auto at = std::ranges::find_if(
      frames_, [&](const TracedFrame* f) { return f->shown && f->shown.is(frame); });
  if (at != frames_.end()) {
    TracedFrame& f = **at;
    const Instruction& i = f.bytecode->instructions[f.next - 1];
    if (is_text(name.ptr(), "f_code")) return borrow(reinterpret_cast<PyObject*>(f.code));
    if (is_text(name.ptr(), "f_globals")) return globals_of(f);
    if (is_text(name.ptr(), "f_lineno")) return py::int_(i.location.line);
    if (is_text(name.ptr(), "f_lasti")) return py::int_(i.offset);
    if (is_text(name.ptr(), "f_locals") && kOneDictOfLocals) return locals(f);
    if (is_text(name.ptr(), "f_back"))
      return frame_object(std::span(frames_.data(), static_cast<size_t>(at - frames_.begin())), 0);
  }
  throw Break(BreakId::frame_access, text(name));
}

UserStack Frames::user_stack() const {
  if (frames_.empty()) return {};
  TracedFrame& f = *frames_.back();
  // What stands for NumPy is no place of the user's.
  if (is_array_code(as_function(f.function))) return f.caller;
  if (f.placed != f.next) {
    const size_t at = f.next > 0 ? f.next - 1 : 0;
    f.place = UserStack(f.caller, f.code, f.bytecode->instructions[at].location.line);
    f.placed = f.next;
  }
  return f.place;
}

// The captured code itself: nothing else runs functions of the user's meanwhile.
py::object Frames::interpret_alone(TracedFrame& frame) {
  FrameRules rules;
  rules.exists = [this](PyObject* o) {
    return heap().exists(o) && !is_callable_constant(o) && !is_singleton(o);
  };
  rules.answers = [](PyObject* o) {
    return is_changeable_class(Py_TYPE(o)) && !is_one_for_all(o) && !is_tensor_object(o) &&
           !is_array(o);
  };
  rules.answer = [this](PyFunctionObject* f, PyObject* const* given) { return answer(f, given); };
  const RefusedFrames refused(&rules);
  rules_ = &rules;
  return interpret(frame);
}

// Of code written in C.
PyObject* Frames::answer(PyFunctionObject* function, PyObject* const* parameters) {
  try {
    Arguments args;
    for (int i = 0; i < code_of(function)->co_argcount; i++) args.push_back(borrow(parameters[i]));
    auto* p = reinterpret_cast<PyObject*>(function);
    Arguments reached = args;
    reached.push_back(borrow(p));
    const Question question(capture_, std::move(reached));
    const py::object out = with_numbers(calls().call(p, std::move(args)));
    if (is_constant(out.ptr()) && !question.had_effects()) return out.inc_ref().ptr();
  } catch (py::error_already_set& e) {
    e.restore();
    return nullptr;
  } catch (...) {
    failed_answer_ = std::current_exception();
  }
  refuse_frame(function);
  return nullptr;
}

// Of an exception of captured code: the places that it has passed so far, with empty frames, behind
// those in code that really ran.
py::object Frames::traceback_of(py::handle exception) {
  const auto it = raised_.find(exception.ptr());
  if (it == raised_.end() && heap().exists(exception))
    throw Break(BreakId::frame_access, "a traceback");
  py::object out = owned(PyException_GetTraceback(exception.ptr()));
  if (!out) out = py::none();
  if (it == raised_.end()) return out;
  std::vector<RaisedAt>& places = it->second;
  for (size_t i = 0; i < places.size(); i++) {
    RaisedAt& place = places[i];
    if (!place.traceback) {
      const py::object frame = steal(frame_at(reinterpret_cast<PyCodeObject*>(place.code.ptr()),
                                              place.globals.ptr(), place.left));
      place.traceback = member_of<"types", "TracebackType">()(out, frame, place.offset, place.line);
      heap().hold(place.traceback);
      tracebacks_.emplace(
          place.traceback.ptr(),
          std::vector(places.begin(), places.begin() + static_cast<ptrdiff_t>(i) + 1));
    }
    out = place.traceback;
  }
  return out;
}

void Frames::set_traceback(py::handle exception, py::handle traceback) {
  traceback_of(exception);  // refuses where it cannot tell
  const std::vector<RaisedAt>* places = places_of_traceback(traceback);
  if (!traceback.is_none() && places == nullptr) throw Break(BreakId::frame_access, "a traceback");
  note_other_traceback(frames_, exception);
  raised_[exception.ptr()] = places != nullptr ? *places : std::vector<RaisedAt>();
  PyException_SetTraceback(exception.ptr(), Py_None);
  heap().hold(borrow(exception.ptr()));
}

Traceback Frames::known_traceback(const py::object& exception) const {
  Traceback out{owned(PyException_GetTraceback(exception.ptr())), {}};
  if (const auto it = raised_.find(exception.ptr()); it != raised_.end()) out.places = it->second;
  return out;
}

void Frames::raise_again(const py::object& exception) {
  const Traceback* caught = nullptr;
  for (auto f = frames_.rbegin(); kHasBlocks && !caught && f != frames_.rend(); ++f)
    for (const TracedFrame::Handled& h : (*f)->handled)
      if (h.exception.is(exception)) caught = &h.caught_with;
  if (caught && caught->places) {
    raised_[exception.ptr()] = *caught->places;
    PyException_SetTraceback(exception.ptr(), caught->real ? caught->real.ptr() : Py_None);
  }
  reraise_value(exception);
}

const std::vector<RaisedAt>* Frames::places_of_traceback(py::handle traceback) const {
  const auto it = tracebacks_.find(traceback.ptr());
  return it == tracebacks_.end() ? nullptr : &it->second;
}

}  // namespace oxy::python
