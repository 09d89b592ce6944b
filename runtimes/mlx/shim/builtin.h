// A forward pass by MLX's own operations, which run on every device that a build of MLX knows. Keys and values stay in the
// host's pages: those that a layer looks at are handed to MLX at every step.
#pragma once

#include <utility>

#include "kernels.h"
#include "mlx/mlx.h"
#include "shim.h"

namespace sf {
namespace builtin {

// Whether operations of MLX stand for our kernels.
bool on();
void use(bool yes);

mlx::core::array embed(const sf_matrix& matrix, const uint32_t* tokens, int count, float factor);
mlx::core::array linear(const mlx::core::array& x, const sf_matrix* parts, int count);
mlx::core::array gate(const mlx::core::array& x, Activation act);
// What is attended to, and the new keys and values side by side as a page has them.
std::pair<mlx::core::array, mlx::core::array> attend(const sf_attention& a);
void keep(const sf_attention& a, const mlx::core::array& kv);

}  // namespace builtin
}  // namespace sf
