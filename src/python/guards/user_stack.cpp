// Links of frames, and the names that they share.
#include "python/guards/user_stack.h"

#include <algorithm>

#include "python/cpython/handles.h"

namespace oxy::python {

struct UserStack::Place {
  UserStack caller;
  py::object code;
  ir::Frame frame;  // what is known of it already
};

UserStack::UserStack(const UserStack& caller, PyCodeObject* code, int32_t line)
    : place_(std::make_shared<const Place>(caller, borrow(reinterpret_cast<PyObject*>(code)),
                                           ir::Frame{{}, line, {}, {}})) {}

UserStack::UserStack(std::vector<ir::Frame> frames) {
  for (ir::Frame& f : frames) {
    UserStack caller = std::move(*this);
    place_ = std::make_shared<const Place>(std::move(caller), py::object(), std::move(f));
  }
}

UserStack UserStack::caller() const { return place_->caller; }

ir::Frame UserStack::innermost() const {
  ir::Frame frame = place_->frame;
  if (place_->code) {
    auto* code = reinterpret_cast<PyCodeObject*>(place_->code.ptr());
    frame.file = py::handle(code->co_filename).cast<std::string>();
    frame.function = py::handle(code->co_name).cast<std::string>();
  }
  return frame;
}

std::vector<ir::Frame> UserStack::frames() const {
  std::vector<ir::Frame> out;
  for (UserStack s = *this; !s.empty(); s = s.caller()) out.push_back(s.innermost());
  std::ranges::reverse(out);
  return out;
}

}  // namespace oxy::python
