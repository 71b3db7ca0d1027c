// SPDX-License-Identifier: Apache-2.0
// The parser of the text form that text.h describes: recursive descent straight over the characters. Graphs nest to a
// bounded depth and constants have a bounded size, since text may come from anywhere.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "compiler/ir/element.h"
#include "compiler/ir/text.h"
#include "compiler/ops/op.h"

namespace flywheel::ir {
namespace {

constexpr int kMaxNesting = 8;
constexpr int64_t kMaxConstantElements = int64_t{1} << 26;

// Bytes of a constant under construction, by element type.
class ElementWriter {
 public:
  explicit ElementWriter(DType dtype) : dtype_(dtype) {}
  bool append(std::string_view number);  // false: no number of that type
  void append_double(double value);
  ConstTensor finish(Dims dims) { return ConstTensor::from<std::byte>(dtype_, std::move(dims), bytes_); }
  void repeat_last(int64_t times);
  int64_t count() const { return static_cast<int64_t>(bytes_.size() / dtype_size(dtype_)); }
  void reserve(int64_t elements) { bytes_.reserve(static_cast<size_t>(elements) * dtype_size(dtype_)); }

 private:
  template <class T>
  void push(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  template <class T>
  bool append_number(std::string_view text) {
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    push(value);
    return true;
  }
  DType dtype_;
  std::vector<std::byte> bytes_;
};

bool ElementWriter::append(std::string_view text) {
  if (dtype_ == DType::kBool && (text == "true" || text == "false")) {
    push<uint8_t>(text == "true" ? 1 : 0);
    return true;
  }
  switch (dtype_) {
    case DType::kFloat32: return append_number<float>(text);
    case DType::kFloat64: return append_number<double>(text);
    case DType::kFloat16:
    case DType::kBFloat16: {
      double value = 0;
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) return false;
      append_double(value);
      return true;
    }
    case DType::kInt8: return append_number<int8_t>(text);
    case DType::kInt16: return append_number<int16_t>(text);
    case DType::kInt32: return append_number<int32_t>(text);
    case DType::kInt64: return append_number<int64_t>(text);
    case DType::kUInt16: return append_number<uint16_t>(text);
    case DType::kUInt32: return append_number<uint32_t>(text);
    case DType::kUInt64: return append_number<uint64_t>(text);
    default: return append_number<uint8_t>(text);
  }
}

void ElementWriter::append_double(double value) {
  bytes_.resize(bytes_.size() + dtype_size(dtype_));
  store_element(dtype_, value, bytes_.data() + bytes_.size() - dtype_size(dtype_));
}

void ElementWriter::repeat_last(int64_t times) {
  size_t size = dtype_size(dtype_);
  reserve(count() + times);
  for (int64_t i = 0; i < times; ++i) {
    for (size_t k = 0; k < size; ++k) bytes_.push_back(bytes_[bytes_.size() - size]);
  }
}

// Approximately normal, the same on every machine: the sum of twelve uniform numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::unique_ptr<Graph>> run() {
    FW_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, parse_graph(nullptr, 0));
    if (peek() != '\0') return error("the end");
    return graph;
  }

 private:
  struct Type {
    DType dtype;
    SymShape shape;
  };

  Status at(size_t pos, std::string_view message, Code code = Code::kInvalidArgument) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < std::min(pos, text_.size()); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n' ? 1 : 0;
    }
    return {code, fmt::format("line {}, column {}: {}", line, column, message)};
  }

  Status error(std::string_view expected) {
    char c = peek();
    std::string_view rest = text_.substr(std::min(pos_, text_.size()), 16);
    std::string found = c == '\0' ? "the end" : fmt::format("'{}'", rest.substr(0, rest.find('\n')));
    return at(pos_, fmt::format("found {}, expected {}", found, expected));
  }

  // The next character that is neither space nor comment; '\0' at the end.
  char peek() {
    while (pos_ < text_.size()) {
      char c = text_[pos_];
      if (c == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\0') {
        ++pos_;
      } else {
        return c;
      }
    }
    return '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  std::string_view peek_word() {
    peek();
    size_t end = pos_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(pos_, end - pos_);
  }

  bool take_word(std::string_view word) {
    if (peek_word() != word) return false;
    pos_ += word.size();
    return true;
  }

  Result<std::string> quoted() {
    if (peek() != '"') return error("a quoted text");
    std::string out;
    for (++pos_; pos_ < text_.size() && text_[pos_] != '"'; ++pos_) {
      if (text_[pos_] != '\\') {
        out += text_[pos_];
        continue;
      }
      if (++pos_ >= text_.size()) break;
      char c = text_[pos_];
      if (c == 'x') {
        int value = 0;
        auto [end, failed] =
            std::from_chars(text_.data() + pos_ + 1, text_.data() + std::min(pos_ + 3, text_.size()), value, 16);
        if (failed != std::errc() || end != text_.data() + pos_ + 3) return error("two hexadecimal digits after \\x");
        out += static_cast<char>(value);
        pos_ += 2;
      } else {
        out += c == 'n' ? '\n' : c;
      }
    }
    if (pos_ >= text_.size()) return at(pos_, "a text has no closing quote");
    ++pos_;
    return out;
  }

  // After % or @.
  Result<std::string> name() {
    if (pos_ < text_.size() && text_[pos_] == '"') return quoted();
    size_t end = pos_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' || text_[end] == '/' || text_[end] == '-'))
      ++end;
    if (end == pos_) return error("a name");
    std::string out(text_.substr(pos_, end - pos_));
    pos_ = end;
    return out;
  }

  // The characters of a number or of nan, inf, true, false.
  std::string_view number_text() {
    peek();
    size_t end = pos_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' || text_[end] == '-' || text_[end] == '+'))
      ++end;
    std::string_view out = text_.substr(pos_, end - pos_);
    pos_ = end;
    return out;
  }

  Result<SymShape> shape() {
    if (!take('[')) return error("'['");
    SymShape out;
    if (take(']')) return out;
    while (true) {
      peek();
      size_t start = pos_, depth = 0;
      bool in_quote = false;
      for (; pos_ < text_.size(); ++pos_) {
        char c = text_[pos_];
        if (in_quote && c == '\\') {
          ++pos_;
        } else if (c == '\'') {
          in_quote = !in_quote;
        } else if (!in_quote) {
          if (c == '\n' || (depth == 0 && (c == ',' || c == ']'))) break;
          if (c == '(') ++depth;
          if (c == ')' && depth > 0) --depth;
        }
      }
      Result<DimExpr> dim = DimExpr::parse(text_.substr(start, std::min(pos_, text_.size()) - start));
      if (!dim.is_ok()) return at(start, dim.status().message());
      out.push_back(*std::move(dim));
      if (take(']')) return out;
      if (!take(',')) return error("',' or ']'");
    }
  }

  Result<Type> type() {
    std::string_view word = peek_word();
    for (int i = 0; i < kDTypeCount; ++i) {
      if (dtype_name(static_cast<DType>(i)) != word) continue;
      pos_ += word.size();
      FW_ASSIGN_OR_RETURN(SymShape dims, shape());
      return Type{static_cast<DType>(i), std::move(dims)};
    }
    return error("an element type such as f32");
  }

  Result<double> argument(std::string_view name) {
    if (!take_word(name) || !take('=')) return error(fmt::format("{}=", name));
    size_t start = pos_;
    std::string_view text = number_text();
    double value = 0;
    auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size())
      return at(start, fmt::format("'{}' is no number", text));
    take(',');
    return value;
  }

  // A constant's type and content: "f32[2] = [1, 2]", in attributes without the '='.
  Result<ConstTensor> constant(bool equals_sign) {
    size_t start = pos_;
    FW_ASSIGN_OR_RETURN(Type t, type());
    Dims dims;
    for (const DimExpr& dim : t.shape) {
      if (!dim.constant()) return at(start, fmt::format("a constant's dim is {}; expected a number", dim.to_string()));
      dims.push_back(*dim.constant());
    }
    std::optional<int64_t> count = checked_element_count(dims);
    if (!count || *count > kMaxConstantElements) {
      return at(start,
                fmt::format("a constant of {} has more than {} elements", dims_to_string(dims), kMaxConstantElements));
    }
    if (equals_sign && !take('=')) return error("'='");
    ElementWriter writer(t.dtype);
    size_t value_start = (peek(), pos_);
    if (take('[')) {
      while (!take(']')) {
        if (writer.count() > 0 && !take(',')) return error("',' or ']'");
        size_t element = (peek(), pos_);
        std::string_view text = number_text();
        if (!writer.append(text)) return at(element, fmt::format("'{}' is no {}", text, dtype_name(t.dtype)));
        if (writer.count() > *count) break;
      }
      if (writer.count() != *count) {
        return at(value_start,
                  fmt::format("a constant of {} has {} elements; found {} {}", dims_to_string(dims), *count,
                              writer.count() > *count ? "more than" : "only", std::min(writer.count(), *count)));
      }
    } else if (take_word("splat")) {
      if (!take('(')) return error("'('");
      size_t element = (peek(), pos_);
      std::string_view text = number_text();
      if (!writer.append(text)) return at(element, fmt::format("'{}' is no {}", text, dtype_name(t.dtype)));
      if (!take(')')) return error("')'");
      if (*count == 0) return ConstTensor::zeros(t.dtype, std::move(dims));
      writer.repeat_last(*count - 1);
    } else if (take_word("random")) {
      if (!take('(')) return error("'('");
      FW_ASSIGN_OR_RETURN(double seed, argument("seed"));
      FW_ASSIGN_OR_RETURN(double mean, argument("mean"));
      FW_ASSIGN_OR_RETURN(double deviation, argument("std"));
      if (!take(')')) return error("')'");
      if (!(seed >= 0 && seed < 0x1p53)) return at(value_start, "the seed must be a whole number from 0");
      Random random(static_cast<uint64_t>(seed));
      writer.reserve(*count);
      bool whole = !is_float(t.dtype);
      for (int64_t i = 0; i < *count; ++i)
        writer.append_double(whole ? std::nearbyint(mean + deviation * random.normal())
                                   : mean + deviation * random.normal());
    } else if (peek_word() == "hash") {
      return error("its elements: a constant printed as a hash cannot be read back; print with full_constants");
    } else {
      return error("'[', splat or random");
    }
    return writer.finish(std::move(dims));
  }

  Result<Attribute> attribute(Graph& graph, int nesting) {
    char c = peek();
    if (c == '"') {
      FW_ASSIGN_OR_RETURN(std::string text, quoted());
      return Attribute(std::move(text));
    }
    if (c == '[') return list();
    std::string_view word = peek_word();
    if (word == "dims") {
      pos_ += word.size();
      FW_ASSIGN_OR_RETURN(SymShape dims, shape());
      return Attribute(std::move(dims));
    }
    if (word == "floats" || word == "texts") {
      pos_ += word.size();
      if (!take('[') || !take(']')) return error("'[]'");
      return word == "floats" ? Attribute(std::vector<double>()) : Attribute(std::vector<std::string>());
    }
    if (word == "const") {
      pos_ += word.size();
      FW_ASSIGN_OR_RETURN(ConstTensor tensor, constant(false));
      return Attribute(std::move(tensor));
    }
    if (word == "program") return program();
    if (word == "graph") {
      FW_ASSIGN_OR_RETURN(std::unique_ptr<Graph> body, parse_graph(&graph, nesting + 1));
      return Attribute(std::shared_ptr<Graph>(std::move(body)));
    }
    return number();
  }

  Result<Attribute> number() {
    size_t start = pos_;
    std::string_view text = number_text();
    const char* last = text.data() + text.size();
    int64_t integer = 0;
    if (auto [end, failed] = std::from_chars(text.data(), last, integer); failed == std::errc() && end == last)
      return Attribute(integer);
    double value = 0;
    if (auto [end, failed] = std::from_chars(text.data(), last, value); failed == std::errc() && end == last)
      return Attribute(value);
    pos_ = start;
    return error("an attribute's value");
  }

  Result<Attribute> list() {
    ++pos_;
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> texts;
    bool any_float = false;
    while (!take(']')) {
      if (ints.size() + texts.size() > 0 && !take(',')) return error("',' or ']'");
      if (peek() == '"') {
        if (!ints.empty()) return error("a number");
        FW_ASSIGN_OR_RETURN(std::string text, quoted());
        texts.push_back(std::move(text));
        continue;
      }
      if (!texts.empty()) return error("a quoted text");
      FW_ASSIGN_OR_RETURN(Attribute value, number());
      const auto* integer = std::get_if<int64_t>(&value);
      any_float = any_float || !integer;
      ints.push_back(integer ? *integer : 0);
      floats.push_back(integer ? static_cast<double>(*integer) : std::get<double>(value));
    }
    if (!texts.empty()) return Attribute(std::move(texts));
    return any_float ? Attribute(std::move(floats)) : Attribute(std::move(ints));
  }

  Result<Attribute> program() {
    take_word("program");
    size_t start = pos_;
    if (!take('(')) return error("'('");
    std::string_view text = number_text();
    int inputs = 0;
    auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), inputs);
    if (failed != std::errc() || end != text.data() + text.size()) return at(start, "expected a number of inputs");
    if (!take_word("inputs") && !take_word("input")) return error("'inputs'");
    if (!take(')')) return error("')'");
    FW_ASSIGN_OR_RETURN(std::string code, quoted());
    if (inputs < 0 || inputs > kernels::kMaxRegisters) return at(start, fmt::format("a program of {} inputs", inputs));
    Result<kernels::Program> parsed = kernels::Program::parse(code, inputs);
    if (!parsed.is_ok()) return at(start, parsed.status().message());
    return Attribute(*std::move(parsed));
  }

  // A new value's name: %name that nothing has yet.
  Result<std::string> new_name(const Graph& graph) {
    if (!take('%')) return error("a value such as %x");
    size_t start = pos_;
    FW_ASSIGN_OR_RETURN(std::string out, name());
    if (graph.find_value(out)) return at(start, fmt::format("%{} is there already", out));
    return out;
  }

  Result<Value*> known_value(const Graph& graph) {
    if (!take('%')) return error("a value such as %x");
    size_t start = pos_;
    FW_ASSIGN_OR_RETURN(std::string wanted, name());
    Value* value = graph.find_value(wanted);
    if (!value) return at(start, fmt::format("there is no %{} above", wanted));
    return value;
  }

  Status node(Graph& graph, int nesting) {
    std::vector<std::string> names;
    std::vector<std::optional<Type>> types;
    std::vector<size_t> places;
    do {
      places.push_back((peek(), pos_));
      FW_ASSIGN_OR_RETURN(std::string out, new_name(graph));
      for (const std::string& other : names) {
        if (other == out) return at(places.back(), fmt::format("%{} is there already", out));
      }
      names.push_back(std::move(out));
      types.emplace_back();
      if (take(':')) {
        FW_ASSIGN_OR_RETURN(types.back(), type());
      }
    } while (take(','));
    if (!take('=')) return error("'='");
    size_t start = (peek(), pos_);
    std::string op(peek_word());
    if (op.empty()) return error("an operator");
    if (!ops::find_op(op)) return at(start, fmt::format("there is no operator {}", op), Code::kUnsupported);
    pos_ += op.size();
    if (!take('(')) return error("'('");
    std::vector<Value*> inputs;
    while (!take(')')) {
      if (!inputs.empty() && !take(',')) return error("',' or ')'");
      if (take_word("_")) {
        inputs.push_back(nullptr);
        continue;
      }
      FW_ASSIGN_OR_RETURN(Value * value, known_value(graph));
      inputs.push_back(value);
    }
    std::map<std::string, Attribute, std::less<>> attributes;
    if (take('{')) {
      while (!take('}')) {
        if (!attributes.empty() && !take(',')) return error("',' or '}'");
        std::string key(peek_word());
        if (key.empty() || attributes.contains(key)) return error("a new attribute's name");
        pos_ += key.size();
        if (!take(':')) return error("':'");
        FW_ASSIGN_OR_RETURN(Attribute value, attribute(graph, nesting));
        attributes.emplace(std::move(key), std::move(value));
      }
    }
    std::vector<std::string> sources;
    if (take_word("from")) {
      FW_ASSIGN_OR_RETURN(Attribute value, attribute(graph, nesting));
      const auto* texts = std::get_if<std::vector<std::string>>(&value);
      if (!texts) return error("a list of quoted names after from");
      sources = *texts;
    }
    Node* made = graph.add_node(op, std::move(inputs), static_cast<int>(names.size()), nullptr, names);
    made->attributes = std::move(attributes);
    made->sources = std::move(sources);
    if (Status status = ops::infer(*made); !status.is_ok()) return at(start, status.message(), status.code());
    for (size_t i = 0; i < names.size(); ++i) {
      const Value& value = *made->output(i);
      if (types[i] && (types[i]->dtype != value.dtype || types[i]->shape != value.shape)) {
        return at(places[i], fmt::format("%{} is {}{}; its line says {}{}", value.name, dtype_name(value.dtype),
                                         sym_shape_to_string(value.shape), dtype_name(types[i]->dtype),
                                         sym_shape_to_string(types[i]->shape)));
      }
    }
    return Status::ok();
  }

  Result<std::unique_ptr<Graph>> parse_graph(Graph* parent, int nesting) {
    if (nesting > kMaxNesting) return error(fmt::format("at most {} nested graphs", kMaxNesting));
    auto graph = std::make_unique<Graph>();
    graph->parent = parent;
    if (!take_word("graph")) return error("'graph'");
    if (!take('@')) return error("'@' and a name");
    FW_ASSIGN_OR_RETURN(graph->name, name());
    if (!take('{')) return error("'{'");
    while (!take('}')) {
      if (take_word("input")) {
        FW_ASSIGN_OR_RETURN(std::string value_name, new_name(*graph));
        if (!take(':')) return error("':'");
        FW_ASSIGN_OR_RETURN(Type t, type());
        graph->add_input(value_name, t.dtype, std::move(t.shape));
      } else if (take_word("const")) {
        FW_ASSIGN_OR_RETURN(std::string value_name, new_name(*graph));
        if (!take(':')) return error("':'");
        FW_ASSIGN_OR_RETURN(ConstTensor tensor, constant(true));
        graph->add_constant(value_name, std::move(tensor));
      } else if (take_word("output")) {
        FW_ASSIGN_OR_RETURN(Value * value, known_value(*graph));
        std::string output_name = value->name;
        if (take_word("as")) {
          FW_ASSIGN_OR_RETURN(output_name, quoted());
        }
        graph->add_output(value, output_name);
      } else if (peek() == '%') {
        FW_RETURN_IF_ERROR(node(*graph, nesting));
      } else {
        return error("input, const, output, a node such as %y = Relu(%x), or '}'");
      }
    }
    return graph;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

Result<std::unique_ptr<Graph>> parse(std::string_view text) { return Parser(text).run(); }

}  // namespace flywheel::ir
