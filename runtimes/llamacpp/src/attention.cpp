/* attention.cpp - attention over a cache that many lanes share, at the cost of what each row may see.
 *
 * In a unified cache every row attends over all cells in use, and a mask hides those of other lanes. llama.cpp asks the mask
 * cell by cell, and computes whole tiles of 64 rows for one row that needs them: with eight idle lanes of 1,500 positions,
 * decoding takes twice as long. Here the mask is read 64 cells at a time, and rows are tiled with rows of their own lane only.
 * What is computed for a cell that is seen is what llama.cpp computes, in its order: a batch of fewer than 64 tokens, or of one
 * lane, gives the same bits, and idle lanes change none.
 *
 * The linker puts this in front of ggml's function (--wrap, Linux), and ggml's own headers give it types and vector code.
 * Cases that it does not know (ALiBi, masks per head) go to ggml's function.
 */
#include "common.h"
#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "ops.h"
#include "simd-gemm.h"
#include "vec.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {
/* Weak: a unit test is linked without --wrap, and then nothing calls the function below. */
void __real_ggml_compute_forward_flash_attn_ext(const ggml_compute_params *params, ggml_tensor *dst) __attribute__((weak));
void __wrap_ggml_compute_forward_flash_attn_ext(const ggml_compute_params *params, ggml_tensor *dst);
void sf_llamacpp_attention_original(int on);
}

namespace {

constexpr int64_t TILE = 64;        /* cells of one word, rows and cells of one tile: llama.cpp's tile sizes */
constexpr int64_t SEGMENT_MIN = 8;  /* fewer rows of one lane are cheaper one by one */
constexpr int64_t SPLIT_MIN = 512;  /* cells from which llama.cpp splits a single row among threads */
constexpr uint16_t HIDDEN = 0xFC00; /* minus infinity in f16 */
static_assert(GGML_FA_TILE_Q == TILE && GGML_FA_TILE_KV == TILE, "another tile size gives other bits");

std::atomic<int> original{0};

struct Op {
  const ggml_compute_params *params;
  const ggml_tensor *q, *k, *v, *mask, *sinks;
  ggml_tensor *dst;
  int64_t dk, dv, rows, heads, cells, per_k, per_v;
  float scale, softcap;
  ggml_vec_dot_t dot;
  ggml_from_float_t convert_q;
  ggml_to_float_t widen_v;

  const uint16_t *mask_row(int64_t row) const {
    return (const uint16_t *)((const char *)mask->data + row * mask->nb[1]);
  }
  const char *k_at(int64_t head, int64_t cell) const {
    return (const char *)k->data + cell * k->nb[1] + head / per_k * k->nb[2];
  }
  const char *v_at(int64_t head, int64_t cell) const {
    return (const char *)v->data + cell * v->nb[1] + head / per_v * v->nb[2];
  }
  const float *q_at(int64_t head, int64_t row) const {
    return (const float *)((const char *)q->data + row * q->nb[1] + head * q->nb[2]);
  }
  float *out_at(int64_t head, int64_t row) const {
    return (float *)((char *)dst->data + (row * heads + head) * dst->nb[1]);
  }
  float sink(int64_t head) const { return ((const float *)sinks->data)[head]; }
  /* This thread's part of the work buffer, of `floats` each and a cache line between. */
  float *scratch(int64_t floats) const {
    return (float *)params->wdata + params->ith * (floats + (int64_t)CACHE_LINE_SIZE_F32);
  }
};

/* Running maximum and sum of a softmax. */
struct Sum {
  float max = -INFINITY, sum = 0.0f;
};

/* One bit per cell of the next 64 that a row may see. */
inline uint64_t seen(const uint16_t *mask) {
#if defined(__AVX512BW__)
  const __m512i hidden = _mm512_set1_epi16((short)HIDDEN);
  const uint64_t low = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(mask), hidden);
  const uint64_t high = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(mask + 32), hidden);
  return low | high << 32;
#elif defined(__AVX2__)
  const __m256i hidden = _mm256_set1_epi16((short)HIDDEN);
  uint64_t bits = 0;
  for (int i = 0; i < 2; i++) {
    const __m256i a = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(mask + 32 * i)), hidden);
    const __m256i b = _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(mask + 32 * i + 16)), hidden);
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
    bits |= (uint64_t)(uint32_t)~_mm256_movemask_epi8(both) << (32 * i);
  }
  return bits;
