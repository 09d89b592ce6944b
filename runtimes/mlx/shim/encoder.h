// The arithmetic of an encoder on a CPU beside what kernels.h has: norms with mean and bias, attention that looks both ways,
// activations. One source, compiled per instruction set; a text's result never depends on what is computed beside it.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace sf {

struct EncoderKernels {
  // out = (x - mean) / sqrt(variance + eps) * weight + bias; `out` may be `x`.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n, float* out);
  void (*activate)(const float* x, Activation, int n, float* out);
  // Head `head` of a text of `rows` rows: qkv [rows, 3 * heads * head_dim] gives out [rows, heads * head_dim].
  void (*attend)(const float* qkv, int heads, int head_dim, int head, int rows, float scale, float* out, float* scratch);
  // Elements of scratch for a text of so many rows.
  int64_t (*attend_scratch)(int head_dim, int rows);
};

}  // namespace sf
