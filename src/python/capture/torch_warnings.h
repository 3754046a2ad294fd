// Warnings that a function of torch written in Python gives while it is called as a whole. Such a
// call is made once, at the capture; eager would warn at each call, from the captured code's own
// lines.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

namespace oxy::python {

namespace py = pybind11;

struct TorchWarning {
  py::object message, category;
  size_t level = 0;  // of the captured frame that it names, the innermost is 1; 0: a frame of
                     // torch's, which is
  py::object file, globals;
  int line = 0;
};

// While it lives, warnings.warn of this thread is kept; other threads warn as ever.
class TorchWarnings {
 public:
  explicit TorchWarnings(py::handle callable);
  ~TorchWarnings();
  TorchWarnings(const TorchWarnings&) = delete;
  TorchWarnings& operator=(const TorchWarnings&) = delete;

  std::vector<TorchWarning> given() const;

 private:
  py::object warn_;  // the real one; null for a function that is not written in Python
  py::list kept_;
};

}  // namespace oxy::python
