// The kernels that only encoders need; see Kernels in kernels.h.
#include "vec.h"

namespace sf {
namespace SF_VARIANT {
namespace {

// Element i of a sum goes to place i % lanes.
template <class At>
inline float total(int n, At at) {
  float sums[lanes] = {};
  int i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; j++) sums[j] += at(i + j);
  for (int j = 0; i + j < n; j++) sums[j] += at(i + j);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++) sums[j] += sums[j + half];
  return sums[0];
}

}  // namespace

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, float* out) {
  const float mean = total(n, [=](int i) { return x[i]; }) / static_cast<float>(n);
  const float variance = total(n, [=](int i) { return (x[i] - mean) * (x[i] - mean); }) / static_cast<float>(n);
  const float factor = 1.0f / __builtin_sqrtf(variance + eps);
  for (int i = 0; i < n; i++) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

void activate(const float* x, Activation act, int n, float* out) {
  int i = 0;
  for (; i + lanes <= n; i += lanes) store(out + i, activated(load(x + i), act));
  for (; i < n; i++) out[i] = activated(splat(x[i]), act)[0];
}

static inline int padded(int rows) { return (rows + lanes - 1) / lanes * lanes; }

int64_t attend_text_scratch(int head_dim, int rows) { return static_cast<int64_t>(head_dim + 1) * padded(rows); }

void attend_text(const float* qkv, int heads, int head_dim, int head, int rows, float scale, float* out, float* scratch) {
  const int64_t width = static_cast<int64_t>(heads) * head_dim, stride = 3 * width;
  const int room = padded(rows);
  const float *queries = qkv + head * head_dim, *keys = queries + width, *values = keys + width;
  // Keys on their sides: scores of neighbouring positions are then made together.
  float *sides = scratch, *scores = scratch + static_cast<int64_t>(head_dim) * room;
  for (int d = 0; d < head_dim; d++)
    for (int p = 0; p < room; p++) sides[static_cast<int64_t>(d) * room + p] = p < rows ? keys[p * stride + d] : 0.0f;
  for (int q = 0; q < rows; q++) {
    const float* query = queries + q * stride;
    float most = -__builtin_inff();
    for (int p = 0; p < room; p += lanes) {
      Vec sum = {};
      for (int d = 0; d < head_dim; d++) sum += query[d] * load(sides + static_cast<int64_t>(d) * room + p);
      store(scores + p, sum * scale);
      for (int i = 0; i < lanes && p + i < rows; i++) most = scores[p + i] > most ? scores[p + i] : most;
    }
    for (int p = 0; p < room; p += lanes) store(scores + p, exponential(load(scores + p) - most));
    const float share = 1.0f / total(rows, [=](int p) { return scores[p]; });
    float* to = out + q * width + head * head_dim;
    int d = 0;
    for (; d + lanes <= head_dim; d += lanes) {
      Vec sum = {};
      for (int p = 0; p < rows; p++) sum += scores[p] * load(values + p * stride + d);
      store(to + d, sum * share);
    }
    for (; d < head_dim; d++) {
      float sum = 0.0f;
      for (int p = 0; p < rows; p++) sum += scores[p] * values[p * stride + d];
      to[d] = sum * share;
    }
  }
}

}  // namespace SF_VARIANT
}  // namespace sf
