// Products with a matrix whose rows lie side by side in blocks of sixteen; see Matrix in kernels.h.
//
// One vector lane is one element of the result, and is summed over k = 0, 1, 2, ... in one go: whatever the number of rows of
// x, and whether the weights are widened on the way or before.
#include "vec.h"

namespace sf {
namespace SF_VARIANT {
namespace {

constexpr int parts = block_cols / lanes;  // vectors of a block
constexpr int unit = 32;                   // elements of a column that are whole words, whatever their bits

// Rows of x and blocks of columns whose sums fit into the registers beside what they are made of.
#if defined(__AVX512F__)
constexpr int wide_rows = 12, wide_blocks = 2, few_rows = 8;
#elif defined(__AVX2__)
constexpr int wide_rows = 6, wide_blocks = 1, few_rows = 3;
#else
constexpr int wide_rows = 2, wide_blocks = 1, few_rows = 1;
#endif
constexpr int lone_blocks = 4;  // of one row: enough sums to hide how long an addition takes

// What stands at the same place of the next blocks will be asked for soon. Memory is too far away for the CPU to find out by
// itself: it sees many short streams.
inline void ahead(const void* p) { __builtin_prefetch(p, 0, 2); }

template <Kind kind>
inline const void* element(const void* from, int64_t at) {
  return static_cast<const char*>(from) + at * (kind == Kind::f32 ? 4 : 2);
}

// Some rows of x, and where their results go.
struct Rows {
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;

  Rows from(int row) const { return {x + row * x_stride, x_stride, y + row * y_stride, y_stride}; }
};

// The part of a block that vector `n` of several blocks is: of columns with `length` elements each.
inline int64_t place_of(int n, int64_t length) {
  return n / parts * length * block_cols + n % parts * lanes;
}

template <int R, int N>
inline void put(const Vec (&acc)[R][N], const Rows& rows, const float* bias, int cols) {
  for (int r = 0; r < R; r++) {
    float* y = rows.y + r * rows.y_stride;
    for (int n = 0; n < N; n++) {
      const int at = n * lanes;
      if (at + lanes <= cols) {
        store(y + at, bias ? acc[r][n] + load(bias + at) : acc[r][n]);
      } else {
        for (int i = 0; at + i < cols; i++) y[at + i] = bias ? acc[r][n][i] + bias[at + i] : acc[r][n][i];
      }
    }
  }
}

// R rows times B blocks of plain elements from `w` on; the first `cols` columns are stored.
template <Kind kind, int R, int B>
void plain_tile(const void* w, int64_t length, const Rows& rows, const float* bias, int cols) {
  constexpr int N = B * parts;
  Vec acc[R][N] = {};
  for (int64_t k = 0; k < length; k++) {
    Vec wide[N];
    for (int n = 0; n < N; n++) wide[n] = widened<kind>(w, place_of(n, length) + k * block_cols);
    if constexpr (R <= few_rows)
      for (int b = 0; b < B; b++) ahead(element<kind>(w, ((B + b) * length + k) * block_cols));
    for (int r = 0; r < R; r++) {
      const Vec x = splat(rows.x[r * rows.x_stride + k]);
      for (int n = 0; n < N; n++) acc[r][n] += x * wide[n];
    }
  }
  put<R, N>(acc, rows, bias, cols);
}

// Where the packed columns of a block and their groups lie, and what their codes are multiplied with.
struct Packed {
  const uint32_t* words;
  const void* scales;
  const void* biases;
  Kind scale_kind;
  int group;
};

// Code k of a unit as the mantissa of a number from 1 to 2.
template <int bits, int k>
inline Bits code(const uint32_t* words) {
  constexpr int top = 23 - bits, word = k * bits / 32, shift = k * bits % 32;
  const Bits low = load_bits(words + word * block_cols);
  Bits out;
  if constexpr (shift >= top)
    out = low >> (shift - top);
  else
    out = low << (top - shift);
  if constexpr (shift + bits > 32) out |= load_bits(words + (word + 1) * block_cols) << (top + 32 - shift);
  return (out & (((1u << bits) - 1) << top)) | 0x3f800000u;
}

// A group's codes c stand for scale * c + bias; c is 2^bits * (m - 1) of the number m that `code` makes of it.
struct Scale {
  Vec factor;
  Vec more;

