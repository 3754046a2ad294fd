// The settings of a compilation: a value, made from the table in settings.def, the environment and
// the user's options, then passed down as a const reference and never changed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace oxy {

enum class SettingType : uint8_t { Bool, Int, Real, Text };

// A row of the table.
struct SettingInfo {
  std::string_view name;
  SettingType type;
  std::string_view default_text;
  std::string_view env;      // empty: no variable
  std::string_view choices;  // separated by |; empty: any value of the type
  std::string_view help;
};

std::span<const SettingInfo> setting_table();

struct Settings {
#define OXY_SETTING_TYPE_bool bool
#define OXY_SETTING_TYPE_int int
#define OXY_SETTING_TYPE_real double
#define OXY_SETTING_TYPE_text std::string
#define OXY_SETTING(type, name, value, ...) OXY_SETTING_TYPE_##type name = value;
#include "support/settings.def"
#undef OXY_SETTING
#undef OXY_SETTING_TYPE_bool
#undef OXY_SETTING_TYPE_int
#undef OXY_SETTING_TYPE_real
#undef OXY_SETTING_TYPE_text

  // The defaults, changed by the variables that are set and not empty. Throws UserError for a bad
  // value.
  static Settings from_env();

  // Sets one by name. A bool reads 0/1, true/false, yes/no, on/off in any case. Throws UserError
  // for an unknown name (the message lists the known ones) and for a value that the setting cannot
  // have.
  void set(std::string_view name, std::string_view text);
  // The value as text that `set` reads; UserError for an unknown name.
  std::string get(std::string_view name) const;

  // One line a setting: name = value.
  std::string print() const;

  // Whether a pass is named in disabled_passes.
  bool pass_disabled(std::string_view pass) const;

  friend bool operator==(const Settings&, const Settings&) = default;
};

}  // namespace oxy
