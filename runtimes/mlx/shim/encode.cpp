// The nodes that only encoders need; see shim.h.
#include "kernels.h"
#include "node.h"
#include "pool.h"

extern "C" {

int sf_mlx_layer_norm(const sf_array* x, const sf_array* weight, const sf_array* bias, float eps, sf_array** out) {
  return guard([&] {
    require_floats(ref(x), "a norm is of floats");
    const int rows = ref(x).shape(0), n = ref(x).shape(1);
    for (auto* part : {weight, bias})
      require(ref(part).dtype() == mx::float32 && ref(part).shape() == mx::Shape({n}), "a norm's weight or bias has another shape");
    auto bind = [rows, n, eps](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [rows, n, eps, x = in[0].data<float>(), w = in[1].data<float>(), b = in[2].data<float>(), y = to.data<float>()] {
        for (int64_t r = 0; r < rows; r++) sf::kernels().layer_norm(x + r * n, w, b, eps, n, y + r * n);
      };
    };
    give(node("SfLayerNorm", {rows, n}, {ref(x), ref(weight), ref(bias)}, std::move(bind)), out);
  });
}

int sf_mlx_activate(const sf_array* x, int32_t activation, int32_t threads, sf_array** out) {
  return guard([&] {
    require_floats(ref(x), "an activation is of floats");
    require(activation >= 0 && activation <= 2, "no such activation");
    const int rows = ref(x).shape(0), n = ref(x).shape(1);
    const auto act = static_cast<sf::Activation>(activation);
    auto bind = [rows, n, act, threads](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [rows, n, act, threads, x = in[0].data<float>(), y = to.data<float>()] {
        sf::Pool::get().run(rows, rows < 4 ? 1 : threads,
                            [&](int64_t r) { sf::kernels().activate(x + r * n, act, n, y + r * n); });
      };
    };
    give(node("SfActivate", {rows, n}, {ref(x)}, std::move(bind)), out);
  });
}

int sf_mlx_attend_texts(const sf_array* qkv, const uint32_t* lengths, int32_t count, int32_t heads, float scale, int32_t threads,
                        sf_array** out) {
  return guard([&] {
    require_floats(ref(qkv), "attention is of floats");
    const int rows = ref(qkv).shape(0), width = ref(qkv).shape(1) / 3;
    require(heads > 0 && ref(qkv).shape(1) == 3 * width && width % heads == 0, "heads cannot be cut so");
    struct Piece { int64_t row; int rows, head; };
    std::vector<Piece> pieces;
    int64_t at = 0;
    for (int32_t i = 0; i < count; i++) {
      require(lengths[i] > 0 && at + lengths[i] <= rows, "texts are not all rows");
      for (int head = 0; head < heads; head++) pieces.push_back({at, static_cast<int>(lengths[i]), head});
      at += lengths[i];
    }
    require(at == rows, "texts are not all rows");
    auto bind = [pieces, heads, width, scale, threads](const std::vector<mx::array>& in, mx::array& to) -> Task {
      return [pieces, heads, width, scale, threads, x = in[0].data<float>(), y = to.data<float>()] {
        const auto& k = sf::kernels();
        const int dim = width / heads;
        sf::Pool::get().run(static_cast<int>(pieces.size()), threads, [&](int i) {
          const Piece& p = pieces[i];
          k.attend_text(x + p.row * 3 * width, heads, dim, p.head, p.rows, scale, y + p.row * width,
                   scratch(k.attend_text_scratch(dim, p.rows)));
        });
      };
    };
    give(node("SfAttendTexts", {rows, width}, {ref(qkv)}, std::move(bind)), out);
  });
}

}  // extern "C"
