// See builtin.h.
#include "builtin.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "common.h"

namespace sf {
namespace builtin {
namespace {

bool builtin_on = false;

mx::array floats(const mx::array& x) { return mx::astype(x, mx::float32); }

// x times one matrix.
mx::array product(const mx::array& x, const sf_matrix& m) {
  const auto& weight = ref(m.weight);
  mx::array out = x;
  if (m.scales) {
    out = mx::quantized_matmul(x, weight, floats(ref(m.scales)), floats(ref(m.biases)), true, m.group, m.bits);
  } else {
    // In the weights' own type: a copy of them in floats would cost more than it gives.
    out = floats(mx::matmul(mx::astype(x, weight.dtype()), mx::transpose(weight)));
  }
  return m.bias ? mx::add(out, ref(m.bias)) : out;
}

// Pairs stand half a turned part away from each other; `turns` has cosines and then sines, [rows, 1, turned].
mx::array turned(const mx::array& heads, const mx::array& turns) {
  const int rows = heads.shape(0), count = heads.shape(1), dim = heads.shape(2), width = turns.shape(2), half = width / 2;
  auto part = [&](const mx::array& of, int from, int to) {
    return mx::slice(of, {0, 0, from}, {rows, of.shape(1), to});
  };
  const auto a = part(heads, 0, half), b = part(heads, half, width);
  const auto c = part(turns, 0, half), s = part(turns, half, width);
  std::vector<mx::array> parts{mx::subtract(mx::multiply(a, c), mx::multiply(b, s)),
                               mx::add(mx::multiply(b, c), mx::multiply(a, s))};
  if (width < dim) parts.push_back(part(heads, width, dim));
  return mx::reshape(mx::concatenate(parts, 2), {rows, count, dim});
}

// Positions [from, to) of a run from its pages: [to - from, 2 * kv_heads * head_dim].
mx::array kept(const sf_attention& a, const sf_run& run, int from, int to) {
  const int width = 2 * a.kv_heads * a.head_dim;
  mx::array out(mx::allocator::malloc(static_cast<size_t>(to - from) * width * 4), {to - from, width}, mx::float32);
  float* at = out.data<float>();
  for (int p = from; p < to; p++, at += width)
    std::memcpy(at, run.pages[p / a.page_rows] + a.layer_at + p % a.page_rows * static_cast<int64_t>(width), width * 4ull);
  return out;
}

// Which of the positions from `base` on a run's rows look at: [rows, length].
mx::array seen(const sf_attention& a, const sf_run& run, int base) {
  const int length = run.first + run.rows - base;
  mx::array out(mx::allocator::malloc(static_cast<size_t>(run.rows) * length), {run.rows, length}, mx::bool_);
  bool* at = out.data<bool>();
  for (int row = run.first; row < run.first + run.rows; row++)
    for (int p = base; p < base + length; p++) *at++ = p <= row && (a.window <= 0 || p > row - a.window);
  return out;
}

// [rows, heads, dim] as [1, heads, rows, dim].
mx::array by_head(const mx::array& x) { return mx::expand_dims(mx::transpose(x, {1, 0, 2}), 0); }

mx::array attention_of(const sf_attention& a, const mx::array& q, const mx::array& k, const mx::array& v,
                       const mx::array& mask) {
  if (a.softcap <= 0) return mx::fast::scaled_dot_product_attention(q, k, v, a.scale, "", mask);
  const int group = a.heads / a.kv_heads;
  auto wide = [&](const mx::array& x) { return group > 1 ? mx::repeat(x, group, 1) : x; };
  auto scores = mx::multiply(mx::matmul(q, mx::swapaxes(wide(k), 2, 3)), mx::array(a.scale));
  const auto cap = mx::array(a.softcap);
  scores = mx::multiply(mx::tanh(mx::divide(scores, cap)), cap);
  scores = mx::where(mask, scores, mx::array(-std::numeric_limits<float>::infinity()));
  return mx::matmul(mx::softmax(scores, std::vector<int>{-1}, true), wide(v));
}

}  // namespace

bool on() { return builtin_on; }
void use(bool yes) { builtin_on = yes; }

mx::array embed(const sf_matrix& m, const uint32_t* tokens, int count, float factor) {
  for (int i = 0; i < count; i++) require(tokens[i] < static_cast<uint32_t>(m.rows), "a token is outside of the vocabulary");
  const mx::array ids(tokens, {count}, mx::uint32);
  auto rows = [&](const sf_array* of) { return mx::take(ref(of), ids, 0); };
  auto out = rows(m.weight);
  if (m.scales) out = mx::dequantize(out, floats(rows(m.scales)), floats(rows(m.biases)), m.group, m.bits);
  return mx::multiply(floats(out), mx::array(factor));
}

mx::array linear(const mx::array& x, const sf_matrix* parts, int count) {
  std::vector<mx::array> out;
  for (int i = 0; i < count; i++) out.push_back(product(x, parts[i]));
  return count == 1 ? out[0] : mx::concatenate(out, 1);
}

mx::array gate(const mx::array& x, Activation act) {
  const int rows = x.shape(0), n = x.shape(1) / 2;
  const auto a = mx::slice(x, {0, 0}, {rows, n}), b = mx::slice(x, {0, n}, {rows, 2 * n});
  const auto one = mx::array(1.0f), half = mx::array(0.5f);
  auto of = [&]() {
    switch (act) {
      case Activation::silu: return mx::multiply(a, mx::sigmoid(a));
      case Activation::gelu_tanh: {
        const auto cube = mx::multiply(mx::multiply(a, a), a);
        const auto inner = mx::multiply(mx::array(0.7978845608f), mx::add(a, mx::multiply(mx::array(0.044715f), cube)));
        return mx::multiply(mx::multiply(half, a), mx::add(one, mx::tanh(inner)));
      }
      default:
        return mx::multiply(mx::multiply(half, a), mx::add(one, mx::erf(mx::multiply(a, mx::array(0.70710678f)))));
    }
  };
  return mx::multiply(of(), b);
}

std::pair<mx::array, mx::array> attend(const sf_attention& a) {
  const auto& qkv = ref(a.qkv);
  const int rows = qkv.shape(0), dim = a.head_dim, queries = a.heads * dim, pairs = a.kv_heads * dim;
  const auto turns = mx::expand_dims(ref(a.turns), 1);
  auto heads = [&](int from, int count) {
    return mx::reshape(mx::slice(qkv, {0, from}, {rows, from + count * dim}), {rows, count, dim});
  };
  auto q = heads(0, a.heads), k = heads(queries, a.kv_heads);
  const auto v = heads(queries + pairs, a.kv_heads);
  if (a.q_norm) {
    q = mx::fast::rms_norm(q, ref(a.q_norm), a.norm_eps);
    k = mx::fast::rms_norm(k, ref(a.k_norm), a.norm_eps);
  }
  q = turned(q, turns);
  k = turned(k, turns);
  const auto fresh = mx::contiguous(mx::concatenate({mx::reshape(k, {rows, pairs}), mx::reshape(v, {rows, pairs})}, 1));
  std::vector<mx::array> out;
  for (int i = 0; i < a.run_count; i++) {
    const sf_run& run = a.runs[i];
    const int base = a.window > 0 ? std::max(0, run.first + 1 - a.window) : 0;
    auto all = mx::slice(fresh, {run.row, 0}, {run.row + run.rows, 2 * pairs});
    if (run.first > base) all = mx::concatenate({kept(a, run, base, run.first), all}, 0);
    const int length = run.first + run.rows - base;
    auto part = [&](int from) {
      return by_head(mx::reshape(mx::slice(all, {0, from}, {length, from + pairs}), {length, a.kv_heads, dim}));
    };
    const auto mine = by_head(mx::slice(q, {run.row, 0, 0}, {run.row + run.rows, a.heads, dim}));
    const auto got = attention_of(a, mine, part(0), part(pairs), seen(a, run, base));
    out.push_back(mx::reshape(mx::transpose(mx::squeeze(got, 0), {1, 0, 2}), {run.rows, queries}));
  }
  return {out.size() == 1 ? out[0] : mx::concatenate(out, 0), fresh};
}

void keep(const sf_attention& a, const mx::array& fresh) {
  mx::array kv = fresh;
  mx::eval(std::vector<mx::array>{kv});
  const int64_t width = 2ll * a.kv_heads * a.head_dim;
  require(kv.dtype() == mx::float32 && kv.flags().row_contiguous && kv.ndim() == 2 && kv.shape(1) == width,
          "keys and values have another shape");
  for (int i = 0; i < a.run_count; i++) {
    const sf_run& run = a.runs[i];
    require(run.row + run.rows <= kv.shape(0), "a run is not in the step");
    for (int row = 0; row < run.rows; row++) {
      const int p = run.first + row;
      std::memcpy(run.pages[p / a.page_rows] + a.layer_at + p % a.page_rows * width, kv.data<float>() + (run.row + row) * width,
                  width * 4);
    }
  }
}

}  // namespace builtin
}  // namespace sf
