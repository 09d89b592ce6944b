// What the parts of the shim share.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "shim.h"

namespace mx = mlx::core;

// Words of the last error on this thread.
inline thread_local std::string message;

// Nothing thrown may reach the caller.
template <class F>
int guard(F&& f) noexcept {
  int code = SF_MLX_FAILED;
  try {
    try {
      f();
      return SF_MLX_OK;
    } catch (const std::invalid_argument& e) {
      code = SF_MLX_ARGUMENT;
      message = e.what();
    } catch (const std::bad_alloc& e) {
      code = SF_MLX_MEMORY;
      message = e.what();
    } catch (const std::exception& e) {
      message = e.what();
    } catch (...) {
      message = "an exception without words";
    }
  } catch (...) {
    // Not even the words could be kept.
  }
  return code;
}

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

inline void require_floats(const mx::array& x, const char* what) {
  require(x.dtype() == mx::float32 && x.ndim() == 2, what);
}

// Room for a kernel, of this thread.
inline float* scratch(int64_t elements) {
  thread_local std::vector<float> room;
  if (static_cast<int64_t>(room.size()) < elements) room.resize(elements);
  return room.data();
}
