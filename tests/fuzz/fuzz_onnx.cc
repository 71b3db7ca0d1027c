// SPDX-License-Identifier: Apache-2.0
// Fuzz target: ONNX files. Any bytes must give a graph or a reasoned refusal; kInternal means that the importer made a
// graph that does not verify, which is a crash here. The mutator works on the parsed model, since bytes changed at
// random seldom get past the protobuf parser.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>

#include "compiler/ir/text.h"
#include "compiler/onnx/import.h"
#include "onnx.pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace flywheel;  // NOLINT(google-build-using-namespace): a program of one file

class Mutator {
 public:
  Mutator(onnx_pb::ModelProto& model, unsigned seed) : model_(model), random_(seed) {}

  void mutate() {
    onnx_pb::GraphProto& graph = *model_.mutable_graph();
    switch (below(12)) {
      case 0: mutate_opset(); return;
      case 1:
      case 2:
      case 3:
        if (graph.node_size() > 0) mutate_node(*graph.mutable_node(pick(graph.node_size())));
        return;
      case 4:
      case 5:
      case 6:
        if (graph.node_size() > 0) mutate_attribute(*graph.mutable_node(pick(graph.node_size())));
        return;
      case 7:
      case 8:
        if (graph.initializer_size() > 0) mutate_tensor(*graph.mutable_initializer(pick(graph.initializer_size())));
        return;
      case 9:
        if (graph.input_size() > 0) mutate_type(*graph.mutable_input(pick(graph.input_size())));
        return;
      case 10: mutate_lists(graph); return;
      default: mutate_functions(); return;
    }
  }

