// See node.h.
#include "node.h"

#include <memory>
#include <mutex>

#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"

namespace {

std::mutex thrown_mutex;
std::exception_ptr thrown;

class Node : public mx::UnaryPrimitive {
 public:
  Node(mx::Stream stream, const char* name, Bind bind) : mx::UnaryPrimitive(stream), name_(name), bind_(std::move(bind)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (auto& input : inputs) {
      if (!input.flags().row_contiguous) throw std::runtime_error("an input of our own node is not contiguous");
      encoder.set_input_array(input);
    }
    out.set_data(mx::allocator::malloc(out.nbytes()));
    encoder.set_output_array(out);
    encoder.dispatch([task = bind_(inputs, out)]() mutable noexcept {
      try {
        task();
      } catch (...) {
        keep_thrown();
      }
    });
  }
  void eval_gpu(const std::vector<mx::array>&, mx::array&) override {
    throw std::runtime_error("this node computes on the CPU only");
  }
  const char* name() const override { return name_; }

 private:
  const char* name_;
  Bind bind_;
};

}  // namespace

void keep_thrown() noexcept {
  std::lock_guard<std::mutex> lock(thrown_mutex);
  if (!thrown) thrown = std::current_exception();
}

void throw_kept() {
  std::exception_ptr kept;
  {
    std::lock_guard<std::mutex> lock(thrown_mutex);
    std::swap(kept, thrown);
  }
  if (kept) std::rethrow_exception(kept);
}

mx::array node(const char* name, mx::Shape shape, std::vector<mx::array> inputs, Bind bind) {
  auto stream = mx::default_stream(mx::Device(mx::Device::cpu, 0));
  return mx::array(std::move(shape), mx::float32, std::make_shared<Node>(stream, name, std::move(bind)), std::move(inputs));
}
