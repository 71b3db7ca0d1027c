// SPDX-License-Identifier: Apache-2.0
#include "server/backend/python/python_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/log.h"

namespace flywheel::python {
namespace {

using schedule::monotonic_now_ns;

constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kNsPerMs = 1'000'000;
// A process that has served this long is started again at once, one that has not after a while.
constexpr int64_t kHealthyNs = 10'000 * kNsPerMs;
constexpr int64_t kFirstDelayNs = 100 * kNsPerMs;
constexpr int64_t kMaxDelayNs = 10'000 * kNsPerMs;
// A closed connection is followed by the process's end, of which more is known.
constexpr int kExitTimeMs = 1000;
constexpr int kWithoutExitFdMs = 200;
constexpr uint32_t kSequenceStart = 1;
constexpr uint32_t kSequenceEnd = 2;
constexpr uint8_t kDeferred = 2;

}  // namespace

PythonProcess::PythonProcess(ProcessOptions options)
    : options_(std::move(options)), control_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  std::vector<std::string> names;
  for (const config::TensorConfig& output : options_.config.outputs) names.push_back(output.name);
  append_strings(all_outputs_, names);
  // The process is started by this thread and dies with it.
  watcher_ = std::thread([this] { run(); });
  pthread_setname_np(watcher_.native_handle(), "fw-python");
}

PythonProcess::~PythonProcess() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  const uint64_t one = 1;
  (void)!::write(control_fd_, &one, sizeof one);
  watcher_.join();
  drain(0);
  ::close(control_fd_);
}

Status PythonProcess::failure(const Status& why) const {
  return {why.code(), fmt::format("Failed to process the request(s) for model instance '{}', message: {}",
                                  options_.instance_name, why.message())};
}

pid_t PythonProcess::pid() const {
  std::lock_guard lock(mutex_);
  return pid_;
}

Result<std::string> PythonProcess::wait_until_started(const std::function<bool()>& keep_going) {
  std::unique_lock lock(mutex_);
  while (state_ == State::kStarting) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (!keep_going()) return Status(Code::kCancelled, "the server is stopping");
  }
  if (state_ == State::kReady) return start_answer_;
  return last_failure_;
}

void PythonProcess::give_up() {
  std::lock_guard lock(mutex_);
  give_up_ = true;
  const uint64_t one = 1;
  (void)!::write(control_fd_, &one, sizeof one);
}

// ---------------------------------------------------------------------------------------------------------------------
// The watcher.

void PythonProcess::run() {
  int failures = 0;
  for (bool first = true;; first = false) {
    const Status ended = run_once();
    std::unique_lock lock(mutex_);
    last_failure_ = ended;
    if (stopping_ || (first && !was_ready_)) break;
    failures = was_ready_ && monotonic_now_ns() - ready_ns_ > kHealthyNs ? 1 : failures + 1;
    const int64_t delay_ns = failures < 2 ? 0 : std::min(kFirstDelayNs << std::min(failures - 2, 16), kMaxDelayNs);
    log(LogLevel::kError, "model instance '{}': {}; it is started again{}", options_.instance_name, ended.message(),
        delay_ns == 0 ? std::string() : fmt::format(" in {} ms", delay_ns / kNsPerMs));
    if (delay_ns > 0) {
      state_ = State::kWaiting;
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::nanoseconds(delay_ns), [&] { return stopping_; });
      if (stopping_) break;
      state_ = State::kStarting;
    }
  }
  std::lock_guard lock(mutex_);
  state_ = State::kStopped;
  changed_.notify_all();
}

