// SPDX-License-Identifier: Apache-2.0
#include "server/backend/engine/engine_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "base/mapped_file.h"

namespace flywheel::engines {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEngineSuffix = ".engine";
constexpr size_t kBlockBytes = 1 << 20;
// An unfinished engine is on disk only while it is written. One this old is left over from a process that died.
constexpr std::chrono::hours kLeftOver{1};

bool is_unfinished_engine(const std::string& name) {
  return is_temporary_name(name) && name.find(fmt::format("{}.", kEngineSuffix)) != std::string::npos;
}

// Of all files beside the ONNX file, since weights may lie in any of them; engines and unfinished ones apart.
Result<std::string> hash_sources(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!entry->is_regular_file(ignored) || name.ends_with(kEngineSuffix) || is_unfinished_engine(name)) continue;
    files.push_back(entry->path());
  }
  if (error) return not_found(fmt::format("cannot read the folder '{}': {}", folder.string(), error.message()));
  std::sort(files.begin(), files.end());
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (state == nullptr) return out_of_memory("no memory to hash a model's files");
  XXH3_64bits_reset(state.get());
  // Read, not mapped: someone may be writing a new model over the old one.
  std::vector<char> block(kBlockBytes);
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string name = path.filename().string();
    XXH3_64bits_update(state.get(), name.c_str(), name.size() + 1);
    uint64_t size = 0;
    while (file) {
      file.read(block.data(), static_cast<std::streamsize>(block.size()));
      const size_t got = static_cast<size_t>(file.gcount());
      XXH3_64bits_update(state.get(), block.data(), got);
      size += got;
    }
    if (!file.eof()) return invalid_argument(fmt::format("cannot read '{}'", path.string()));
    XXH3_64bits_update(state.get(), &size, sizeof size);
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

void remove_left_over(const fs::path& folder, std::string_view prefix) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || !is_unfinished_engine(name)) continue;
    std::error_code ignored;
    const fs::file_time_type written = entry->last_write_time(ignored);
    if (!ignored && written < fs::file_time_type::clock::now() - kLeftOver) fs::remove(entry->path(), ignored);
  }
}

// Engines that this cache once built for the same machine from other content.
void remove_outdated(const fs::path& current, std::string_view prefix, std::string_view machine_part) {
  std::error_code error;
  for (fs::directory_iterator entry(current.parent_path(), error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool ours = name.size() == current.filename().string().size() && name.starts_with(prefix) &&
                      name.ends_with(fmt::format("{}{}", machine_part, kEngineSuffix));
    std::error_code ignored;
    if (ours && entry->path() != current) fs::remove(entry->path(), ignored);
  }
}

}  // namespace

// <file>.onnx.<hash>-<hash>.engine
bool EngineCache::is_own_file(std::string_view name) {
  if (is_unfinished_engine(std::string(name))) return true;
  if (!name.ends_with(kEngineSuffix)) return false;
  name.remove_suffix(kEngineSuffix.size());
  const size_t dot = name.rfind('.');
  const std::string_view key = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  return key.size() == 25 && key[16] == '-' && key.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

std::string KnownShapes::to_string() const {
  std::string text = fmt::format("batch {}", max_batch);
  for (const auto& [name, extents] : dims) text += fmt::format("; {} {}", name, fmt::join(extents, "x"));
  return text;
}

Result<std::shared_ptr<Engine>> EngineCache::load_or_build(const std::string& onnx_path, std::string_view label,
                                                           const KnownShapes& shapes,
                                                           const std::function<bool()>& keep_going) const {
  if (!options_.build) {
    return unsupported(
        fmt::format("'{}' is an ONNX file and this server was started without the compiler: build it with "
                    "'flywheel build' and put the engine there as model.engine",
                    onnx_path));
  }
  const fs::path onnx(onnx_path);
  FW_ASSIGN_OR_RETURN(const std::string content, hash_sources(onnx.parent_path()));
  const std::string target = options_.machine + "/" + shapes.to_string();
  const std::string machine = fmt::format("-{:08x}", static_cast<uint32_t>(XXH3_64bits(target.data(), target.size())));
  const fs::path folder = options_.folder.empty() ? onnx.parent_path() : fs::path(options_.folder);
  const std::string prefix =
      options_.folder.empty() ? onnx.filename().string() + "." : fmt::format("{}.", fmt::to_string(label));
  const fs::path path = folder / fmt::format("{}{}{}{}", prefix, content, machine, kEngineSuffix);

  std::error_code error;
  if (fs::exists(path, error)) {
    Result<std::shared_ptr<Engine>> cached = options_.load(path.string());
    if (cached.is_ok()) return cached;
    log(LogLevel::kWarning, "the cached engine '{}' is built again, as it does not load: {}", path.string(),
        cached.status().to_string());
  }
  fs::create_directories(folder, error);
  remove_left_over(folder, prefix);
  const std::string part = temporary_name(path.string());
  log(LogLevel::kInfo, "building an engine for {} from '{}'; it is kept as '{}'", label, onnx_path, path.string());
  const auto begin = std::chrono::steady_clock::now();
  const Status built = options_.build(onnx_path, part, shapes, keep_going);
  if (!built.is_ok()) {
    fs::remove(part, error);
    const bool unwritable = ::access(folder.c_str(), W_OK) != 0;
    return built.with_context(fmt::format("building an engine from '{}'{}", onnx_path,
                                          unwritable ? " (its folder cannot be written: give --cache-dir)" : ""));
  }
  fs::rename(part, path, error);
  if (error) {
    std::error_code ignored;
    fs::remove(part, ignored);
    return internal_error(fmt::format("cannot put the built engine at '{}': {}", path.string(), error.message()));
  }
  // Not in a cache folder: other servers may use it for other models of that name.
  if (options_.folder.empty()) remove_outdated(path, prefix, machine);
  log(LogLevel::kInfo, "built the engine for {} in {:.1f} s", label,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return options_.load(path.string());
}

}  // namespace flywheel::engines