#else
  uint64_t bits = 0;
  for (int i = 0; i < TILE; i++) {
    bits |= (uint64_t)(mask[i] != HIDDEN) << i;
  }
  return bits;
#endif
}

inline float widened(uint16_t half) { return GGML_CPU_FP16_TO_FP32(half); }

/* How many of n values ggml's vector code takes. The rest is scalar there, which is all of a head of 64 where a vector step is
 * 128 (AVX512-FP16): here it is vectors too, of f32, with the same rounding. */
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__) && defined(__F16C__))
inline int stepped(int n) { return n & ~(GGML_F16_STEP - 1); }
#if defined(__AVX512F__)
constexpr int WIDTH = 16;
using Wide = __m512;
inline Wide load_half(const ggml_fp16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
inline void store_half(ggml_fp16_t *p, Wide x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, 0)); }
inline Wide broadcast(float x) { return _mm512_set1_ps(x); }
inline Wide multiply_add(Wide a, Wide b, Wide c) { return _mm512_fmadd_ps(a, b, c); }
inline Wide multiply(Wide a, Wide b) { return _mm512_mul_ps(a, b); }
#else
constexpr int WIDTH = 8;
using Wide = __m256;
inline Wide load_half(const ggml_fp16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
inline void store_half(ggml_fp16_t *p, Wide x) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, 0)); }
inline Wide broadcast(float x) { return _mm256_set1_ps(x); }
inline Wide multiply_add(Wide a, Wide b, Wide c) { return _mm256_fmadd_ps(a, b, c); }
inline Wide multiply(Wide a, Wide b) { return _mm256_mul_ps(a, b); }
#endif

/* acc += value * weight, and acc *= factor. */
inline void mad_half(int n, ggml_fp16_t *acc, const ggml_fp16_t *value, float weight) {
  int i = stepped(n);
  ggml_vec_mad_f16(i, acc, value, weight);
  for (const Wide w = broadcast(weight); i + WIDTH <= n; i += WIDTH) {
    store_half(acc + i, multiply_add(load_half(value + i), w, load_half(acc + i)));
  }
  ggml_vec_mad_f16(n - i, acc + i, value + i, weight);
}
inline void scale_half(int n, ggml_fp16_t *acc, float factor) {
  int i = stepped(n);
  ggml_vec_scale_f16(i, acc, factor);
  for (const Wide w = broadcast(factor); i + WIDTH <= n; i += WIDTH) {
    store_half(acc + i, multiply(load_half(acc + i), w));
  }
  ggml_vec_scale_f16(n - i, acc + i, factor);
}
#else
inline void mad_half(int n, ggml_fp16_t *acc, const ggml_fp16_t *value, float weight) {
  ggml_vec_mad_f16(n, acc, value, weight);
}
inline void scale_half(int n, ggml_fp16_t *acc, float factor) { ggml_vec_scale_f16(n, acc, factor); }
#endif

/* One row of one head over the cells [from, to): the unnormalised result in acc[dv], which is the thread's scratch. */
Sum attend(const Op &op, int64_t head, int64_t row, int64_t from, int64_t to, float *acc) {
  float *const wide_v = acc + op.dv;
  ggml_fp16_t *const acc_half = (ggml_fp16_t *)wide_v;
  void *const query = acc + 2 * op.dv;
  const bool half = op.v->type == GGML_TYPE_F16;
  const int dk = (int)op.dk, dv = (int)op.dv;
  if (half) {
    memset(acc_half, 0, op.dv * sizeof(ggml_fp16_t));
  } else {
    memset(acc, 0, op.dv * sizeof(float));
  }
  op.convert_q(op.q_at(head, row), query, op.dk);
  const uint16_t *const mask = op.mask_row(row);
  const char *const keys = op.k_at(head, 0), *const values = op.v_at(head, 0);
  const size_t k_step = op.k->nb[1], v_step = op.v->nb[1];
  Sum run;
  for (int64_t base = from / TILE * TILE; base < to; base += TILE) {
    uint64_t bits = seen(mask + base);
    if (base < from) {
      bits &= ~0ull << (from - base);
    }
    if (to - base < TILE) {
      bits &= ~(~0ull << (to - base));
    }
    for (; bits != 0; bits &= bits - 1) {
      const int64_t cell = base + __builtin_ctzll(bits);
      float score;
      op.dot(dk, &score, 0, keys + cell * k_step, 0, query, 0, 1);
      score = score * op.scale;
      if (op.softcap != 0.0f) {
        score = op.softcap * tanhf(score);
      }
      score += widened(mask[cell]);
      float shrink = 1.0f, weight = 1.0f;
      const bool higher = score > run.max;
      if (higher) {
        shrink = expf(run.max - score);
        run.max = score;
      } else {
        weight = expf(score - run.max);
      }
      const char *const value = values + cell * v_step;
      if (half) {
        if (higher) {
          scale_half(dv, acc_half, shrink);
        }
        mad_half(dv, acc_half, (const ggml_fp16_t *)value, weight);
      } else {
        if (higher) {
          ggml_vec_scale_f32(dv, acc, shrink);
        }
        if (op.widen_v) {
          op.widen_v(value, wide_v, op.dv);
        }
        ggml_vec_mad_f32(dv, acc, op.widen_v ? wide_v : (const float *)value, weight);
      }
      run.sum = run.sum * shrink + weight;
    }
  }
  if (half) {
    ggml_cpu_fp16_to_fp32(acc_half, acc, op.dv);
  }
  return run;
}

