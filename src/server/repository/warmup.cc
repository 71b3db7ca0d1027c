// SPDX-License-Identifier: Apache-2.0
#include "server/repository/warmup.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/mapped_file.h"
#include "server/repository/request_check.h"
#include "tensor/shape.h"

namespace flywheel::repository {
namespace {

using config::DataType;
using config::WarmupInput;

// Small values of the type: large ones could be indices out of range.
void fill_random(DataType type, std::vector<std::byte>& bytes) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  const size_t size = config::element_bytes(type);
  for (size_t at = 0; at + size <= bytes.size(); at += size) {
    if (type == DataType::kFp32) {
      const float value = static_cast<float>(unit(random));
      std::memcpy(bytes.data() + at, &value, size);
    } else if (type == DataType::kFp64) {
      const double value = unit(random);
      std::memcpy(bytes.data() + at, &value, size);
    } else if (type == DataType::kFp16 || type == DataType::kBf16) {
      // Exponents below that of 1 and a random mantissa.
      const uint16_t value = static_cast<uint16_t>((type == DataType::kFp16 ? 0x3800 : 0x3f00) | (random() & 0x7f));
      std::memcpy(bytes.data() + at, &value, size);
    } else {
      bytes[at] = static_cast<std::byte>(random() & 1);
    }
  }
}

constexpr size_t kMaxInputBytes = size_t{1} << 30;

// One row's bytes, `rows` times.
Result<std::vector<std::byte>> make_data(const WarmupInput& input, size_t rows, const std::string& model_folder) {
  const std::optional<int64_t> elements = checked_element_count(input.dims);
  const size_t element_bytes = config::element_bytes(input.data_type);
  if (!elements || element_bytes == 0 || static_cast<uint64_t>(*elements) > kMaxInputBytes / element_bytes / rows) {
    return invalid_argument(fmt::format("input '{}' would take more than {} MiB: give it smaller 'dims' or batch_size",
                                        input.name, kMaxInputBytes >> 20));
  }
  const size_t row_bytes = static_cast<size_t>(*elements) * element_bytes;
  std::vector<std::byte> bytes(row_bytes * rows);
  if (input.data == WarmupInput::Data::kRandom) fill_random(input.data_type, bytes);
  if (input.data != WarmupInput::Data::kFile) return bytes;
  const std::string path = model_folder + "/warmup/" + input.file;
  FW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path, FileAccess::kCopy));
  if (file.bytes().size() != row_bytes) {
    return invalid_argument(
        fmt::format("'{}' has {} bytes, but input '{}' takes {}", path, file.bytes().size(), input.name, row_bytes));
  }
  for (size_t row = 0; row < rows && row_bytes > 0; ++row)
    std::memcpy(bytes.data() + row * row_bytes, file.bytes().data(), row_bytes);
  return bytes;
}

Status run_warmup(const config::ModelConfig& config, const config::Warmup& warmup, const std::string& model_folder,
                  const schedule::SequenceTensors* sequences, const std::function<bool()>& keep_going,
                  schedule::BatchExecutor& instance) {
  const bool batched = config.max_batch_size > 0;
  const size_t batch_size = batched ? std::max<uint32_t>(warmup.batch_size, 1) : 1;
  // Sequences come with one row a request.
  const size_t rows = sequences != nullptr ? 1 : batch_size;
  auto request = std::make_shared<schedule::InferRequest>();
  std::vector<std::vector<std::byte>> data;
  for (const WarmupInput& input : warmup.inputs) {
    FW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes, make_data(input, rows, model_folder));
    data.push_back(std::move(bytes));
    schedule::InputView view{input.name, input.data_type, input.dims, data.back()};
    if (batched) view.shape.insert(view.shape.begin(), static_cast<int64_t>(rows));
    request->inputs.push_back(std::move(view));
  }
  FW_RETURN_IF_ERROR(check_request(config, *request));
  if (sequences != nullptr) {
    request->sequence.start = true;
    sequences->add(*request, {});
  }
  for (uint32_t i = 0; i < std::max<uint32_t>(warmup.count, 1); ++i) {
    if (!keep_going()) return {Code::kCancelled, "the server is stopping"};
    schedule::Batch batch;
    batch.batch_size = static_cast<int64_t>(batch_size);
    batch.items.resize(batch_size / rows);
    for (schedule::BatchItem& item : batch.items) item.request = request.get();
    FW_RETURN_IF_ERROR(instance.execute(batch));
    for (const schedule::BatchItem& item : batch.items) FW_RETURN_IF_ERROR(item.status);
  }
  return {};
}

}  // namespace

Status run_warmups(const config::ModelConfig& config, const std::string& model_folder,
                   const schedule::SequenceTensors* sequences, const std::function<bool()>& keep_going,
                   schedule::BatchExecutor& instance) {
  for (const config::Warmup& warmup : config.warmups) {
    const Status status = run_warmup(config, warmup, model_folder, sequences, keep_going, instance);
    if (!status.is_ok()) return status.with_context(fmt::format("warmup '{}'", warmup.name));
  }
  return {};
}

}  // namespace flywheel::repository
