// Errors that torch raises of a tensor without data where the same call on a real one would
// succeed.
#pragma once

#include <string_view>

namespace oxy::bridge {

// What such a message means, in our words; null for a message that may be the user's own error.
const char* torch_limit(std::string_view message);

}  // namespace oxy::bridge
