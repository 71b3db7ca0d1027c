// SPDX-License-Identifier: Apache-2.0
// Every encoding of tensor data, and every way in which it may be wrong.
#include "compiler/onnx/tensor_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "compiler/onnx/proto_names.h"

namespace flywheel::onnx_import {
namespace {

namespace fs = std::filesystem;

onnx_pb::TensorProto tensor(int32_t type, const std::vector<int64_t>& dims) {
  onnx_pb::TensorProto tensor;
  tensor.set_data_type(type);
  for (int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

// The reader points into the message, so the message stays.
struct Read {
  explicit Read(onnx_pb::TensorProto proto, std::string folder = "")
      : owner(std::make_shared<onnx_pb::TensorProto>(std::move(proto))),
        reader(owner, std::move(folder)),
        result(reader.read(*owner)) {}
  std::shared_ptr<onnx_pb::TensorProto> owner;
  TensorReader reader;
  Result<ir::ConstTensor> result;
  std::vector<double> numbers() {
    std::vector<double> out;
    for (int64_t i = 0; i < result->elements(); ++i) out.push_back(result->as_double(i));
    return out;
  }
};

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

using Numbers = std::vector<double>;

TEST(TensorData, RawBytesOfEveryType) {
  const auto check = [](int32_t type, DType dtype, const std::string& bytes, const Numbers& expected) {
    auto proto = tensor(type, {static_cast<int64_t>(expected.size())});
    proto.set_raw_data(bytes);
    Read read(proto);
    ASSERT_TRUE(read.result.is_ok()) << read.result.status().to_string();
    EXPECT_EQ(read.result->dtype, dtype);
    EXPECT_EQ(read.numbers(), expected) << dtype_name(dtype);
  };
  check(kTypeFloat, DType::kFloat32, raw<float>({1.5f, -2}), {1.5, -2});
  check(kTypeDouble, DType::kFloat64, raw<double>({1e300, -2}), {1e300, -2});
  check(kTypeFloat16, DType::kFloat16, raw<uint16_t>({0x3E00, 0xC000, 0x0001}), {1.5, -2, 0x1p-24});
  check(kTypeBFloat16, DType::kBFloat16, raw<uint16_t>({0x3FC0, 0xC000}), {1.5, -2});
  check(kTypeInt8, DType::kInt8, raw<int8_t>({-128, 127}), {-128, 127});
  check(kTypeUInt8, DType::kUInt8, raw<uint8_t>({0, 255}), {0, 255});
  check(kTypeInt16, DType::kInt16, raw<int16_t>({-32768, 5}), {-32768, 5});
  check(kTypeUInt16, DType::kUInt16, raw<uint16_t>({65535}), {65535});
  check(kTypeInt32, DType::kInt32, raw<int32_t>({-7, 1 << 30}), {-7, 1 << 30});
  check(kTypeUInt32, DType::kUInt32, raw<uint32_t>({4294967295u}), {4294967295.0});
  check(kTypeInt64, DType::kInt64, raw<int64_t>({-7, int64_t{1} << 40}), {-7, 0x1p40});
  check(kTypeUInt64, DType::kUInt64, raw<uint64_t>({uint64_t{1} << 63}), {0x1p63});
  check(kTypeBool, DType::kBool, raw<uint8_t>({0, 1}), {0, 1});
}

TEST(TensorData, BooleansBecomeZeroAndOne) {
  auto proto = tensor(kTypeBool, {3});
  proto.set_raw_data(raw<uint8_t>({0, 2, 255}));
  Read read(proto);
  ASSERT_TRUE(read.result.is_ok());
  EXPECT_EQ(std::vector<uint8_t>(read.result->as<uint8_t>().begin(), read.result->as<uint8_t>().end()),
            (std::vector<uint8_t>{0, 1, 1}));
}

TEST(TensorData, TypedFields) {
  auto floats = tensor(kTypeFloat, {1, 2});
  floats.add_float_data(0.5f);
  floats.add_float_data(-1);
  EXPECT_EQ(Read(floats).numbers(), (Numbers{0.5, -1}));

  auto doubles = tensor(kTypeDouble, {});
  doubles.add_double_data(1e300);
  EXPECT_EQ(Read(doubles).numbers(), (Numbers{1e300}));

  auto longs = tensor(kTypeInt64, {2});
  longs.add_int64_data(-1);
  longs.add_int64_data(int64_t{1} << 50);
  EXPECT_EQ(Read(longs).numbers(), (Numbers{-1, 0x1p50}));

  for (int32_t type : {kTypeInt32, kTypeInt16, kTypeInt8, kTypeUInt16, kTypeUInt8}) {
    auto ints = tensor(type, {2});
    ints.add_int32_data(3);
    ints.add_int32_data(120);
    EXPECT_EQ(Read(ints).numbers(), (Numbers{3, 120})) << type;
  }

  auto halves = tensor(kTypeFloat16, {1});  // the bit pattern
  halves.add_int32_data(0x3E00);
  EXPECT_EQ(Read(halves).numbers(), (Numbers{1.5}));
  auto brains = tensor(kTypeBFloat16, {1});
  brains.add_int32_data(0xBFC0);
  EXPECT_EQ(Read(brains).numbers(), (Numbers{-1.5}));

  auto flags = tensor(kTypeBool, {2});
  flags.add_int32_data(1);
  flags.add_int32_data(0);
  EXPECT_EQ(Read(flags).numbers(), (Numbers{1, 0}));

  for (int32_t type : {kTypeUInt32, kTypeUInt64}) {
    auto words = tensor(type, {1});
    words.add_uint64_data(4000000000u);
    EXPECT_EQ(Read(words).numbers(), (Numbers{4e9})) << type;
  }
}

TEST(TensorData, EmptyAndScalar) {
  Read empty(tensor(kTypeFloat, {0, 5}));
  ASSERT_TRUE(empty.result.is_ok());
  EXPECT_EQ(empty.result->elements(), 0);
  EXPECT_NE(empty.result->data, nullptr);
  auto scalar = tensor(kTypeFloat, {});
  scalar.set_raw_data(raw<float>({4}));
  EXPECT_EQ(Read(scalar).numbers(), (Numbers{4}));
}

void expect_refused(const onnx_pb::TensorProto& proto, Code code, std::string_view text,
                    const std::string& folder = "") {
  Read read(proto, folder);
  ASSERT_FALSE(read.result.is_ok());
  EXPECT_EQ(read.result.status().code(), code) << read.result.status().to_string();
  EXPECT_NE(read.result.status().message().find(text), std::string::npos) << read.result.status().to_string();
}

TEST(TensorData, RefusesWhatDoesNotFit) {
  auto proto = tensor(kTypeFloat, {2, 2});
  proto.set_raw_data("0123456789");
  expect_refused(proto, Code::kInvalidArgument, "raw_data has 10 bytes where 2x2 of f32 need 16");

  proto = tensor(kTypeFloat, {2});
  proto.add_float_data(1);
  expect_refused(proto, Code::kInvalidArgument, "float_data has 1 values where its dims need 2");

  proto = tensor(kTypeFloat, {1});
  proto.add_int64_data(1);
  expect_refused(proto, Code::kInvalidArgument,
                 "its data is in int64_data, where f32 is kept in float_data or raw_data");

  proto = tensor(kTypeInt8, {1});
  proto.add_int32_data(200);
  expect_refused(proto, Code::kInvalidArgument, "holds 200 at 0, which i8 cannot hold");

  proto = tensor(kTypeFloat, {1});
  proto.add_float_data(1);
  proto.set_raw_data("0123");
  expect_refused(proto, Code::kInvalidArgument, "more than one field");

  expect_refused(tensor(kTypeFloat, {3}), Code::kInvalidArgument, "no data where its dims need 3 values");
  expect_refused(tensor(kTypeFloat, {-1}), Code::kInvalidArgument, "negative or too large");
  expect_refused(tensor(kTypeFloat, {int64_t{1} << 40, int64_t{1} << 40}), Code::kInvalidArgument,
                 "negative or too large");
  expect_refused(tensor(kTypeDouble, {std::numeric_limits<int64_t>::max() / 4}), Code::kInvalidArgument,
                 "negative or too large");
  expect_refused(tensor(kTypeFloat, std::vector<int64_t>(9, 1)), Code::kUnsupported, "9 dims; at most 8");
}

TEST(TensorData, RefusesTypes) {
  auto strings = tensor(kTypeString, {1});
  strings.add_string_data("x");
  expect_refused(strings, Code::kUnsupported, "element type STRING");
  expect_refused(tensor(17, {1}), Code::kUnsupported, "element type FLOAT8E4M3FN");
  expect_refused(tensor(0, {1}), Code::kUnsupported, "element type UNDEFINED");
  expect_refused(tensor(1000, {1}), Code::kUnsupported, "element type type 1000");
  auto segment = tensor(kTypeFloat, {1});
  segment.mutable_segment()->set_begin(0);
  expect_refused(segment, Code::kUnsupported, "segments");
}

class ExternalDataTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("external_data_test_" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "model" / "sub");
    write(root_ / "secret.bin", raw<float>({9, 9, 9, 9}));
    write(root_ / "model" / "weights.bin", std::string(4, '\0') + raw<float>({1, 2, 3, 4}));
    write(root_ / "model" / "sub" / "more.bin", raw<float>({5}));
  }
  void TearDown() override { fs::remove_all(root_); }
  static void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  std::string folder() const { return (root_ / "model").string(); }
  static onnx_pb::TensorProto external(const std::string& location, const std::vector<int64_t>& dims,
                                       const std::string& offset = "", const std::string& length = "") {
    auto proto = tensor(kTypeFloat, dims);
    proto.set_data_location(1);
    const auto add = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      auto* entry = proto.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location);
    add("offset", offset);
    add("length", length);
    return proto;
  }
  fs::path root_;
};

TEST_F(ExternalDataTest, ReadsRanges) {
  Read part(external("weights.bin", {2}, "8", "8"), folder());
  ASSERT_TRUE(part.result.is_ok()) << part.result.status().to_string();
  EXPECT_EQ(part.numbers(), (Numbers{2, 3}));
  EXPECT_NE(part.reader.external_hash(), 0u);
  EXPECT_EQ(Read(external("sub/more.bin", {1}), folder()).numbers(), (Numbers{5}));
  EXPECT_EQ(Read(external("./weights.bin", {3}, "4"), folder()).numbers(), (Numbers{1, 2, 3}));
  // An offset that does not suit the type: still the right numbers.
  write(root_ / "model" / "odd.bin", "x" + raw<float>({7}));
  EXPECT_EQ(Read(external("odd.bin", {1}, "1"), folder()).numbers(), (Numbers{7}));
}

TEST_F(ExternalDataTest, KeepsTheMappingAlive) {
  ir::ConstTensor kept;
  {
    Read read(external("weights.bin", {4}, "4"), folder());
    ASSERT_TRUE(read.result.is_ok());
    kept = *read.result;
  }
  EXPECT_EQ(kept.as_double(3), 4);
}

TEST_F(ExternalDataTest, StaysInsideTheFolder) {
  expect_refused(external("../secret.bin", {4}), Code::kInvalidArgument, "only paths inside the model's folder",
                 folder());
  expect_refused(external("sub/../../secret.bin", {4}), Code::kInvalidArgument, "only paths inside", folder());
  expect_refused(external((root_ / "secret.bin").string(), {4}), Code::kInvalidArgument, "only paths inside", folder());
  fs::create_symlink(root_ / "secret.bin", root_ / "model" / "link.bin");
  expect_refused(external("link.bin", {4}), Code::kInvalidArgument, "outside the model's folder", folder());
  fs::create_directory_symlink(root_, root_ / "model" / "up");
  expect_refused(external("up/secret.bin", {4}), Code::kInvalidArgument, "outside the model's folder", folder());
  fs::create_symlink("weights.bin", root_ / "model" / "inside.bin");
  EXPECT_EQ(Read(external("inside.bin", {1}, "4"), folder()).numbers(), (Numbers{1}));
  expect_refused(external("weights.bin", {1}), Code::kInvalidArgument, "no folder to look in", "");
  expect_refused(external("sub", {1}), Code::kInvalidArgument, "not a regular file", folder());
  expect_refused(external(".", {1}), Code::kInvalidArgument, "", folder());
  expect_refused(external("", {1}), Code::kInvalidArgument, "no usable location", folder());
  expect_refused(external(std::string("a\0b", 3), {1}), Code::kInvalidArgument, "no usable location", folder());
}

TEST_F(ExternalDataTest, ChecksTheRange) {
  expect_refused(external("absent.bin", {1}), Code::kNotFound, "put the file beside the model", folder());
  expect_refused(external("weights.bin", {6}), Code::kInvalidArgument,
                 "24 bytes at offset 0 of 'weights.bin', which has 20 bytes", folder());
  expect_refused(external("weights.bin", {1}, "18446744073709551615"), Code::kInvalidArgument, "cut short", folder());
  expect_refused(external("weights.bin", {1}, "-4"), Code::kInvalidArgument, "plain numbers", folder());
  expect_refused(external("weights.bin", {1}, "4x"), Code::kInvalidArgument, "plain numbers", folder());
  expect_refused(external("weights.bin", {1}, "0", "99999999999999999999999"), Code::kInvalidArgument, "plain numbers",
                 folder());
  expect_refused(external("weights.bin", {1}, "0", "8"), Code::kInvalidArgument,
                 "8 bytes where its type and dims need 4", folder());
}

TEST_F(ExternalDataTest, RecordAndLocationMustAgree) {
  auto proto = external("weights.bin", {1});
  proto.add_float_data(1);
  expect_refused(proto, Code::kInvalidArgument, "both external data and float_data", folder());
  proto = external("weights.bin", {1});
  proto.set_data_location(0);
  expect_refused(proto, Code::kInvalidArgument, "data_location says that its data is in the model", folder());
  proto.set_data_location(7);
  expect_refused(proto, Code::kInvalidArgument, "data_location is 7", folder());
}

TEST(Names, OnlyPrintableUtf8) {
  EXPECT_TRUE(check_name("/layer1/conv::Conv_0", "node").is_ok());
  EXPECT_TRUE(check_name("gr\xC3\xB6\xC3\x9F", "node").is_ok());
  EXPECT_FALSE(check_name("a\nb", "node").is_ok());
  EXPECT_FALSE(check_name("a\xFF", "node").is_ok());
  EXPECT_FALSE(check_name("\xC0\x80", "node").is_ok());          // overlong
  EXPECT_FALSE(check_name("\xED\xA0\x80", "node").is_ok());      // a surrogate
  EXPECT_FALSE(check_name("\xF4\x90\x80\x80", "node").is_ok());  // past the last code point
  EXPECT_FALSE(check_name("\xC3", "node").is_ok());              // cut
  EXPECT_FALSE(check_name(std::string(kMaxNameBytes + 1, 'a'), "node").is_ok());
  EXPECT_EQ(printable("a\x1b[31m\xFF"), "a?[31m?");
  EXPECT_EQ(printable(std::string(500, 'a')).size(), 203u);
}

}  // namespace
}  // namespace flywheel::onnx_import
