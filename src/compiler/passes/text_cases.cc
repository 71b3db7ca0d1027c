// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/text_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "compiler/ir/text.h"

namespace flywheel::passes {
namespace {

using ir::Node;
using ir::Value;

// Lists of extents compare by content, whichever way they are written.
std::optional<SymShape> as_dims(const ir::Attribute& attribute) {
  if (const auto* dims = std::get_if<SymShape>(&attribute)) return *dims;
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&attribute)) return SymShape(ints->begin(), ints->end());
  return std::nullopt;
}

bool same_attribute(const ir::Attribute& a, const ir::Attribute& b) {
  if (std::optional<SymShape> left = as_dims(a), right = as_dims(b); left && right) return *left == *right;
  if (a.index() != b.index()) return false;
  if (const auto* tensor = std::get_if<ir::ConstTensor>(&a)) return tensor->same_content(std::get<ir::ConstTensor>(b));
  if (std::holds_alternative<std::shared_ptr<ir::Graph>>(a)) return false;
  return std::visit(
      [&](const auto& left) {
        using T = std::decay_t<decltype(left)>;
        if constexpr (std::is_same_v<T, ir::ConstTensor>) {
          return false;
        } else {
          return left == std::get<T>(b);
        }
      },
      a);
}

class Comparison {
 public:
  std::string run(const ir::Graph& a, const ir::Graph& b) {
    if (a.inputs().size() != b.inputs().size()) return "different numbers of inputs";
    for (size_t i = 0; i < a.inputs().size(); ++i) {
      if (a.inputs()[i]->name != b.inputs()[i]->name) return "different names of inputs";
      match_[a.inputs()[i]] = b.inputs()[i];
    }
    auto left = a.nodes().begin();
    auto right = b.nodes().begin();
    for (; left != a.nodes().end() && right != b.nodes().end(); ++left, ++right) {
      if (std::string text = nodes(**left, **right); !text.empty()) {
        return fmt::format("{} and {}: {}", (*left)->describe(), (*right)->describe(), text);
      }
    }
    if (left != a.nodes().end()) return "more nodes than expected, from " + (*left)->describe();
    if (right != b.nodes().end()) return "fewer nodes than expected, without " + (*right)->describe();
    if (a.output_names() != b.output_names()) return "different names of outputs";
    for (size_t i = 0; i < a.outputs().size(); ++i) {
      if (!same_value(a.outputs()[i], b.outputs()[i])) return "different values for output " + a.output_names()[i];
    }
    return "";
  }

 private:
  bool same_value(const Value* a, const Value* b) {
    if (!a || !b) return a == b;
    if (a->is_constant() != b->is_constant()) return false;
    if (a->is_constant()) return a->constant->same_content(*b->constant);
    auto known = match_.find(a);
    return known != match_.end() && known->second == b;
  }

  std::string nodes(const Node& a, const Node& b) {
    if (a.op() != b.op()) return "different operators";
    if (a.inputs().size() != b.inputs().size()) return "different numbers of operands";
    if (a.outputs().size() != b.outputs().size()) return "different numbers of outputs";
    for (size_t i = 0; i < a.inputs().size(); ++i) {
      if (!same_value(a.input(i), b.input(i))) return fmt::format("operand {} differs", i);
    }
    for (size_t i = 0; i < a.outputs().size(); ++i) {
      if (a.output(i)->dtype != b.output(i)->dtype || a.output(i)->shape != b.output(i)->shape) {
        return fmt::format("output {} has another type or shape", i);
      }
      match_[a.output(i)] = b.output(i);
    }
    for (const auto& [name, value] : a.attributes) {
      auto other = b.attributes.find(name);
      if (other == b.attributes.end() || !same_attribute(value, other->second)) return "attribute " + name + " differs";
    }
    if (a.attributes.size() != b.attributes.size()) return "an attribute is missing";
    return "";
  }

  std::map<const Value*, const Value*> match_;
};

std::string until(std::istream& file, std::string_view end, bool& found) {
  std::string text, line;
  found = false;
  while (std::getline(file, line)) {
    if (line.starts_with(end)) {
      found = true;
      break;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::vector<TextCase> text_cases(const std::string& name) {
  const std::string path = fmt::format("{}/src/compiler/passes/testdata/{}.ir", FLYWHEEL_SOURCE_DIR, name);
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream all;
  all << file.rdbuf();
  std::vector<TextCase> cases;
  std::string line;
  std::getline(all, line);
  while (line.starts_with("=== ")) {
    TextCase one;
    one.title = line.substr(4);
    bool found = false;
    one.before = until(all, "---", found);
    EXPECT_TRUE(found) << path << ": no expectation for: " << one.title;
    std::string rest;
    line.clear();
    while (std::getline(all, line) && !line.starts_with("=== ")) rest += line + "\n";
    if (!line.starts_with("=== ")) line.clear();
    one.after = rest.starts_with("unchanged") ? "" : rest;
    cases.push_back(std::move(one));
  }
  EXPECT_FALSE(cases.empty()) << path;
  return cases;
}

std::unique_ptr<ir::Graph> parse_graph(const std::string& text) {
  Result<std::unique_ptr<ir::Graph>> graph = ir::parse(text);
  EXPECT_TRUE(graph.is_ok()) << graph.status().to_string() << "\n" << text;
  return graph.is_ok() ? std::move(graph).value() : nullptr;
}

std::string difference(const ir::Graph& a, const ir::Graph& b) { return Comparison().run(a, b); }

std::string full_text(const ir::Graph& graph) {
  ir::PrintOptions options;
  options.full_constants = true;
  return ir::print(graph, options);
}

}  // namespace flywheel::passes
