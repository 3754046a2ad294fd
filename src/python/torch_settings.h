// What a program has set of torch's compiler. Nothing is imported for it: where the program has
// not, a setting has its usual value.
#pragma once

#include <optional>
#include <string>

#include "python/cpython/handles.h"

namespace oxy::python {

bool setting_of(const char* module, const char* name, bool usual);
// Of torch._dynamo.config.
bool dynamo_setting(const char* name, bool usual);
size_t dynamo_number(const char* name, size_t usual);
py::object dynamo_object(const char* name);  // null where there is none
// Nothing where the program has left it as it was.
std::optional<bool> chosen_setting(const char* name);
// Of torch.compiler.config; empty where there is none.
std::string compiler_text(const char* name);

}  // namespace oxy::python
