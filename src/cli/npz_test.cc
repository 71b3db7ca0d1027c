// SPDX-License-Identifier: Apache-2.0
// .npy and .npz: files that NumPy wrote, our own, and damaged or hostile ones.
#include "cli/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>

namespace flywheel::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string npy(std::string_view dict, std::string_view data, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + std::string(dict) + std::string(data);
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

template <class T>
std::vector<T> values(const Array& array) {
  const T* first = reinterpret_cast<const T*>(array.data.data());
  return std::vector<T>(first, first + array.data.size_bytes() / sizeof(T));
}

NamedArray named(std::string name, DType dtype, Dims dims, std::string_view data) {
  return {std::move(name), dtype, std::move(dims), as_bytes(data)};
}

// An archive of one entry with any method and sizes, as other writers make them: no ZIP64.
std::string zip(std::string_view name, std::string_view packed, uint16_t method, uint32_t unpacked_bytes, uint32_t crc,
                uint16_t flags = 0) {
  auto number = [](uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  };
  const std::string shared = number(20, 2) + number(flags, 2) + number(method, 2) + number(0, 4) + number(crc, 4) +
                             number(static_cast<uint32_t>(packed.size()), 4) + number(unpacked_bytes, 4) +
                             number(static_cast<uint32_t>(name.size()), 2) + number(0, 2);
  const std::string local = number(0x04034b50, 4) + shared + std::string(name) + std::string(packed);
  const std::string central =
      number(0x02014b50, 4) + number(20, 2) + shared + std::string(14, '\0') + std::string(name);
  return local + central + number(0x06054b50, 4) + number(0, 4) + number(1, 2) + number(1, 2) +
         number(static_cast<uint32_t>(central.size()), 4) + number(static_cast<uint32_t>(local.size()), 4) +
         number(0, 2);
}

uint32_t crc_of(std::string_view text) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

std::string deflated(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 100, '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST(Npy, ReadsTypesShapesAndVersions) {
  auto floats = parse_npy(
      as_bytes(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n", raw<float>({1.5f, -2}))), "x");
  ASSERT_TRUE(floats.is_ok()) << floats.status().to_string();
  EXPECT_EQ(floats->dtype, DType::kFloat32);
  EXPECT_THAT(floats->dims, ElementsAre(2, 1));
  EXPECT_THAT(values<float>(*floats), ElementsAre(1.5f, -2));

  auto scalar =
      parse_npy(as_bytes(npy("{'descr': '<i8', 'fortran_order': False, 'shape': ()}", raw<int64_t>({-7}), 2)), "x");
  ASSERT_TRUE(scalar.is_ok()) << scalar.status().to_string();
  EXPECT_TRUE(scalar->dims.empty());
  EXPECT_THAT(values<int64_t>(*scalar), ElementsAre(-7));

  auto bools = parse_npy(
      as_bytes(npy("{\"shape\": (3L,), \"descr\": \"|b1\", \"fortran_order\": False}", std::string("\1\0\1", 3), 3)),
      "x");
  ASSERT_TRUE(bools.is_ok()) << bools.status().to_string();
  EXPECT_EQ(bools->dtype, DType::kBool);
  EXPECT_THAT(bools->dims, ElementsAre(3));

  auto empty = parse_npy(as_bytes(npy("{'descr': '<f2', 'fortran_order': True, 'shape': (0, 5)}", "")), "x");
  ASSERT_TRUE(empty.is_ok()) << empty.status().to_string();
  EXPECT_EQ(empty->data.size_bytes(), 0u);
}

TEST(Npy, TurnsFortranOrderAndBigEndianRound) {
  // [[1, 2, 3], [4, 5, 6]] column by column.
  auto fortran = parse_npy(
      as_bytes(npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)}", raw<int32_t>({1, 4, 2, 5, 3, 6}))), "x");
  ASSERT_TRUE(fortran.is_ok());
  EXPECT_THAT(values<int32_t>(*fortran), ElementsAre(1, 2, 3, 4, 5, 6));
  auto big = parse_npy(
      as_bytes(npy("{'descr': '>u2', 'fortran_order': False, 'shape': (2,)}", std::string("\1\2\0\3", 4))), "x");
  ASSERT_TRUE(big.is_ok());
  EXPECT_THAT(values<uint16_t>(*big), ElementsAre(0x102, 3));
}

TEST(Npy, RefusesWhatIsNoTensor) {
  auto strings = parse_npy(
      as_bytes(npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", std::string(12, 'a'))), "names");
  EXPECT_EQ(strings.status().code(), Code::kUnsupported);
  EXPECT_THAT(strings.status().message(), HasSubstr("'names' has elements of NumPy type <U3"));
  auto record = parse_npy(as_bytes(npy("{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,)}",
                                       std::string(8, 'a'))),
                          "x");
  EXPECT_EQ(record.status().code(), Code::kUnsupported);
  auto version = parse_npy(as_bytes(npy("{}", "", 9)), "x");
  EXPECT_EQ(version.status().code(), Code::kUnsupported);
}

TEST(Npy, RefusesDamagedBytes) {
  const std::string good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", raw<float>({1, 2}));
  ASSERT_TRUE(parse_npy(as_bytes(good), "x").is_ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_npy(as_bytes(good).first(size), "x").is_ok()) << size;
  }
  EXPECT_EQ(parse_npy(as_bytes(good + "z"), "x").status().code(), Code::kCorrupt);
  for (std::string_view dict :
       {"", "{", "{'descr'", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}", "{'descr': [[[[",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"}) {
    EXPECT_EQ(parse_npy(as_bytes(npy(dict, raw<float>({1, 2}))), "x").status().code(), Code::kCorrupt) << dict;
  }
}

TEST(Npy, HeaderReadsBackForEveryType) {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{2, 0}, Dims{1, 2, 3, 4, 5, 6, 7, 8}}) {
      const DType dtype = static_cast<DType>(type);
      std::string bytes = npy_header(dtype, dims);
      EXPECT_EQ(bytes.size() % 64, 0u);
      bytes.resize(bytes.size() + static_cast<size_t>(element_count(dims)) * dtype_size(dtype));
      auto array = parse_npy(as_bytes(bytes), "x");
      ASSERT_TRUE(array.is_ok()) << array.status().to_string();
      EXPECT_EQ(array->dtype, dtype);
      EXPECT_EQ(array->dims, dims);
    }
  }
}

TEST(Npz, ReadsWhatNumpyWrote) {
  auto inputs = read_npz(FLYWHEEL_SOURCE_DIR "/models/fashion_mnist/golden/inputs.npz");
  ASSERT_TRUE(inputs.is_ok()) << inputs.status().to_string();
  ASSERT_EQ(inputs->size(), 1u);
  const Array& image = inputs->at("image");
  EXPECT_EQ(image.to_string(), "f32 64x1x28x28");
  for (float value : values<float>(image)) ASSERT_TRUE(value >= 0 && value <= 255) << value;
}

TEST(Npz, ReadsBackWhatItWrites) {
  const std::string x = raw<float>({1, 2, 3, 4}), ids = raw<int64_t>({5});
  const std::vector<NamedArray> arrays = {named("/layer/x:0", DType::kFloat32, {2, 2}, x),
                                          named("ids", DType::kInt64, {}, ids),
                                          named("none", DType::kBool, {0, 3}, ""),
                                          {"null", DType::kFloat32, {2, 0}, {}}};
  const std::vector<std::byte> bytes = encode_npz(arrays);
  EXPECT_EQ(bytes, encode_npz(arrays));
  auto back = parse_npz(bytes);
  ASSERT_TRUE(back.is_ok()) << back.status().to_string();
  ASSERT_EQ(back->size(), 4u);
  EXPECT_EQ(back->at("null").to_string(), "f32 2x0");
  EXPECT_EQ(back->at("/layer/x:0").to_string(), "f32 2x2");
  EXPECT_THAT(values<float>(back->at("/layer/x:0")), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values<int64_t>(back->at("ids")), ElementsAre(5));
  EXPECT_EQ(back->at("none").to_string(), "bool 0x3");
  auto nothing = parse_npz(encode_npz({}));
  ASSERT_TRUE(nothing.is_ok()) << nothing.status().to_string();
  EXPECT_TRUE(nothing->empty());
}

TEST(Npz, ReadsDeflatedArrays) {
  const std::string array = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (5000,)}", std::string(5000, 'q'));
  const std::string packed = deflated(array);
  const uint32_t size = static_cast<uint32_t>(array.size());
  auto good = parse_npz(as_bytes(zip("a.npy", packed, 8, size, crc_of(array))));
  ASSERT_TRUE(good.is_ok()) << good.status().to_string();
  EXPECT_EQ(good->at("a").to_string(), "u8 5000");

  EXPECT_THAT(parse_npz(as_bytes(zip("a.npy", packed, 8, size, 1))).status().message(), HasSubstr("checksum"));
  for (uint32_t wrong : {size - 1, size + 1, 0u}) {
    EXPECT_EQ(parse_npz(as_bytes(zip("a.npy", packed, 8, wrong, crc_of(array)))).status().code(), Code::kCorrupt)
        << wrong;
  }
  EXPECT_THAT(parse_npz(as_bytes(zip("a.npy", packed, 8, 0xfffffff0u, crc_of(array)))).status().message(),
              HasSubstr("claims to unpack"));
  EXPECT_THAT(parse_npz(as_bytes(zip("a.npy", packed, 8, size, crc_of(array))), 100).status().message(),
              HasSubstr("all arrays together"));
  EXPECT_EQ(parse_npz(as_bytes(zip("a.npy", array, 14, size, crc_of(array)))).status().code(), Code::kUnsupported);
  EXPECT_EQ(parse_npz(as_bytes(zip("a.npy", array, 0, size, crc_of(array), 1))).status().code(), Code::kUnsupported);
}

TEST(Npz, RefusesDamagedArchives) {
  const std::string x = raw<float>({1, 2});
  const std::vector<NamedArray> twice = {named("x", DType::kFloat32, {2}, x), named("x", DType::kFloat32, {2}, x)};
  EXPECT_THAT(parse_npz(encode_npz(twice)).status().message(), HasSubstr("'x' is there twice"));
  const std::vector<std::byte> good = encode_npz(std::span(twice).first(1));
  ASSERT_TRUE(parse_npz(good).is_ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(parse_npz(std::span(good).first(size)).status().code(), Code::kCorrupt) << size;
  }
  EXPECT_THAT(parse_npz(as_bytes("hello, this is a text")).status().message(), HasSubstr("not a ZIP archive"));
  // Whatever single bytes and numbers are changed, it ends with an array or a refusal.
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = good;
    for (int change = 0; change < 1 + round % 3; ++change) {
      const size_t at = random() % bytes.size(), count = std::min<size_t>(1 + random() % 8, bytes.size() - at);
      const int value = static_cast<int>(std::array{0, 255, 127, 128, static_cast<int>(random() % 256)}[random() % 5]);
      std::memset(bytes.data() + at, value, count);
    }
    auto result = parse_npz(bytes);
    if (result.is_ok()) {
      EXPECT_LE(result->size(), 1u);
    }
  }
}

TEST(Npz, NamesTheFile) {
  auto missing = read_npz("/nowhere/x.npz");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/x.npz"));
}

}  // namespace
}  // namespace flywheel::cli
