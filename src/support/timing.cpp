// Recording phases, and the two ways to show them.
#include "support/timing.h"

#include <cstdio>

#include "support/check.h"

namespace oxy {
namespace {

template <class... A>
std::string formatted(const char* format, A... a) {
  char buffer[80];
  std::snprintf(buffer, sizeof buffer, format, a...);
  return buffer;
}

std::string json_string(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (static_cast<unsigned char>(c) < 0x20)
      out += formatted("\\u%04x", static_cast<unsigned>(c));
    else
      cat_to(out, c == '"' || c == '\\' ? "\\" : "", c);
  }
  return out += '"';
}

// Spans of the same name below the same parent line.
struct Line {
  std::string_view name;
  int depth;
  double ms = 0;
  int count = 0;
  std::vector<size_t> children;
};

void print_line(std::string& out, const std::vector<Line>& lines, size_t at) {
  const Line& l = lines[at];
  std::string label(static_cast<size_t>(2 * l.depth), ' ');
  label += l.name;
  if (label.size() < 40) label.resize(40, ' ');
  cat_to(out, label, formatted("%10.3f ms", l.ms));
  if (l.count > 1) cat_to(out, "  x", l.count);
  out += '\n';
  for (size_t child : l.children) print_line(out, lines, child);
}

double milliseconds(const Span& s) { return static_cast<double>(s.end_ns - s.begin_ns) / 1e6; }

}  // namespace

int64_t Timeline::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              start_)
      .count();
}

int Timeline::thread_index() {
  std::thread::id id = std::this_thread::get_id();
  const auto known = std::ranges::find(threads_, id, &Thread::id);
  const auto index = static_cast<int>(known - threads_.begin());
  if (known == threads_.end()) threads_.push_back({id});
  return index;
}

int Timeline::begin(std::string_view name) {
  std::lock_guard lock(mutex_);
  int thread = thread_index();
  int& open = threads_[static_cast<size_t>(thread)].open;
  spans_.push_back({std::string(name), "", thread, open, now_ns(), -1});
  return open = static_cast<int>(spans_.size() - 1);
}

void Timeline::end(int span) noexcept {
  std::lock_guard lock(mutex_);
  Span& s = spans_[static_cast<size_t>(span)];
  s.end_ns = now_ns();
  threads_[static_cast<size_t>(s.thread)].open = s.parent;
}

void Timeline::note(int span, std::string_view detail) {
  std::lock_guard lock(mutex_);
  spans_[static_cast<size_t>(span)].detail = detail;
}

std::vector<Span> Timeline::spans() const {
  std::lock_guard lock(mutex_);
  return spans_;
}

std::string Timeline::chrome_trace() const {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  bool first = true;
  for (const Span& s : spans()) {
    if (s.end_ns < 0) continue;
    cat_to(out, first ? "\n" : ",\n", "{\"name\": ", json_string(s.name),
           ", \"cat\": \"compile\", \"ph\": \"X\", \"pid\": 1, \"tid\": ", s.thread);
    out += formatted(", \"ts\": %.3f, \"dur\": %.3f", static_cast<double>(s.begin_ns) / 1e3,
                     static_cast<double>(s.end_ns - s.begin_ns) / 1e3);
    if (!s.detail.empty()) cat_to(out, ", \"args\": {\"detail\": ", json_string(s.detail), '}');
    out += '}';
    first = false;
  }
  return out += "\n]}\n";
}

std::string Timeline::summary() const {
  std::vector<Span> all = spans();
  std::vector<Line> lines;
  std::vector<size_t> line_of(all.size()), roots;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool outermost = all[i].parent < 0;
    const size_t parent = outermost ? 0 : line_of[static_cast<size_t>(all[i].parent)];
    std::vector<size_t>& siblings = outermost ? roots : lines[parent].children;
    auto same = std::ranges::find(siblings, all[i].name, [&](size_t l) { return lines[l].name; });
    line_of[i] = same == siblings.end() ? lines.size() : *same;
    if (same == siblings.end()) {
      siblings.push_back(lines.size());
      lines.push_back({all[i].name, outermost ? 0 : lines[parent].depth + 1});
    }
    if (all[i].end_ns < 0) continue;
    lines[line_of[i]].ms += milliseconds(all[i]);
    ++lines[line_of[i]].count;
  }
  std::string out;
  for (size_t root : roots) print_line(out, lines, root);
  return out;
}

}  // namespace oxy
