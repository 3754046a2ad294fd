// The narrow precompiled header of the extension (building.md of torch headers: they are slow, keep
// this short).
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/python_variable.h>
#include <string>
#include <vector>
