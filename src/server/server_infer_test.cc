// SPDX-License-Identifier: Apache-2.0
// Inference over HTTP: JSON and binary tensors both ways, every element type, every error's text.
#include <zlib.h>

#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kDoubleRequest =
    R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2.5,-3,4e2]}]})";

std::string input(const std::string& fields) { return R"({"inputs":[{)" + fields + "}]}"; }

class InferTest : public ServerTest {
 protected:
  void serve(const std::string& name, const std::string& kind, const std::string& config = "") {
    add_model(name, kind, config);
    const Status status = start();
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
};

std::string compressed(std::string_view text, int window) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string decompressed(std::string_view data) {
  z_stream stream{};
  inflateInit2(&stream, 15 | 32);
  std::string out(1 << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST_F(InferTest, JsonBothWays) {
  serve("m", "double");
  const auto answer = infer("m", kDoubleRequest);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.find("content-type"), "application/json");
  EXPECT_EQ(answer.body,
            R"({"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,4],)"
            R"("data":[2.0,5.0,-6.0,800.0]}]})");
  EXPECT_EQ(post("/v2/models/m/versions/1/infer", kDoubleRequest).status, 200);
}

TEST_F(InferTest, TakesKeysInAnyOrderAndNestedData) {
  serve("m", "double");
  const auto answer =
      infer("m", R"({"unknown":{"a":[1,{"b":null}]},"inputs":[{"data":[[1,2,3,4],[5,6,7,8]],"datatype":"FP32",)"
                 R"("extra":"x","shape":[2,4],"name":"x"}],"id":"q\"1"})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, StartsWith(R"({"id":"q\"1","model_name":"m")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("shape":[2,4],"data":[2.0,4.0,6.0,8.0,10.0,12.0,14.0,16.0]})"));
}

TEST_F(InferTest, BinaryBothWays) {
  serve("m", "double");
  const auto [body, fields] = binary_request({1, 2, 3, 4, 5, 6, 7, 8});
  const auto answer = infer("m", body, fields);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.find("content-type"), "application/octet-stream");
  const size_t json_bytes = std::stoul(std::string(*answer.find("inference-header-content-length")));
  EXPECT_EQ(answer.body.substr(0, json_bytes),
            R"({"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[2,4],)"
            R"("parameters":{"binary_data_size":32}}]})");
  EXPECT_EQ(answer.body.substr(json_bytes), bytes_of<float>({2, 4, 6, 8, 10, 12, 14, 16}));
}

