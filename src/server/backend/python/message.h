// SPDX-License-Identifier: Apache-2.0
// What the server and a model's Python process say to each other: one datagram a message, of a fixed head and a body.
// A small body travels in the datagram, a larger one in a block of shared memory that the datagram names. A body is the
// message's description (JSON to the process, the binary form that MessageReader reads from it) and the tensors' bytes,
// each 64-byte aligned. process.py has the other side of all of this.
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flywheel::python {

enum class Kind : uint32_t {
  // To the process.
  kInitialize = 1,  // answered by kDone
  kExecute = 2,     // likewise
  kFinalize = 3,    // likewise, and the process ends
  kComplete = 4,    // the model may complete its configuration; answered by kDone
  kCallResult = 5,  // a response of a model that the process called
  kAnswer = 6,      // to kAsk
  kForget = 7,      // a block of the server's will not be used again
  // From the process.
  kDone = 20,
  kResponse = 21,  // of a request, outside of execute's answer
  kCall = 22,      // of another model
  kAsk = 23,       // whether a request is cancelled, whether a model is ready
  kLog = 24,
  // Either way.
  kRelease = 40,  // nothing but the released blocks
};

inline constexpr size_t kAlignment = 64;
inline constexpr size_t kMaxInlineBytes = 16 << 10;
inline constexpr size_t kMaxReleased = 6;

struct Head {
  uint32_t kind = 0;
  uint32_t block = 0;  // of the sender's; 0: the body follows
  uint64_t id = 0;     // of the message that this one answers, or of the request it is about
  uint64_t meta_bytes = 0;
  uint64_t body_bytes = 0;
  uint32_t is_new_block = 0;  // its descriptor comes with this message
  uint32_t reserved = 0;
  uint32_t released[kMaxReleased] = {};  // blocks of the receiver's; 0: none
};
static_assert(sizeof(Head) == kAlignment);

inline size_t align_up(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

// A message to the process.
struct Outgoing {
  Kind kind = Kind::kRelease;
  uint64_t id = 0;
  std::string meta;
  std::vector<std::span<const std::byte>> data;
  size_t data_bytes = 0;

  // Where the bytes will lie, from the data's begin. The bytes stay with the caller until the message is sent.
  size_t add(std::span<const std::byte> bytes) {
    const size_t offset = data_bytes;
    data.push_back(bytes);
    data_bytes += align_up(bytes.size());
    return offset;
  }
};

// A message from the process. What it says is not to be trusted; the data may change while it is read.
struct Incoming {
  Kind kind = Kind::kRelease;
  uint64_t id = 0;
  std::string meta;
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;  // keeps `data` alive, and its block from being used again
};

// Reads a description. Beyond the end everything is zero and ok() false.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : text_(text) {}
  bool ok() const { return ok_; }
  uint8_t u8() { return number<uint8_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int64_t i64() { return number<int64_t>(); }
  double f64() { return number<double>(); }
  std::string string() {
    const size_t size = u32();
    if (size > text_.size()) {
      ok_ = false;
      return {};
    }
    std::string value(text_.substr(0, size));
    text_.remove_prefix(size);
    return value;
  }
  // A count of things that take at least a byte each.
  uint32_t count() {
    const uint32_t value = u32();
    if (value <= text_.size()) return value;
    ok_ = false;
    return 0;
  }

 private:
  template <class T>
  T number() {
    T value{};
    if (sizeof(T) > text_.size()) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, text_.data(), sizeof(T));
    text_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace flywheel::python
