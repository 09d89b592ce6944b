// See shim.h. Nodes of MLX's graph that call our kernels stand beside MLX's own.
#include "shim.h"

#include <cstring>

#include "builtin.h"
#include "kernels.h"
#include "node.h"
#include "pool.h"

namespace {

mx::Dtype dtype_of(int32_t code) {
  switch (code) {
    case SF_MLX_F32: return mx::float32;
    case SF_MLX_F16: return mx::float16;
    case SF_MLX_BF16: return mx::bfloat16;
    case SF_MLX_U32: return mx::uint32;
    default: throw std::invalid_argument("no such element type");
  }
}

sf::Kind kind_of(const mx::array& array) {
  if (array.dtype() == mx::float32) return sf::Kind::f32;
  if (array.dtype() == mx::float16) return sf::Kind::f16;
  if (array.dtype() == mx::bfloat16) return sf::Kind::bf16;
  throw std::invalid_argument("an array of floats is asked for");
}

// A matrix whose arrays are inputs of a node: from index `at` on.
struct Bound {
  sf::Matrix matrix;
  size_t at;
  bool biased;

  // With the memory of the inputs.
  sf::Matrix with(const std::vector<mx::array>& inputs) const {
    sf::Matrix m = matrix;
    size_t i = at;
    m.weight = inputs[i++].data<void>();
    if (m.kind == sf::Kind::packed) {
      m.scales = inputs[i++].data<void>();
      m.biases = inputs[i++].data<void>();
    }
    if (biased) m.bias = inputs[i].data<float>();
    return m;
  }
};

Bound bound(const sf_matrix& from, std::vector<mx::array>& inputs) {
  const auto& weight = ref(from.weight);
  const bool packed = from.scales != nullptr;
  const int blocks = (from.rows + sf::block_cols - 1) / sf::block_cols;
  Bound out{{}, inputs.size(), from.bias != nullptr};
  out.matrix.bits = from.bits;
  out.matrix.group = from.group;
  out.matrix.rows = from.rows;
  out.matrix.cols = from.cols;
  out.matrix.kind = packed ? sf::Kind::packed : kind_of(weight);
  inputs.push_back(weight);
  if (packed) {
    const auto &scales = ref(from.scales), &biases = ref(from.biases);
    out.matrix.scale_kind = kind_of(scales);
    require(scales.dtype() == biases.dtype(), "scales and biases differ in type");
    require(from.group > 0 && from.cols % from.group == 0 && from.group % 32 == 0, "a row is no whole groups");
    require(weight.dtype() == mx::uint32, "packed elements are words");
    require(weight.shape() == mx::Shape({blocks, from.cols / 32 * from.bits, sf::block_cols}), "a packed matrix has another shape");
    require(scales.shape() == mx::Shape({blocks, from.cols / from.group, sf::block_cols}), "scales have another shape");
    require(biases.shape() == scales.shape(), "biases have another shape than scales");
    inputs.push_back(scales);
    inputs.push_back(biases);
  } else {
    require(weight.shape() == mx::Shape({blocks, from.cols, sf::block_cols}), "a matrix has another shape");
  }
  if (from.bias) {
    require(ref(from.bias).dtype() == mx::float32 && ref(from.bias).shape() == mx::Shape({from.rows}), "a bias has another shape");
    inputs.push_back(ref(from.bias));
  }
  return out;
}

}  // namespace