TEST_F(InferTest, MixesBinaryInputsWithJsonOutputsAndBack) {
  serve("m", "text");
  std::string json =
      R"({"inputs":[{"name":"ids","shape":[1,2],"datatype":"INT64","parameters":{"binary_data_size":16}},)"
      R"({"name":"mask","shape":[1,2],"datatype":"INT64","data":[1,0]}],"outputs":[{"name":"sum"}]})";
  auto answer =
      infer("m", json + bytes_of<int64_t>({7, 8}), {{"Inference-Header-Content-Length", std::to_string(json.size())}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("data":[7.0,0.0])"));
  json =
      R"({"inputs":[{"name":"ids","shape":[1,1],"datatype":"INT64","data":[3]},{"name":"mask","shape":[1,1],"datatype":"INT64",)"
      R"("data":[2]}],"outputs":[{"name":"sum","parameters":{"binary_data":true}}]})";
  answer = infer("m", json);
  EXPECT_EQ(answer.find("content-type"), "application/octet-stream");
  EXPECT_TRUE(answer.body.ends_with(bytes_of<float>({6})));
  // The output's own wish goes before the request's.
  json =
      R"({"inputs":[{"name":"ids","shape":[1,1],"datatype":"INT64","data":[3]},{"name":"mask","shape":[1,1],"datatype":"INT64",)"
      R"("data":[2]}],"parameters":{"binary_data_output":true},"outputs":[{"name":"sum","parameters":{"binary_data":false}}]})";
  EXPECT_THAT(infer("m", json).body, HasSubstr(R"("data":[6.0])"));
}

TEST_F(InferTest, TakesRawBinaryBodies) {
  serve("m", "double");
  const auto answer = infer("m", bytes_of<float>({1, 2, 3, 4}), {{"Inference-Header-Content-Length", "0"}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.body.ends_with(bytes_of<float>({2, 4, 6, 8})));
  EXPECT_EQ(error(infer("m", "abc", {{"Inference-Header-Content-Length", "0"}}), 400),
            "[request id: <id_unknown>] input byte size mismatch for input 'x' for model 'm'. Expected 16, got 3");
}

TEST_F(InferTest, EveryTypeRoundTrips) {
  struct Case {
    const char *dtype, *name, *json;
    std::string binary;
  };
  const std::vector<Case> cases = {
      {"bool", "BOOL", "true,false", std::string("\1\0", 2)},
      {"u8", "UINT8", "0,255", bytes_of<uint8_t>({0, 255})},
      {"u16", "UINT16", "1,65535", bytes_of<uint16_t>({1, 65535})},
      {"u32", "UINT32", "1,4294967295", bytes_of<uint32_t>({1, 4294967295u})},
      {"u64", "UINT64", "1,18446744073709551615", bytes_of<uint64_t>({1, ~uint64_t{0}})},
      {"i8", "INT8", "-128,127", bytes_of<int8_t>({-128, 127})},
      {"i16", "INT16", "-32768,32767", bytes_of<int16_t>({-32768, 32767})},
      {"i32", "INT32", "-2147483648,2147483647", bytes_of<int32_t>({INT32_MIN, INT32_MAX})},
      {"i64", "INT64", "-9223372036854775808,9223372036854775807", bytes_of<int64_t>({INT64_MIN, INT64_MAX})},
      {"f16", "FP16", nullptr, bytes_of<uint16_t>({0x3c00, 0xbc00})},
      {"bf16", "BF16", nullptr, bytes_of<uint16_t>({0x3f80, 0xbf80})},
      {"f32", "FP32", "0.1,-3.4028235e+38", bytes_of<float>({0.1f, -3.4028235e38f})},
      {"f64", "FP64", "0.1,1.7976931348623157e+308", bytes_of<double>({0.1, 1.7976931348623157e308})},
  };
  for (const Case& c : cases) add_model(c.name, std::string("type=") + c.dtype);
  ASSERT_TRUE(start().is_ok());
  for (const Case& c : cases) {
    const std::string head = std::string(R"("name":"x","shape":[1,2],"datatype":")") + c.name + "\"";
    const std::string json = R"({"inputs":[{)" + head + R"(,"parameters":{"binary_data_size":)" +
                             std::to_string(c.binary.size()) + R"(}}],"parameters":{"binary_data_output":true}})";
    const auto binary =
        infer(c.name, json + c.binary, {{"Inference-Header-Content-Length", std::to_string(json.size())}});
    EXPECT_EQ(binary.status, 200) << c.name << binary.body;
    EXPECT_TRUE(binary.body.ends_with(c.binary)) << c.name;
    if (c.json != nullptr) {
      const auto text = infer(c.name, input(head + R"(,"data":[)" + c.json + "]"));
      EXPECT_THAT(text.body, HasSubstr(std::string("\"data\":[") + c.json + "]")) << c.name;
    } else {
      EXPECT_EQ(error(infer(c.name, input(head + R"(,"data":[1,2])")), 400),
                std::string("receiving ") + c.name +
                    " data via JSON is not supported. Please use the binary data format for input x");
      const std::string json_out = R"({"inputs":[{)" + head + R"(,"parameters":{"binary_data_size":4}}]})";
      EXPECT_EQ(error(infer(c.name, json_out + c.binary,
                            {{"Inference-Header-Content-Length", std::to_string(json_out.size())}}),
                      400),
                std::string("sending ") + c.name +
                    " data via JSON is not supported. Please use the binary data format for output");
    }
  }
}

TEST_F(InferTest, ReadsAndWritesWhatJsonHasNoNumbersFor) {
  serve("m", "double");
  const auto answer =
      infer("m", input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[NaN,Infinity,-Infinity,1e-45])"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("\"data\":[NaN,Infinity,-Infinity,3e-45]"));
}

TEST_F(InferTest, RefusesStringsCleanly) {
  serve("m", "double");
  EXPECT_EQ(error(infer("m", input(R"("name":"x","shape":[1,4],"datatype":"BYTES","data":["a","b","c","d"])")), 400),
            "[request id: <id_unknown>] inference input 'x' data-type is 'BYTES', but model 'm' expects 'FP32'");
}

TEST_F(InferTest, SaysWhatIsWrongWithTheRequest) {
  serve("m", "double");
  auto says = [&](const std::string& body, const std::string& text) {
    EXPECT_THAT(error(infer("m", body), 400), HasSubstr(text)) << body;
  };
  says("{", "failed to parse the request JSON buffer");
  says("[1]", "failed to parse the request JSON buffer");
  says("nonsense", "failed to parse the request JSON buffer");
  says(std::string(kDoubleRequest) + "x", "failed to parse the request JSON buffer");
  says(std::string(kDoubleRequest) + "{}", "failed to parse the request JSON buffer");
  says(R"({"inputs":[],"skipped":[1,,2]})", "failed to parse the request JSON buffer");
  says(R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,}]})",
       "failed to parse the request JSON buffer");
  says("{\"inputs\":[{\"name\":\"\xff\"}]}", "failed to parse the request JSON buffer");
  says("{}", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'");
  says(R"({"inputs":1})", "Unable to parse 'inputs': attempt to access JSON non-array as array");
  says(R"({"inputs":[],"id":7})", "Unable to parse 'id': attempt to access JSON non-string as string");
  says(R"({"inputs":[]})",
       "expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['x']");
  says(input(R"("shape":[1,4],"datatype":"FP32","data":[1,2,3,4])"),
       "Unable to parse 'name': attempt to access non-existing object member 'name'");
  says(input(R"("name":"x","datatype":"FP32","data":[1,2,3,4])"), "Unable to parse 'shape'");
  says(input(R"("name":"x","shape":[1,4],"data":[1,2,3,4])"), "Unable to parse 'datatype'");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32")"),
       "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
       "'shared_memory_region' in "
       "'parameters'. But no field is set");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4],"parameters":{"binary_data_size":16})"),
       "But set 'data' 'binary_data_size'");
  says(input(R"("name":"x","shape":[2,-5],"datatype":"FP32","data":[1.0])"),
       "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer");
  says(input(R"("name":"x","shape":[16,1152921504606846978],"datatype":"FP32","data":[1.0])"),
       "causes total element count to exceed maximum size of");
  says(input(R"("name":"x","shape":[4,1152921504606846978],"datatype":"FP32","data":[1.0])"),
       "byte size overflow for input");
  says(
      input(R"("name":"x","shape":[1,400000000],"datatype":"FP32","data":[1.0])"),
      "JSON input 'x' has a byte_size (1600000000 bytes) that exceeds the maximum allowed value of 67108864 bytes. Use "
      "--http-max-input-size to increase the limit.");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3])"),
       "Unable to parse 'data': Shape does not match true shape of 'data' field");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4,5])"),
       "Unable to parse 'data': Shape does not match true shape of 'data' field");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,"4"])"),
       "Unable to parse 'data': attempt to access JSON non-number as double");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":7)"),
       "Unable to parse 'data': attempt to access JSON non-array as array");
  says(input(R"("name":"x","shape":[1,4],"datatype":"FP33","data":[1,2,3,4])"), "invalid datatype for input x");
  says(input(R"("name":"z","shape":[1,4],"datatype":"FP32","data":[1,2,3,4])"),
       "unexpected inference input 'z' for model 'm'");
  says(
      input(
          R"("name":"x","shape":[9,4],"datatype":"FP32","data":[1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4])"),
      "inference request batch-size must be <= 8 for 'm'");
  says(input(R"("name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3])"),
       "unexpected shape for input 'x' for model 'm'. Expected [-1,4], got [1,3]. NOTE: Setting a non-zero "
       "max_batch_size");
  says(
      input(R"("name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"r"},"data":[1,2,3,4])"),
      "But set 'data' 'shared_memory_region'");
  says(R"({"id":"77","inputs":[{"name":"x","shape":[1,4],"datatype":"INT32","data":[1,2,3,4]}]})",
       "[request id: 77] inference input 'x' data-type is 'INT32', but model 'm' expects 'FP32'");
  const std::string good = R"("inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}])";
  says("{" + good + R"(,"outputs":[{"name":"y"},{"name":"y"}]})", "output 'y' already exists in request");
  says("{" + good + R"(,"outputs":[{"name":"q"}]})", "unexpected inference output 'q' for model 'm'");
  says("{" + good + R"(,"outputs":[{}]})", "Unable to parse 'name'");
  says("{" + good + R"(,"parameters":{"priority":-1}})", "Unable to parse 'priority'");
  says("{" + good + R"(,"parameters":{"timeout":"x"}})", "Unable to parse 'timeout'");
  says("{" + good + R"(,"parameters":{"binary_data_output":1}})",
       "Unable to parse 'binary_data_output': attempt to access JSON non-boolean as boolean");
  says("{" + good + R"(,"parameters":{"triton_x":1}})",
       "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
  says("{" + good + R"(,"parameters":{"custom":[1]}})", "parameter 'custom' has invalid type");
  EXPECT_EQ(
      infer("m", "{" + good + R"(,"parameters":{"custom":1,"sequence_start":true,"priority":3,"timeout":5}})").status,
      200);
  EXPECT_EQ(
      error(
          infer(
              "m",
              input(
                  R"("name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"r","shared_memory_byte_size":16})")),
          501)
          .substr(0, 20),
      "Client shared memory");
}

