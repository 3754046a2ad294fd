// Lines of C++ with indentation.
#pragma once

#include <string>

#include "support/text.h"

namespace oxy::codegen::cpp {

class SourceWriter {
 public:
  template <class... A>
  void line(const A&... parts) {
    text_.append(static_cast<size_t>(2 * depth_), ' ');
    cat_to(text_, parts...);
    text_ += '\n';
  }
  // "head {", and the lines until close() deeper.
  template <class... A>
  void open(const A&... head) {
    line(head..., "{");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  const std::string& text() const { return text_; }
  void set_depth(int depth) { depth_ = depth; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace oxy::codegen::cpp
