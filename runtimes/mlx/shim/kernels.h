// The arithmetic of one forward pass on a CPU: what the nodes of MLX's graph call. One source, compiled per instruction set.
//
// A result never depends on what else is computed beside it: every element is summed in the same order, whatever the number
// of rows, lanes, chunks or threads.
#pragma once

#include <cstdint>

namespace sf {

enum class Kind : int { f32, f16, bf16, packed };
enum class Activation : int { silu, gelu_tanh, gelu };

// Rows of a matrix that lie side by side: what stands at one place of sixteen rows is one after another, and the last such
// block is filled up with zeros. A row of the matrix is a column of the product.
constexpr int block_cols = 16;

// A matrix of `rows` rows of `cols` elements, plain or packed into words of 32 bits, `bits` bits each.
struct Matrix {
  const void* weight;
  const void* scales;  // of `scale_kind`, one for each `group` elements of a row, in the same blocks; only for packed
  const void* biases;
  const float* bias;  // added to each result; may be null
  Kind kind;
  Kind scale_kind;
  int bits;
  int group;
  int rows;
  int cols;
};

// One lane of an attention: `rows` new positions from `first` on, the first of which is row `row` of the step.
struct Run {
  int row;
  int rows;
  int first;
  float* const* pages;
};

// Attention of one layer. A page holds `page_rows` positions; those of this layer begin at element `layer_at`, keys and then
// values of a position side by side.
struct Attention {
  const float* qkv;    // [rows, (heads + 2 * kv_heads) * head_dim]
  const float* turns;  // [rows, turned]: cosines, then sines
  const float* q_norm; // [head_dim] or null
  const float* k_norm;
  float* queries;      // [rows, heads * head_dim], room for the turned queries
  float* out;          // the same shape
  const Run* runs;
  int run_count;
  int heads;
  int kv_heads;
  int head_dim;
  int turned;
  int page_rows;
  int64_t layer_at;
  int window;  // positions seen, the own one included; 0 = all
  float scale;
  float softcap;  // 0 = none
  float norm_eps;
};

struct Kernels {
  const char* name;
  // Elements of scratch that `linear` needs per thread.
  int64_t (*linear_scratch)(const Matrix&);
  // Columns [from, to) of y = x * w^T + bias for `m` rows; `from` is a multiple of `block_cols`.
  void (*linear)(const Matrix&, const float* x, int m, float* y, int64_t y_stride, int from, int to, float* scratch);
  // Row `token` of a matrix.
  void (*row)(const Matrix&, int64_t token, float* out);
  void (*norm)(const float* x, const float* weight, float eps, int n, float* out);
  // out[i] = act(gate_up[i]) * gate_up[n + i]
  void (*gate)(const float* gate_up, Activation, int n, float* out);
  // Turns the queries of a row and writes its keys and values into the lane's pages.
  void (*place)(const Attention&, const Run&, int row_in_run);
  // Attention of some rows of a run over one head of keys; `scratch` has `attend_scratch` elements.
  void (*attend)(const Attention&, const Run&, int kv_head, int from, int to, float* scratch);
  int64_t (*attend_scratch)(const Attention&, const Run&);
  // Rows of a run that `attend` takes at a time.
  int attend_rows;

  // What only encoders need. out = (x - mean) / sqrt(variance + eps) * weight + bias; `out` may be `x`.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n, float* out);
  void (*activate)(const float* x, Activation, int n, float* out);
  // Attention that looks both ways, of head `head` of a text of `rows` rows: qkv [rows, 3 * heads * head_dim] gives
  // out [rows, heads * head_dim].
  void (*attend_text)(const float* qkv, int heads, int head_dim, int head, int rows, float scale, float* out, float* scratch);
  // Elements of scratch for a text of so many rows.
  int64_t (*attend_text_scratch)(int head_dim, int rows);
};

// The best for this CPU.
const Kernels& kernels();
// From now on those of this name, for tests; false where this CPU does not run them. Not while anything is computed.
bool use_kernels(const char* name);

}  // namespace sf