TEST_F(InferTest, LimitsNesting) {
  serve("m", "double");
  auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + "1,2,3,4" + std::string(static_cast<size_t>(depth), ']');
  };
  const std::string head = R"("name":"x","shape":[1,4],"datatype":"FP32","data":)";
  EXPECT_EQ(infer("m", input(head + nested(50))).status, 200);
  EXPECT_THAT(error(infer("m", input(head + nested(120))), 400),
              HasSubstr("JSON nesting depth exceeds maximum allowed limit (100)"));
  EXPECT_THAT(error(infer("m", R"({"inputs":[],"x":)" + nested(120) + "}"), 400),
              HasSubstr("JSON nesting depth exceeds"));
  EXPECT_EQ(infer("m", input(head + nested(100000))).status, 400);
  EXPECT_EQ(get("/v2/health/live").status, 200);
}

TEST_F(InferTest, ChecksTheBinaryPart) {
  serve("m", "double");
  const std::string json = input(R"("name":"x","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16})");
  const std::string length = std::to_string(json.size());
  const std::string data = bytes_of<float>({1, 2, 3, 4});
  const char* key = "Inference-Header-Content-Length";
  EXPECT_EQ(infer("m", json + data, {{key, length}}).status, 200);
  EXPECT_EQ(error(infer("m", json + data.substr(0, 10), {{key, length}}), 400),
            "unexpected size for input 'x', expecting 6 additional bytes for model 'm'");
  EXPECT_EQ(error(infer("m", json + data + "!", {{key, length}}), 400),
            "unexpected additional input data for model 'm'");
  EXPECT_EQ(
      error(infer("m", json), 400),
      "must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' when passing inputs "
      "in binary data format");
  EXPECT_EQ(error(infer("m", "{}", {{key, "3"}}), 400), "inference header size should be in range (0, 2), got: 3");
  EXPECT_EQ(error(infer("m", "{}", {{key, "-1"}}), 400), "inference header size should be in range (0, 2), got: -1");
  EXPECT_EQ(error(infer("m", "{}", {{key, "abc"}}), 400), "Unable to parse Inference-Header-Content-Length, got: abc");
  EXPECT_THAT(error(infer("m", "{}", {{key, "99999999999"}}), 400),
              HasSubstr("Unable to parse Inference-Header-Content-Length, value is out of range"));
}