// From its start to its end; the status says why it ended.
Status PythonProcess::run_once() {
  was_ready_ = false;
  int process_fd = -1;
  FW_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel, Channel::create(process_fd));
  FW_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(options_.interpreter, options_.environment, process_fd));
  auto calls = std::make_shared<ModelCalls>(options_.caller, channel);
  Outgoing start;
  start.kind = options_.start_kind;
  start.meta = options_.start_message;
  {
    std::lock_guard lock(mutex_);
    pid_ = child.pid();
    give_up_ = false;
    start_id_ = next_id_++;
    start.id = start_id_;
  }
  Status status = channel->send(start);
  if (status.is_ok()) status = serve(child, channel, *calls);
  // What is known of its end says more than that the connection is closed.
  if (status.code() == Code::kUnavailable && child.exit_fd() >= 0) {
    pollfd exit{child.exit_fd(), POLLIN, 0};
    (void)::poll(&exit, 1, kExitTimeMs);
  }
  const bool ended_itself = child.has_ended();
  channel->close();
  child.kill();
  calls->end();
  if (status.code() == Code::kUnavailable && ended_itself)
    status = internal_error(fmt::format("its Python process {}", child.describe_exit()));
  if (status.code() == Code::kUnavailable) status = internal_error("its Python process closed its connection");
  std::map<uint64_t, Request> deferred;
  {
    std::lock_guard lock(mutex_);
    pid_ = 0;
    was_ready_ = state_ == State::kReady;
    state_ = State::kStarting;  // as far as requests are concerned, until run() decides otherwise
    channel_.reset();
    ++generation_;
    death_ = status;
    // Those of the batch that is executed are left to execute().
    for (auto it = requests_.begin(); it != requests_.end();) {
      const auto here = it++;
      if (!here->second.executing) deferred.insert(requests_.extract(here));
    }
  }
  changed_.notify_all();
  for (const auto& [token, request] : deferred) {
    if (request.shared != nullptr)
      request.shared->respond({.status = failure(status), .reason = schedule::FailureReason::kBackend});
  }
  return status;
}

Status PythonProcess::wait_for_events(ChildProcess& child, const Channel& channel, int64_t until_ns) const {
  const short wanted = static_cast<short>(channel.wants_to_write() ? POLLIN | POLLOUT : POLLIN);
  pollfd fds[] = {{channel.fd(), wanted, 0},
                  {channel.wake_fd(), POLLIN, 0},
                  {control_fd_, POLLIN, 0},
                  {child.exit_fd(), POLLIN, 0}};
  int timeout_ms = child.exit_fd() >= 0 ? -1 : kWithoutExitFdMs;
  if (until_ns != kNever) {
    const int left_ms = static_cast<int>(std::max<int64_t>(0, (until_ns - monotonic_now_ns()) / kNsPerMs + 1));
    timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
  }
  if (::poll(fds, child.exit_fd() >= 0 ? 4 : 3, timeout_ms) < 0 && errno != EINTR)
    return internal_error(fmt::format("cannot watch a Python process: {}", std::strerror(errno)));
  return {};
}

Status PythonProcess::serve(ChildProcess& child, const std::shared_ptr<Channel>& channel, ModelCalls& calls) {
  int64_t until_ns = kNever;  // of finalising
  for (;;) {
    FW_RETURN_IF_ERROR(wait_for_events(child, *channel, until_ns));
    FW_RETURN_IF_ERROR(channel->flush());
    const bool has_ended = child.has_ended();  // before the last messages are read
    for (;;) {
      FW_ASSIGN_OR_RETURN(std::optional<Incoming> message, channel->receive());
      if (!message) break;
      if (message->kind == Kind::kDone) {
        bool starts = false;
        {
          std::lock_guard lock(mutex_);
          starts = message->id == start_id_;
        }
        if (starts) {
          FW_RETURN_IF_ERROR(take_start(*message, channel));
          continue;
        }
      }
      handle(std::move(*message), *channel, calls);
    }
    if (has_ended) return unavailable("its Python process has ended");
    uint64_t ignored = 0;
    (void)!::read(control_fd_, &ignored, sizeof ignored);
    std::unique_lock lock(mutex_);
    if (give_up_) return internal_error("its Python process did not answer in time and was ended");
    if (!stopping_) continue;
    if (state_ != State::kReady || monotonic_now_ns() >= until_ns)
      return Status(Code::kCancelled, "the model is unloaded");
    if (until_ns != kNever) continue;
    until_ns = monotonic_now_ns() + options_.finalize_timeout_ns;
    Outgoing finalize;
    finalize.kind = Kind::kFinalize;
    finalize.id = next_id_++;
    lock.unlock();
    FW_RETURN_IF_ERROR(channel->send(finalize));
  }
}

Status PythonProcess::take_start(const Incoming& message, const std::shared_ptr<Channel>& channel) {
  MessageReader reader(message.meta);
  const bool failed = reader.u8() != 0;
  std::string answer = message.meta.size() > 1 ? reader.string() : std::string();
  if (failed)
    return internal_error(fmt::format("Failed to initialize model instance '{}': {}", options_.instance_name, answer));
  {
    std::lock_guard lock(mutex_);
    start_answer_ = std::move(answer);
    channel_ = channel;
    state_ = State::kReady;
    ready_ns_ = monotonic_now_ns();
  }
  changed_.notify_all();
  return {};
}

