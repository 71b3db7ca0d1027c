// SPDX-License-Identifier: Apache-2.0
// nghttp2's callbacks: what it reads becomes calls and their messages, and what calls send becomes frames.
#include <charconv>
#include <limits>
#include <optional>

#include "server/protocol/grpc/connection.h"
#include "server/schedule/timeline.h"

namespace flywheel::grpc {
namespace {

constexpr size_t kHeaderOverheadBytes = 32;  // as HTTP/2 counts a field
constexpr ssize_t kMaxDataFrameBytes = 256 << 10;
constexpr size_t kMaxUnsentBytes = 256 << 10;  // then no more frames are made until the socket takes some

// "100m" and the like, in nanoseconds. Nothing: malformed.
std::optional<int64_t> parse_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  int64_t count = 0;
  const char* end = text.data() + text.size() - 1;
  if (std::from_chars(text.data(), end, count).ptr != end || count < 0) return std::nullopt;
  int64_t unit_ns = 0;
  switch (text.back()) {
    case 'H': unit_ns = 3'600'000'000'000; break;
    case 'M': unit_ns = 60'000'000'000; break;
    case 'S': unit_ns = 1'000'000'000; break;
    case 'm': unit_ns = 1'000'000; break;
    case 'u': unit_ns = 1'000; break;
    case 'n': unit_ns = 1; break;
    default: return std::nullopt;
  }
  int64_t total = 0;
  if (__builtin_mul_overflow(count, unit_ns, &total)) return std::numeric_limits<int64_t>::max();
  return total;
}

std::optional<http::Coding> parse_coding(std::string_view text) {
  if (text == "identity") return http::Coding::kIdentity;
  if (text == "gzip") return http::Coding::kGzip;
  if (text == "deflate") return http::Coding::kDeflate;
  return std::nullopt;
}

// "identity,deflate, gzip": gzip before deflate.
http::Coding best_coding(std::string_view list) {
  http::Coding best = http::Coding::kIdentity;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    const std::optional<http::Coding> coding = parse_coding(name);
    if (coding == http::Coding::kGzip || (coding && best == http::Coding::kIdentity)) best = *coding;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return best;
}

bool is_grpc_content_type(std::string_view type) {
  constexpr std::string_view kGrpc = "application/grpc";
  if (!type.starts_with(kGrpc)) return false;
  type.remove_prefix(kGrpc.size());
  return type.empty() || type.starts_with("+proto") || type.front() == ';';
}

}  // namespace