/* A head's sink takes part in the softmax and has no value. */
void add_sink(const Op &op, int64_t head, Sum &run, float *acc) {
  const float sink = op.sink(head);
  float shrink = 1.0f, weight = 1.0f;
  if (sink > run.max) {
    shrink = expf(run.max - sink);
    run.max = sink;
    ggml_vec_scale_f32((int)op.dv, acc, shrink);
  } else {
    weight = expf(sink - run.max);
  }
  run.sum = run.sum * shrink + weight;
}

void finish(const Op &op, int64_t head, int64_t row, const Sum &run, float *acc) {
  ggml_vec_scale_f32((int)op.dv, acc, run.sum == 0.0f ? 0.0f : 1.0f / run.sum);
  memcpy(op.out_at(head, row), acc, op.dv * sizeof(float));
}

void whole_row(const Op &op, int64_t head, int64_t row, float *acc) {
  Sum run = attend(op, head, row, 0, op.cells, acc);
  if (op.sinks) {
    add_sink(op, head, run, acc);
  }
  finish(op, head, row, run, acc);
}

/* What a row sees, in short: enough to tell whether the next row is of the same lane. */
struct Sight {
  int64_t first = -1, last = -1, count = 0;

  void add(int64_t base, uint64_t bits) {
    if (bits != 0) {
      first = first < 0 ? base + __builtin_ctzll(bits) : first;
      last = base + 63 - __builtin_clzll(bits);
      count += __builtin_popcountll(bits);
    }
  }
};

/* A single row: its cells are divided among the threads, from the first that it sees to the last. */
void split_row(const Op &op) {
  const int64_t nth = op.params->nth, ith = op.params->ith;
  const uint16_t *const mask = op.mask_row(0);
  Sight sight;
  for (int64_t base = 0; base < op.cells; base += TILE) {
    sight.add(base, seen(mask + base));
  }
  const int64_t first = MAX(sight.first, 0);
  /* A lane that begins with the cache is divided as llama.cpp does, and another as if it did. */
  const int64_t span = MIN(GGML_PAD(MAX(sight.last + 1 - first, 1), 256), op.cells - first);
  const int64_t share = (span + nth - 1) / nth;
  const int64_t from = MIN(first + ith * share, first + span), to = MIN(from + share, first + span);
  const int64_t own = op.dk + 2 * op.dv;
  float *const parts = (float *)op.params->wdata + nth * (own + (int64_t)CACHE_LINE_SIZE_F32);
  const int64_t part = 2 + op.dv;
  float *const acc = op.scratch(own);
  for (int64_t head = 0; head < op.heads; head++) {
    float *const to_part = parts + (head * nth + ith) * part;
    Sum run;
    if (from < to) {
      run = attend(op, head, 0, from, to, acc);
      if (op.sinks && ith == 0) {
        add_sink(op, head, run, acc);
      }
      memcpy(to_part + 2, acc, op.dv * sizeof(float));
    }
    to_part[0] = run.max;
    to_part[1] = run.sum;
  }
  ggml_barrier(op.params->threadpool);
  for (int64_t head = ith; head < op.heads; head += nth) {
    Sum run;
    memset(acc, 0, op.dv * sizeof(float));
    for (int64_t i = 0; i < nth; i++) {
      const float *const from_part = parts + (head * nth + i) * part;
      if (from_part[1] == 0.0f) {
        continue;
      }
      const float max = fmaxf(run.max, from_part[0]);
      const float old = expf(run.max - max), fresh = expf(from_part[0] - max);
      for (int64_t d = 0; d < op.dv; d++) {
        acc[d] = acc[d] * old + from_part[2 + d] * fresh;
      }
      run.sum = run.sum * old + from_part[1] * fresh;
      run.max = max;
    }
    finish(op, head, 0, run, acc);
  }
}

