// SPDX-License-Identifier: Apache-2.0
// The printer of the text form that text.h describes.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "compiler/ir/text.h"
#include "compiler/ir/text_names.h"

namespace flywheel::ir {
namespace {

constexpr int64_t kShortConstant = 16;  // elements

std::string name_text(std::string_view name) {
  return is_plain_text_name(name) ? std::string(name) : quoted_text(name);
}

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string element_text(const ConstTensor& tensor, int64_t i) {
  if (tensor.dtype == DType::kFloat32) return fmt::format("{}", tensor.as<float>()[static_cast<size_t>(i)]);
  if (is_float(tensor.dtype)) return fmt::format("{}", tensor.as_double(i));
  if (tensor.dtype == DType::kUInt64) return fmt::format("{}", tensor.as<uint64_t>()[static_cast<size_t>(i)]);
  return fmt::format("{}", tensor.as_int(i));
}

uint64_t content_hash(const ConstTensor& tensor) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ tensor.size_bytes();
  const std::byte* p = tensor.data.get();
  for (size_t left = tensor.size_bytes(); left > 0;) {
    uint64_t word = 0;
    size_t n = std::min<size_t>(left, sizeof word);
    std::memcpy(&word, p, n);
    hash = (hash ^ word) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
    p += n;
    left -= n;
  }
  return hash;
}

bool all_equal(const ConstTensor& tensor) {
  size_t bytes = tensor.size_bytes(), size = dtype_size(tensor.dtype);
  return bytes > size && std::memcmp(tensor.data.get(), tensor.data.get() + size, bytes - size) == 0;
}

std::string content_text(const ConstTensor& tensor, const PrintOptions& options) {
  int64_t count = tensor.elements();
  if (all_equal(tensor)) return fmt::format("splat({})", element_text(tensor, 0));
  if (count > kShortConstant && !options.full_constants) return fmt::format("hash({:016x})", content_hash(tensor));
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    text += element_text(tensor, i);
  }
  return text + "]";
}

std::string type_text(DType dtype, const SymShape& shape) {
  return std::string(dtype_name(dtype)) + sym_shape_to_string(shape);
}

std::string constant_type_text(const ConstTensor& tensor) {
  return type_text(tensor.dtype, SymShape(tensor.dims.begin(), tensor.dims.end()));
}

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  void graph(const Graph& graph, int indent) {
    out_ += "graph @" + name_text(graph.name) + " {\n";
    for (const Value* value : graph.inputs()) {
      line(indent + 1, fmt::format("input %{}: {}", name_text(value->name), type_text(value->dtype, value->shape)));
    }
    for (const Value* value : graph.values()) {
      if (!value->constant) continue;
      line(indent + 1, fmt::format("const %{}: {} = {}", name_text(value->name), constant_type_text(*value->constant),
                                   content_text(*value->constant, options_)));
    }
    for (const auto& node : graph.nodes()) this->node(*node, indent + 1);
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      line(indent + 1,
           fmt::format("output %{} as {}", name_text(graph.outputs()[i]->name), quoted_text(graph.output_names()[i])));
    }
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    out_ += "}";
  }

  std::string take() { return std::move(out_); }

 private:
  void line(int indent, const std::string& text) {
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    out_ += text;
    out_ += '\n';
  }

  void node(const Node& node, int indent) {
    out_.append(static_cast<size_t>(indent) * 2, ' ');
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const Value& value = *node.outputs()[i];
      if (i > 0) out_ += ", ";
      out_ += fmt::format("%{}: {}", name_text(value.name), type_text(value.dtype, value.shape));
    }
    out_ += " = " + node.op() + "(";
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += node.inputs()[i] ? "%" + name_text(node.inputs()[i]->name) : "_";
    }
    out_ += ")";
    bool first = true;
    for (const auto& [name, attribute] : node.attributes) {
      out_ += first ? " {" : ", ";
      first = false;
      out_ += name + ": ";
      std::visit([&](const auto& value) { this->attribute(value, indent); }, attribute);
    }
    if (!first) out_ += "}";
    if (options_.sources && !node.sources.empty()) {
      out_ += " from ";
      attribute(node.sources, indent);
    }
    out_ += '\n';
  }

  template <class T, class Text>
  void list(const std::vector<T>& values, std::string_view when_empty, const Text& text) {
    if (values.empty()) out_ += when_empty;
    out_ += "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += text(values[i]);
    }
    out_ += "]";
  }

  void attribute(int64_t value, int) { out_ += std::to_string(value); }
  void attribute(double value, int) { out_ += float_text(value); }
  void attribute(const std::string& value, int) { out_ += quoted_text(value); }
  void attribute(const std::vector<int64_t>& values, int) {
    list(values, "", [](int64_t v) { return std::to_string(v); });
  }
  void attribute(const std::vector<double>& values, int) { list(values, "floats", float_text); }
  void attribute(const std::vector<std::string>& values, int) {
    list(values, "texts", [](const std::string& v) { return quoted_text(v); });
  }
  void attribute(const SymShape& shape, int) { out_ += "dims" + sym_shape_to_string(shape); }
  void attribute(const ConstTensor& tensor, int) {
    out_ += fmt::format("const {} {}", constant_type_text(tensor), content_text(tensor, options_));
  }
  void attribute(const kernels::Program& program, int) {
    out_ += fmt::format("program({} inputs) {}", program.inputs, quoted_text(program.to_string()));
  }
  void attribute(const std::shared_ptr<Graph>& body, int indent) {
    if (body) {
      graph(*body, indent);
    } else {
      out_ += "graph @empty {}";
    }
  }

  const PrintOptions& options_;
  std::string out_;
};

}  // namespace

bool is_plain_text_name(std::string_view name) {
  for (char c : name) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                 c == '/' || c == '-';
    if (!plain) return false;
  }
  return !name.empty();
}

std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 32 || c == 127) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print(const Graph& graph, const PrintOptions& options) {
  Printer printer(options);
  printer.graph(graph, 0);
  return printer.take() + "\n";
}

}  // namespace flywheel::ir
