// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "server/settings/access.h"
#include "server/settings/log_settings.h"
#include "server/settings/trace_setting.h"
#include "server/settings/tracer.h"

namespace flywheel::settings {
namespace {

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class TracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() /
        ("fw_trace_" + std::to_string(::getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    at_start_.file = (folder_ / "trace.json").string();
    at_start_.rate = 1;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static Status change(Tracer& tracer, std::string_view model, std::string_view field,
                       std::optional<std::vector<std::string>> values) {
    TraceChanges changes;
    FW_RETURN_IF_ERROR(changes.set(field, values));
    return tracer.update(model, changes);
  }
  std::filesystem::path folder_;
  TraceSetting at_start_;
};

TEST_F(TracerTest, NothingIsTracedUntilALevelIsSet) {
  Tracer tracer(at_start_);
  EXPECT_EQ(tracer.sample("m"), nullptr);
  ASSERT_TRUE(change(tracer, "m", "trace_level", {{"TIMESTAMPS"}}).is_ok());
  EXPECT_NE(tracer.sample("m"), nullptr);
  EXPECT_EQ(tracer.sample("other"), nullptr);
}

TEST_F(TracerTest, TheFileIsAJsonDocumentAfterEveryRecord) {
  at_start_.level = kTraceTimestamps | kTraceTensors;
  Tracer tracer(at_start_);
  {
    TracePtr trace = tracer.sample("m");
    ASSERT_NE(trace, nullptr);
    trace->set_request("m", 3, "a\"b");
    schedule::Timeline timeline;
    timeline.received_ns = 5;
    timeline.queued_ns = 7;
    trace->stamp(timeline);
  }
  tracer.flush();
  const std::string first =
      "[{\"id\":1,\"model_name\":\"m\",\"model_version\":3,\"request_id\":\"a\\\"b\"},"
      "{\"id\":1,\"timestamps\":[{\"name\":\"REQUEST_START\",\"ns\":5}]},"
      "{\"id\":1,\"timestamps\":[{\"name\":\"QUEUE_START\",\"ns\":7}]}";
  EXPECT_EQ(read_file(at_start_.file), first + "]");
  {
    TracePtr trace = tracer.sample("m");
    const int32_t values[] = {1, -2};
    const int64_t shape[] = {1, 2};
    trace->add_tensor("TENSOR_QUEUE_INPUT", "x", config::DataType::kInt32, shape, std::as_bytes(std::span(values)));
  }
  tracer.flush();
  EXPECT_EQ(read_file(at_start_.file), first +
                                           ",{\"id\":2,\"activity\":\"TENSOR_QUEUE_INPUT\",\"tensor\":{\"name\":\"x\","
                                           "\"data\":\"1,-2\",\"shape\":\"1,2\",\"dtype\":\"INT32\"}}]");
}

TEST_F(TracerTest, RateAndCountBoundWhatIsTraced) {
  at_start_.level = kTraceTimestamps;
  at_start_.rate = 3;
  at_start_.count = 2;
  Tracer tracer(at_start_);
  int traced = 0;
  for (int i = 0; i < 30; ++i) traced += tracer.sample("m") != nullptr ? 1 : 0;
  EXPECT_EQ(traced, 2);
  ASSERT_TRUE(change(tracer, "", "trace_count", {{"-1"}}).is_ok());
  traced = 0;
  for (int i = 0; i < 30; ++i) traced += tracer.sample("m") != nullptr ? 1 : 0;
  EXPECT_EQ(traced, 10);
}

TEST_F(TracerTest, LogFrequencySplitsTheTracesIntoFiles) {
  at_start_.level = kTraceTimestamps;
  at_start_.log_frequency = 2;
  Tracer tracer(at_start_);
  for (int i = 0; i < 3; ++i) tracer.sample("m")->set_request("m", 1, "");
  tracer.flush();
  EXPECT_EQ(
      read_file(at_start_.file + ".0"),
      "[{\"id\":1,\"model_name\":\"m\",\"model_version\":1},{\"id\":2,\"model_name\":\"m\",\"model_version\":1}]");
  EXPECT_EQ(read_file(at_start_.file + ".1"), "[{\"id\":3,\"model_name\":\"m\",\"model_version\":1}]");
}

TEST_F(TracerTest, ModelsFallBackFieldByFieldToTheGlobalSettingAndThatToTheOneAtStart) {
  Tracer tracer(at_start_);
  ASSERT_TRUE(change(tracer, "m", "trace_rate", {{"7"}}).is_ok());
  ASSERT_TRUE(change(tracer, "", "trace_count", {{"5"}}).is_ok());
  EXPECT_EQ(tracer.get("m").rate, 7u);
  EXPECT_EQ(tracer.get("m").count, 5);
  EXPECT_EQ(tracer.get("").rate, 1u);
  ASSERT_TRUE(change(tracer, "m", "trace_rate", std::nullopt).is_ok());
  ASSERT_TRUE(change(tracer, "", "trace_count", std::nullopt).is_ok());
  EXPECT_EQ(tracer.get("m").rate, 1u);
  EXPECT_EQ(tracer.get("m").count, -1);
}

TEST_F(TracerTest, RefusesInTritonsWords) {
  Tracer tracer(at_start_);
  EXPECT_EQ(change(tracer, "", "trace_file", {{"x"}}).message(),
            "trace file location can not be updated through network protocol");
  EXPECT_EQ(change(tracer, "", "trace_level", {{"OFF", "TENSORS"}}).message(),
            "Expect only one trace level 'OFF' is specified");
  EXPECT_EQ(change(tracer, "", "trace_rate", {{"abc"}}).message(), "Unable to parse 'trace_rate', got: abc");
  EXPECT_EQ(change(tracer, "", "trace_count", {{"-2"}}).message(),
            "Unable to parse 'trace_count'. Expecting value >= -1, got:-2");
  EXPECT_EQ(change(tracer, "", "log_frequency", {{"99999999999999999999"}}).message(),
            "Unable to parse 'log_frequency', value is out of range [ 0, 4294967295 ], got: 99999999999999999999");
  ASSERT_TRUE(change(tracer, "", "trace_level", {{"TIMESTAMPS"}}).is_ok());
  EXPECT_EQ(change(tracer, "", "trace_rate", {{"0"}}).message(),
            "Attempting to set invalid trace setting :sample rate must be non-zero");
  Tracer without_file;
  EXPECT_FALSE(change(without_file, "", "trace_level", {{"TIMESTAMPS"}}).is_ok());
}

TEST_F(TracerTest, ReadsTheCommandLine) {
  const std::vector<std::string> texts = {"mode=triton", "level=TIMESTAMPS",   "level=TENSORS",         "rate=5",
                                          "count=9",     "triton,file=/tmp/x", "triton,log-frequency=4"};
  const TraceSetting setting = parse_trace_config(texts).value();
  EXPECT_EQ(setting.level, kTraceTimestamps | kTraceTensors);
  EXPECT_EQ(setting.rate, 5u);
  EXPECT_EQ(setting.count, 9);
  EXPECT_EQ(setting.file, "/tmp/x");
  EXPECT_EQ(setting.log_frequency, 4u);
  for (const char* bad : {"mode=opentelemetry", "rate=x", "rate", "speed=1"}) {
    EXPECT_FALSE(parse_trace_config(std::vector<std::string>{bad}).is_ok()) << bad;
  }
}

TEST(LogSettingsTest, ChangesApplyToTheLog) {
  const LogSettings before = current_log_settings();
  LogChanges changes;
  changes.log_info = true;
  changes.log_error = false;
  changes.log_verbose_level = 2;
  changes.log_format = "ISO8601";
  ASSERT_TRUE(update_log_settings(changes).is_ok());
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kVerbose));
  EXPECT_FALSE(log_enabled(LogLevel::kError));
  EXPECT_EQ(current_log_settings().log_verbose_level, 2u);
  EXPECT_EQ(current_log_settings().log_format, "ISO8601");
  LogChanges bad;
  bad.log_format = "xml";
  bad.log_info = false;
  EXPECT_EQ(update_log_settings(bad).message(), "invalid argument for --log_format, got: xml");
  EXPECT_TRUE(current_log_settings().log_info);
  LogChanges file;
  file.log_file = "/tmp/x";
  EXPECT_EQ(update_log_settings(file).message(), "log file location can not be updated through network protocol");
  ASSERT_TRUE(set_log_settings(before).is_ok());
}

TEST(LogSettingsTest, LinesGoToTheFile) {
  const LogSettings before = current_log_settings();
  const std::string path = (std::filesystem::temp_directory_path() / ("fw_log_" + std::to_string(::getpid()))).string();
  LogSettings settings;
  settings.log_file = path;
  ASSERT_TRUE(set_log_settings(settings).is_ok());
  log(LogLevel::kInfo, "to the {}", "file");
  ASSERT_TRUE(set_log_settings(before).is_ok());
  EXPECT_NE(read_file(path).find(" info to the file\n"), std::string::npos);
  std::filesystem::remove(path);
  settings.log_file = "/no/such/folder/log";
  EXPECT_FALSE(set_log_settings(settings).is_ok());
}

TEST(RestrictedApisTest, CallsNeedTheHeaderOfTheirCategory) {
  const std::vector<std::string> texts = {"health,trace:key=secret", "inference:Other=a=b"};
  const RestrictedApis apis = RestrictedApis::parse("--http-restricted-api", texts).value();
  auto with = [](std::string value) {
    return [value](std::string_view) { return std::optional<std::string_view>(value); };
  };
  auto without = [](std::string_view) { return std::optional<std::string_view>(); };
  EXPECT_EQ(apis.missing_header(ApiCategory::kHealth, with("secret")), nullptr);
  EXPECT_EQ(*apis.missing_header(ApiCategory::kTrace, with("Secret")), "key");
  EXPECT_EQ(*apis.missing_header(ApiCategory::kInference, without), "Other");
  EXPECT_EQ(apis.missing_header(ApiCategory::kInference, with("a=b")), nullptr);
  EXPECT_EQ(apis.missing_header(ApiCategory::kLogging, without), nullptr);
  for (const char* bad :
       {"", "health", "health:", "health:a", "health:=b", "health:a=", "nothing:a=b", "health,health:a=b"}) {
    EXPECT_FALSE(RestrictedApis::parse("--f", std::vector<std::string>{bad}).is_ok()) << bad;
  }
}

TEST(HeaderPatternTest, MatchesAnyPartOfANameWhateverItsCase) {
  const HeaderPattern pattern = HeaderPattern::parse("--f", "^x-(my|our)-").value();
  EXPECT_TRUE(pattern.matches("X-My-Header"));
  EXPECT_FALSE(pattern.matches("not-x-my-header"));
  EXPECT_FALSE(HeaderPattern().matches("x"));
  EXPECT_FALSE(HeaderPattern::parse("--f", "(").is_ok());
}

}  // namespace
}  // namespace flywheel::settings