/* Rows that are computed together: up to a tile of one lane, or one row alone. */
struct Item {
  int64_t row, rows;
  /* For more than one row: tiles begin with the lane, so that sums do not depend on where it lies. */
  int64_t origin;
  size_t seen_at; /* into Survey::seen: one bit per tile of cells from 0 on */
};

struct Survey {
  std::vector<Item> items;
  std::vector<uint64_t> seen;
};

/* The row behind `before` in a lane sees what that one saw and one cell more; with a window it may lose one. */
bool follows(const Sight &before, const Sight &now, const uint16_t *mask) {
  if (before.first < 0 || now.first < 0) {
    return false;
  }
  const bool first = mask[before.first] != HIDDEN, last = mask[before.last] != HIDDEN;
  return (first && last && now.count >= before.count) || ((first || last) && now.count == before.count);
}

/* Divides the rows into items. Every thread does it for itself and comes to the same result. */
const Survey &survey(const Op &op) {
  static thread_local Survey result;
  static thread_local std::vector<uint64_t> row_seen;
  const size_t words = (size_t)((op.cells / TILE + 63) / 64);
  result.items.clear();
  result.seen.clear();
  row_seen.assign(words * (size_t)op.rows, 0);
  Sight before;
  int64_t start = 0, first = 0;
  const auto close = [&](int64_t end) {
    const bool tiled = end - start >= SEGMENT_MIN;
    /* Where a window has moved on, tiles lie as llama.cpp's. */
    const int64_t origin = first == before.first ? MAX(first, 0) % TILE : 0;
    for (int64_t row = start; row < end; row += tiled ? TILE : 1) {
      const int64_t rows = tiled ? MIN(TILE, end - row) : 1;
      result.items.push_back({row, rows, origin, result.seen.size()});
      if (tiled) {
        result.seen.resize(result.seen.size() + words, 0);
        uint64_t *const all = result.seen.data() + result.seen.size() - words;
        for (int64_t r = row; r < row + rows; r++) {
          for (size_t w = 0; w < words; w++) {
            all[w] |= row_seen[(size_t)r * words + w];
          }
        }
      }
    }
    start = end;
  };
  for (int64_t row = 0; row < op.rows; row++) {
    const uint16_t *const mask = op.mask_row(row);
    uint64_t *const tiles = row_seen.data() + (size_t)row * words;
    Sight now;
    for (int64_t tile = 0; tile < op.cells / TILE; tile++) {
      const uint64_t bits = seen(mask + tile * TILE);
      tiles[tile / 64] |= (uint64_t)(bits != 0) << (tile % 64);
      now.add(tile * TILE, bits);
    }
    if (row > 0 && !follows(before, now, mask)) {
      close(row);
    }
    if (row == start) {
      first = now.first;
    }
    before = now;
  }
  close(op.rows);
  return result;
}

/* Keys of up to 64 cells as [dk][64], so that cells lie side by side; values as [64][dv]. They are turned in blocks of
 * as many dimensions, whose lines stay in the first cache; `row` holds that many. */
