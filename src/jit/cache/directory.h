// The folder for what outlives a process.
#pragma once

#include <optional>
#include <string>

namespace oxy::jit::cache {

// $OXYFUEL_CACHE_DIR, $XDG_CACHE_HOME/oxyfuel or $HOME/.cache/oxyfuel, the first that is named,
// made with mode 0700 where it is missing. Nothing where no variable is set, or it cannot be
// written to, or it is not the user's own, or others may write to it: everything works without.
std::optional<std::string> writable_directory();

}  // namespace oxy::jit::cache
