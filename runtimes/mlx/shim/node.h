// Nodes of MLX's graph that run our kernels on its CPU stream.
#pragma once

#include <functional>
#include <vector>

#include "common.h"

using Task = std::function<void()>;
using Bind = std::function<Task(const std::vector<mx::array>&, mx::array&)>;

// `bind` is called when all inputs have memory; what it returns runs when they have their values.
mx::array node(const char* name, mx::Shape shape, std::vector<mx::array> inputs, Bind bind);
// Keeps what is thrown right now. MLX's thread would end the process with what a kernel throws.
void keep_thrown() noexcept;
// Throws what was kept.
void throw_kept();
