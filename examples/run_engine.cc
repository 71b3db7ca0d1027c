// SPDX-License-Identifier: Apache-2.0
// Runs an engine on zeros through the public interface: include/flywheel and the runtime library are all that it needs.
//
//   run_engine MODEL.engine [BATCH]
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "flywheel/buffer.h"
#include "flywheel/engine.h"

namespace {

int fail(const flywheel::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_engine MODEL.engine [BATCH]\n");
    return 2;
  }
  auto engine = flywheel::Engine::load(argv[1]);
  if (!engine.is_ok()) return fail(engine.status());
  auto context = (*engine)->create_context();
  if (!context.is_ok()) return fail(context.status());

  std::vector<flywheel::Buffer> buffers;  // inputs, then outputs
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < (*engine)->inputs().size(); ++i) {
    const flywheel::TensorInfo& info = (*engine)->inputs()[i];
    std::vector<int64_t> dims = info.opt;
    if (argc > 2 && !dims.empty()) dims[0] = std::atoll(argv[2]);
    flywheel::Status status = (*context)->set_shape(static_cast<int>(i), dims);
    if (!status.is_ok()) return fail(status);
    size_t bytes = flywheel::dtype_size(info.dtype);
    for (int64_t dim : dims) bytes *= static_cast<size_t>(dim);
    auto buffer = flywheel::Buffer::allocate(bytes);
    if (!buffer.is_ok()) return fail(buffer.status());
    inputs.push_back(buffers.emplace_back(std::move(buffer).value()).data());
  }
  if (flywheel::Status status = (*context)->bind(); !status.is_ok()) return fail(status);
  for (size_t i = 0; i < (*engine)->outputs().size(); ++i) {
    auto buffer = flywheel::Buffer::allocate((*context)->output_bytes(static_cast<int>(i)));
    if (!buffer.is_ok()) return fail(buffer.status());
    outputs.push_back(buffers.emplace_back(std::move(buffer).value()).data());
  }
  if (flywheel::Status status = (*context)->run(inputs, outputs); !status.is_ok()) return fail(status);
  for (size_t i = 0; i < (*engine)->outputs().size(); ++i) {
    std::printf("%s:", (*engine)->outputs()[i].name.c_str());
    for (int64_t dim : (*context)->output_dims(static_cast<int>(i))) std::printf(" %lld", static_cast<long long>(dim));
    std::printf("\n");
  }
  return 0;
}