TEST_F(InferTest, FindsModelsAndVersions) {
  serve("m", "double");
  EXPECT_EQ(error(infer("foo", kDoubleRequest), 404), "Request for unknown model: 'foo' is not found");
  EXPECT_EQ(error(post("/v2/models/m/versions/9/infer", kDoubleRequest), 404),
            "Request for unknown model: 'm' version 9 is not found");
  EXPECT_EQ(error(post("/v2/models/m/versions/99999999999999999999/infer", kDoubleRequest), 400).substr(0, 65),
            "failed to get model version from specified version string '999999");
  EXPECT_EQ(error(get("/v2/models/m/infer"), 405), "Method Not Allowed");
}

TEST_F(InferTest, RefusesBodiesThatAreTooLarge) {
  options_.http_max_input_bytes = 1000;
  serve("m", "double");
  EXPECT_EQ(error(infer("m", std::string(2000, ' ')), 400),
            "request JSON size of 2000 bytes exceeds the maximum allowed input size of 1000 bytes. Use "
            "--http-max-input-size to increase the limit.");
  EXPECT_EQ(error(infer("m", std::string(2000, ' '), {{"Inference-Header-Content-Length", "0"}}), 400),
            "Raw input has a byte_size (2000 bytes) that exceeds the maximum allowed value of 1000 bytes. Use "
            "--http-max-input-size to increase the limit.");
  EXPECT_EQ(
      error(infer("m", compressed(std::string(20000, ' '), 15 | 16), {{"Content-Encoding", "gzip"}}), 400),
      "Decompressed data size exceeds the maximum allowed value of 1000 bytes. Use --http-max-input-size to increase "
      "the limit.");
  // Tensors behind a small JSON part may be larger.
  const auto [body, fields] = binary_request(std::vector<float>(8 * 4, 1));
  EXPECT_EQ(infer("m", body + std::string(3000, 'x'), fields).body,
            R"({"error":"unexpected additional input data for model 'm'"})");
}