class Session {
 public:
  static Connection& connection(void* user_data) { return *static_cast<Connection*>(user_data); }
  static Call* call(nghttp2_session* session, int32_t stream_id) {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(session, stream_id));
  }

  static ssize_t on_send(nghttp2_session*, const uint8_t* data, size_t size, int, void* user_data) {
    Connection& self = connection(user_data);
    if (self.outgoing_bytes_ >= kMaxUnsentBytes) return NGHTTP2_ERR_WOULDBLOCK;
    self.append_output({reinterpret_cast<const char*>(data), size});
    return static_cast<ssize_t>(size);
  }

  static int on_send_data(nghttp2_session* session, nghttp2_frame* frame, const uint8_t* head, size_t size,
                          nghttp2_data_source*, void* user_data) {
    Connection& self = connection(user_data);
    if (self.outgoing_bytes_ >= kMaxUnsentBytes) return NGHTTP2_ERR_WOULDBLOCK;
    Call* sender = call(session, frame->hd.stream_id);
    if (sender == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    constexpr size_t kFrameHeadBytes = 9;
    self.append_output({reinterpret_cast<const char*>(head), kFrameHeadBytes});
    sender->take_outgoing(
        size, [&](std::string_view text) { self.append_output(text); },
        [&](http::Response::Blob blob) { self.append_blob(std::move(blob)); });
    sender->unsent_since_ns_ = self.loop_.now_ns;
    return 0;
  }

  static ssize_t read_length(nghttp2_session*, uint8_t, int32_t, int32_t session_window, int32_t stream_window,
                             uint32_t max_frame, void*) {
    return std::min<ssize_t>({kMaxDataFrameBytes, session_window, stream_window, static_cast<ssize_t>(max_frame)});
  }

  static ssize_t read_data(nghttp2_session* session, int32_t stream_id, uint8_t*, size_t length, uint32_t* flags,
                           nghttp2_data_source* source, void*) {
    Call& sender = *static_cast<Call*>(source->ptr);
    // Frames are made one ahead of on_send_data(), which takes what was promised before the next is asked for.
    const size_t size = std::min(length, sender.unsent_bytes_);
    if (size == sender.unsent_bytes_) {
      if (sender.finished_) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(session, stream_id, sender.status_);
      } else if (size == 0) {
        sender.deferred_ = true;
        return NGHTTP2_ERR_DEFERRED;
      }
    }
    if (size > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return static_cast<ssize_t>(size);
  }

  static nghttp2_nv field(std::string_view name, std::string_view value) {
    return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
            reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NONE};
  }

  static std::string_view code_text(StatusCode code) {
    static constexpr std::string_view kNumbers[kStatusCodes] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                                                "9", "10", "11", "12", "13", "14", "15", "16"};
    return kNumbers[static_cast<size_t>(code)];
  }

  static void submit_trailers(nghttp2_session* session, int32_t stream_id, const GrpcStatus& status) {
    const std::string message = percent_encode(status.message);
    const nghttp2_nv fields[] = {field("grpc-status", code_text(status.code)), field("grpc-message", message)};
    nghttp2_submit_trailer(session, stream_id, fields, message.empty() ? 1 : 2);
  }

  static int on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Connection& self = connection(user_data);
    const CallPtr made = self.make_call(frame->hd.stream_id);
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, made.get());
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name_bytes,
                       size_t name_size, const uint8_t* value_bytes, size_t value_size, uint8_t, void* user_data) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Call* target = call(session, frame->hd.stream_id);
    if (target == nullptr || target->refusal_) return 0;
    const GrpcOptions& options = connection(user_data).loop_.options;
    const std::string_view name(reinterpret_cast<const char*>(name_bytes), name_size);
    const std::string_view value(reinterpret_cast<const char*>(value_bytes), value_size);
    target->header_bytes_ += name_size + value_size + kHeaderOverheadBytes;
    if (target->header_bytes_ > options.max_header_bytes) {
      target->refusal_ = {StatusCode::kResourceExhausted,
                          "the call's metadata takes more than " + std::to_string(options.max_header_bytes) + " bytes"};
      return 0;
    }
    read_field(*target, name, value, options);
    return 0;
  }

  static void read_field(Call& target, std::string_view name, std::string_view value, const GrpcOptions& options) {
    CallHead& head = target.head_;
    if (name == ":path") {
      head.path = value;
    } else if (name == ":method") {
      target.is_post_ = value == "POST";
    } else if (name == "content-type") {
      target.is_grpc_ = is_grpc_content_type(value);
    } else if (name == "grpc-timeout") {
      const std::optional<int64_t> timeout_ns = parse_timeout(value);
      if (!timeout_ns) {
        target.refusal_ = {StatusCode::kInternal, "the call's grpc-timeout is malformed: '" + std::string(value) + "'"};
        return;
      }
      const int64_t now_ns = schedule::monotonic_now_ns();
      if (__builtin_add_overflow(now_ns, *timeout_ns, &head.deadline_ns)) head.deadline_ns = 0;
    } else if (name == "grpc-encoding") {
      const std::optional<http::Coding> coding = parse_coding(value);
      if (!coding) {
        target.refusal_ = {StatusCode::kUnimplemented, "the call's grpc-encoding is '" + std::string(value) +
                                                           "'; this server takes gzip and deflate"};
        return;
      }
      head.request_coding = *coding;
    } else if (name == "grpc-accept-encoding") {
      head.response_coding = best_coding(value);
    } else if (name == "triton_grpc_error") {
      head.wants_grpc_errors = value == "true";
    } else if (options.keep_fields && !name.starts_with(':')) {
      head.fields.emplace_back(name, value);
    }
  }

  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    Connection& self = connection(user_data);
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS: {
        Call* target = call(session, frame->hd.stream_id);
        if (target == nullptr) return 0;
        if (ends) target->half_closed_ = true;
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
          self.open_call(*target);
        } else if (ends) {
          self.end_of_requests(*target);
        }
        return 0;
      }
      case NGHTTP2_DATA: {
        if (frame->hd.length == 0 && !ends) return check_control(self);
        Call* target = call(session, frame->hd.stream_id);
        if (target == nullptr || !ends) return 0;
        target->half_closed_ = true;
        self.end_of_requests(*target);
        return 0;
      }
      case NGHTTP2_SETTINGS: self.handshaken_ = true; return check_control(self);
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) {
          self.ping_sent_ = false;
          return 0;
        }
        return check_control(self);
      case NGHTTP2_PRIORITY: return check_control(self);
      default: return 0;
    }
  }

  static int check_control(Connection& self) {
    if (self.controls_.take(self.loop_.now_ns)) return 0;
    self.protocol_error("too many frames that ask for nothing");
    return 0;
  }

  static int on_data(nghttp2_session* session, uint8_t, int32_t stream_id, const uint8_t* data, size_t size,
                     void* user_data) {
    connection(user_data).receive_data(call(session, stream_id), stream_id, data, size);
    return 0;
  }

  static int on_frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void*) {
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    Call* sender = call(session, frame->hd.stream_id);
    // The answer is whole, and what the client may still send is of no use.
    if (sender != nullptr && !sender->half_closed_) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static int on_stream_close(nghttp2_session* session, int32_t stream_id, uint32_t error, void* user_data) {
    Call* closed = call(session, stream_id);
    if (closed == nullptr) return 0;
    Connection& self = connection(user_data);
    const bool unanswered = !closed->finished_;
    self.forget_call(*closed);
    if (unanswered && error != NGHTTP2_NO_ERROR && !self.resets_.take(self.loop_.now_ns)) {
      self.protocol_error("too many calls are begun and reset");
    }
    return 0;
  }
};