void pack(const Op &op, int64_t head, int64_t cell, int64_t count, float *keys, float *values, float *row) {
  const bool half = op.k->type == GGML_TYPE_F16;
  if (count < TILE) {
    memset(keys, 0, TILE * op.dk * sizeof(float));
    memset(values, 0, TILE * op.dv * sizeof(float));
  }
  for (int64_t from = 0; from < op.dk; from += TILE) {
    const int64_t dims = MIN(TILE, op.dk - from);
    float *const block = keys + from * TILE;
    for (int64_t i = 0; i < count; i++) {
      const char *const key = op.k_at(head, cell + i);
      const float *wide = (const float *)key + from;
      if (half) {
        ggml_cpu_fp16_to_fp32((const ggml_fp16_t *)key + from, row, dims);
        wide = row;
      }
      for (int64_t d = 0; d < dims; d++) {
        block[d * TILE + i] = wide[d];
      }
    }
  }
  for (int64_t i = 0; i < count; i++) {
    const char *const value = op.v_at(head, cell + i);
    if (half) {
      ggml_cpu_fp16_to_fp32((const ggml_fp16_t *)value, values + i * op.dv, op.dv);
    } else {
      memcpy(values + i * op.dv, value, op.dv * sizeof(float));
    }
  }
}

/* Rows of one lane over the tiles of cells that any of them sees. */
void tile_rows(const Op &op, int64_t head, const Item &item, const uint64_t *tiles, float *scratch) {
  const int rows = (int)item.rows, dv = (int)op.dv;
  float *const queries = scratch;
  float *const scores = queries + TILE * op.dk;
  float *const hidden = scores + TILE * TILE;
  float *const acc = hidden + TILE * TILE;
  float *const values = acc + TILE * op.dv;
  float *const keys = values + TILE * op.dv;
  Sum run[TILE];
  memset(acc, 0, rows * op.dv * sizeof(float));
  for (int r = 0; r < rows; r++) {
    memcpy(queries + r * op.dk, op.q_at(head, item.row + r), op.dk * sizeof(float));
  }
  const auto any = [&](int64_t tile) { return tile * TILE < op.cells && (tiles[tile / 64] >> (tile % 64) & 1); };
  for (int64_t tile = 0; item.origin + tile * TILE < op.cells; tile++) {
    if (!any(tile) && !(item.origin > 0 && any(tile + 1))) {
      continue;
    }
    const int64_t cell = item.origin + tile * TILE, count = MIN(TILE, op.cells - cell);
    /* The masks are not needed yet: their place holds the row that is being turned. */
    pack(op, head, cell, count, keys, values, hidden);
    for (int r = 0; r < rows; r++) {
      ggml_cpu_fp16_to_fp32(op.mask_row(item.row + r) + cell, hidden + r * TILE, count);
      for (int64_t i = count; i < TILE; i++) {
        hidden[r * TILE + i] = -INFINITY;
      }
    }
    memset(scores, 0, rows * TILE * sizeof(float));
    simd_gemm(scores, queries, keys, rows, (int)op.dk, TILE);
    ggml_vec_scale_f32(rows * TILE, scores, op.scale);
    if (op.softcap != 0.0f) {
      ggml_vec_tanh_f32(rows * TILE, scores, scores);
      ggml_vec_scale_f32(rows * TILE, scores, op.softcap);
    }
    ggml_vec_add_f32(rows * TILE, scores, scores, hidden);
    for (int r = 0; r < rows; r++) {
      float *const row = scores + r * TILE;
      float max;
      ggml_vec_max_f32(TILE, &max, row);
      if (max == -INFINITY) {
        memset(row, 0, TILE * sizeof(float));
        continue;
      }
      if (max > run[r].max) {
        const float shrink = expf(run[r].max - max);
        ggml_vec_scale_f32(dv, acc + r * op.dv, shrink);
        run[r].sum *= shrink;
        run[r].max = max;
      }
      run[r].sum += ggml_vec_soft_max_f32(TILE, row, row, run[r].max);
    }
    simd_gemm(acc, scores, values, rows, TILE, dv);
  }
  for (int r = 0; r < rows; r++) {
    if (op.sinks) {
      add_sink(op, head, run[r], acc + r * op.dv);
    }
    finish(op, head, item.row + r, run[r], acc + r * op.dv);
  }
}

/* Threads take the next piece of work until there is none. */
template <typename F> void share(const Op &op, int64_t pieces, F work) {
  if (op.params->ith == 0) {
    ggml_threadpool_chunk_set(op.params->threadpool, op.params->nth);
  }
  ggml_barrier(op.params->threadpool);
  for (int64_t piece = op.params->ith; piece < pieces;
       piece = ggml_threadpool_chunk_add(op.params->threadpool, 1)) {
    work(piece);
  }
}

void many_rows(const Op &op) {
  float *const acc = op.scratch(op.dk + 2 * op.dv);
  share(op, op.heads * op.rows,
        [&](int64_t piece) { whole_row(op, piece / op.rows, piece % op.rows, acc); });
}

