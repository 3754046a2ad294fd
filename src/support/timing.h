// Where the time of a compilation goes: nested phases on any number of threads, as Chrome trace
// events or a short table.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace oxy {

struct Span {
  std::string name;
  std::string detail;    // shown with the span in the trace; may be empty
  int thread = 0;        // 0, 1, 2 ... in the order of appearance
  int parent = -1;       // the span of the same thread around it, an index into spans()
  int64_t begin_ns = 0;  // since the timeline was made
  int64_t end_ns = -1;   // -1: still open
};

// Collects spans; any thread may add to it.
class Timeline {
 public:
  Timeline() : start_(std::chrono::steady_clock::now()) {}
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  std::vector<Span> spans() const;  // by time of begin
  // The JSON object format of chrome://tracing and Perfetto; one complete event a span.
  std::string chrome_trace() const;
  // One line for each name at its place in the nesting, in order of first begin: name, ms, and how
  // often if repeated.
  std::string summary() const;

 private:
  friend class Phase;
  struct Thread {
    std::thread::id id;
    int open = -1;  // the innermost open span
  };

  int begin(std::string_view name);
  void end(int span) noexcept;
  void note(int span, std::string_view detail);
  int64_t now_ns() const;
  int thread_index();

  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<Thread> threads_;
};

// A span from here to the end of the scope. On a null timeline it does nothing.
class Phase {
 public:
  Phase(Timeline* timeline, std::string_view name)
      : timeline_(timeline), span_(timeline ? timeline->begin(name) : -1) {}
  Phase(Timeline& timeline, std::string_view name) : Phase(&timeline, name) {}
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
  ~Phase() { stop(); }

  // Text shown with the span, such as "12 nodes" or "(unchanged)".
  void note(std::string_view detail) {
    if (timeline_) timeline_->note(span_, detail);
  }
  void stop() {
    if (timeline_) timeline_->end(span_);
    timeline_ = nullptr;
  }

 private:
  Timeline* timeline_;
  int span_;
};

}  // namespace oxy