void PythonProcess::handle(Incoming message, Channel& channel, ModelCalls& calls) {
  switch (message.kind) {
    case Kind::kDone: {
      std::lock_guard lock(mutex_);
      if (pending_.id == 0 || message.id != pending_.id) return;
      pending_.answer = std::move(message);
      changed_.notify_all();
      return;
    }
    case Kind::kResponse: return handle_response(message);
    case Kind::kCall: return calls.begin(message);
    case Kind::kAsk: return handle_question(message, channel);
    case Kind::kLog: return handle_log(message);
    default: return;  // a release, which the channel has seen to
  }
}

void PythonProcess::handle_response(const Incoming& message) {
  MessageReader reader(message.meta);
  schedule::InferResponse response;
  response.final = reader.u8() != 0;
  const bool any = reader.u8() != 0;
  Request request;
  {
    std::lock_guard lock(mutex_);
    const auto found = requests_.find(message.id);
    if (found == requests_.end()) return;
    request = found->second;
    if (response.final) requests_.erase(found);
  }
  changed_.notify_all();
  if (any) {
    const bool failed = reader.u8() != 0;
    Result<ModelResponse> read = read_response(reader, message, failed);
    response.status = read.is_ok() ? read->status : read.status();
    if (!response.status.is_ok()) {
      response.reason = schedule::FailureReason::kBackend;
    } else {
      response.outputs = select_outputs(std::move(read->outputs), request.wanted, options_.config);
      response.parameters = std::move(read->parameters);
    }
  }
  if (request.shared != nullptr) request.shared->respond(std::move(response));
}

void PythonProcess::handle_question(const Incoming& message, Channel& channel) {
  MessageReader reader(message.meta);
  bool yes = false;
  if (reader.u8() == 0) {
    const uint64_t token = reader.u64();
    std::lock_guard lock(mutex_);
    const auto found = requests_.find(token);
    yes = found != requests_.end() && found->second.shared != nullptr && found->second.shared->is_cancelled();
  } else {
    const std::string model = reader.string();
    yes = options_.is_ready && options_.is_ready(model, reader.i64());
  }
  Outgoing answer;
  answer.kind = Kind::kAnswer;
  answer.id = message.id;
  answer.meta = yes ? "true" : "false";
  (void)channel.send(answer);  // fails when the process has ended
}

void PythonProcess::handle_log(const Incoming& message) const {
  MessageReader reader(message.meta);
  constexpr LogLevel kLevels[] = {LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kVerbose};
  log(kLevels[std::min<uint64_t>(message.id, 3)], "{}: {}", options_.instance_name, reader.string());
}

// ---------------------------------------------------------------------------------------------------------------------
// The instance's side.

Outgoing PythonProcess::make_execute(const schedule::Batch& batch, const std::vector<uint64_t>& tokens) const {
  Outgoing message;
  message.kind = Kind::kExecute;
  std::string& json = message.meta;
  json += '[';
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const schedule::InferRequest& request = *batch.items[i].request;
    const uint32_t flags = (request.sequence.start ? kSequenceStart : 0) | (request.sequence.end ? kSequenceEnd : 0);
    if (i > 0) json += ',';
    json += fmt::format("{{\"token\":{},\"id\":{},\"flags\":{},\"timeout\":{},\"priority\":{},\"correlation_id\":",
                        tokens[i], json_quote(request.id), flags, request.timeout_us, request.priority);
    append_correlation_id(json, request.sequence);
    json += ",\"parameters\":";
    append_parameters(json, request.parameters);
    json += ",\"outputs\":";
    if (request.requested_outputs.empty()) {
      json += all_outputs_;
    } else {
      append_strings(json, request.requested_outputs);
    }
    json += ",\"inputs\":[";
    bool first = true;
    for (const schedule::InputView& input : request.inputs) {
      if (input.data_type == config::DataType::kInvalid) continue;  // an optional one that did not come
      if (!first) json += ',';
      first = false;
      append_tensor(message, input.name, input.data_type, input.shape, input.bytes);
    }
    json += "]}";
  }
  json += ']';
  return message;
}

