// Locations: one byte with the form and the number of code units, then deltas and varints of six
// bits, lowest first. Ranges: varints, highest first, the first byte of an entry marked.
#include "python/bytecode/assemble.h"

namespace oxy::python {

namespace {

// The forms of a location; 0 to 9 are "short" with the column's high bits.
enum Form { one_line_0 = 10, no_columns = 13, long_form = 14, no_location = 15 };
constexpr int kMostUnits = 8;  // of one entry

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  int byte() { return done() ? 0 : static_cast<uint8_t>(bytes_[at_++]); }
  int varint() {
    int value = 0, shift = 0, next = 0;
    do {
      next = byte();
      value |= (next & 63) << shift;
      shift += 6;
    } while (next & 64);
    return value;
  }
  int signed_varint() {
    int value = varint();
    return value & 1 ? -(value >> 1) : value >> 1;
  }
  int highest_first() {
    int next = byte(), value = next & 63;
    while (next & 64) {
      next = byte();
      value = value << 6 | (next & 63);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

class Writer {
 public:
  void byte(int value) { bytes_.push_back(static_cast<char>(value)); }
  void varint(unsigned value) {
    for (; value >= 64; value >>= 6) byte(64 | (value & 63));
    byte(value);
  }
  void signed_varint(int value) {
    varint(value < 0 ? static_cast<unsigned>(-value) << 1 | 1 : static_cast<unsigned>(value) << 1);
  }
  void highest_first(unsigned value, int mark = 0) {
    int shift = 0;
    while (value >> shift >= 64) shift += 6;
    for (; shift > 0; shift -= 6, mark = 0) byte(mark | 64 | (value >> shift & 63));
    byte(mark | (value & 63));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

Location read_location(Reader& in, int form, int& line) {
  if (form == no_location) return {};
  if (form == long_form) {
    line += in.signed_varint();
    int end_line = line + in.varint();
    int column = in.varint() - 1;
    return {line, end_line, column, in.varint() - 1};
  }
  if (form == no_columns) {
    line += in.signed_varint();
    return {line, line, -1, -1};
  }
  if (form >= one_line_0) {
    line += form - one_line_0;
    int column = in.byte();
    return {line, line, column, in.byte()};
  }
  int bits = in.byte();
  int column = form << 3 | bits >> 4;
  return {line, line, column, column + (bits & 15)};
}

// Picks the shortest form; `line` is the last line written.
void write_location(Writer& out, int units, const Location& at, int& line) {
  auto head = [&](int form) { out.byte(128 | form << 3 | (units - 1)); };
  if (at.line < 0) return head(no_location);
  int delta = at.line - line;
  line = at.line;
  bool one_line = at.end_line == at.line || at.end_line < 0;
  if (at.column < 0 || at.end_column < 0) {
    if (one_line) {
      head(no_columns);
      return out.signed_varint(delta);
    }
  } else if (one_line && delta == 0 && at.column < 80 && at.end_column >= at.column &&
             at.end_column - at.column < 16) {
    head(at.column >> 3);
    return out.byte((at.column & 7) << 4 | (at.end_column - at.column));
  } else if (one_line && delta >= 0 && delta <= 2 && at.column < 128 && at.end_column < 128) {
    head(one_line_0 + delta);
    out.byte(at.column);
    return out.byte(at.end_column);
  }
  head(long_form);
  out.signed_varint(delta);
  out.varint(std::max(at.end_line, at.line) - at.line);
  out.varint(at.column + 1);
  out.varint(at.end_column + 1);
}

constexpr int kNoLine = -128;  // in place of a difference of lines

// Pairs of bytes: for how many bytes of code, and how far their line is from the last one.
std::vector<Location> read_lines(std::string_view table, int first_line, int units) {
  std::vector<Location> locations;
  Reader in(table);
  int line = first_line;
  while (!in.done()) {
    const int bytes = in.byte();
    const auto delta = static_cast<int8_t>(in.byte());
    if (delta != kNoLine) line += delta;
    const Location location = delta == kNoLine ? Location{} : Location{line, line, -1, -1};
    locations.insert(locations.end(), bytes / 2, location);
  }
  locations.resize(units);
  return locations;
}

std::string write_lines(const Locations& entries, int first_line) {
  constexpr int kMostBytes = 254, kMostLines = 127;
  Writer out;
  auto pair = [&](int bytes, int delta) {
    out.byte(bytes);
    out.byte(delta & 255);
  };
  int line = first_line;
  for (const auto& [location, units] : entries) {
    const bool has_line = location.line >= 0;
    int delta = has_line ? location.line - line : kNoLine;
    if (has_line) line = location.line;
    for (; has_line && delta > kMostLines; delta -= kMostLines) pair(0, kMostLines);
    for (; has_line && delta < -kMostLines; delta += kMostLines) pair(0, -kMostLines);
    int bytes = 2 * units;
    for (; bytes > kMostBytes; bytes -= kMostBytes, delta = has_line ? 0 : kNoLine)
      pair(kMostBytes, delta);
    pair(bytes, delta);
  }
  return out.take();
}

}  // namespace

std::vector<Location> read_locations(std::string_view table, int first_line, int units) {
  if (kHasLinesOnly) return read_lines(table, first_line, units);
  std::vector<Location> locations;
  Reader in(table);
  int line = first_line;
  while (!in.done()) {
    int head = in.byte();
    Location location = read_location(in, head >> 3 & 15, line);
    locations.insert(locations.end(), (head & 7) + 1, location);
  }
  locations.resize(units);
  return locations;
}

std::string write_locations(const Locations& entries, int first_line) {
  if (kHasLinesOnly) return write_lines(entries, first_line);
  Writer out;
  int line = first_line;
  for (const auto& [location, units] : entries)
    for (int left = units; left > 0; left -= kMostUnits)
      write_location(out, std::min(left, kMostUnits), location, line);
  return out.take();
}

std::vector<ExceptionRange> read_ranges(std::string_view table) {
  std::vector<ExceptionRange> ranges;
  Reader in(table);
  while (!in.done()) {
    ExceptionRange range;
    range.start = in.highest_first();
    range.end = range.start + in.highest_first();
    range.target = in.highest_first();
    int depth = in.highest_first();
    range.depth = depth >> 1;
    range.push_lasti = depth & 1;
    ranges.push_back(range);
  }
  return ranges;
}

std::string write_ranges(const std::vector<ExceptionRange>& ranges) {
  Writer out;
  for (const ExceptionRange& range : ranges) {
    out.highest_first(range.start, 128);
    out.highest_first(range.end - range.start);
    out.highest_first(range.target);
    out.highest_first(range.depth << 1 | (range.push_lasti ? 1 : 0));
  }
  return out.take();
}

}  // namespace oxy::python
