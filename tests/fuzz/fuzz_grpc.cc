// SPDX-License-Identifier: Apache-2.0
// Fuzz target: what arrives on the gRPC port. The first byte's lowest bit chooses between the message of inference,
// which has to be read as protobuf's own parser reads it, and a connection's bytes after HTTP/2's preface, which come
// in pieces that the first byte's other bits size.
#include <google/protobuf/stubs/logging.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/grpc/connection.h"
#include "server/protocol/grpc/infer_wire.h"
#include "server/protocol/grpc/inference_service.pb.h"
#include "server/protocol/http/slow_lane.h"

namespace {

using namespace flywheel;  // NOLINT(google-build-using-namespace): a program of one file

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

void require(bool holds) {
  if (!holds) std::abort();
}

std::string_view text_of(grpc::WireBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

void compare(const inference::InferParameter& theirs, const grpc::WireValue& ours) {
  using P = inference::InferParameter;
  switch (theirs.parameter_choice_case()) {
    case P::kBoolParam: return require(std::get<bool>(ours) == theirs.bool_param());
    case P::kInt64Param: return require(std::get<int64_t>(ours) == theirs.int64_param());
    case P::kStringParam: return require(std::get<std::string_view>(ours) == theirs.string_param());
    case P::kDoubleParam: return require(std::holds_alternative<double>(ours));
    case P::kUint64Param: return require(std::get<uint64_t>(ours) == theirs.uint64_param());
    case P::PARAMETER_CHOICE_NOT_SET: return require(ours.index() == 0);
  }
}

template <class Map>
void compare(const Map& theirs, const std::vector<grpc::WireParameter>& ours) {
  require(static_cast<size_t>(theirs.size()) == ours.size());
  for (const grpc::WireParameter& parameter : ours) {
    const auto found = theirs.find(std::string(parameter.key));
    require(found != theirs.end());
    compare(found->second, parameter.value);
  }
}

void compare_contents(const inference::InferTensorContents& theirs, const grpc::WireInput& ours) {
  auto size_as = [&](config::DataType type) -> size_t {
    const Result<grpc::TensorBytes> tensor = grpc::read_contents(ours, type, "m");
    if (!tensor.is_ok()) return SIZE_MAX;
    unsigned sum = 0;
    for (std::byte value : tensor->bytes) sum += std::to_integer<unsigned>(value);
    require(sum != 1u << 31);  // reads every byte that an instance would
    return tensor->bytes.size();
  };
  const auto check = [&](config::DataType type, int count, size_t width) {
    const size_t size = size_as(type);
    require(size == SIZE_MAX || size == 0 || size == static_cast<size_t>(count) * width);
  };
  check(config::DataType::kBool, theirs.bool_contents_size(), 1);
  check(config::DataType::kInt8, theirs.int_contents_size(), 1);
  check(config::DataType::kInt32, theirs.int_contents_size(), 4);
  check(config::DataType::kInt64, theirs.int64_contents_size(), 8);
  check(config::DataType::kUint16, theirs.uint_contents_size(), 2);
  check(config::DataType::kUint64, theirs.uint64_contents_size(), 8);
  check(config::DataType::kFp32, theirs.fp32_contents_size(), 4);
  check(config::DataType::kFp64, theirs.fp64_contents_size(), 8);
  size_as(config::DataType::kString);
  size_as(config::DataType::kInvalid);
}

void read_message(std::string_view text) {
  const grpc::WireBytes message = std::as_bytes(std::span(text));
  grpc::WireRequest ours;
  const Status status = grpc::read_infer_request(message, ours);
  (void)grpc::find_raw_contents(message);
  inference::ModelInferRequest theirs;
  const bool parsed = theirs.ParseFromArray(text.data(), static_cast<int>(text.size()));
  if (!status.is_ok()) {
    require(!parsed || status.code() == Code::kInvalidArgument);  // beyond the limits on parts
    return;
  }
  // What protobuf refuses and this does not is within contents, which are read only when somebody asks for them.
  if (!parsed) {
    for (const grpc::WireInput& input : ours.inputs) (void)grpc::read_contents(input, config::DataType::kInt64, "m");
    return;
  }
  require(theirs.model_name() == ours.model_name && theirs.model_version() == ours.model_version);
  require(theirs.id() == ours.id);
  compare(theirs.parameters(), ours.parameters);
  require(static_cast<size_t>(theirs.inputs_size()) == ours.inputs.size());
  for (int i = 0; i < theirs.inputs_size(); ++i) {
    const grpc::WireInput& input = ours.inputs[static_cast<size_t>(i)];
    require(theirs.inputs(i).name() == input.name && theirs.inputs(i).datatype() == input.datatype);
    require(std::equal(theirs.inputs(i).shape().begin(), theirs.inputs(i).shape().end(), input.shape.begin(),
                       input.shape.end()));
    compare(theirs.inputs(i).parameters(), input.parameters);
    require(theirs.inputs(i).has_contents() == !input.contents.empty());
    compare_contents(theirs.inputs(i).contents(), input);
  }
  require(static_cast<size_t>(theirs.outputs_size()) == ours.outputs.size());
  require(static_cast<size_t>(theirs.raw_input_contents_size()) == ours.raw_contents.size());
  for (int i = 0; i < theirs.raw_input_contents_size(); ++i) {
    require(theirs.raw_input_contents(i) == text_of(ours.raw_contents[static_cast<size_t>(i)]));
  }
}

// Reads each message as one of inference and gives it back.
class Handler : public grpc::CallHandler {
 public:
  explicit Handler(grpc::Call& call) : call_(call) {}
  bool on_message(http::Body message) override {
    grpc::WireRequest request;
    (void)grpc::read_infer_request(message.bytes(), request);
    grpc::OutMessage answer;
    answer.text += message.text();
    answer.seal(false);
    return call_.send(std::move(answer));
  }
  bool is_slow(const http::Body&) const override { return false; }
  void on_half_close() override { call_.finish({}); }
  void on_abandoned() override {}

 private:
  grpc::Call& call_;
};

class Service : public grpc::Service {
 public:
  std::unique_ptr<grpc::CallHandler> open(grpc::Call& call) override { return std::make_unique<Handler>(call); }
};

// A reactor's round, for one connection.
class Rounds {
 public:
  explicit Rounds(int socket) : connection_(loop_.connect(socket)) {
    net::Inbox::own = loop_.inbox.get();
    net::Inbox::own_finished = &finished_;
  }
  ~Rounds() {
    connection_.reset();
    finished_.clear();
    ::close(loop_.epoll_fd);
    net::Inbox::own = nullptr;
    net::Inbox::own_finished = nullptr;
  }
  bool round() {
    if (!connection_->closed()) connection_->on_events(EPOLLIN);
    while (!finished_.empty() || !loop_.to_flush.empty()) {
      std::vector<net::CompletionPtr> finished;
      finished.swap(finished_);
      for (const net::CompletionPtr& completion : finished) completion->on_reactor();
      std::vector<net::Connection*> flushing;
      flushing.swap(loop_.to_flush);
      for (net::Connection* connection : flushing) connection->flush();
    }
    loop_.now_ns += 1'000'000;
    if (!connection_->closed()) connection_->check_deadlines();
    return !connection_->closed();
  }

 private:
  static grpc::GrpcOptions options() {
    grpc::GrpcOptions made;
    made.max_message_bytes = 1 << 20;
    made.max_total_message_bytes = 16 << 20;
    return made;
  }
  const grpc::GrpcOptions options_ = options();
  Service service_;
  grpc::GrpcCounters counters_;
  std::shared_ptr<http::BodyBudget> budget_ = std::make_shared<http::BodyBudget>(options_.max_total_message_bytes);
  grpc::GrpcLoop loop_{options_, service_, budget_, counters_, slow_lane()};
  bool prepared_ = [this] {
    loop_.epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
    loop_.scratch.resize(64 << 10);
    loop_.now_ns = 1;
    return true;
  }();
  std::vector<net::CompletionPtr> finished_;
  std::unique_ptr<net::Connection> connection_;

  static http::SlowLane& slow_lane() {
    static http::SlowLane lane(1);
    return lane;
  }
};

void read_connection(std::string_view bytes, size_t piece) {
  int sockets[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
  {
    Rounds rounds(sockets[0]);
    const std::string all = std::string(kPreface) + std::string(bytes);
    char ignored[64 << 10];
    for (size_t at = 0; at < all.size(); at += piece) {
      const std::string_view next = std::string_view(all).substr(at, piece);
      if (::send(sockets[1], next.data(), next.size(), MSG_NOSIGNAL) < 0) break;
      if (!rounds.round()) break;
      while (::recv(sockets[1], ignored, sizeof ignored, 0) > 0) {}
    }
    rounds.round();
  }
  ::close(sockets[1]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static google::protobuf::LogHandler* const silenced = google::protobuf::SetLogHandler(nullptr);
  (void)silenced;
  if (size < 1) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    read_message(rest);
  } else {
    read_connection(rest, (size_t{1} << (data[0] >> 4)) * 8);
  }
  return 0;
}