Status PythonProcess::execute(schedule::Batch& batch) {
  std::vector<uint64_t> tokens;
  std::unique_lock lock(mutex_);
  give_up_ = false;
  changed_.wait(lock, [&] { return state_ != State::kStarting || give_up_; });
  if (state_ != State::kReady) return failure({Code::kUnavailable, last_failure_.message()});
  const uint64_t generation = generation_;
  const std::shared_ptr<Channel> channel = channel_;
  for (const schedule::BatchItem& item : batch.items) {
    tokens.push_back(next_id_++);
    requests_[tokens.back()] = {item.shared, item.request->requested_outputs, true};
  }
  const uint64_t id = next_id_++;
  pending_ = {id, std::nullopt};
  lock.unlock();

  Outgoing message = make_execute(batch, tokens);
  message.id = id;
  const Status sent = channel != nullptr ? channel->send(message) : unavailable("the Python process has ended");
  batch.input_done_ns = monotonic_now_ns();
  lock.lock();
  // A connection that is closed has a reason, which the watcher finds.
  if (sent.is_ok() || sent.code() == Code::kUnavailable)
    changed_.wait(lock, [&] { return pending_.answer.has_value() || generation_ != generation; });
  batch.compute_done_ns = monotonic_now_ns();
  std::optional<Incoming> answer = std::move(pending_.answer);
  pending_ = {};
  if (answer) {
    lock.unlock();
    take_answers(batch, tokens, *answer, generation);
    return {};
  }
  const Status why = failure(sent.is_ok() || sent.code() == Code::kUnavailable ? died_locked() : sent);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (requests_.erase(tokens[i]) > 0) {
      batch.items[i].status = why;
    } else {
      batch.items[i].deferred = true;
    }
  }
  return {};
}

// Why the process of the batch is gone.
Status PythonProcess::died_locked() const {
  return death_.is_ok() ? internal_error("its Python process has ended") : death_;
}

void PythonProcess::take_answers(schedule::Batch& batch, const std::vector<uint64_t>& tokens, const Incoming& answer,
                                 uint64_t generation) {
  MessageReader reader(answer.meta);
  Status all;
  if (reader.u8() != 0) {
    all = internal_error(reader.string());
  } else if (reader.u32() != tokens.size()) {
    all = corrupt("its Python process answered for another number of requests");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    schedule::BatchItem& item = batch.items[i];
    const uint8_t kind = all.is_ok() ? reader.u8() : kDeferred;
    Status status = all;
    if (all.is_ok() && kind != kDeferred) {
      Result<ModelResponse> response = read_response(reader, answer, kind != 0);
      status = response.is_ok() ? response->status : failure(response.status());
      if (!response.is_ok()) all = response.status();  // what follows cannot be read either
      if (status.is_ok()) {
        const std::vector<std::string>& wanted = item.request->requested_outputs;
        item.outputs = select_outputs(std::move(response->outputs), wanted, options_.config);
        item.parameters = std::move(response->parameters);
        if (!wanted.empty() && item.outputs.size() != wanted.size())
          status = failure(internal_error("the response lacks an output that the request asks for"));
      }
    } else if (!all.is_ok()) {
      status = failure(all);
    }
    std::lock_guard lock(mutex_);
    const auto found = requests_.find(tokens[i]);
    if (found == requests_.end()) {
      item.deferred = true;  // and finally answered
      item.status = status;
      continue;
    }
    if (all.is_ok() && kind == kDeferred && generation_ == generation) {
      found->second.executing = false;
      item.deferred = true;
      continue;
    }
    if (all.is_ok() && kind == kDeferred) status = failure(died_locked());
    requests_.erase(found);
    item.status = status;
  }
  changed_.notify_all();
}

void PythonProcess::drain(int64_t until_ns) {
  std::map<uint64_t, Request> left;
  {
    std::unique_lock lock(mutex_);
    auto all_answered = [&] { return requests_.empty(); };
    if (until_ns == kNever) {
      changed_.wait(lock, all_answered);
    } else {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns)),
                          all_answered);
    }
    left.swap(requests_);
  }
  for (const auto& [token, request] : left) {
    if (request.shared == nullptr) continue;
    request.shared->respond({.status = unavailable(fmt::format("model instance '{}' was stopped before it could answer",
                                                               options_.instance_name)),
                             .reason = schedule::FailureReason::kOther});
  }
}

}  // namespace flywheel::python
