// SPDX-License-Identifier: Apache-2.0
// The client side of `make demo`: sends labelled images one by one to a running server, at several concurrencies, to
// models that differ in their batching alone, and prints accuracy, throughput, latency and the batch sizes that the
// server formed.
//
//   demo_client --port N --images IMAGES.idx3.gz --labels LABELS.idx1.gz --models a,b [--concurrency 1,4,16,64]
//   [--seconds 3]
#include <fmt/format.h>
#include <simdjson.h>
#include <zlib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "server/protocol/http/client.h"
#include "server/protocol/http/load_generator.h"

namespace flywheel {
namespace {

struct Options {
  uint16_t port = 8000;
  std::string images, labels;
  std::vector<std::string> models;
  std::vector<int> concurrency{1, 4, 16, 64};
  double seconds = 3;
};

struct Images {
  int64_t count = 0, height = 0, width = 0;
  std::string pixels, labels;  // a byte each
};

Result<std::string> read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return not_found(fmt::format("cannot open '{}'", path));
  std::string data;
  char block[1 << 16];
  int got = 0;
  while ((got = gzread(file, block, sizeof block)) > 0) data.append(block, static_cast<size_t>(got));
  gzclose(file);
  if (got < 0) return corrupt(fmt::format("'{}' is damaged", path));
  return data;
}

// IDX: magic, then one big-endian 32-bit extent a dim, then bytes.
Result<Images> read_images(const Options& options) {
  FW_ASSIGN_OR_RETURN(std::string images, read_gzip(options.images));
  FW_ASSIGN_OR_RETURN(std::string labels, read_gzip(options.labels));
  auto extent = [](const std::string& data, size_t at) {
    int64_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(data[at + i]);
    return value;
  };
  Images out;
  if (images.size() < 16 || labels.size() < 8 || extent(images, 0) != 0x803 || extent(labels, 0) != 0x801) {
    return corrupt("the images or labels are not IDX files of bytes");
  }
  out.count = extent(images, 4);
  out.height = extent(images, 8);
  out.width = extent(images, 12);
  out.pixels = images.substr(16);
  out.labels = labels.substr(8);
  if (out.count == 0 || static_cast<int64_t>(out.labels.size()) != out.count ||
      static_cast<int64_t>(out.pixels.size()) != out.count * out.height * out.width) {
    return corrupt("the images and labels do not belong together");
  }
  return out;
}

std::vector<std::string> make_requests(const Images& images, const std::string& model) {
  std::vector<std::string> requests;
  const int64_t pixels = images.height * images.width;
  const std::string json = fmt::format(
      R"({{"inputs":[{{"name":"image","shape":[1,1,{},{}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],)"
      R"("outputs":[{{"name":"logits","parameters":{{"binary_data":true}}}}]}})",
      images.height, images.width, pixels * 4);
  for (int64_t i = 0; i < images.count; ++i) {
    std::string body = json;
    for (int64_t p = 0; p < pixels; ++p) {
      const auto value = static_cast<float>(static_cast<uint8_t>(images.pixels[static_cast<size_t>(i * pixels + p)]));
      body.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    requests.push_back(http::format_request("POST", fmt::format("/v2/models/{}/infer", model),
                                            {{"Inference-Header-Content-Length", std::to_string(json.size())}}, body));
  }
  return requests;
}

// The largest of the floats at the end of a binary answer.
int best_class(std::string_view body, int classes) {
  if (body.size() < static_cast<size_t>(classes) * 4) return -1;
  std::vector<float> logits(static_cast<size_t>(classes));
  std::memcpy(logits.data(), body.data() + body.size() - logits.size() * 4, logits.size() * 4);
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

using BatchCounts = std::map<uint64_t, uint64_t>;  // batch size -> batches

Result<BatchCounts> batches_so_far(const Options& options, const std::string& model) {
  FW_ASSIGN_OR_RETURN(http::Client client, http::Client::connect("127.0.0.1", options.port));
  FW_ASSIGN_OR_RETURN(http::ClientResponse response, client.get(fmt::format("/v2/models/{}/stats", model)));
  if (response.status != 200)
    return unavailable(fmt::format("the server answers {} for '{}': {}", response.status, model, response.body));
  simdjson::dom::parser parser;
  simdjson::dom::array stats;
  if (parser.parse(response.body)["model_stats"].at(0)["batch_stats"].get(stats) != simdjson::SUCCESS) {
    return corrupt(fmt::format("statistics without batch_stats: {}", response.body));
  }
  BatchCounts counts;
  for (simdjson::dom::element row : stats) {
    uint64_t size = 0, count = 0;
    if (row["batch_size"].get(size) == simdjson::SUCCESS &&
        row["compute_infer"]["count"].get(count) == simdjson::SUCCESS)
      counts[size] = count;
  }
  return counts;
}

std::string describe_batches(const BatchCounts& before, const BatchCounts& after) {
  std::string text;
  uint64_t batches = 0, samples = 0;
  std::vector<std::pair<uint64_t, uint64_t>> grown;  // (count, size)
  for (const auto& [size, count] : after) {
    auto it = before.find(size);
    const uint64_t more = count - (it == before.end() ? 0 : it->second);
    if (more == 0) continue;
    batches += more;
    samples += more * size;
    grown.emplace_back(more, size);
  }
  std::sort(grown.rbegin(), grown.rend());
  for (size_t i = 0; i < std::min<size_t>(4, grown.size()); ++i) {
    text += fmt::format(" {} ({:.0f} %)", grown[i].second,
                        100.0 * static_cast<double>(grown[i].first) / static_cast<double>(batches));
  }
  return fmt::format("mean {:.1f}, most often{}",
                     batches == 0 ? 0.0 : static_cast<double>(samples) / static_cast<double>(batches), text);
}

Status run(const Options& options) {
  FW_ASSIGN_OR_RETURN(Images images, read_images(options));
  fmt::print("{} labelled images, one a request\n\n", images.count);
  fmt::print("{:<28} {:>11} {:>11} {:>9} {:>9} {:>9}  {}\n", "model", "in flight", "requests/s", "p50 ms", "p99 ms",
             "accuracy", "batches");
  for (const std::string& model : options.models) {
    const std::vector<std::string> requests = make_requests(images, model);
    for (int concurrency : options.concurrency) {
      FW_ASSIGN_OR_RETURN(BatchCounts before, batches_so_far(options, model));
      uint64_t right = 0, answered = 0, refused = 0;
      http::LoadOptions load;
      load.port = options.port;
      load.connections = concurrency;
      load.seconds = options.seconds;
      load.make_request = [&](uint64_t index, std::string& request) { request = requests[index % requests.size()]; };
      load.on_response = [&](uint64_t index, int status, std::string_view body) {
        if (status != 200) {
          ++refused;
          return;
        }
        ++answered;
        right += best_class(body, 10) == images.labels[index % requests.size()] ? 1 : 0;
      };
      FW_ASSIGN_OR_RETURN(http::LoadReport report, http::run_load(load));
      FW_ASSIGN_OR_RETURN(BatchCounts after, batches_so_far(options, model));
      if (answered == 0) return unavailable(fmt::format("no request to '{}' was answered", model));
      fmt::print("{:<28} {:>11} {:>11.0f} {:>9.3f} {:>9.3f} {:>7.2f} %  {}\n", model, concurrency,
                 report.requests_per_s(), report.latency.quantile_us(0.5) / 1000,
                 report.latency.quantile_us(0.99) / 1000,
                 100.0 * static_cast<double>(right) / static_cast<double>(answered), describe_batches(before, after));
      std::fflush(stdout);
      if (refused > 0 || report.broken > 0)
        return unavailable(fmt::format("{} requests were refused, {} lost", refused, report.broken));
    }
  }
  return Status::ok();
}

}  // namespace
}  // namespace flywheel

int main(int argc, char** argv) {
  flywheel::Options options;
  CLI::App app("Sends labelled images to a running server and prints what happened.");
  app.add_option("--port", options.port)->required();
  app.add_option("--images", options.images)->required();
  app.add_option("--labels", options.labels)->required();
  app.add_option("--models", options.models)->required()->delimiter(',');
  app.add_option("--concurrency", options.concurrency)->delimiter(',');
  app.add_option("--seconds", options.seconds);
  CLI11_PARSE(app, argc, argv);
  const flywheel::Status status = flywheel::run(options);
  if (!status.is_ok()) fmt::print(stderr, "demo_client: {}\n", status.to_string());
  return status.is_ok() ? 0 : 1;
}
