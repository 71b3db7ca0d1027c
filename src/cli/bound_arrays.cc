// SPDX-License-Identifier: Apache-2.0
#include "cli/bound_arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/mapped_file.h"
#include "flywheel/compiler.h"
#include "kernels/element.h"

namespace flywheel::cli {
namespace {

std::string describe(std::span<const TensorInfo> infos, const std::vector<Array>& arrays) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < arrays.size(); ++i)
    texts.push_back(fmt::format("{} {}", infos[i].name, arrays[i].to_string()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string expected_inputs(const Engine& engine) {
  std::vector<std::string> texts;
  for (const TensorInfo& input : engine.inputs()) {
    texts.push_back(fmt::format("{} ({} {})", input.name, dtype_name(input.dtype), dims_to_string(input.opt)));
  }
  return fmt::format("the engine's inputs, here with the profile's opt shapes, are {}", fmt::join(texts, ", "));
}

}  // namespace

std::string BoundArrays::describe_inputs(const Engine& engine) const { return describe(engine.inputs(), inputs); }
std::string BoundArrays::describe_outputs(const Engine& engine) const { return describe(engine.outputs(), outputs); }

Result<BoundArrays> bind_arrays(ExecutionContext& context, ArrayMap arrays) {
  const Engine& engine = context.engine();
  std::vector<std::string> problems;
  for (const TensorInfo& input : engine.inputs()) {
    const auto found = arrays.find(input.name);
    if (found == arrays.end()) {
      problems.push_back(fmt::format("input '{}' is absent", input.name));
    } else if (found->second.dtype != input.dtype) {
      problems.push_back(fmt::format("input '{}' is {}, the engine expects {}", input.name,
                                     dtype_name(found->second.dtype), dtype_name(input.dtype)));
    }
  }
  for (const auto& [name, array] : arrays) {
    if (!engine.find_input(name)) problems.push_back(fmt::format("'{}' is no input of the engine", name));
  }
  if (!problems.empty()) {
    return invalid_argument(fmt::format("{}; {}", fmt::join(problems, "; "), expected_inputs(engine)));
  }
  BoundArrays bound;
  for (size_t i = 0; i < engine.inputs().size(); ++i) {
    Array& array = arrays.find(engine.inputs()[i].name)->second;
    FW_RETURN_IF_ERROR(context.set_shape(static_cast<int>(i), array.dims));
    bound.input_pointers.push_back(array.data.data());
    bound.inputs.push_back(std::move(array));
  }
  FW_RETURN_IF_ERROR(context.bind());
  for (size_t i = 0; i < engine.outputs().size(); ++i) {
    const auto dims = context.output_dims(static_cast<int>(i));
    FW_ASSIGN_OR_RETURN(Array array, Array::make(engine.outputs()[i].dtype, Dims(dims.begin(), dims.end())));
    bound.output_pointers.push_back(array.data.data());
    bound.outputs.push_back(std::move(array));
  }
  return bound;
}

Result<ArrayMap> read_inputs(const std::string& npz_path, const std::vector<std::string>& named_files) {
  ArrayMap arrays;
  if (!npz_path.empty()) {
    FW_ASSIGN_OR_RETURN(arrays, read_npz(npz_path));
  }
  for (const std::string& named_file : named_files) {
    const size_t equals = named_file.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid_argument(fmt::format("--input '{}': expected NAME=FILE.npy", named_file));
    }
    const std::string name = named_file.substr(0, equals), path = named_file.substr(equals + 1);
    FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    FW_ASSIGN_OR_RETURN(Array array, parse_npy(file.bytes(), path));
    if (!arrays.emplace(name, std::move(array)).second) {
      return invalid_argument(fmt::format("input '{}' is given twice", name));
    }
  }
  return arrays;
}

Result<ArrayMap> make_inputs(const Engine& engine, const std::vector<std::string>& shapes) {
  std::map<std::string, Dims, std::less<>> dims;
  for (const std::string& shape : shapes) {
    Result<std::pair<std::string, ProfileShape>> parsed = parse_profile(shape);
    if (!parsed.is_ok()) return parsed.status().with_context("--shapes");
    dims[parsed->first] = parsed->second.opt;
  }
  std::map<std::string, int64_t, std::less<>> symbols;  // extents that the given shapes decide for other inputs
  for (const TensorInfo& input : engine.inputs()) {
    const auto given = dims.find(input.name);
    if (given == dims.end()) continue;
    for (size_t d = 0; d < std::min(input.dim_names.size(), given->second.size()); ++d) {
      if (!input.dim_names[d].empty()) symbols.emplace(input.dim_names[d], given->second[d]);
    }
  }
  ArrayMap arrays;
  std::mt19937 random(42);
  std::normal_distribution<float> normal;
  for (const TensorInfo& input : engine.inputs()) {
    const auto given = dims.find(input.name);
    Dims shape = given == dims.end() ? Dims(input.opt.begin(), input.opt.end()) : given->second;
    for (size_t d = 0; given == dims.end() && d < std::min(input.dim_names.size(), shape.size()); ++d) {
      if (const auto known = symbols.find(input.dim_names[d]); known != symbols.end()) shape[d] = known->second;
    }
    FW_ASSIGN_OR_RETURN(Array array, Array::make(input.dtype, shape));
    const size_t element_bytes = dtype_size(input.dtype);
    for (size_t at = 0; at < array.data.size_bytes(); at += element_bytes) {
      kernels::store_element(input.dtype, array.data.data() + at, is_float(input.dtype) ? normal(random) : 1.0f);
    }
    arrays.emplace(input.name, std::move(array));
    if (given != dims.end()) dims.erase(given);
  }
  if (!dims.empty()) {
    return invalid_argument(
        fmt::format("--shapes: '{}' is no input of the engine; {}", dims.begin()->first, expected_inputs(engine)));
  }
  return arrays;
}

}  // namespace flywheel::cli