void tiled_rows(const Op &op) {
  const Survey &plan = survey(op);
  const int64_t items = (int64_t)plan.items.size();
  float *const scratch = op.scratch(2 * TILE * op.dk + 2 * TILE * TILE + 2 * TILE * op.dv);
  share(op, op.heads * items, [&](int64_t piece) {
    const Item &item = plan.items[(size_t)(piece % items)];
    if (item.rows == 1) {
      whole_row(op, piece / items, item.row, scratch);
    } else {
      tile_rows(op, piece / items, item, plan.seen.data() + item.seen_at, scratch);
    }
  });
}

/* Whether the operation is one of those above; the rest is ggml's own. */
bool read(const ggml_compute_params *params, ggml_tensor *dst, Op &op) {
  const ggml_tensor *const q = dst->src[0], *const k = dst->src[1], *const v = dst->src[2], *const mask = dst->src[3];
  float max_bias;
  memcpy(&op.scale, (const float *)dst->op_params + 0, sizeof(float));
  memcpy(&max_bias, (const float *)dst->op_params + 1, sizeof(float));
  memcpy(&op.softcap, (const float *)dst->op_params + 2, sizeof(float));
  if (op.softcap != 0.0f) {
    op.scale /= op.softcap;
  }
  const bool known = !params->use_ref && max_bias == 0.0f && mask && mask->type == GGML_TYPE_F16 && mask->ne[2] == 1 &&
                     mask->ne[3] == 1 && q->type == GGML_TYPE_F32 && q->ne[3] == 1 && k->ne[3] == 1 && v->ne[3] == 1 &&
                     k->ne[1] % TILE == 0 && dst->type == GGML_TYPE_F32;
  const bool plain = q->nb[0] == sizeof(float) && k->nb[0] == ggml_type_size(k->type) &&
                     v->nb[0] == ggml_type_size(v->type) && dst->nb[0] == sizeof(float) && dst->ne[0] == v->ne[0] &&
                     dst->ne[2] == q->ne[1] && q->ne[0] == k->ne[0];
  if (!known || !plain) {
    return false;
  }
  const ggml_type_traits_cpu *const of_k = ggml_get_type_traits_cpu(k->type);
  op.params = params;
  op.q = q, op.k = k, op.v = v, op.mask = mask, op.sinks = dst->src[4], op.dst = dst;
  op.dk = k->ne[0], op.dv = v->ne[0], op.rows = q->ne[1], op.heads = q->ne[2], op.cells = k->ne[1];
  op.per_k = q->ne[2] / k->ne[2], op.per_v = q->ne[2] / v->ne[2];
  op.dot = of_k->vec_dot;
  op.convert_q = ggml_get_type_traits_cpu(of_k->vec_dot_type)->from_float;
  op.widen_v = v->type == GGML_TYPE_F32 ? nullptr : ggml_get_type_traits(v->type)->to_float;
  return op.dot && op.convert_q && (v->type == GGML_TYPE_F32 || op.widen_v);
}

/* Whether llama.cpp has tiles for these types on this machine. */
bool tiles(const Op &op) {
#if defined(__x86_64__)
  return op.k->type == op.v->type && (op.k->type == GGML_TYPE_F32 || op.k->type == GGML_TYPE_F16);
#elif defined(GGML_SIMD) && !defined(__ARM_FEATURE_SVE)
  return op.k->type == op.v->type && (op.k->type == GGML_TYPE_F32 || op.k->type == GGML_TYPE_F16) &&
         op.dv % GGML_F32_EPR == 0;
#else
  return false;
#endif
}

} // namespace

void sf_llamacpp_attention_original(int on) { original.store(on, std::memory_order_relaxed); }

void __wrap_ggml_compute_forward_flash_attn_ext(const ggml_compute_params *params, ggml_tensor *dst) {
  Op op;
  if (original.load(std::memory_order_relaxed) != 0 || !read(params, dst, op)) {
    __real_ggml_compute_forward_flash_attn_ext(params, dst);
  } else if (op.rows == 1 && op.cells >= SPLIT_MIN && tiles(op)) {
    split_row(op);
  } else if (op.rows >= TILE && tiles(op)) {
    tiled_rows(op);
  } else {
    many_rows(op);
  }
}
