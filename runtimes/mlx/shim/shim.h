// MLX's C++ API as far as the runtime needs it, without exceptions: 0, or a code whose words `sf_mlx_message` has.
//
// Every call is made from one thread. Arrays are freed with `sf_mlx_free`; results are lazy until `sf_mlx_eval`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sf_array sf_array;

enum { SF_MLX_OK = 0, SF_MLX_ARGUMENT = 1, SF_MLX_MEMORY = 2, SF_MLX_FAILED = 3 };
enum { SF_MLX_F32 = 0, SF_MLX_F16 = 1, SF_MLX_BF16 = 2, SF_MLX_U32 = 3 };

// A matrix [rows, cols] of arrays that `sf_mlx_side_by_side` made; scales and biases are null when it is plain, bias [rows]
// may be, and is as it was.
typedef struct sf_matrix {
  const sf_array *weight;
  const sf_array *scales;
  const sf_array *biases;
  const sf_array *bias;
  int32_t bits;
  int32_t group;
  int32_t rows;
  int32_t cols;
} sf_matrix;

// `rows` new positions of a lane from `first` on, row `row` of the step on; `pages` has a pointer for each page.
typedef struct sf_run {
  int32_t row;
  int32_t rows;
  int32_t first;
  int32_t page_count;
  float *const *pages;
} sf_run;

typedef struct sf_attention {
  const sf_array *qkv;
  const sf_array *turns;
  const sf_array *q_norm;
  const sf_array *k_norm;
  const sf_run *runs;
  int64_t layer_at;
  int32_t run_count;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t page_rows;
  int32_t window;
  float scale;
  float softcap;
  float norm_eps;
  int32_t threads;
} sf_attention;

// Words of the last error on this thread.
const char *sf_mlx_message(void);
const char *sf_mlx_version(void);
// Instruction set of the kernels.
const char *sf_mlx_kernels(void);
// Other kernels than the best, for tests: 1, or 0 where this CPU does not run them. "builtin" are MLX's own operations, as on
// a GPU. To be chosen before a model is read.
int sf_mlx_use_kernels(const char *name);
// Whether this build of MLX can use a GPU here.
int sf_mlx_has_gpu(void);
// Compiles nothing at run time, keeps at most `cache_bytes` of freed memory. On a GPU everything is computed by MLX's own
// operations; once started, a process stays with its device.
int sf_mlx_start(size_t cache_bytes, int32_t gpu);
// Bytes in use, their peak, and freed bytes that are kept.
void sf_mlx_memory(size_t out[3]);

// A new array; `data` gets its memory, which is not initialised.
int sf_mlx_new(const int32_t *shape, int32_t dims, int32_t dtype, sf_array **out, void **data);
void sf_mlx_free(sf_array *array);
// The rows of a matrix in blocks, as the kernels read them: [rows, n] becomes [ceil(rows / 16), n, 16].
int sf_mlx_side_by_side(const sf_array *rows, sf_array **out);
// Rows of a matrix as floats, times `factor`.
int sf_mlx_embed(const sf_matrix *matrix, const uint32_t *tokens, int32_t count, float factor, sf_array **out);
// x times each matrix, side by side.
int sf_mlx_linear(const sf_array *x, const sf_matrix *parts, int32_t count, int32_t threads, sf_array **out);
int sf_mlx_norm(const sf_array *x, const sf_array *weight, float eps, sf_array **out);
// act(left half) * right half; `activation`: 0 SiLU, 1 GELU by tanh, 2 GELU.
int sf_mlx_gate(const sf_array *x, int32_t activation, int32_t threads, sf_array **out);
// With MLX's own operations `kv` becomes the new keys and values, to be kept when they are evaluated; else it stays null.
int sf_mlx_attend(const sf_attention *attention, sf_array **out, sf_array **kv);
// Writes new keys and values to the pages that they belong to.
int sf_mlx_keep(const sf_attention *attention, const sf_array *kv);
int sf_mlx_add(const sf_array *a, const sf_array *b, sf_array **out);
// Rows of x.
int sf_mlx_select(const sf_array *x, const uint32_t *rows, int32_t count, sf_array **out);
// cap * tanh(x / cap)
int sf_mlx_squash(const sf_array *x, float cap, sf_array **out);
// (x - mean) / sqrt(variance + eps) * weight + bias, per row.
int sf_mlx_layer_norm(const sf_array *x, const sf_array *weight, const sf_array *bias, float eps, sf_array **out);
// `activation` as for `sf_mlx_gate`, of every element.
int sf_mlx_activate(const sf_array *x, int32_t activation, int32_t threads, sf_array **out);
// Attention of texts that stand one behind the other, each over all of itself: [rows, 3 * width] to [rows, width].
int sf_mlx_attend_texts(const sf_array *qkv, const uint32_t *lengths, int32_t count, int32_t heads, float scale, int32_t threads,
                        sf_array **out);
int sf_mlx_eval(const sf_array *array);
// Elements of an evaluated array of floats.
int sf_mlx_floats(const sf_array *array, const float **out, size_t *count);

#ifdef __cplusplus
}
#endif