  template <int bits>
  static Scale of(const Packed& p, int64_t at) {
    const Vec factor = widened(p.scale_kind, p.scales, at) * static_cast<float>(1 << bits);
    return {factor, widened(p.scale_kind, p.biases, at) - factor};
  }
  Vec value(Bits code) const { return reinterpret_cast<Vec>(code) * factor + more; }
};

// Elements [k, stop) of the words that begin with element 0.
template <int bits, int R, int N, int k, int stop>
[[gnu::always_inline]] inline void packed_steps(const uint32_t* const (&words)[N], const Scale (&scales)[N], const Rows& rows, int64_t at,
                         Vec (&acc)[R][N]) {
  Vec wide[N];
  for (int n = 0; n < N; n++) wide[n] = scales[n].value(code<bits, k>(words[n]));
  for (int r = 0; r < R; r++) {
    const Vec x = splat(rows.x[r * rows.x_stride + at + k]);
    for (int n = 0; n < N; n++) acc[r][n] += x * wide[n];
  }
  if constexpr (k + 1 < stop) packed_steps<bits, R, N, k + 1, stop>(words, scales, rows, at, acc);
}

// R rows times B blocks of codes that fill words.
template <int bits, int R, int B>
void packed_tile(const Packed& p, int64_t length, const Rows& rows, const float* bias, int cols) {
  static_assert(32 % bits == 0, "a code does not go on in the next word");
  constexpr int N = B * parts, codes = 32 / bits;
  Vec acc[R][N] = {};
  const uint32_t* words[N];
  for (int n = 0; n < N; n++) words[n] = p.words + place_of(n, length / codes);
  const int64_t groups = length / p.group;
  int64_t k = 0;
  for (int64_t g = 0; g < groups; g++) {
    Scale scales[N];
    for (int n = 0; n < N; n++) scales[n] = Scale::of<bits>(p, place_of(n, groups) + g * block_cols);
    for (const int64_t stop = k + p.group; k < stop; k += codes) {
      packed_steps<bits, R, N, 0, codes>(words, scales, rows, k, acc);
      for (int n = 0; n < N; n += parts) ahead(words[n] + B * (length / codes) * block_cols);
      for (int n = 0; n < N; n++) words[n] += block_cols;
    }
  }
  put<R, N>(acc, rows, bias, cols);
}

template <int bits, int k>
[[gnu::always_inline]] inline void unpack_steps(const uint32_t* words, const Scale& scale, float* out) {
  store(out + k * block_cols, scale.value(code<bits, k>(words)));
  if constexpr (k + 1 < unit) unpack_steps<bits, k + 1>(words, scale, out);
}

// One block of packed columns as floats.
template <int bits>
void unpack(const Packed& p, int64_t length, float* out) {
  for (int part = 0; part < block_cols; part += lanes)
    for (int64_t k = 0; k < length;) {
      const Scale scale = Scale::of<bits>(p, k / p.group * block_cols + part);
      for (const int64_t stop = k + p.group; k < stop; k += unit)
        unpack_steps<bits, 0>(p.words + k / unit * bits * block_cols + part, scale, out + k * block_cols + part);
    }
}

Packed packed_at(const Matrix& m, int64_t block) {
  const int64_t groups = m.cols / m.group, bytes = m.scale_kind == Kind::f32 ? 4 : 2;
  const int64_t at = block * groups * block_cols * bytes;
  return {static_cast<const uint32_t*>(m.weight) + block * (m.cols / unit) * m.bits * block_cols,
          static_cast<const char*>(m.scales) + at, static_cast<const char*>(m.biases) + at, m.scale_kind, m.group};
}

const void* plain_at(const Matrix& m, int64_t block) {
  const int64_t bytes = m.kind == Kind::f32 ? 4 : 2;
  return static_cast<const char*>(m.weight) + block * m.cols * block_cols * bytes;
}

// One block as floats.
void widen(const Matrix& m, int64_t block, float* out) {
  if (m.kind != Kind::packed) {
    const void* from = plain_at(m, block);
    for (int64_t at = 0; at < int64_t{m.cols} * block_cols; at += lanes) store(out + at, widened(m.kind, from, at));
    return;
  }
  const Packed p = packed_at(m, block);
  switch (m.bits) {
    case 2: return unpack<2>(p, m.cols, out);
    case 3: return unpack<3>(p, m.cols, out);
    case 4: return unpack<4>(p, m.cols, out);
    case 5: return unpack<5>(p, m.cols, out);
    case 6: return unpack<6>(p, m.cols, out);
    default: return unpack<8>(p, m.cols, out);
  }
}

// Calls `tile` for all rows from `row` on, for R rows at a time and for fewer at the end.
template <int R, class Tile>
void for_rows(int count, const Tile& tile, int row = 0) {
  for (; row + R <= count; row += R) tile.template operator()<R>(row);
  if constexpr (R > 1)
    if (row < count) for_rows<R - 1>(count, tile, row);
}

// `blocks` blocks from a multiple of sixteen columns on, for one row.
template <int B>
void lone(const Matrix& m, const Rows& rows, int64_t block, const float* bias, int cols) {
  switch (m.kind) {
    case Kind::f32: return plain_tile<Kind::f32, 1, B>(plain_at(m, block), m.cols, rows, bias, cols);
    case Kind::f16: return plain_tile<Kind::f16, 1, B>(plain_at(m, block), m.cols, rows, bias, cols);
    case Kind::bf16: return plain_tile<Kind::bf16, 1, B>(plain_at(m, block), m.cols, rows, bias, cols);
    default: break;
  }
  if (m.bits == 4)
    packed_tile<4, 1, B>(packed_at(m, block), m.cols, rows, bias, cols);
  else
    packed_tile<8, 1, B>(packed_at(m, block), m.cols, rows, bias, cols);
}

template <int B>
void some(const Matrix& m, int count, const Rows& rows, int64_t block, const float* bias, int cols, float* scratch) {
  auto plain = [&]<Kind kind, int most>(const void* w) {
    for_rows<most>(count, [&]<int R>(int row) { plain_tile<kind, R, B>(w, m.cols, rows.from(row), bias, cols); });
  };
  auto packed = [&]<int bits>() {
    const Packed p = packed_at(m, block);
    for_rows<few_rows>(count, [&]<int R>(int row) { packed_tile<bits, R, B>(p, m.cols, rows.from(row), bias, cols); });
  };
  if (m.kind == Kind::f32) return plain.template operator()<Kind::f32, wide_rows>(plain_at(m, block));
  if (m.kind == Kind::packed && count <= 2 * few_rows) {
    if (m.bits == 4) return packed.template operator()<4>();
    if (m.bits == 8) return packed.template operator()<8>();
  }
  if (count <= few_rows) {
    if (m.kind == Kind::bf16) return plain.template operator()<Kind::bf16, few_rows>(plain_at(m, block));
    if (m.kind == Kind::f16) return plain.template operator()<Kind::f16, few_rows>(plain_at(m, block));
  }
  for (int b = 0; b < B; b++) widen(m, block + b, scratch + b * int64_t{m.cols} * block_cols);
  plain.template operator()<Kind::f32, wide_rows>(scratch);
}

// Whether one row is multiplied without widening the weights first.
bool direct(const Matrix& m) { return m.kind != Kind::packed || m.bits == 4 || m.bits == 8; }

}  // namespace

int64_t linear_scratch(const Matrix& m) { return int64_t{wide_blocks} * block_cols * m.cols; }

void linear(const Matrix& m, const float* x, int count, float* y, int64_t y_stride, int from, int to, float* scratch) {
  for (int c = from; c < to;) {
    const Rows rows{x, m.cols, y + c, y_stride};
    const float* bias = m.bias ? m.bias + c : nullptr;
    const int64_t block = c / block_cols;
    const int left = (to - c + block_cols - 1) / block_cols;
    int blocks = 1;
    if (count == 1 && direct(m)) {
      if (left >= lone_blocks) {
        blocks = lone_blocks;
        lone<lone_blocks>(m, rows, block, bias, to - c);
      } else {
        lone<1>(m, rows, block, bias, to - c);
      }
    } else if (left >= wide_blocks) {
      blocks = wide_blocks;
      some<wide_blocks>(m, count, rows, block, bias, to - c, scratch);
    } else {
      some<1>(m, count, rows, block, bias, to - c, scratch);
    }
    c += blocks * block_cols;
  }
}

// A code of a column whose words stand `block_cols` apart, in a scalar.
void row(const Matrix& m, int64_t at, float* out) {
  const int64_t block = at / block_cols, lane = at % block_cols;
  if (m.kind != Kind::packed) {
    const void* from = plain_at(m, block);
    for (int64_t k = 0; k < m.cols; k++) {
      const int64_t i = k * block_cols + lane;
      switch (m.kind) {
        case Kind::f32: out[k] = static_cast<const float*>(from)[i]; break;
        case Kind::f16: out[k] = half_to_float(static_cast<const uint16_t*>(from)[i]); break;
        default: out[k] = brain_to_float(static_cast<const uint16_t*>(from)[i]);
      }
    }
    return;
  }
  const Packed p = packed_at(m, block);
  const uint32_t mask = (1u << m.bits) - 1;
  for (int64_t k = 0; k < m.cols; k++) {
    const int64_t group = k / m.group * block_cols + lane, bit = k * m.bits, word = bit / 32;
    uint64_t both = p.words[word * block_cols + lane];
    // A code that goes on in the next word: there is one, as units are whole words.
    if (bit % 32 + m.bits > 32) both |= static_cast<uint64_t>(p.words[(word + 1) * block_cols + lane]) << 32;
    const float scale = widened(m.scale_kind, p.scales, group / lanes * lanes)[group % lanes];
    const float more = widened(m.scale_kind, p.biases, group / lanes * lanes)[group % lanes];
    out[k] = scale * static_cast<float>(static_cast<int32_t>((both >> (bit % 32)) & mask)) + more;
  }
}

}  // namespace SF_VARIANT
}  // namespace sf
