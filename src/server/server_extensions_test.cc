// SPDX-License-Identifier: Apache-2.0
// What HTTP offers beyond inference itself: shared memory, trace and log settings, generate, restricted APIs, forwarded
// headers, the OpenAPI document.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "server/protocol/http/routes.h"
#include "server/server_test_data.h"

namespace flywheel::server {
namespace {

using testing::HasSubstr;

constexpr std::string_view kRequest = R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]})";

class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : key_("/fw_server_test_" + std::to_string(::getpid())) {
    fd_ = ::shm_open(key_.c_str(), O_CREAT | O_RDWR, 0600);
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  }
  ~SharedMemory() {
    ::close(fd_);
    ::shm_unlink(key_.c_str());
  }
  const std::string& key() const { return key_; }
  int fd() const { return fd_; }

 private:
  const std::string key_;
  int fd_ = -1;
};

TEST_F(ServerTest, TensorsGoThroughSharedMemory) {
  add_model("m", "double");
  options_.allow_client_shared_memory = true;
  ASSERT_TRUE(start().is_ok());
  SharedMemory memory(4096);
  const std::vector<float> values = {1, 2, 3, 4};
  ASSERT_EQ(::pwrite(memory.fd(), values.data(), 16, 0), 16);
  EXPECT_EQ(get("/v2/systemsharedmemory/status").body, "[]");
  EXPECT_EQ(post("/v2/systemsharedmemory/region/in/register",
                 R"({"key":")" + memory.key() + R"(","offset":0,"byte_size":16})")
                .status,
            200);
  EXPECT_EQ(post("/v2/systemsharedmemory/region/out/register",
                 R"({"key":")" + memory.key() + R"(","offset":1024,"byte_size":64})")
                .status,
            200);
  EXPECT_EQ(get("/v2/systemsharedmemory/region/out/status").body,
            R"([{"name":"out","key":")" + memory.key() + R"(","offset":1024,"byte_size":64}])");
  const std::string request =
      R"({"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","parameters":{"shared_memory_region":"in",)"
      R"("shared_memory_byte_size":16}}],"outputs":[{"name":"y","parameters":{"shared_memory_region":"out",)"
      R"("shared_memory_offset":8,"shared_memory_byte_size":16}}]})";
  const auto answer = infer("m", request);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("outputs":[{"name":"y","datatype":"FP32","shape":[1,4]}]})"));
  std::vector<float> doubled(4);
  ASSERT_EQ(::pread(memory.fd(), doubled.data(), 16, 1024 + 8), 16);
  EXPECT_EQ(doubled, (std::vector<float>{2, 4, 6, 8}));
  // A client that shortens what it registered harms nobody.
  ASSERT_EQ(::ftruncate(memory.fd(), 8), 0);
  EXPECT_THAT(error(infer("m", request), 400), HasSubstr("shortened"));
  EXPECT_EQ(post("/v2/systemsharedmemory/unregister", "").status, 200);
  EXPECT_EQ(error(infer("m", request), 404), "Unable to find shared memory region: 'in'");
  EXPECT_EQ(error(post("/v2/cudasharedmemory/region/r/register", "{}"), 400),
            "failed to register CUDA shared memory region: 'r', GPUs not supported");
  EXPECT_EQ(get("/v2/cudasharedmemory/status").body, "[]");
}

