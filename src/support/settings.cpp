// The settings table at work: reading, checking and printing values.
#include "support/settings.h"

#include <cctype>
#include <cstdlib>
#include <variant>

#include "support/check.h"

namespace oxy {
namespace {

// By number of its SettingType.
using Member =
    std::variant<bool Settings::*, int Settings::*, double Settings::*, std::string Settings::*>;
constexpr Member kMembers[] = {
#define OXY_SETTING(type, name, ...) &Settings::name,
#include "support/settings.def"
#undef OXY_SETTING
};

constexpr SettingType type_of(Member m) { return static_cast<SettingType>(m.index()); }

// What `get` gives for a default that the table writes so.
constexpr std::string_view default_text(std::string_view written) {
  if (written == "true") return "True";
  if (written == "false") return "False";
  if (written.size() >= 2 && written.front() == '"') return written.substr(1, written.size() - 2);
  return written;
}

constexpr SettingInfo kSettings[] = {
#define OXY_SETTING(type, name, value, env, choices, help) \
  {#name, type_of(&Settings::name), default_text(#value), env, choices, help},
#include "support/settings.def"
#undef OXY_SETTING
};

// The name in the table's spelling.
std::string canonical(std::string_view name) {
  std::string s(name);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

const SettingInfo& find(std::string_view name) {
  std::string wanted = canonical(name);
  for (const SettingInfo& info : kSettings)
    if (info.name == wanted) return info;
  std::string known =
      join(kSettings, ", ", [](std::string& out, const SettingInfo& i) { append(out, i.name); });
  throw UserError(cat("unknown option \"", name, "\"; the known ones are: ", known));
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string s(text);
  std::transform(s.begin(), s.end(), s.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (s == "1" || s == "true" || s == "yes" || s == "on") return true;
  if (s == "0" || s == "false" || s == "no" || s == "off") return false;
  return std::nullopt;
}

std::string allowed(const SettingInfo& info) {
  if (!info.choices.empty()) {
    std::string s = "one of ";
    for (char c : info.choices) s += c == '|' ? std::string(", ") : std::string(1, c);
    return s;
  }
  if (info.type == SettingType::Bool) return "true or false";
  if (info.type == SettingType::Real) return "a number from 0 to 1";
  return info.type == SettingType::Int ? "a whole number from 0" : "text";
}

bool is_choice(const SettingInfo& info, std::string_view text) {
  return std::ranges::count(split(info.choices, '|'), text) > 0;
}

// Whether the value was one that the setting can have, and is stored.
template <class T>
bool store(T& field, std::optional<T> v, bool allowed) {
  if (v && allowed) field = std::move(*v);
  return v && allowed;
}
bool store(const SettingInfo&, bool& field, std::string_view text) {
  return store(field, parse_bool(text), true);
}
bool store(const SettingInfo& info, int& field, std::string_view text) {
  const auto v = parse_number<int>(text);
  return store(field, v, info.choices.empty() ? v >= 0 : is_choice(info, text));
}
bool store(const SettingInfo&, double& field, std::string_view text) {
  double v = -1;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  const bool whole = r.ec == std::errc() && r.ptr == text.data() + text.size();
  return store(field, std::optional(v), whole && v >= 0 && v <= 1);
}
bool store(const SettingInfo& info, std::string& field, std::string_view text) {
  return store(field, std::optional(std::string(text)),
               info.choices.empty() || is_choice(info, text));
}

const Member& member_of(const SettingInfo& info) { return kMembers[&info - kSettings]; }

void set_checked(Settings& s, const SettingInfo& info, std::string_view shown_name,
                 std::string_view text) {
  if (!std::visit([&](auto m) { return store(info, s.*m, text); }, member_of(info)))
    throw UserError(cat(shown_name, ": \"", text, "\" is not ", allowed(info)));
}

}  // namespace

std::span<const SettingInfo> setting_table() { return kSettings; }

Settings Settings::from_env() {
  Settings s;
  for (const SettingInfo& info : kSettings) {
    if (info.env.empty()) continue;
    std::string variable(info.env);
    const char* text = std::getenv(variable.c_str());
    if (text && *text) set_checked(s, info, variable, text);
  }
  return s;
}

void Settings::set(std::string_view name, std::string_view text) {
  const SettingInfo& info = find(name);
  set_checked(*this, info, cat("option ", info.name), text);
}

std::string Settings::get(std::string_view name) const {
  return std::visit([this](auto m) { return cat(this->*m); }, member_of(find(name)));
}

std::string Settings::print() const {
  std::string out;
  for (const SettingInfo& info : kSettings) cat_to(out, info.name, " = ", get(info.name), '\n');
  return out;
}

bool Settings::pass_disabled(std::string_view pass) const {
  std::string wanted = canonical(pass);
  return std::ranges::any_of(split(disabled_passes, ','),
                             [&](std::string_view item) { return canonical(item) == wanted; });
}

}  // namespace oxy
