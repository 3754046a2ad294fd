// What torch.library.register_fake knows of an op, for the sizes of data that it asks for.
#pragma once

namespace oxy::python {

// Gives torch_bridge the way to run it (shape_fallback.h).
void provide_fake_implementations();

}  // namespace oxy::python
