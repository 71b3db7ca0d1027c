// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/interpret.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "base/aligned_buffer.h"
#include "compiler/lower/lower.h"
#include "kernels/tactic.h"

namespace flywheel::lower {
namespace {

class Interpreter {
 public:
  Interpreter(LoweredGraph& lowered, std::span<const ir::ConstTensor> inputs) : lowered_(lowered), inputs_(inputs) {}

  Result<std::vector<ir::ConstTensor>> run() {
    FW_ASSIGN_OR_RETURN(machine_, detect_machine());
    FW_RETURN_IF_ERROR(bind_symbols());
    FW_RETURN_IF_ERROR(make_outputs());
    for (const StepDraft& step : lowered_.steps) FW_RETURN_IF_ERROR(run_step(step));
    return std::move(outputs_);
  }

 private:
  Status bind_symbols() {
    const ir::Graph& graph = *lowered_.graph;
    if (inputs_.size() != graph.inputs().size()) return invalid_argument("wrong number of inputs");
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const SymShape& shape = graph.inputs()[i]->shape;
      if (shape.size() != inputs_[i].dims.size() || inputs_[i].dtype != graph.inputs()[i]->dtype) {
        return invalid_argument(fmt::format("input '{}' has another rank or type", graph.inputs()[i]->name));
      }
      for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d].is_symbol()) symbols_[shape[d].symbol_name()] = inputs_[i].dims[d];
      }
    }
    return Status::ok();
  }

  Status make_outputs() {
    for (const ir::Value* value : lowered_.graph->outputs()) {
      Dims dims;
      for (const DimExpr& dim : value->shape) {
        FW_ASSIGN_OR_RETURN(int64_t extent, dim.evaluate(symbols_));
        dims.push_back(extent);
      }
      if (!checked_element_count(dims)) return invalid_argument("an output is too large");
      outputs_.push_back(ir::ConstTensor::zeros(value->dtype, dims));
    }
    return Status::ok();
  }

  Result<std::byte*> base_of(Storage* storage) {
    switch (storage->space) {
      case engine::Space::kInput:
        return const_cast<std::byte*>(inputs_[static_cast<size_t>(storage->index)].data.get());
      case engine::Space::kOutput:
        return const_cast<std::byte*>(outputs_[static_cast<size_t>(storage->index)].data.get());
      case engine::Space::kWeights: return const_cast<std::byte*>(storage->constant->data.get());
      default: break;
    }
    auto it = arena_.find(storage);
    if (it == arena_.end()) {
      FW_ASSIGN_OR_RETURN(int64_t elements, storage->elements.evaluate(symbols_));
      if (elements < 0 || elements > int64_t{1} << 40) return invalid_argument("an intermediate tensor is too large");
      FW_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                          AlignedBuffer::allocate(static_cast<size_t>(elements) * dtype_size(storage->dtype) + 1,
                                                  "an intermediate tensor"));
      it = arena_.emplace(storage, std::move(buffer)).first;
    }
    return it->second.data();
  }

  Result<void*> address(const View& view, DType dtype) {
    FW_ASSIGN_OR_RETURN(std::byte * base, base_of(view.storage));
    FW_ASSIGN_OR_RETURN(int64_t offset, view.offset.evaluate(symbols_));
    return static_cast<void*>(base + offset * static_cast<int64_t>(dtype_size(dtype)));
  }

  Status run_step(const StepDraft& step) {
    FW_ASSIGN_OR_RETURN(kernels::Problem problem, problem_for(step, symbols_));
    const kernels::Tactic& reference = kernels::tactics(step.family).back();
    FW_RETURN_IF_ERROR(reference.accepts(problem, machine_).with_context(step.name));
    std::vector<const void*> inputs, constants;
    std::vector<void*> outputs;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      FW_ASSIGN_OR_RETURN(void* data, address(step.inputs[i], step.input_types[i]));
      inputs.push_back(data);
      constants.push_back(step.constants[i] == nullptr ? nullptr : step.constants[i]->data.get());
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      FW_ASSIGN_OR_RETURN(void* data, address(step.outputs[i], step.output_types[i]));
      outputs.push_back(data);
    }
    AlignedBuffer packed;
    if (reference.pack != nullptr) {
      std::vector<bool> consumed(inputs.size(), false);
      FW_ASSIGN_OR_RETURN(packed, reference.pack(problem, constants, consumed));
    }
    FW_ASSIGN_OR_RETURN(std::unique_ptr<kernels::BoundKernel> kernel, reference.bind(problem, machine_, 1));
    FW_ASSIGN_OR_RETURN(AlignedBuffer workspace, AlignedBuffer::allocate(kernel->workspace_bytes(), "a workspace"));
    std::atomic<uint32_t> faults{0};
    Worker alone = Worker::alone();
    kernel->launch({inputs.data(), outputs.data(), packed.data(), workspace.data(), &faults}, alone);
    if (faults.load() != 0) return invalid_argument(fmt::format("step '{}': an index is out of range", step.name));
    return Status::ok();
  }

  LoweredGraph& lowered_;
  std::span<const ir::ConstTensor> inputs_;
  Machine machine_;
  std::map<std::string, int64_t, std::less<>> symbols_;
  std::map<Storage*, AlignedBuffer> arena_;
  std::vector<ir::ConstTensor> outputs_;
};

}  // namespace

Result<std::vector<ir::ConstTensor>> interpret(const ir::Graph& graph, std::span<const ir::ConstTensor> inputs) {
  FW_ASSIGN_OR_RETURN(LoweredGraph lowered, lower(graph));
  return Interpreter(lowered, inputs).run();
}

Result<std::vector<ir::ConstTensor>> evaluate_node(const ir::Node& node) {
  ir::Graph graph;
  std::vector<ir::Value*> operands;
  for (const ir::Value* value : node.inputs()) {
    if (value == nullptr) {
      operands.push_back(nullptr);
      continue;
    }
    if (!value->constant)
      return invalid_argument(fmt::format("{} has an operand that is not constant", node.describe()));
    operands.push_back(graph.add_constant(value->name, *value->constant));
  }
  ir::Node* copy = graph.add_node(node.op(), operands, static_cast<int>(node.outputs().size()));
  copy->attributes = node.attributes;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    copy->outputs()[i]->dtype = node.outputs()[i]->dtype;
    copy->outputs()[i]->shape = node.outputs()[i]->shape;
    graph.add_output(copy->outputs()[i], node.outputs()[i]->name);
  }
  return interpret(graph, {});
}

}  // namespace flywheel::lower
