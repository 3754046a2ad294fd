// The host interface of this process: torch's thread pool and the vector maths that libtorch_cpu
// exports.
#pragma once

#include "runtime/device.h"
#include "runtime/host.h"

namespace oxy::bridge {

const runtime::Host& torch_host();
// The device of plans on the CPU.
const runtime::DeviceApi& torch_cpu();

}  // namespace oxy::bridge
