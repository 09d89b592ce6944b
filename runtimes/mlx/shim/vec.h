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

}  // namespace

// In linear.cpp.
int64_t linear_scratch(const Matrix&);
void linear(const Matrix&, const float* x, int rows, float* y, int64_t y_stride, int from, int to, float* scratch);
void row(const Matrix&, int64_t at, float* out);

}  // namespace SF_VARIANT
}  // namespace sf
