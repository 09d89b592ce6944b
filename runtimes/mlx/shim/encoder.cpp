// See encoder.h. No header of the C++ library, as in kernels.cpp: what this file's flags compile must not become the one copy of
// an inline function that other CPUs run too.
#include "encoder.h"

#ifndef SF_VARIANT
#error "SF_VARIANT names the instruction set"
#endif

namespace sf {
namespace SF_VARIANT {
namespace {

#if defined(__AVX512F__)
constexpr int wide = 16;
#elif defined(__AVX2__)
constexpr int wide = 8;
#else
constexpr int wide = 4;
#endif
typedef float Wide __attribute__((vector_size(wide * 4)));
typedef float WideAny __attribute__((vector_size(wide * 4), aligned(4)));
typedef int32_t WideInt __attribute__((vector_size(wide * 4)));

inline Wide load(const float* p) { return *reinterpret_cast<const WideAny*>(p); }
inline void store(float* p, Wide v) { *reinterpret_cast<WideAny*>(p) = v; }
inline Wide all(float f) { return f - Wide{}; }

// Element i of a sum goes to place i % wide.
template <class At>
inline float total(int n, At at) {
  float sums[wide] = {};
  int i = 0;
  for (; i + wide <= n; i += wide)
    for (int j = 0; j < wide; j++) sums[j] += at(i + j);
  for (int j = 0; i + j < n; j++) sums[j] += at(i + j);
  for (int half = wide / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++) sums[j] += sums[j + half];
  return sums[0];
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, float* out) {
  const float mean = total(n, [=](int i) { return x[i]; }) / static_cast<float>(n);
  const float variance = total(n, [=](int i) { return (x[i] - mean) * (x[i] - mean); }) / static_cast<float>(n);
  const float factor = 1.0f / __builtin_sqrtf(variance + eps);
  for (int i = 0; i < n; i++) out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

// e^x for x <= 0, where scores and gates need it: 2^n times a polynomial.
inline Wide decayed(Wide x) {
  x = x < -87.0f ? all(-87.0f) : x;
  const Wide rounded = x * 1.44269504f + 12582912.0f;
  const Wide n = rounded - 12582912.0f;
  const Wide f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Wide p = all(1.9875691500e-4f);
  p = p * f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  const WideInt power = (__builtin_convertvector(n, WideInt) + 127) << 23;
  return (p * f * f + f + 1.0f) * reinterpret_cast<Wide>(power);
}

// The error function as a quotient of polynomials, within 4e-7; beyond 4 it is one.
inline Wide error_function(Wide x) {
  x = x < -4.0f ? all(-4.0f) : x;
  x = x > 4.0f ? all(4.0f) : x;
  const Wide s = x * x;
  Wide over = all(-2.72614225801306e-10f), under = all(-1.45660718464996e-05f);
  over = over * s + 2.77068142495902e-08f;
  over = over * s - 2.10102402082508e-06f;
  over = over * s - 5.69250639462346e-05f;
  over = over * s - 7.34990630326855e-04f;
  over = over * s - 2.95459980854025e-03f;
  over = over * s - 1.60960333262415e-02f;
  under = under * s - 2.13374055278905e-04f;
  under = under * s - 1.68282697438203e-03f;
  under = under * s - 7.37332916720468e-03f;
  under = under * s - 1.42647390514189e-02f;
  return x * over / under;
}

inline Wide activated(Wide x, Activation act) {
  if (act == Activation::gelu) return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  // Both others are x / (1 + e^-y).
  const Wide y = act == Activation::silu ? x : 1.5957691216f * (x + 0.044715f * x * x * x);
  const Wide e = decayed(y < 0.0f ? y : -y);
  return x * (y < 0.0f ? e : all(1.0f)) / (1.0f + e);
}

void activate(const float* x, Activation act, int n, float* out) {
  int i = 0;
  for (; i + wide <= n; i += wide) store(out + i, activated(load(x + i), act));
  for (; i < n; i++) out[i] = activated(all(x[i]), act)[0];
}

inline int padded(int rows) { return (rows + wide - 1) / wide * wide; }

int64_t attend_scratch(int head_dim, int rows) { return static_cast<int64_t>(head_dim + 1) * padded(rows); }

void attend(const float* qkv, int heads, int head_dim, int head, int rows, float scale, float* out, float* scratch) {
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
    for (int p = 0; p < room; p += wide) {
      Wide sum = {};
      for (int d = 0; d < head_dim; d++) sum += query[d] * load(sides + static_cast<int64_t>(d) * room + p);
      store(scores + p, sum * scale);
      for (int i = 0; i < wide && p + i < rows; i++) most = scores[p + i] > most ? scores[p + i] : most;
    }
    for (int p = 0; p < room; p += wide) store(scores + p, decayed(load(scores + p) - most));
    const float share = 1.0f / total(rows, [=](int p) { return scores[p]; });
    float* to = out + q * width + head * head_dim;
    int d = 0;
    for (; d + wide <= head_dim; d += wide) {
      Wide sum = {};
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

}  // namespace

extern const EncoderKernels encoder_table;
const EncoderKernels encoder_table = {layer_norm, activate, attend, attend_scratch};

}  // namespace SF_VARIANT
}  // namespace sf