nghttp2_session_callbacks* make_session_callbacks() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) return nullptr;
  nghttp2_session_callbacks_set_send_callback(callbacks, Session::on_send);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, Session::on_send_data);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, Session::read_length);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Session::on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Session::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Session::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Session::on_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Session::on_frame_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Session::on_stream_close);
  return callbacks;
}

void Connection::begin_response(Call& call) {
  call.responded_ = true;
  nghttp2_data_provider provider{};
  provider.source.ptr = &call;
  provider.read_callback = Session::read_data;
  nghttp2_nv fields[] = {Session::field(":status", "200"), Session::field("content-type", "application/grpc"),
                         Session::field("grpc-accept-encoding", "identity, deflate, gzip"),
                         Session::field("grpc-encoding", http::coding_name(call.encoding_))};
  const size_t count = call.encoding_ == http::Coding::kIdentity ? 3 : 4;
  nghttp2_submit_response(session_, call.stream_id_, fields, count, &provider);
}

void Connection::end_call(Call& call) {
  GrpcCounters::add(loop_.counters.calls_by_status[static_cast<size_t>(call.status_.code)]);
  GrpcCounters::subtract(loop_.counters.in_flight);
  loop_.remove_deadline(call);
  if (!call.responded_) {
    call.responded_ = true;
    const std::string message = percent_encode(call.status_.message);
    const nghttp2_nv fields[] = {Session::field(":status", "200"), Session::field("content-type", "application/grpc"),
                                 Session::field("grpc-status", Session::code_text(call.status_.code)),
                                 Session::field("grpc-message", message)};
    nghttp2_submit_response(session_, call.stream_id_, fields, message.empty() ? 3 : 4, nullptr);
  } else if (call.deferred_) {
    resume_sending(call);
  }
  // What the client has sent and nobody will read must not stop the rest of its connection.
  call.received_.clear();
  call.message_ = Call::Incoming();
  call.receiving_ = false;
  wants_flush();
}

void Connection::resume_sending(Call& call) {
  call.deferred_ = false;
  nghttp2_session_resume_data(session_, call.stream_id_);
}

}  // namespace flywheel::grpc
