// SPDX-License-Identifier: Apache-2.0
// The hand-written reading and writing of inference's messages, against protobuf's.
#include "server/protocol/grpc/infer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/protocol/grpc/inference_service.pb.h"

namespace flywheel::grpc {
namespace {

using config::DataType;
using testing::ElementsAre;
using testing::HasSubstr;

WireBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(WireBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

template <class T>
std::vector<T> values_of(WireBytes bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(InferWireTest, ReadsEveryFieldOfARequest) {
  inference::ModelInferRequest proto;
  proto.set_model_name("m");
  proto.set_model_version("3");
  proto.set_id("ü7");
  (*proto.mutable_parameters())["flag"].set_bool_param(true);
  (*proto.mutable_parameters())["count"].set_int64_param(-5);
  (*proto.mutable_parameters())["text"].set_string_param("t");
  (*proto.mutable_parameters())["real"].set_double_param(0.5);
  (*proto.mutable_parameters())["natural"].set_uint64_param(~uint64_t{0});
  (*proto.mutable_parameters())["nothing"];
  auto& input = *proto.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  for (int64_t dim : {2, -1, 3}) input.add_shape(dim);
  (*input.mutable_parameters())["p"].set_int64_param(1);
  proto.add_outputs()->set_name("y");
  (*proto.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
  proto.add_raw_input_contents("raw");
  proto.add_raw_input_contents("");
  const std::string text = proto.SerializeAsString();
  WireRequest wire;
  ASSERT_TRUE(read_infer_request(bytes_of(text), wire).is_ok());
  EXPECT_EQ(wire.model_name, "m");
  EXPECT_EQ(wire.model_version, "3");
  EXPECT_EQ(wire.id, "ü7");
  ASSERT_EQ(wire.parameters.size(), 6u);
  const std::map<std::string_view, WireValue> expected = {
      {"flag", true}, {"count", int64_t{-5}},    {"text", std::string_view("t")},
      {"real", 0.5},  {"natural", ~uint64_t{0}}, {"nothing", {}}};
  for (const WireParameter& parameter : wire.parameters) EXPECT_EQ(parameter.value, expected.at(parameter.key));
  ASSERT_EQ(wire.inputs.size(), 1u);
  EXPECT_EQ(wire.inputs[0].name, "x");
  EXPECT_EQ(wire.inputs[0].datatype, "FP32");
  EXPECT_THAT(wire.inputs[0].shape, ElementsAre(2, -1, 3));
  EXPECT_TRUE(wire.inputs[0].contents.empty());
  ASSERT_EQ(wire.outputs.size(), 1u);
  EXPECT_EQ(wire.outputs[0].parameters[0].value, WireValue(int64_t{3}));
  ASSERT_EQ(wire.raw_contents.size(), 2u);
  EXPECT_EQ(text_of(wire.raw_contents[0]), "raw");
  // Where they lie, not copied.
  EXPECT_GE(reinterpret_cast<const char*>(wire.raw_contents[0].data()), text.data());
  EXPECT_LE(reinterpret_cast<const char*>(wire.raw_contents[0].data()), text.data() + text.size());
  EXPECT_EQ(find_raw_contents(bytes_of(text)),
            static_cast<size_t>(reinterpret_cast<const char*>(wire.raw_contents[0].data()) - text.data()));
  EXPECT_EQ(find_raw_contents(bytes_of(text).first(10)), 0u);
}

struct ContentsCase {
  DataType type;
  std::function<void(inference::InferTensorContents&)> fill;
  std::string bytes;
};

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST(InferWireTest, ReadsEveryListOfContents) {
  using Contents = inference::InferTensorContents;
  const std::vector<ContentsCase> cases = {
      {DataType::kBool, [](Contents& c) { c.add_bool_contents(true), c.add_bool_contents(false); },
       raw<uint8_t>({1, 0})},
      {DataType::kInt8, [](Contents& c) { c.add_int_contents(-2), c.add_int_contents(300); }, raw<int8_t>({-2, 44})},
      {DataType::kInt16, [](Contents& c) { c.add_int_contents(-2); }, raw<int16_t>({-2})},
      {DataType::kInt32, [](Contents& c) { c.add_int_contents(-2), c.add_int_contents(7); }, raw<int32_t>({-2, 7})},
      {DataType::kInt64, [](Contents& c) { c.add_int64_contents(-1); }, raw<int64_t>({-1})},
      {DataType::kUint8, [](Contents& c) { c.add_uint_contents(255); }, raw<uint8_t>({255})},
      {DataType::kUint16, [](Contents& c) { c.add_uint_contents(65535); }, raw<uint16_t>({65535})},
      {DataType::kUint32, [](Contents& c) { c.add_uint_contents(~0u); }, raw<uint32_t>({~0u})},
      {DataType::kUint64, [](Contents& c) { c.add_uint64_contents(1ull << 63); }, raw<uint64_t>({1ull << 63})},
      {DataType::kFp32, [](Contents& c) { c.add_fp32_contents(1.5f), c.add_fp32_contents(-2); },
       raw<float>({1.5f, -2})},
      {DataType::kFp64, [](Contents& c) { c.add_fp64_contents(1.5); }, raw<double>({1.5})},
      {DataType::kString, [](Contents& c) { c.add_bytes_contents("ab"), c.add_bytes_contents(""); },
       std::string("\2\0\0\0ab\0\0\0\0", 10)},
  };
  for (const ContentsCase& each : cases) {
    inference::ModelInferRequest proto;
    each.fill(*proto.add_inputs()->mutable_contents());
    const std::string text = proto.SerializeAsString();
    WireRequest wire;
    ASSERT_TRUE(read_infer_request(bytes_of(text), wire).is_ok());
    Result<TensorBytes> tensor = read_contents(wire.inputs[0], each.type, "m");
    ASSERT_TRUE(tensor.is_ok()) << tensor.status().to_string();
    EXPECT_EQ(text_of(tensor->bytes), each.bytes) << config::protocol_name(each.type);
    const bool same_on_the_wire = each.type == DataType::kFp32 || each.type == DataType::kFp64;
    EXPECT_EQ(tensor->owned == nullptr, same_on_the_wire);
    const DataType other = each.type == DataType::kFp32 ? DataType::kInt64 : DataType::kFp32;
    EXPECT_THAT(read_contents(wire.inputs[0], other, "m").status().message(),
                HasSubstr("unexpected explicit tensor data for input tensor '' for model 'm' of type"));
  }
}

TEST(InferWireTest, ContentsMayComeInPiecesAndUnpacked) {
  // fp32_contents: a packed run of one, an unpacked one, and another piece of contents with a packed run of one.
  const std::string one = raw<float>({1}), two = raw<float>({2}), three = raw<float>({3});
  std::string first, second, input, message;
  append_bytes_field(first, 6, one);
  first += static_cast<char>(6 << 3 | 5);
  first += two;
  append_bytes_field(second, 6, three);
  append_bytes_field(input, 5, first);
  append_bytes_field(input, 5, second);
  append_bytes_field(message, 5, input);
  WireRequest wire;
  ASSERT_TRUE(read_infer_request(bytes_of(message), wire).is_ok());
  Result<TensorBytes> tensor = read_contents(wire.inputs[0], DataType::kFp32, "m");
  ASSERT_TRUE(tensor.is_ok());
  EXPECT_THAT(values_of<float>(tensor->bytes), ElementsAre(1, 2, 3));
}

TEST(InferWireTest, TwoListsAreOneTooMany) {
  inference::ModelInferRequest proto;
  auto& input = *proto.add_inputs();
  input.set_name("x");
  input.mutable_contents()->add_int_contents(1);
  input.mutable_contents()->add_int64_contents(1);
  const std::string text = proto.SerializeAsString();
  WireRequest wire;
  ASSERT_TRUE(read_infer_request(bytes_of(text), wire).is_ok());
  EXPECT_EQ(read_contents(wire.inputs[0], DataType::kInt32, "m").status().message(),
            "unexpected explicit tensor data for input tensor 'x' for model 'm', binary data was already supplied.");
}

TEST(InferWireTest, RefusesWhatProtobufRefuses) {
  const std::vector<std::string> texts = {"\xFF",
                                          std::string("\x0A\x05m", 3),
                                          std::string("\0\0", 2),
                                          "\x0C",
                                          "\x0A\x01\xFF",
                                          "\x0B\x13\x0C",
                                          "\x0D\1\2",
                                          std::string("\x22\x03\x0A\x01\x80", 5),
                                          "\x2A\x02\x1A\x01"};
  for (const std::string& text : texts) {
    inference::ModelInferRequest proto;
    WireRequest wire;
    EXPECT_FALSE(proto.ParseFromString(text)) << testing::PrintToString(text);
    EXPECT_EQ(read_infer_request(bytes_of(text), wire).code(), Code::kInternal) << testing::PrintToString(text);
  }
}

TEST(InferWireTest, TagsAreOf32BitsInFiveBytes) {
  const auto both_read = [](const std::string& tag) {
    const std::string message = tag +
                                std::string(
                                    "\x01"
                                    "7") +
                                std::string(
                                    "\x1a\x01"
                                    "i");  // a length of one; the id
    WireRequest request;
    inference::ModelInferRequest proto;
    const bool read = read_infer_request(bytes_of(message), request).is_ok();
    EXPECT_EQ(proto.ParseFromString(message), read) << testing::PrintToString(tag);
    if (read) {
      EXPECT_EQ(request.id, proto.id());
      EXPECT_EQ(request.model_name, proto.model_name());
    }
    return read;
  };
  EXPECT_TRUE(both_read("\x0a"));                                       // the model's name
  EXPECT_TRUE(both_read(std::string("\x8a\x80\x80\x80\x00", 5)));       // the same, as long as it may be
  EXPECT_FALSE(both_read(std::string("\x8a\x80\x80\x80\x80\x00", 6)));  // longer
  EXPECT_TRUE(both_read("\xfa\xff\xff\xff\x1a"));                   // more than 32 bits, of which the first are dropped
  EXPECT_FALSE(both_read(std::string("\x82\x80\x80\x80\x10", 5)));  // field 0 is left of these
}

TEST(InferWireTest, PartsAreBounded) {
  WireRequest wire;
  std::string raw_contents, inputs;
  for (int i = 0; i < 5000; ++i) raw_contents += std::string("\x3A\0", 2), inputs += std::string("\x2A\0", 2);
  EXPECT_THAT(read_infer_request(bytes_of(raw_contents), wire).message(), HasSubstr("more than 4096 raw tensors"));
  wire.clear();
  EXPECT_THAT(read_infer_request(bytes_of(inputs), wire).message(), HasSubstr("more than 4096 inputs"));
  std::string input, message;
  append_bytes_field(input, 3, std::string(100'000, '\1'));
  append_bytes_field(message, 5, input);
  wire.clear();
  EXPECT_THAT(read_infer_request(bytes_of(message), wire).message(), HasSubstr("dimensions"));
}

TEST(InferWireTest, WritesWhatProtobufReads) {
  const std::string small = "abc", large(5000, 'L');
  std::vector<schedule::OutputTensor> outputs(2);
  outputs[0] = {"y", DataType::kFp32, {2, -1}, bytes_of(large), nullptr};
  outputs[1] = {"z", DataType::kString, {}, bytes_of(small), nullptr};
  const schedule::Parameters parameters = {{"b", true}, {"d", 0.25}, {"i", int64_t{-3}}, {"s", std::string("text")}};
  WireResponse response;
  response.model_name = "m";
  response.model_version = "1";
  response.id = "7";
  response.parameters = &parameters;
  response.final_response = false;
  response.outputs = outputs;
  std::string text;
  std::vector<RawPlace> places;
  append_infer_response(response, 4096, text, places);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].output, 0u);
  text.insert(places[0].at, large);
  inference::ModelInferResponse proto;
  ASSERT_TRUE(proto.ParseFromString(text));
  EXPECT_EQ(proto.model_name(), "m");
  EXPECT_EQ(proto.model_version(), "1");
  EXPECT_EQ(proto.id(), "7");
  EXPECT_TRUE(proto.parameters().at("b").bool_param());
  EXPECT_EQ(proto.parameters().at("d").double_param(), 0.25);
  EXPECT_EQ(proto.parameters().at("i").int64_param(), -3);
  EXPECT_EQ(proto.parameters().at("s").string_param(), "text");
  EXPECT_TRUE(proto.parameters().at("triton_final_response").has_bool_param());
  EXPECT_FALSE(proto.parameters().at("triton_final_response").bool_param());
  ASSERT_EQ(proto.outputs_size(), 2);
  EXPECT_EQ(proto.outputs(0).datatype(), "FP32");
  EXPECT_THAT(proto.outputs(0).shape(), ElementsAre(2, -1));
  EXPECT_EQ(proto.outputs(1).datatype(), "BYTES");
  EXPECT_THAT(proto.raw_output_contents(), ElementsAre(large, small));
}

}  // namespace
}  // namespace flywheel::grpc
