// Threads that share the loops of one kernel. The caller works too; between two kernels of a step the others wait awake.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace sf {

class Pool {
 public:
  static Pool& get() {
    // Never destroyed: its threads may be asleep in it when the process ends.
    static Pool* pool = new Pool;
    return *pool;
  }

  // Calls task(i) for every i below `count`, on at most `threads` threads. Called from one thread at a time. What a task
  // throws is thrown here, when no task runs any more; the others may not have been called then.
  void run(int count, int threads, const std::function<void(int)>& task) {
    const int helpers = started((threads < count ? threads : count) - 1);
    if (helpers <= 0) {
      for (int i = 0; i < count; i++) task(i);
      return;
    }
    thrown_ = nullptr;
    task_ = &task;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    working_.store(helpers, std::memory_order_relaxed);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      helpers_ = helpers;
      round_.store(round_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    wake_.notify_all();
    take();
    for (int spins = 0; working_.load(std::memory_order_acquire) > 0; spins++)
      if (spins > 2000) std::this_thread::yield();
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  // So many threads, or those that there are where the system gives no more.
  int started(int wanted) {
    while (threads_ < wanted) {
      try {
        std::thread([this, number = threads_] { work(number); }).detach();
      } catch (const std::exception&) {
        break;
      }
      threads_++;
    }
    return wanted < threads_ ? wanted : threads_;
  }

  void take() noexcept {
    try {
      for (int i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) (*task_)(i);
    } catch (...) {
      next_.store(count_);
      std::lock_guard<std::mutex> lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  void work(int number) {
    uint64_t seen = 0;
    for (;;) {
      for (int spins = 0; spins < awake_spins && round_.load(std::memory_order_acquire) == seen; spins++) relax();
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != seen; });
        seen = round_.load(std::memory_order_relaxed);
        if (number >= helpers_) continue;
      }
      take();
      working_.fetch_sub(1, std::memory_order_release);
    }
  }

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  static constexpr int awake_spins = 4000;
  int threads_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> round_{0};
  int helpers_ = 0;
  const std::function<void(int)>* task_ = nullptr;
  std::exception_ptr thrown_;
  int count_ = 0;
  std::atomic<int> next_{0};
  std::atomic<int> working_{0};
};

}  // namespace sf
