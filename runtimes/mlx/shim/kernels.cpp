// Norms, gates, attention, and the table of all kernels.
#include "vec.h"

namespace sf {
namespace SF_VARIANT {
namespace {

#if defined(__AVX512F__)
constexpr int tile_rows = 6, tile_cols = 4, mix_rows = 6;
#elif defined(__AVX2__)
constexpr int tile_rows = 3, tile_cols = 4, mix_rows = 2;
#else
constexpr int tile_rows = 4, tile_cols = 4, mix_rows = 4;
#endif
// Position p of a score is summed in vector lane p % score_align.
constexpr int score_align = 16;
constexpr int query_rows = 8;

typedef float Four __attribute__((vector_size(16)));
#if defined(__AVX2__)
typedef float Eight __attribute__((vector_size(32)));
#endif

inline float sum(Four v) {
  v += __builtin_shufflevector(v, v, 2, 3, 2, 3);
  return v[0] + v[1];
}

#if defined(__AVX2__)
inline float sum(Eight v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
#endif

#if defined(__AVX512F__)
inline float sum(Vec v) {
  return sum(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
}
#endif

// The sums of four vectors, each in the order of `sum`.
inline void sums(const Vec* v, float* out) {
#if defined(__AVX512F__)
  auto halves = [](Vec a, Vec b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  };
  const Vec a = halves(v[0], v[1]), b = halves(v[2], v[3]);
  Vec four = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
             __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  four += __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  four += __builtin_shufflevector(four, four, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  for (int i = 0; i < 4; i++) out[i] = four[4 * i];
#else
  for (int i = 0; i < 4; i++) out[i] = sum(v[i]);
#endif
}

// out[r * out_stride + c] = x[r] . w[c] for C columns and R rows.
template <int C, int R>
inline void tile(const float* const* w, const float* x, int64_t x_stride, int n, float* out, int64_t out_stride) {
  Vec acc[R][C] = {};
  int k = 0;
  for (; k + lanes <= n; k += lanes) {
    Vec wide[C];
    for (int c = 0; c < C; c++) wide[c] = load(w[c] + k);
    for (int r = 0; r < R; r++) {
      Vec one = load(x + r * x_stride + k);
      for (int c = 0; c < C; c++) acc[r][c] += one * wide[c];
    }
  }
  for (int r = 0; r < R; r++) {
    float totals[C];
    if constexpr (C == 4)
      sums(acc[r], totals);
    else
      for (int c = 0; c < C; c++) totals[c] = sum(acc[r][c]);
    for (int c = 0; c < C; c++) {
      for (int i = k; i < n; i++) totals[c] += x[r * x_stride + i] * w[c][i];
      out[r * out_stride + c] = totals[c];
    }
  }
}

// C columns of all rows.
template <int C>
void tiles(const float* const* w, const float* x, int64_t x_stride, int n, int m, float* out, int64_t out_stride) {
  int r = 0;
  for (; r + tile_rows <= m; r += tile_rows)
    tile<C, tile_rows>(w, x + r * x_stride, x_stride, n, out + r * out_stride, out_stride);
  x += r * x_stride;
  out += r * out_stride;
  switch (m - r) {
    case 0: break;
    case 1: tile<C, 1>(w, x, x_stride, n, out, out_stride); break;
    case 2: tile<C, 2>(w, x, x_stride, n, out, out_stride); break;
    case 3: tile<C, 3>(w, x, x_stride, n, out, out_stride); break;
    case 4: tile<C, 4>(w, x, x_stride, n, out, out_stride); break;
    default: tile<C, 5>(w, x, x_stride, n, out, out_stride); break;
  }
}

inline Vec hyperbolic_tangent(Vec x) {
  Vec e = exponential(2.0f * x);
  return 1.0f - 2.0f / (e + 1.0f);
}

void gate(const float* gate_up, Activation act, int n, float* out) {
  int i = 0;
  for (; i + lanes <= n; i += lanes) store(out + i, activated(load(gate_up + i), act) * load(gate_up + n + i));
  for (; i < n; i++) out[i] = activated(splat(gate_up[i]), act)[0] * gate_up[n + i];
}

void norm(const float* x, const float* weight, float eps, int n, float* out) {
  Vec acc = {};
  int i = 0;
  for (; i + lanes <= n; i += lanes) acc += load(x + i) * load(x + i);
  float total = sum(acc);
  for (int j = i; j < n; j++) total += x[j] * x[j];
  const float factor = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps);
  for (int j = 0; j < n; j++) out[j] = x[j] * factor * weight[j];
}

// Pairs stand half a turned part away from each other.
inline void turn(const float* from, const float* turns, int turned, int n, float factor, float* out) {
  const int half = turned / 2;
  for (int i = 0; i < half; i++) {
    const float a = from[i], b = from[half + i], c = turns[i], s = turns[half + i];
    out[i] = (a * c - b * s) * factor;
    out[half + i] = (b * c + a * s) * factor;
  }
  for (int i = turned; i < n; i++) out[i] = from[i] * factor;
}

inline float* position(const Attention& a, const Run& run, int at) {
  const int64_t width = 2ll * a.kv_heads * a.head_dim;
  return run.pages[at / a.page_rows] + a.layer_at + (at % a.page_rows) * width;
}

void place(const Attention& a, const Run& run, int in_run) {
  const int row = run.row + in_run, dim = a.head_dim;
  const float* turns = a.turns + static_cast<int64_t>(row) * a.turned;
  const float* from = a.qkv + static_cast<int64_t>(row) * (a.heads + 2 * a.kv_heads) * dim;
  float* queries = a.queries + static_cast<int64_t>(row) * a.heads * dim;
  float* keys = position(a, run, run.first + in_run);
  auto put = [&](const float* head, const float* weight, float factor, float* out, float* room) {
    if (weight) {
      norm(head, weight, a.norm_eps, dim, room);
      head = room;
    }
    turn(head, turns, a.turned, dim, factor, out);
  };
  // Attention's result is not there yet: its room serves for a head that is normed first.
  float* room = a.out + static_cast<int64_t>(row) * a.heads * dim;
  for (int h = 0; h < a.heads; h++, from += dim) put(from, a.q_norm, a.scale, queries + h * dim, room);
  for (int h = 0; h < a.kv_heads; h++, from += dim) put(from, a.k_norm, 1.0f, keys + h * dim, room);
  __builtin_memcpy(keys + a.kv_heads * dim, from, static_cast<int64_t>(a.kv_heads) * dim * 4);
}

int64_t attend_scratch(const Attention& a, const Run& run) {
  const int64_t length = (run.first + run.rows + 2 * score_align) / score_align * score_align;
  const int64_t group = a.heads / a.kv_heads;
  return query_rows * group * (length + a.head_dim);
}

// Turns scores [begin, end) into weights that sum to one, and the rest of the row into zeros.
void soften(const Attention& a, float* scores, int begin, int end, int length) {
  if (a.softcap > 0)
    for (int i = begin; i < end; i += lanes) {
      // What stands behind the end is overwritten below.
      Vec s = load(scores + i);
      store(scores + i, hyperbolic_tangent(s / a.softcap) * a.softcap);
    }
  for (int i = 0; i < begin; i++) scores[i] = -__builtin_inff();
  for (int i = end; i < length; i++) scores[i] = -__builtin_inff();
  Vec mosts = splat(-__builtin_inff());
  for (int i = 0; i < length; i += lanes) {
    Vec s = load(scores + i);
    mosts = s > mosts ? s : mosts;
  }
  float most = mosts[0];
  for (int i = 1; i < lanes; i++) most = mosts[i] > most ? mosts[i] : most;
  Vec total = {};
  for (int i = 0; i < length; i += lanes) {
    Vec s = load(scores + i);
    Vec e = exponential(s - most);
    e = s < -3.0e38f ? Vec{} : e;
    store(scores + i, e);
    total += e;
  }
  // Vectors of another width would sum in another order; within one instruction set the order is p % lanes.
  const float factor = 1.0f / sum(total);
  for (int i = 0; i < length; i += lanes) store(scores + i, load(scores + i) * factor);
}

// out[q] += weight[q][p] * value[p] for `count` queries, elements [at, at + V * lanes).
template <int V, int Q>
inline void mix(const Attention& a, const Run& run, int kv_head, int base, int end, const float* weights,
                int64_t weight_stride, int at, float* const* out) {
  Vec acc[Q][V] = {};
  const int value_at = (a.kv_heads + kv_head) * a.head_dim + at;
  for (int p = base; p < end;) {
    const float* value = position(a, run, p) + value_at;
    const int64_t width = 2ll * a.kv_heads * a.head_dim;
    const int page_end = (p / a.page_rows + 1) * a.page_rows;
    const int stop = page_end < end ? page_end : end;
    for (; p < stop; p++, value += width) {
      Vec v[V];
      for (int i = 0; i < V; i++) v[i] = load(value + i * lanes);
      for (int q = 0; q < Q; q++) {
        const float weight = weights[q * weight_stride + p - base];
        for (int i = 0; i < V; i++) acc[q][i] += v[i] * weight;
      }
    }
  }
  for (int q = 0; q < Q; q++)
    for (int i = 0; i < V; i++) store(out[q] + at + i * lanes, acc[q][i]);
}

template <int Q>
void mix_all(const Attention& a, const Run& run, int kv_head, int base, int end, const float* weights,
             int64_t weight_stride, float* const* out) {
  int at = 0;
  for (; at + 4 * lanes <= a.head_dim; at += 4 * lanes)
    mix<4, Q>(a, run, kv_head, base, end, weights, weight_stride, at, out);
  for (; at + lanes <= a.head_dim; at += lanes)
    mix<1, Q>(a, run, kv_head, base, end, weights, weight_stride, at, out);
  for (; at < a.head_dim; at++)
    for (int q = 0; q < Q; q++) {
      float total = 0;
      for (int p = base; p < end; p++)
        total += position(a, run, p)[(a.kv_heads + kv_head) * a.head_dim + at] * weights[q * weight_stride + p - base];
      out[q][at] = total;
    }
}

void attend(const Attention& a, const Run& run, int kv_head, int from, int to, float* scratch) {
  const int group = a.heads / a.kv_heads, dim = a.head_dim, count = (to - from) * group;
  const int end = run.first + to;
  auto begin_of = [&](int in_run) {
    const int at = run.first + in_run + 1 - a.window;
    return a.window > 0 && at > 0 ? at : 0;
  };
  const int base = begin_of(from) / score_align * score_align;
  const int length = (end - base + score_align - 1) / score_align * score_align;
  const int64_t stride = length + score_align;
  float* queries = scratch;
  float* scores = scratch + static_cast<int64_t>(count) * dim;
  float* out[query_rows * 64];
  for (int i = 0; i < count; i++) {
    const int64_t at = (static_cast<int64_t>(run.row + from + i / group) * a.heads + kv_head * group + i % group) * dim;
    __builtin_memcpy(queries + static_cast<int64_t>(i) * dim, a.queries + at, dim * 4ll);
    out[i] = a.out + at;
  }
  for (int p = base; p < end; p += tile_cols) {
    const int columns = end - p < tile_cols ? end - p : tile_cols;
    const float* keys[tile_cols];
    for (int c = 0; c < columns; c++) keys[c] = position(a, run, p + c) + kv_head * dim;
    if (columns == tile_cols)
      tiles<tile_cols>(keys, queries, dim, dim, count, scores + (p - base), stride);
    else
      for (int c = 0; c < columns; c++) tiles<1>(keys + c, queries, dim, dim, count, scores + (p - base + c), stride);
  }
  for (int i = 0; i < count; i++) {
    const int in_run = from + i / group;
    soften(a, scores + i * stride, begin_of(in_run) - base, run.first + in_run + 1 - base, length);
  }
  int q = 0;
  for (; q + mix_rows <= count; q += mix_rows)
    mix_all<mix_rows>(a, run, kv_head, base, end, scores + q * stride, stride, out + q);
  for (; q < count; q++) mix_all<1>(a, run, kv_head, base, end, scores + q * stride, stride, out + q);
}

}  // namespace

extern const Kernels table;
const Kernels table = {
    SF_VARIANT_NAME, linear_scratch, linear, row, norm, gate, place, attend, attend_scratch, query_rows,
    layer_norm, activate, attend_text, attend_text_scratch,
};

}  // namespace SF_VARIANT
}  // namespace sf
