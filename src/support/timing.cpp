// Recording phases, and the two ways to show them.
#include "support/timing.h"

#include <algorithm>
#include <cstdio>

#include "support/check.h"

namespace oxy {
namespace {

std::string json_string(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
      out += buffer;
    } else {
      out += c;
    }
  }
  return out += '"';
}

// Spans of the same name below the same parent line.
struct Line {
  std::string_view name;
  int parent;
  int depth;
  double ms = 0;
  int count = 0;
  std::vector<size_t> children;
};

void print_line(std::string& out, const std::vector<Line>& lines, size_t at) {
  const Line& l = lines[at];
  std::string label(static_cast<size_t>(2 * l.depth), ' ');
  label += l.name;
  char number[32];
  std::snprintf(number, sizeof number, "%10.3f ms", l.ms);
  if (label.size() < 40) label.resize(40, ' ');
  cat_to(out, label, number);
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
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].id == id) return static_cast<int>(i);
  threads_.push_back({id});
  return static_cast<int>(threads_.size() - 1);
}

int Timeline::begin(std::string_view name) {
  std::lock_guard lock(mutex_);
  int thread = thread_index();
  int& open = threads_[static_cast<size_t>(thread)].open;
  auto index = static_cast<int>(spans_.size());
  spans_.push_back({std::string(name), "", thread, open, now_ns(), -1});
  open = index;
  return index;
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
    char times[80];
    std::snprintf(times, sizeof times, ", \"ts\": %.3f, \"dur\": %.3f",
                  static_cast<double>(s.begin_ns) / 1e3,
                  static_cast<double>(s.end_ns - s.begin_ns) / 1e3);
    out += times;
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
    int parent =
        all[i].parent < 0 ? -1 : static_cast<int>(line_of[static_cast<size_t>(all[i].parent)]);
    std::vector<size_t>& siblings =
        parent < 0 ? roots : lines[static_cast<size_t>(parent)].children;
    auto same = std::find_if(siblings.begin(), siblings.end(),
                             [&](size_t l) { return lines[l].name == all[i].name; });
    if (same != siblings.end()) {
      line_of[i] = *same;
    } else {
      line_of[i] = lines.size();
      siblings.push_back(lines.size());
      int depth = parent < 0 ? 0 : lines[static_cast<size_t>(parent)].depth + 1;
      lines.push_back({all[i].name, parent, depth});
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
