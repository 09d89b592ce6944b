// Vectors of the width that the compiler's flags allow, for the files that are compiled per instruction set. No header of the
// C++ library: what such a file's flags compile must not become the one copy of an inline function that other CPUs run too.
#pragma once

#include "kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#ifndef SF_VARIANT
#error "SF_VARIANT names the instruction set"
#endif

namespace sf {
namespace SF_VARIANT {
namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

typedef float Vec __attribute__((vector_size(lanes * 4)));
typedef float VecAny __attribute__((vector_size(lanes * 4), aligned(4)));
typedef int32_t Int __attribute__((vector_size(lanes * 4)));
typedef uint32_t Bits __attribute__((vector_size(lanes * 4)));
typedef uint32_t BitsAny __attribute__((vector_size(lanes * 4), aligned(4)));
typedef uint16_t Shorts __attribute__((vector_size(lanes * 2)));
typedef uint16_t ShortsAny __attribute__((vector_size(lanes * 2), aligned(2)));

inline Vec load(const float* p) { return *reinterpret_cast<const VecAny*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecAny*>(p) = v; }
inline Vec splat(float f) { return f - Vec{}; }
inline Bits load_bits(const uint32_t* p) { return *reinterpret_cast<const BitsAny*>(p); }

inline float half_to_float(uint16_t bits) {
#if defined(__F16C__) || defined(__aarch64__)
  _Float16 half;
  __builtin_memcpy(&half, &bits, 2);
  return static_cast<float>(half);
#else
  // The exponent is rebased by a multiplication, which also makes subnormals right.
  uint32_t wide = (static_cast<uint32_t>(bits) & 0x7fff) << 13;
  float scaled, special;
  __builtin_memcpy(&scaled, &wide, 4);
  scaled *= 0x1p112f;
  if ((bits & 0x7c00) == 0x7c00) {
    wide |= 0x7f800000;
    __builtin_memcpy(&special, &wide, 4);
    scaled = special;
  }
  return bits & 0x8000 ? -scaled : scaled;
#endif
}

inline float brain_to_float(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float out;
  __builtin_memcpy(&out, &wide, 4);
  return out;
}

// A vector of floats from elements of a kind.
template <Kind kind>
inline Vec widened(const void* from, int64_t at) {
  if constexpr (kind == Kind::f32) {
    return load(static_cast<const float*>(from) + at);
  } else {
    const uint16_t* p = static_cast<const uint16_t*>(from) + at;
    if constexpr (kind == Kind::bf16) {
      const Bits wide = __builtin_convertvector(*reinterpret_cast<const ShortsAny*>(p), Bits) << 16;
      return reinterpret_cast<Vec>(wide);
    }
#if defined(__AVX512F__)
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    Vec out;
    for (int i = 0; i < lanes; i++) out[i] = half_to_float(p[i]);
    return out;
#endif
  }
}

inline Vec widened(Kind kind, const void* from, int64_t at) {
  switch (kind) {
    case Kind::f32: return widened<Kind::f32>(from, at);
    case Kind::f16: return widened<Kind::f16>(from, at);
    default: return widened<Kind::bf16>(from, at);
  }
}

// e^x by 2^n times a polynomial; within 2 units in the last place of float.
inline Vec exponential(Vec x) {
  x = x < -87.0f ? splat(-87.0f) : x;
  x = x > 88.0f ? splat(88.0f) : x;
  Vec scaled = x * 1.44269504f + 12582912.0f;  // rounds to an integer in the low bits
  Vec n = scaled - 12582912.0f;
  Vec f = x - n * 0.693359375f;
  f = f + n * 2.12194440e-4f;
  Vec p = splat(1.9875691500e-4f);
  p = p * f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.0f;
  Int power = __builtin_convertvector(n, Int) + 127;
  power = power << 23;
  return p * reinterpret_cast<Vec>(power);
}

// The error function as a quotient of polynomials, within 4e-7; beyond 4 it is one.
inline Vec error_function(Vec x) {
  x = x < -4.0f ? splat(-4.0f) : x;
  x = x > 4.0f ? splat(4.0f) : x;
  const Vec s = x * x;
  Vec over = splat(-2.72614225801306e-10f), under = splat(-1.45660718464996e-05f);
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

inline Vec activated(Vec x, Activation act) {
  if (act == Activation::gelu) return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
  // Both others are x / (1 + e^-y).
  const Vec y = act == Activation::silu ? x : 1.5957691216f * (x + 0.044715f * x * x * x);
  const Vec e = exponential(y < 0.0f ? y : -y);
  return x * (y < 0.0f ? e : splat(1.0f)) / (1.0f + e);
}

}  // namespace

// In linear.cpp.
int64_t linear_scratch(const Matrix&);
void linear(const Matrix&, const float* x, int rows, float* y, int64_t y_stride, int from, int to, float* scratch);
void row(const Matrix&, int64_t at, float* out);
// In encoder.cpp.
void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, float* out);
void activate(const float* x, Activation act, int n, float* out);
void attend_text(const float* qkv, int heads, int head_dim, int head, int rows, float scale, float* out, float* scratch);
int64_t attend_text_scratch(int head_dim, int rows);

}  // namespace SF_VARIANT
}  // namespace sf
