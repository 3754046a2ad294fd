// The settings table: defaults, names, values, environment, cache key.
#include "support/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "support/check.h"

namespace oxy {
namespace {

std::string error_of(Settings s, std::string_view name, std::string_view text) {
  try {
    s.set(name, text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

// Sets a variable for the life of the object.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~Environment() {
    if (old_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, old_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string old_;
};

TEST(Settings, EveryRowIsWellFormed) {
  std::set<std::string_view> names, variables;
  Settings s;
  for (const SettingInfo& info : setting_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    if (!info.env.empty()) EXPECT_TRUE(variables.insert(info.env).second) << info.env;
    EXPECT_FALSE(info.help.empty()) << info.name;
    EXPECT_EQ(s.get(info.name), info.default_text) << info.name;
    s.set(info.name, info.default_text);  // a default is a value that the setting can have
  }
  EXPECT_EQ(s, Settings());
}

TEST(Settings, SetsByNameWithEitherDash) {
  Settings s;
  s.set("compile-threads", "3");
  s.set("verify", "True");
  s.set("fusion", "off");
  s.set("compiler", "external");
  s.set("vector_bytes", "32");
  EXPECT_EQ(s.compile_threads, 3);
  EXPECT_TRUE(s.verify);
  EXPECT_FALSE(s.fusion);
  EXPECT_EQ(s.compiler, "external");
  EXPECT_EQ(s.get("vector-bytes"), "32");
}

TEST(Settings, UnknownNameListsTheKnownOnes) {
  std::string e = error_of({}, "fushion", "1");
  EXPECT_NE(e.find("unknown option \"fushion\""), std::string::npos) << e;
  for (const SettingInfo& info : setting_table()) {
    EXPECT_NE(e.find(info.name), std::string::npos) << info.name;
  }
  EXPECT_THROW(Settings().get("fushion"), UserError);
}

TEST(Settings, BadValuesSayWhatIsAllowed) {
  EXPECT_EQ(error_of({}, "fusion", "maybe"), "option fusion: \"maybe\" is not true or false");
  EXPECT_EQ(error_of({}, "compiler", "tcc"),
            "option compiler: \"tcc\" is not one of auto, clang, external, none");
  EXPECT_EQ(error_of({}, "compile_threads", "-2"),
            "option compile_threads: \"-2\" is not a whole number from 0");
  EXPECT_NE(error_of({}, "compile_threads", "2x"), "no error");
  EXPECT_NE(error_of({}, "compile_threads", "99999999999"), "no error");
  EXPECT_NE(error_of({}, "vector_bytes", "17"), "no error");
}

TEST(Settings, TheEnvironmentChangesDefaults) {
  Environment strict("OXYFUEL_STRICT", "1");
  Environment threads("OXYFUEL_COMPILE_THREADS", "5");
  Environment trace("OXYFUEL_TRACE", "");
  Settings s = Settings::from_env();
  EXPECT_TRUE(s.strict);
  EXPECT_EQ(s.compile_threads, 5);
  EXPECT_EQ(s.trace, "");
}

TEST(Settings, ABadVariableIsNamed) {
  Environment compiler("OXYFUEL_COMPILER", "gcc");
  try {
    Settings::from_env();
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()),
              "OXYFUEL_COMPILER: \"gcc\" is not one of auto, clang, external, none");
  }
}

TEST(Settings, PrintsEveryValue) {
  Settings s;
  s.compiler = "none";
  std::string text = s.print();
  EXPECT_NE(text.find("compiler = none\n"), std::string::npos);
  EXPECT_NE(text.find("fusion = True\n"), std::string::npos);
}

TEST(Settings, DisabledPasses) {
  Settings s;
  s.set("disabled_passes", " remove-dead , fold_constants");
  EXPECT_TRUE(s.pass_disabled("remove_dead"));
  EXPECT_TRUE(s.pass_disabled("fold_constants"));
  EXPECT_FALSE(s.pass_disabled("remove"));
  EXPECT_FALSE(Settings().pass_disabled(""));
}

}  // namespace
}  // namespace oxy
