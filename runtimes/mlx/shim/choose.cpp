// Which of the compiled kernels this CPU runs.
#include "kernels.h"

namespace sf {
namespace plain { extern const Kernels table; }
#if defined(__x86_64__)
namespace avx512 { extern const Kernels table; }
namespace avx2 { extern const Kernels table; }
#endif

namespace {

// The best first; those that this CPU does not run are left out.
struct Usable {
  const Kernels* tables[3];
  int count = 0;

  Usable() {
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    // A CPU with AVX2 has F16C.
    const bool half_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (wide) tables[count++] = &avx512::table;
    if (half_wide) tables[count++] = &avx2::table;
#endif
    tables[count++] = &plain::table;
  }
};

const Usable& usable() {
  static const Usable all;
  return all;
}

const Kernels* chosen = nullptr;

}  // namespace

const Kernels& kernels() { return chosen ? *chosen : *usable().tables[0]; }

bool use_kernels(const char* name) {
  for (int i = 0; i < usable().count; i++)
    if (!__builtin_strcmp(usable().tables[i]->name, name)) {
      chosen = usable().tables[i];
      return true;
    }
  return false;
}

}  // namespace sf