 private:
  int below(int bound) { return bound <= 0 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  int pick(int size) { return below(size); }

  int64_t number() {
    static constexpr int64_t kTelling[] = {0,
                                           1,
                                           -1,
                                           2,
                                           -2,
                                           3,
                                           7,
                                           63,
                                           64,
                                           65,
                                           INT32_MAX,
                                           INT32_MIN,
                                           INT64_MAX,
                                           INT64_MIN,
                                           INT64_MAX / 2,
                                           int64_t{1} << 40,
                                           1 << 20,
                                           255,
                                           256};
    if (below(2) == 0) return kTelling[below(std::size(kTelling))];
    return below(16) - 4;
  }

  std::string name() {
    const onnx_pb::GraphProto& graph = model_.graph();
    if (below(4) == 0) return "";
    if (below(3) == 0 && graph.input_size() > 0) return graph.input(pick(graph.input_size())).name();
    if (below(2) == 0 && graph.initializer_size() > 0) return graph.initializer(pick(graph.initializer_size())).name();
    if (graph.node_size() > 0) {
      const auto& node = graph.node(pick(graph.node_size()));
      if (node.output_size() > 0) return node.output(pick(node.output_size()));
    }
    return "x";
  }

  void mutate_opset() {
    if (model_.opset_import_size() > 0)
      model_.mutable_opset_import(pick(model_.opset_import_size()))->set_version(6 + below(24));
  }

  void mutate_node(onnx_pb::NodeProto& node) {
    switch (below(6)) {
      case 0:
        if (node.input_size() > 0) node.set_input(pick(node.input_size()), name());
        return;
      case 1: node.add_input(name()); return;
      case 2:
        if (node.input_size() > 0) node.mutable_input()->RemoveLast();
        return;
      case 3:
        if (node.output_size() > 0) node.set_output(pick(node.output_size()), name());
        return;
      case 4: node.add_output("extra" + std::to_string(below(3))); return;
      default: {
        const auto& other = model_.graph().node(pick(model_.graph().node_size()));
        node.set_op_type(std::string(other.op_type()));
      }
    }
  }

  void mutate_attribute(onnx_pb::NodeProto& node) {
    if (node.attribute_size() == 0 || below(8) == 0) {
      static constexpr const char* kNames[] = {"axis", "axes",     "keepdims", "pads", "strides",
                                               "mode", "auto_pad", "to",       "k",    "value"};
      auto* attribute = node.add_attribute();
      attribute->set_name(kNames[below(std::size(kNames))]);
      attribute->set_type(1 + below(8));
      attribute->set_i(number());
      attribute->add_ints(number());
      return;
    }
    auto& attribute = *node.mutable_attribute(pick(node.attribute_size()));
    switch (below(8)) {
      case 0: attribute.set_type(below(16)); return;
      case 1: attribute.set_i(number()); return;
      case 2: attribute.set_f(static_cast<float>(number())); return;
      case 3: attribute.add_ints(number()); return;
      case 4:
        if (attribute.ints_size() > 0) attribute.set_ints(pick(attribute.ints_size()), number());
        return;
      case 5:
        if (attribute.ints_size() > 0) attribute.mutable_ints()->RemoveLast();
        return;
      case 6:
        if (attribute.has_t()) mutate_tensor(*attribute.mutable_t());
        return;
      default:
        if (node.attribute_size() > 0) node.mutable_attribute()->RemoveLast();
        return;
    }
  }

  void mutate_tensor(onnx_pb::TensorProto& tensor) {
    switch (below(8)) {
      case 0: tensor.set_data_type(below(30)); return;
      case 1: tensor.add_dims(number()); return;
      case 2:
        if (tensor.dims_size() > 0) tensor.set_dims(pick(tensor.dims_size()), number());
        return;
      case 3:
        if (tensor.dims_size() > 0) tensor.mutable_dims()->RemoveLast();
        return;
      case 4:
        if (tensor.int64_data_size() > 0) tensor.set_int64_data(pick(tensor.int64_data_size()), number());
        return;
      case 5: tensor.add_int64_data(number()); return;
      case 6:
        if (!tensor.raw_data().empty()) tensor.mutable_raw_data()->pop_back();
        return;
      default: tensor.set_data_location(below(3)); return;
    }
  }

  void mutate_type(onnx_pb::ValueInfoProto& info) {
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    auto* shape = tensor->mutable_shape();
    switch (below(5)) {
      case 0: tensor->set_elem_type(below(30)); return;
      case 1: shape->add_dim()->set_dim_value(number()); return;
      case 2:
        if (shape->dim_size() > 0) shape->mutable_dim()->RemoveLast();
        return;
      case 3:
        if (shape->dim_size() > 0) shape->mutable_dim(pick(shape->dim_size()))->set_dim_value(number());
        return;
      default:
        if (shape->dim_size() > 0)
          shape->mutable_dim(pick(shape->dim_size()))->set_dim_param(below(2) == 0 ? "n" : "m");
    }
  }

  void mutate_lists(onnx_pb::GraphProto& graph) {
    switch (below(5)) {
      case 0:
        if (graph.node_size() > 1) graph.mutable_node()->SwapElements(pick(graph.node_size()), pick(graph.node_size()));
        return;
      case 1:
        if (graph.node_size() > 0) graph.mutable_node()->DeleteSubrange(pick(graph.node_size()), 1);
        return;
      case 2:
        if (graph.node_size() > 0 && graph.node_size() < 200)
          *graph.add_node() = onnx_pb::NodeProto(graph.node(pick(graph.node_size())));
        return;
      case 3:
        if (graph.output_size() > 0) graph.mutable_output(pick(graph.output_size()))->set_name(name());
        return;
      default:
        if (graph.initializer_size() > 0)
          graph.mutable_initializer()->DeleteSubrange(pick(graph.initializer_size()), 1);
    }
  }

  // A node becomes a call of a function, or a function's node is changed.
  void mutate_functions() {
    if (model_.functions_size() == 0) return;
    auto& function = *model_.mutable_functions(pick(model_.functions_size()));
    if (function.node_size() > 0 && below(2) == 0) {
      mutate_node(*function.mutable_node(pick(function.node_size())));
    } else if (model_.graph().node_size() > 0) {
      auto& node = *model_.mutable_graph()->mutable_node(pick(model_.graph().node_size()));
      node.set_op_type(function.name());
      node.set_domain(function.domain());
    }
  }

  onnx_pb::ModelProto& model_;
  std::mt19937 random_;
};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  onnx_pb::ModelProto model;
  if (seed % 8 == 0 || !model.ParseFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, max_size);
  Mutator(model, seed).mutate();
  const std::string bytes = model.SerializeAsString();
  if (bytes.size() > max_size) return size;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto imported = onnx_import::import_bytes({reinterpret_cast<const std::byte*>(data), size}, "");
  if (!imported.is_ok()) {
    if (imported.status().code() != Code::kInternal && !imported.status().message().empty()) return 0;
    std::fprintf(stderr, "%s\n", imported.status().to_string().c_str());
    std::abort();
  }
  if (ir::print(*imported.value().graph).empty()) std::abort();
  return 0;
}
