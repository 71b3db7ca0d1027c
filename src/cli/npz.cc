// SPDX-License-Identifier: Apache-2.0
#include "cli/npz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/mapped_file.h"

namespace flywheel::cli {
namespace {

// ZIP's records, by signature (PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16).
constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint16_t kZip64Extra = 1, kStored = 0, kDeflated = 8, kEncrypted = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // "see the ZIP64 field"
// Deflate cannot shrink anything by more than this.
constexpr uint64_t kMaxDeflateRatio = 1032;

uint64_t load(std::span<const std::byte> bytes, size_t offset, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  return value;
}
uint16_t load16(std::span<const std::byte> bytes, size_t offset) {
  return static_cast<uint16_t>(load(bytes, offset, 2));
}
uint32_t load32(std::span<const std::byte> bytes, size_t offset) {
  return static_cast<uint32_t>(load(bytes, offset, 4));
}
uint64_t load64(std::span<const std::byte> bytes, size_t offset) { return load(bytes, offset, 8); }

bool fits(std::span<const std::byte> bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

uint32_t checksum(uint32_t start, std::span<const std::byte> bytes) {
  if (bytes.empty()) return start;  // zlib takes a null pointer for the wish to begin anew
  return static_cast<uint32_t>(crc32_z(start, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

struct Entry {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed_bytes = 0, unpacked_bytes = 0, header_offset = 0;
};

Result<Directory> find_directory(std::span<const std::byte> file) {
  const Status none = corrupt("is not a ZIP archive, as .npz files are: it has no end record (cut off?)");
  if (file.size() < kEndBytes) return none;
  // The record ends with a comment of up to 65,535 bytes, so it is looked for from the back.
  const size_t last = file.size() - kEndBytes;
  for (size_t back = 0; back <= std::min<size_t>(last, 0xffff); ++back) {
    const size_t at = last - back;
    if (load32(file, at) != kEnd || load16(file, at + 20) != back) continue;
    Directory directory{load32(file, at + 16), load32(file, at + 12), load16(file, at + 10)};
    const bool in64 = directory.offset == kIn64 || directory.bytes == kIn64 || directory.entries == 0xffff;
    if (in64 && at >= kLocatorBytes && load32(file, at - kLocatorBytes) == kEnd64Locator) {
      const uint64_t end64 = load64(file, at - kLocatorBytes + 8);
      if (!fits(file, end64, kEnd64Bytes) || load32(file, end64) != kEnd64)
        return corrupt("its ZIP64 end record is damaged");
      directory = {load64(file, end64 + 48), load64(file, end64 + 40), load64(file, end64 + 32)};
    }
    if (!fits(file, directory.offset, directory.bytes) || directory.entries > directory.bytes / kCentralHeaderBytes) {
      return corrupt("its list of arrays lies outside the file");
    }
    return directory;
  }
  return none;
}

// Replaces the sizes that are kept in the ZIP64 field. False when they are not there.
bool apply_zip64(std::span<const std::byte> extra, Entry& entry) {
  size_t at = 0;
  while (fits(extra, at, 4)) {
    const uint16_t id = load16(extra, at), size = load16(extra, at + 2);
    at += 4;
    if (!fits(extra, at, size)) return false;
    if (id == kZip64Extra) {
      size_t used = 0;
      for (uint64_t* field : {&entry.unpacked_bytes, &entry.packed_bytes, &entry.header_offset}) {
        if (*field != kIn64) continue;
        if (used + 8 > size) return false;
        *field = load64(extra, at + used);
        used += 8;
      }
      return true;
    }
    at += size;
  }
  return false;
}

// Reads the entry at `at` of the central directory and moves `at` past it.
Result<Entry> read_entry(std::span<const std::byte> directory, size_t& at) {
  const Status damaged = corrupt("its list of arrays is damaged");
  if (!fits(directory, at, kCentralHeaderBytes) || load32(directory, at) != kCentralHeader) return damaged;
  const size_t name_bytes = load16(directory, at + 28), extra_bytes = load16(directory, at + 30);
  const size_t comment_bytes = load16(directory, at + 32);
  if (!fits(directory, at + kCentralHeaderBytes, name_bytes + extra_bytes + comment_bytes)) return damaged;
  Entry entry;
  entry.flags = load16(directory, at + 8);
  entry.method = load16(directory, at + 10);
  entry.crc = load32(directory, at + 16);
  entry.packed_bytes = load32(directory, at + 20);
  entry.unpacked_bytes = load32(directory, at + 24);
  entry.header_offset = load32(directory, at + 42);
  entry.name.assign(reinterpret_cast<const char*>(directory.data()) + at + kCentralHeaderBytes, name_bytes);
  const bool in64 = entry.packed_bytes == kIn64 || entry.unpacked_bytes == kIn64 || entry.header_offset == kIn64;
  if (in64 && !apply_zip64(directory.subspan(at + kCentralHeaderBytes + name_bytes, extra_bytes), entry))
    return damaged;
  at += kCentralHeaderBytes + name_bytes + extra_bytes + comment_bytes;
  return entry;
}

Result<std::span<const std::byte>> packed_data(std::span<const std::byte> file, const Entry& entry) {
  const uint64_t at = entry.header_offset;
  if (fits(file, at, kLocalHeaderBytes) && load32(file, at) == kLocalHeader) {
    const uint64_t data = at + kLocalHeaderBytes + load16(file, at + 26) + load16(file, at + 28);
    if (fits(file, data, entry.packed_bytes)) return file.subspan(data, entry.packed_bytes);
  }
  return corrupt(fmt::format("array '{}' lies outside the file", entry.name));
}

// Inflates all of `packed` into exactly `out`.
bool inflate_exactly(std::span<const std::byte> packed, std::span<std::byte> out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits
  size_t in_done = 0, out_done = 0;
  int state = Z_OK;
  std::byte nowhere{};  // zlib wants a place to write even when nothing is left to be written
  while (state == Z_OK) {
    const size_t in_size = std::min(packed.size() - in_done, kPiece),
                 out_size = std::min(out.size() - out_done, kPiece);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + in_done));
    stream.avail_in = static_cast<uInt>(in_size);
    stream.next_out = reinterpret_cast<Bytef*>(out_size == 0 ? &nowhere : out.data() + out_done);
    stream.avail_out = static_cast<uInt>(out_size);
    state = inflate(&stream, Z_NO_FLUSH);
    in_done += in_size - stream.avail_in;
    out_done += out_size - stream.avail_out;
  }
  inflateEnd(&stream);
  return state == Z_STREAM_END && out_done == out.size() && in_done == packed.size();
}

Result<Array> unpack(std::span<const std::byte> file, const Entry& entry, std::string_view name) {
  if ((entry.flags & kEncrypted) != 0) return unsupported(fmt::format("array '{}' is encrypted", name));
  FW_ASSIGN_OR_RETURN(std::span<const std::byte> data, packed_data(file, entry));
  AlignedBuffer inflated;
  if (entry.method == kDeflated) {
    if (entry.unpacked_bytes / kMaxDeflateRatio > entry.packed_bytes) {
      return corrupt(
          fmt::format("array '{}' claims to unpack {} bytes from {}", name, entry.unpacked_bytes, entry.packed_bytes));
    }
    FW_ASSIGN_OR_RETURN(inflated, AlignedBuffer::allocate(entry.unpacked_bytes, "unpacking an array"));
    if (!inflate_exactly(data, inflated.bytes()))
      return corrupt(fmt::format("array '{}': its compressed data is damaged", name));
    data = inflated.bytes();
  } else if (entry.method != kStored) {
    return unsupported(fmt::format("array '{}' is compressed by ZIP method {}; 0 (stored) and 8 (deflated) can be read",
                                   name, entry.method));
  } else if (entry.packed_bytes != entry.unpacked_bytes) {
    return corrupt(fmt::format("array '{}' is stored, yet has two sizes", name));
  }
  if (checksum(0, data) != entry.crc)
    return corrupt(fmt::format("array '{}': the checksum does not match its data", name));
  return parse_npy(data, name);
}

class Writer {
 public:
  template <class T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void text(std::string_view text) { raw(std::as_bytes(std::span(text.data(), text.size()))); }
  void raw(std::span<const std::byte> data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  uint64_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// What a local header and a central one have in common. Sizes are always in the ZIP64 field, so that there is one form.
void write_shared_fields(Writer& out, uint32_t crc, size_t name_bytes, uint16_t extra_bytes) {
  out.number<uint16_t>(45);      // version needed: ZIP64
  out.number<uint16_t>(0x0800);  // names are UTF-8
  out.number<uint16_t>(kStored);
  out.number<uint32_t>(0x00210000);  // 1 January 1980: the same arrays give the same bytes
  out.number<uint32_t>(crc);
  out.number<uint32_t>(kIn64);
  out.number<uint32_t>(kIn64);
  out.number<uint16_t>(static_cast<uint16_t>(name_bytes));
  out.number<uint16_t>(extra_bytes);
}

}  // namespace

Result<ArrayMap> parse_npz(std::span<const std::byte> bytes, uint64_t limit_bytes) {
  FW_ASSIGN_OR_RETURN(const Directory directory, find_directory(bytes));
  const std::span<const std::byte> list = bytes.subspan(directory.offset, directory.bytes);
  ArrayMap arrays;
  size_t at = 0;
  uint64_t left_bytes = limit_bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    FW_ASSIGN_OR_RETURN(const Entry entry, read_entry(list, at));
    std::string name = entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
    if (entry.unpacked_bytes > left_bytes) {
      return corrupt(fmt::format("array '{}' would unpack to {} bytes: all arrays together may have {}", name,
                                 entry.unpacked_bytes, limit_bytes));
    }
    left_bytes -= entry.unpacked_bytes;
    FW_ASSIGN_OR_RETURN(Array array, unpack(bytes, entry, name));
    if (!arrays.emplace(name, std::move(array)).second) return corrupt(fmt::format("array '{}' is there twice", name));
  }
  return arrays;
}

Result<ArrayMap> read_npz(const std::string& path) {
  FW_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  Result<ArrayMap> arrays = parse_npz(file.bytes());
  if (!arrays.is_ok()) return arrays.status().with_context(fmt::format("'{}'", path));
  return arrays;
}

std::vector<std::byte> encode_npz(std::span<const NamedArray> arrays) {
  Writer out, directory;
  size_t total = 0;
  for (const NamedArray& array : arrays) total += array.data.size() + 2 * array.name.size() + 512;
  out.reserve(total);
  for (const NamedArray& array : arrays) {
    const std::string name = array.name + ".npy", header = npy_header(array.dtype, array.dims);
    const uint64_t offset = out.size(), bytes = header.size() + array.data.size();
    const uint32_t crc = checksum(checksum(0, std::as_bytes(std::span(header))), array.data);
    out.number<uint32_t>(kLocalHeader);
    write_shared_fields(out, crc, name.size(), 20);
    out.text(name);
    out.number<uint16_t>(kZip64Extra);
    out.number<uint16_t>(16);
    out.number<uint64_t>(bytes);
    out.number<uint64_t>(bytes);
    out.text(header);
    out.raw(array.data);

    directory.number<uint32_t>(kCentralHeader);
    directory.number<uint16_t>(45);  // made by: version 4.5, MS-DOS
    write_shared_fields(directory, crc, name.size(), 28);
    directory.number<uint16_t>(0);      // comment
    directory.number<uint16_t>(0);      // disk
    directory.number<uint16_t>(0);      // internal attributes
    directory.number<uint32_t>(0);      // external attributes
    directory.number<uint32_t>(kIn64);  // offset
    directory.text(name);
    directory.number<uint16_t>(kZip64Extra);
    directory.number<uint16_t>(24);
    directory.number<uint64_t>(bytes);
    directory.number<uint64_t>(bytes);
    directory.number<uint64_t>(offset);
  }
  const uint64_t start = out.size(), size = directory.size();
  out.raw(directory.take());
  const uint64_t end64 = out.size();
  out.number<uint32_t>(kEnd64);
  out.number<uint64_t>(kEnd64Bytes - 12);  // of what follows
  out.number<uint16_t>(45);
  out.number<uint16_t>(45);
  out.number<uint32_t>(0);
  out.number<uint32_t>(0);
  out.number<uint64_t>(arrays.size());
  out.number<uint64_t>(arrays.size());
  out.number<uint64_t>(size);
  out.number<uint64_t>(start);
  out.number<uint32_t>(kEnd64Locator);
  out.number<uint32_t>(0);
  out.number<uint64_t>(end64);
  out.number<uint32_t>(1);
  out.number<uint32_t>(kEnd);
  out.number<uint32_t>(0);
  out.number<uint16_t>(0xffff);
  out.number<uint16_t>(0xffff);
  out.number<uint32_t>(kIn64);
  out.number<uint32_t>(kIn64);
  out.number<uint16_t>(0);
  return out.take();
}

Status write_npz(const std::string& path, std::span<const NamedArray> arrays) {
  for (const NamedArray& array : arrays) {
    if (array.name.size() > 0xffff - 4)
      return invalid_argument(fmt::format("a name of {} bytes does not fit into an .npz", array.name.size()));
  }
  return write_file_atomically(path, encode_npz(arrays));
}

}  // namespace flywheel::cli