TEST_F(ServerTest, SharedMemoryHasToBeAllowed) {
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(error(post("/v2/systemsharedmemory/region/r/register", R"({"key":"/x","byte_size":1})"), 501),
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
}

TEST_F(ServerTest, TracesRequests) {
  add_model("m", "double");
  options_.trace.file = folder_.path() + "/trace.json";
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(get("/v2/trace/setting").body,
            R"({"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","log_frequency":"0","trace_file":")" +
                options_.trace.file + R"(","trace_mode":"triton"})");
  const auto changed = post("/v2/models/m/trace/setting",
                            R"({"trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"1","log_frequency":null})");
  EXPECT_EQ(changed.status, 200);
  EXPECT_THAT(changed.body, HasSubstr(R"("trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"1")"));
  EXPECT_THAT(get("/v2/trace/setting").body, HasSubstr(R"("trace_level":["OFF"])"));
  EXPECT_EQ(error(post("/v2/trace/setting", R"({"trace_file":"x"})"), 501),
            "trace file location can not be updated through network protocol");
  EXPECT_EQ(get("/v2/models/none/trace/setting").status, 404);
  EXPECT_EQ(infer("m", kRequest).status, 200);
  auto text = [&] {
    std::stringstream all;
    all << std::ifstream(options_.trace.file).rdbuf();
    return all.str();
  };
  EXPECT_TRUE(eventually([&] { return text().find("HTTP_SEND_END") != std::string::npos; }));
  const std::string trace = text();
  for (const char* name : {"HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START",
                           "COMPUTE_END", "REQUEST_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START"}) {
    EXPECT_THAT(trace, HasSubstr(name));
  }
  EXPECT_THAT(trace, HasSubstr(R"("activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"x","data":"1.0,2.0,3.0,4.0")"));
  EXPECT_TRUE(trace.starts_with('[') && trace.ends_with(']'));
}

TEST_F(ServerTest, ChangesWhatIsLogged) {
  ASSERT_TRUE(start().is_ok());
  const std::string before = get("/v2/logging").body;
  const auto changed = post("/v2/logging", R"({"log_verbose_level":1,"log_format":"ISO8601","log_info":null})");
  EXPECT_EQ(changed.status, 200);
  EXPECT_THAT(changed.body, HasSubstr(R"("log_verbose_level":1,"log_format":"ISO8601"})"));
  EXPECT_EQ(error(post("/v2/logging", R"({"log_file":"x"})"), 501),
            "log file location can not be updated through network protocol");
  EXPECT_EQ(error(post("/v2/logging", R"({"log_format":"xml"})"), 503), "invalid argument for --log_format, got: xml");
  EXPECT_EQ(post("/v2/logging", R"({"log_verbose_level":0,"log_format":"default"})").body, before);
}

TEST_F(ServerTest, GeneratesFromFlatJson) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  const auto answer = post("/v2/models/m/generate", R"({"id":"7","x":[1,2,3,4],"temperature":0.5})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"id":"7","model_name":"m","model_version":"1","y":[2.0,4.0,6.0,8.0]})");
  EXPECT_EQ(error(post("/v2/models/m/generate", R"({"x":[1,2,3]})"), 400),
            "The schema can not convert input 'x' to tensor with proper shape");
  EXPECT_EQ(error(post("/v2/models/m/generate", R"({"x":[1,2,3,4],"y":{}})"), 400),
            "parameter 'y' has invalid type. It should be either 'int', 'bool', or 'string'.");
  EXPECT_THAT(error(post("/v2/models/m/generate", R"({"a":1})"), 400), HasSubstr("missing required input"));
  EXPECT_EQ(error(get("/v2/models/m/generate"), 405), "Method Not Allowed");
  // Two rows; the batch takes what the other extents leave.
  EXPECT_EQ(post("/v2/models/m/versions/1/generate", R"({"x":[1,2,3,4,5,6,7,8]})").status, 200);
}

TEST_F(ServerTest, GeneratesAStreamOfEvents) {
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  for (int i = 0; i < 3; ++i) {
    const auto answer = post("/v2/models/m/generate_stream", R"({"x":[1,2,3,4]})");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.find("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_EQ(answer.find("transfer-encoding"), "chunked");
    EXPECT_THAT(answer.body,
                HasSubstr("data: {\"model_name\":\"m\",\"model_version\":\"1\",\"y\":[2.0,4.0,6.0,8.0]}\n\n"));
  }
}

TEST_F(ServerTest, RestrictedApisNeedTheirHeader) {
  const std::vector<std::string> texts = {"inference,statistics:X-Key=secret"};
  options_.http_restricted_apis = settings::RestrictedApis::parse("--http-restricted-api", texts).value();
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(error(infer("m", kRequest), 403), "This API is restricted, expecting header 'X-Key'");
  EXPECT_EQ(error(infer("m", kRequest, {{"x-key", "wrong"}}), 403), "This API is restricted, expecting header 'X-Key'");
  EXPECT_EQ(infer("m", kRequest, {{"x-key", "secret"}}).status, 200);
  EXPECT_EQ(get("/v2/models/stats").status, 403);
  EXPECT_EQ(get("/v2/models/m").status, 200);
}

TEST_F(ServerTest, ForwardedHeadersMayNotBeReserved) {
  options_.http_forwarded_headers = settings::HeaderPattern::parse("--f", "my_.*|timeout").value();
  add_model("m", "double");
  ASSERT_TRUE(start().is_ok());
  EXPECT_EQ(infer("m", kRequest, {{"my_header", "1"}}).status, 200);
  EXPECT_EQ(error(infer("m", kRequest, {{"timeout", "1"}}), 400),
            "Header 'timeout' is reserved for Triton usage and cannot be forwarded.");
}

TEST_F(ServerTest, TheOpenApiDocumentHasEveryRoute) {
  ASSERT_TRUE(start().is_ok());
  const auto answer = get("/openapi.json");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.find("content-type"), "application/json");
  EXPECT_TRUE(answer.body.starts_with(R"({"openapi":"3.0.3")"));
  for (const http::RouteInfo& route : http::routes()) {
    const size_t at = answer.body.find("\"" + std::string(route.pattern) + "\":{");
    ASSERT_NE(at, std::string::npos) << route.pattern;
    std::string path(route.pattern);
    for (size_t brace = path.find('{'); brace != std::string::npos; brace = path.find('{')) {
      const size_t end = path.find('}', brace);
      path.replace(brace, end - brace + 1, path.substr(brace, end - brace + 1) == "{version}" ? "1" : "n");
    }
    const std::optional<http::RouteMatch> match = http::match_route(path);
    ASSERT_TRUE(match) << path;
    EXPECT_EQ(match->info->pattern, route.pattern);
    // What the document offers is there: a wrong verb is refused as such, and nothing as an unknown path.
    EXPECT_EQ(get(path).status == 405, !route.get) << path;
    EXPECT_EQ(post(path, "{").status == 405, !route.post) << path;
  }
}

}  // namespace
}  // namespace flywheel::server