TEST_F(InferTest, CompressesBothWays) {
  serve("m", "double");
  for (const auto& [coding, window] :
       {std::pair("gzip", 15 | 16), std::pair("deflate", 15), std::pair("deflate", -15)}) {
    const auto answer = infer("m", compressed(kDoubleRequest, window), {{"Content-Encoding", coding}});
    EXPECT_EQ(answer.status, 200) << coding << answer.body;
    EXPECT_EQ(answer.find("content-encoding"), std::nullopt);
  }
  for (const char* coding : {"gzip", "deflate"}) {
    for (int i = 0; i < 3; ++i) {
      const auto answer = infer("m", kDoubleRequest, {{"Accept-Encoding", coding}});
      EXPECT_EQ(answer.find("content-encoding"), coding);
      EXPECT_THAT(decompressed(answer.body), HasSubstr("\"data\":[2.0,5.0,-6.0,800.0]"));
    }
  }
  EXPECT_EQ(infer("m", kDoubleRequest, {{"Accept-Encoding", "br, gzip;q=0, deflate;q=0"}}).find("content-encoding"),
            std::nullopt);
  EXPECT_EQ(infer("m", kDoubleRequest, {{"Accept-Encoding", "deflate;q=0.5, gzip;q=0.8"}}).find("content-encoding"),
            "gzip");
  const auto unknown = infer("m", kDoubleRequest, {{"Content-Encoding", "br"}});
  EXPECT_EQ(error(unknown, 501), "Unsupported compression type");
  EXPECT_EQ(unknown.find("accept-encoding"), "gzip, deflate");
  EXPECT_THAT(error(infer("m", "not compressed", {{"Content-Encoding", "gzip"}}), 400),
              HasSubstr("is not valid compressed data"));
  const std::string whole = compressed(kDoubleRequest, 15 | 16);
  EXPECT_THAT(error(infer("m", whole.substr(0, whole.size() - 10), {{"Content-Encoding", "gzip"}}), 400),
              HasSubstr("cut short"));
  EXPECT_THAT(error(infer("m", whole + "x", {{"Content-Encoding", "gzip"}}), 400), HasSubstr("goes on after the end"));
  EXPECT_EQ(infer("m", "", {{"Content-Encoding", "gzip"}}).status, 400);
  // Binary tensors within compressed bodies.
  auto [body, fields] = binary_request({1, 2, 3, 4});
  fields.emplace_back("Content-Encoding", "deflate");
  fields.emplace_back("Accept-Encoding", "gzip");
  const auto binary = infer("m", compressed(body, 15), fields);
  EXPECT_TRUE(decompressed(binary.body).ends_with(bytes_of<float>({2, 4, 6, 8})));
}

