/* pages.c - clears a KV buffer without touching it.
 *
 * llama.cpp zeroes its KV cache when a context is made, so that padding never holds NaNs. With a plain memset every
 * page of the whole window is resident from the start. Private anonymous pages that the kernel takes back read as
 * zeros too, and cost nothing until they are written. The linker puts this function in front of ggml's for calls that
 * come from llama.cpp (--wrap); ggml's own is still used for every buffer that is not plain CPU memory.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t released; /* bytes not touched so far; written while a context is made, read by tests */

uint64_t sf_llamacpp_pages_released(void) { return __atomic_load_n(&released, __ATOMIC_RELAXED); }

#ifdef SF_WRAP_CLEAR
#include <sys/mman.h>
#include <unistd.h>

typedef struct ggml_backend_buffer *buffer_t;
typedef struct ggml_backend_buffer_type *buffer_type_t;
extern buffer_type_t ggml_backend_buffer_get_type(buffer_t buffer);
extern buffer_type_t ggml_backend_cpu_buffer_type(void);
extern void *ggml_backend_buffer_get_base(buffer_t buffer);
extern size_t ggml_backend_buffer_get_size(buffer_t buffer);
/* Weak: a unit test is linked without --wrap, and then nothing calls the function below. */
extern void __real_ggml_backend_buffer_clear(buffer_t buffer, uint8_t value) __attribute__((weak));
extern void __wrap_ggml_backend_buffer_clear(buffer_t buffer, uint8_t value);

#define SMALL (256u << 10) /* below this a memset is as good */

void __wrap_ggml_backend_buffer_clear(buffer_t buffer, uint8_t value) {
  const size_t size = ggml_backend_buffer_get_size(buffer);
  /* Only ggml's own heap memory: a mapped file would read as the file again, not as zeros. */
  if (value == 0 && size >= SMALL && ggml_backend_buffer_get_type(buffer) == ggml_backend_cpu_buffer_type()) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *const base = ggml_backend_buffer_get_base(buffer), *const end = base + size;
    char *const first = (char *)(((uintptr_t)base + page - 1) & ~(page - 1));
    char *const last = (char *)((uintptr_t)end & ~(page - 1));
    /* Fails on locked pages, and then there is nothing to save. The two probes would catch an allocator that gives
     * out shared memory, which keeps its bytes. */
    if (first < last && madvise(first, (size_t)(last - first), MADV_DONTNEED) == 0 && *(volatile char *)first == 0 &&
        *(volatile char *)(last - 1) == 0) {
      memset(base, 0, (size_t)(first - base));
      memset(last, 0, (size_t)(end - last));
      __atomic_fetch_add(&released, (uint64_t)(last - first), __ATOMIC_RELAXED);
      return;
    }
  }
  __real_ggml_backend_buffer_clear(buffer, value);
}
#endif
