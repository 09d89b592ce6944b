// What the parts of the shim share.
#pragma once

#include <stdexcept>
#include <utility>

#include "mlx/mlx.h"
#include "shim.h"

namespace mx = mlx::core;

inline const mx::array& ref(const sf_array* array) {
  if (!array) throw std::invalid_argument("an array is missing");
  return *reinterpret_cast<const mx::array*>(array);
}

inline void give(mx::array&& array, sf_array** out) {
  *out = reinterpret_cast<sf_array*>(new mx::array(std::move(array)));
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}