TEST_F(InferTest, Classifies) {
  folder_.write("m/labels.txt", "cat\ndog\n");
  serve("m", "scores");
  const std::string request =
      R"({"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[0.1,0.7,0.2,3,NaN,3]}],"outputs":[{"name":"scores",)"
      R"("parameters":{"classification":2)";
  auto answer = infer("m", request + "}}]}");
  EXPECT_THAT(answer.body, HasSubstr(R"({"name":"scores","datatype":"BYTES","shape":[2,2],"data":["0.700000:1:dog",)"
                                     R"("0.200000:2","3.000000:0:cat","3.000000:2"]})"));
  answer = infer("m", request + R"(,"binary_data":true}}]})");
  EXPECT_THAT(answer.body, HasSubstr(R"("parameters":{"binary_data_size":64}}]})" + std::string("\x0e\0\0\0", 4) +
                                     "0.700000:1:dog"));
}

TEST_F(InferTest, AnswersLargeJsonFromTheSlowLane) {
  serve("m", "big");
  const auto answer = infer("m", input(R"("name":"x","shape":[1,4],"datatype":"FP32","data":[0.5,0,0,0])"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_GT(answer.body.size(), 262144u * 4 - 1);
  EXPECT_TRUE(answer.body.ends_with("0.5,0.5]}]}"));
  std::string many = R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4)";
  many += std::string(300 << 10, ' ') + "]}]}";
  EXPECT_EQ(infer("m", many).status, 200);
}

TEST_F(InferTest, ServesModelsWithoutBatch) {
  serve("m", "fixed");
  const auto answer = infer("m", input(R"("name":"a","shape":[2,3],"datatype":"INT32","data":[[1,2,3],[4,5,6]])"));
  EXPECT_THAT(answer.body, HasSubstr(R"("shape":[2,3],"data":[2,3,4,5,6,7])"));
  EXPECT_EQ(error(infer("m", input(R"("name":"a","shape":[1,2,3],"datatype":"INT32","data":[1,2,3,4,5,6])")), 400),
            "[request id: <id_unknown>] unexpected shape for input 'a' for model 'm'. Expected [2,3], got [1,2,3]. ");
}

TEST_F(InferTest, PassesThePrefixOnToSchedulerErrors) {
  serve("m", "double", "dynamic_batching { default_queue_policy { max_queue_size: 1 } }");
  device_->close_gate();
  http::Client first = connect(), second = connect();
  ASSERT_TRUE(first.send(http::format_request("POST", "/v2/models/m/infer", {}, kDoubleRequest)).is_ok());
  ASSERT_TRUE(device_->wait_for_runs(1));
  ASSERT_TRUE(second.send(http::format_request("POST", "/v2/models/m/infer", {}, kDoubleRequest)).is_ok());
  const repository::ServedModelPtr model = *server_->models().find("m");
  ASSERT_TRUE(eventually([&] { return model->queued_requests() == 1; }));
  EXPECT_EQ(error(infer("m", R"({"id":"7",)" + std::string(kDoubleRequest.substr(1))), 503),
            "[request id: 7] Exceeds maximum queue size");
  device_->open_gate();
  EXPECT_EQ(first.receive()->status, 200);
  EXPECT_EQ(second.receive()->status, 200);
}

}  // namespace
}  // namespace flywheel::server