extern "C" {

const char* sf_mlx_message(void) { return message.c_str(); }
const char* sf_mlx_version(void) { return mx::version(); }
const char* sf_mlx_kernels(void) { return sf::builtin::on() ? "builtin" : sf::kernels().name; }

int sf_mlx_use_kernels(const char* name) {
  const bool builtin = std::strcmp(name, "builtin") == 0;
  if (!builtin && !sf::use_kernels(name)) return 0;
  sf::builtin::use(builtin);
  return 1;
}

int sf_mlx_has_gpu(void) {
  int has = 0;
  guard([&] { has = mx::is_available(mx::Device(mx::Device::gpu, 0)) ? 1 : 0; });
  return has;
}

int sf_mlx_start(size_t cache_bytes, int32_t gpu) {
  return guard([&] {
    static int32_t started = -1;
    require(started < 0 || started == gpu, "this process computes on another device already");
    require(!gpu || sf_mlx_has_gpu(), "this build of MLX has no GPU here");
    started = gpu;
    if (gpu) sf::builtin::use(true);
    mx::set_default_device(mx::Device(gpu ? mx::Device::gpu : mx::Device::cpu, 0));
    // It would run a compiler and load what it wrote to /tmp.
    mx::disable_compile();
    mx::set_cache_limit(cache_bytes);
  });
}

void sf_mlx_memory(size_t out[3]) {
  out[0] = mx::get_active_memory();
  out[1] = mx::get_peak_memory();
  out[2] = mx::get_cache_memory();
}

int sf_mlx_new(const int32_t* shape, int32_t dims, int32_t dtype, sf_array** out, void** data) {
  return guard([&] {
    mx::Shape sizes(shape, shape + dims);
    size_t bytes = mx::size_of(dtype_of(dtype));
    for (auto size : sizes) bytes *= static_cast<size_t>(size);
    mx::array array(mx::allocator::malloc(bytes), sizes, dtype_of(dtype));
    *data = array.data<void>();
    give(std::move(array), out);
  });
}

int sf_mlx_side_by_side(const sf_array* from, sf_array** out) {
  return guard([&] {
    if (sf::builtin::on()) return give(mx::array(ref(from)), out);
    const auto& rows = ref(from);
    require(rows.ndim() == 2 && rows.is_available() && rows.flags().row_contiguous, "rows of a matrix are asked for");
    const int64_t count = rows.shape(0), length = rows.shape(1), blocks = (count + sf::block_cols - 1) / sf::block_cols;
    mx::Shape shape{static_cast<int>(blocks), static_cast<int>(length), sf::block_cols};
    mx::array array(mx::allocator::malloc(blocks * length * sf::block_cols * rows.itemsize()), shape, rows.dtype());
    auto move = [&](const auto* in, auto* to) {
      for (int64_t row = 0; row < blocks * sf::block_cols; row++) {
        auto* column = to + row / sf::block_cols * length * sf::block_cols + row % sf::block_cols;
        for (int64_t k = 0; k < length; k++) column[k * sf::block_cols] = row < count ? in[row * length + k] : 0;
      }
    };
    if (rows.itemsize() == 4)
      move(rows.data<uint32_t>(), array.data<uint32_t>());
    else
      move(rows.data<uint16_t>(), array.data<uint16_t>());
    give(std::move(array), out);
  });
}

void sf_mlx_free(sf_array* array) { delete reinterpret_cast<mx::array*>(array); }

int sf_mlx_embed(const sf_matrix* from, const uint32_t* tokens, int32_t count, float factor, sf_array** out) {
  return guard([&] {
    if (sf::builtin::on()) return give(sf::builtin::embed(*from, tokens, count, factor), out);
    std::vector<mx::array> inputs;
    Bound matrix = bound(*from, inputs);
    std::vector<uint32_t> rows(tokens, tokens + count);
    for (auto row : rows) require(row < static_cast<uint32_t>(from->rows), "a token is outside of the vocabulary");
    auto bind = [matrix, rows = std::move(rows), factor](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [m = matrix.with(in), rows, factor, y = to.data<float>()] {
        for (size_t i = 0; i < rows.size(); i++) {
          float* row = y + i * static_cast<size_t>(m.cols);
          sf::kernels().row(m, rows[i], row);
          if (factor != 1.0f)
            for (int k = 0; k < m.cols; k++) row[k] *= factor;
        }
      };
    };
    give(node("SfEmbed", {count, from->cols}, std::move(inputs), std::move(bind)), out);
  });
}

int sf_mlx_linear(const sf_array* x, const sf_matrix* parts, int32_t count, int32_t threads, sf_array** out) {
  return guard([&] {
    require_floats(ref(x), "a row vector is floats");
    if (sf::builtin::on()) return give(sf::builtin::linear(ref(x), parts, count), out);
    std::vector<mx::array> inputs{ref(x)};
    std::vector<Bound> matrices;
    int width = 0;
    for (int i = 0; i < count; i++) {
      require(ref(x).shape(1) == parts[i].cols, "a matrix is multiplied with rows of another length");
      matrices.push_back(bound(parts[i], inputs));
      width += parts[i].rows;
    }
    const int rows = ref(x).shape(0);
    auto bind = [matrices, rows, width, threads](const std::vector<mx::array>& in, mx::array& to) -> Task {
      std::vector<sf::Matrix> ready;
      for (auto& matrix : matrices) ready.push_back(matrix.with(in));
      return [ready, rows, width, threads, x = in[0].data<float>(), y = to.data<float>()] {
        const auto& k = sf::kernels();
        // Pieces of columns, small enough to be shared evenly and large enough to be worth it.
        const int piece = threads > 1 ? 64 : 1 << 30;
        struct Piece { const sf::Matrix* matrix; int at, from, to; };
        std::vector<Piece> pieces;
        int at = 0;
        for (auto& matrix : ready) {
          for (int from = 0; from < matrix.rows; from += piece)
            pieces.push_back({&matrix, at, from, matrix.rows - from < piece ? matrix.rows : from + piece});
          at += matrix.rows;
        }
        sf::Pool::get().run(static_cast<int>(pieces.size()), threads, [&](int i) {
          const Piece& p = pieces[i];
          k.linear(*p.matrix, x, rows, y + p.at, width, p.from, p.to, scratch(k.linear_scratch(*p.matrix)));
        });
      };
    };
    give(node("SfLinear", {rows, width}, std::move(inputs), std::move(bind)), out);
  });
}

int sf_mlx_norm(const sf_array* x, const sf_array* weight, float eps, sf_array** out) {
  return guard([&] {
    require_floats(ref(x), "a norm is of floats");
    const int rows = ref(x).shape(0), n = ref(x).shape(1);
    require(ref(weight).dtype() == mx::float32 && ref(weight).shape() == mx::Shape({n}), "a norm's weight has another shape");
    if (sf::builtin::on()) return give(mx::fast::rms_norm(ref(x), ref(weight), eps), out);
    auto bind = [rows, n, eps](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [rows, n, eps, x = in[0].data<float>(), w = in[1].data<float>(), y = to.data<float>()] {
        for (int64_t r = 0; r < rows; r++) sf::kernels().norm(x + r * n, w, eps, n, y + r * n);
      };
    };
    give(node("SfNorm", {rows, n}, {ref(x), ref(weight)}, std::move(bind)), out);
  });
}

int sf_mlx_gate(const sf_array* x, int32_t activation, int32_t threads, sf_array** out) {
  return guard([&] {
    require_floats(ref(x), "a gate is of floats");
    require(activation >= 0 && activation <= 2, "no such activation");
    const int rows = ref(x).shape(0), n = ref(x).shape(1) / 2;
    const auto act = static_cast<sf::Activation>(activation);
    if (sf::builtin::on()) return give(sf::builtin::gate(ref(x), act), out);
    auto bind = [rows, n, act, threads](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [rows, n, act, threads, x = in[0].data<float>(), y = to.data<float>()] {
        sf::Pool::get().run(rows, rows < 4 ? 1 : threads,
                            [&](int64_t r) { sf::kernels().gate(x + r * 2 * n, act, n, y + r * n); });
      };
    };
    give(node("SfGate", {rows, n}, {ref(x)}, std::move(bind)), out);
  });
}

int sf_mlx_attend(const sf_attention* from, sf_array** out, sf_array** kv) {
  return guard([&] {
    const sf_attention a = *from;
    *kv = nullptr;
    require_floats(ref(a.qkv), "attention is of floats");
    require_floats(ref(a.turns), "turns are floats");
    const int rows = ref(a.qkv).shape(0), width = a.heads * a.head_dim, turned = ref(a.turns).shape(1);
    require(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.heads / a.kv_heads <= 64, "heads cannot be shared so");
    require(ref(a.qkv).shape(1) == width + 2 * a.kv_heads * a.head_dim, "queries, keys and values have another length");
    require(ref(a.turns).shape(0) == rows && turned <= a.head_dim && turned % 2 == 0, "turns have another shape");
    std::vector<std::vector<float*>> pages;
    std::vector<sf::Run> runs;
    int at = 0;
    for (int i = 0; i < a.run_count; i++) {
      const sf_run& run = a.runs[i];
      require(run.row == at && run.rows > 0, "runs are not in order");
      require((run.first + run.rows + a.page_rows - 1) / a.page_rows <= run.page_count, "a lane has too few pages");
      pages.emplace_back(run.pages, run.pages + run.page_count);
      runs.push_back({run.row, run.rows, run.first, nullptr});
      at += run.rows;
    }
    require(at == rows, "runs are not all rows");
    if (sf::builtin::on()) {
      auto [attended, fresh] = sf::builtin::attend(a);
      give(std::move(fresh), kv);
      return give(std::move(attended), out);
    }
    std::vector<mx::array> inputs{ref(a.qkv), ref(a.turns)};
    if (a.q_norm) {
      inputs.push_back(ref(a.q_norm));
      inputs.push_back(ref(a.k_norm));
    }
    auto bind = [a, turned, rows, width, pages, runs](const std::vector<mx::array>& in, mx::array& to) -> Task {
      sf::Attention ready{};
      ready.qkv = in[0].data<float>();
      ready.turns = in[1].data<float>();
      ready.q_norm = a.q_norm ? in[2].data<float>() : nullptr;
      ready.k_norm = a.q_norm ? in[3].data<float>() : nullptr;
      ready.out = to.data<float>();
      ready.run_count = a.run_count;
      ready.heads = a.heads;
      ready.kv_heads = a.kv_heads;
      ready.head_dim = a.head_dim;
      ready.turned = turned;
      ready.page_rows = a.page_rows;
      ready.layer_at = a.layer_at;
      ready.window = a.window;
      ready.scale = a.scale;
      ready.softcap = a.softcap;
      ready.norm_eps = a.norm_eps;
      return [ready, rows, width, pages, runs, threads = a.threads]() mutable {
        const auto& k = sf::kernels();
        std::vector<float> queries(static_cast<size_t>(rows) * width);
        ready.queries = queries.data();
        struct Piece { int run, head, from, to; };
        std::vector<Piece> pieces;
        for (size_t i = 0; i < runs.size(); i++) {
          runs[i].pages = pages[i].data();
          for (int row = 0; row < runs[i].rows; row++) k.place(ready, runs[i], row);
          for (int from = 0; from < runs[i].rows; from += k.attend_rows)
            for (int head = 0; head < ready.kv_heads; head++)
              pieces.push_back({static_cast<int>(i), head, from,
                                runs[i].rows - from < k.attend_rows ? runs[i].rows : from + k.attend_rows});
        }
        sf::Pool::get().run(static_cast<int>(pieces.size()), threads, [&](int i) {
          const Piece& p = pieces[i];
          k.attend(ready, runs[p.run], p.head, p.from, p.to, scratch(k.attend_scratch(ready, runs[p.run])));
        });
      };
    };
    give(node("SfAttend", {rows, width}, std::move(inputs), std::move(bind)), out);
  });
}

int sf_mlx_keep(const sf_attention* attention, const sf_array* kv) {
  return guard([&] { sf::builtin::keep(*attention, ref(kv)); });
}

int sf_mlx_add(const sf_array* a, const sf_array* b, sf_array** out) {
  return guard([&] { give(mx::add(ref(a), ref(b)), out); });
}

int sf_mlx_select(const sf_array* x, const uint32_t* rows, int32_t count, sf_array** out) {
  return guard([&] { give(mx::take(ref(x), mx::array(rows, {count}, mx::uint32), 0), out); });
}

int sf_mlx_squash(const sf_array* x, float cap, sf_array** out) {
  return guard([&] {
    auto bound = mx::array(cap);
    give(mx::multiply(mx::tanh(mx::divide(ref(x), bound)), bound), out);
  });
}

int sf_mlx_eval(const sf_array* array) {
  return guard([&] {
    try {
      mx::eval(std::vector<mx::array>{ref(array)});
    } catch (...) {
      // Kernels that were on their way still read and write what the caller is about to give back.
      mx::synchronize();
      keep_thrown();
    }
    throw_kept();
  });
}

int sf_mlx_floats(const sf_array* array, const float** out, size_t* count) {
  return guard([&] {
    const auto& a = ref(array);
    require(a.dtype() == mx::float32 && a.is_available() && a.flags().row_contiguous, "no evaluated floats");
    *out = a.data<float>();
    *count = a.size();
  });
}

}  // extern "C"
