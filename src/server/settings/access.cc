// SPDX-License-Identifier: Apache-2.0
#include "server/settings/access.h"

#include <fmt/format.h>
#include <regex.h>

#include <algorithm>

namespace flywheel::settings {
namespace {

constexpr std::array<std::string_view, kApiCategories> kNames = {"health",        "metadata",     "inference",
                                                                 "shared-memory", "model-config", "model-repository",
                                                                 "statistics",    "trace",        "logging"};
// The time that matching takes grows with the name.
constexpr size_t kMaxHeaderNameBytes = 256;

// Takes as long for every wrong value of the right length.
bool equal_secrets(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

bool is_reserved_parameter(std::string_view name) {
  constexpr std::string_view kReserved[] = {"sequence_id", "priority",       "binary_data_output", "headers",
                                            "timeout",     "sequence_start", "sequence_end"};
  return name.starts_with("triton_") ||
         std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

std::string_view api_category_name(ApiCategory category) { return kNames[static_cast<size_t>(category)]; }

Result<RestrictedApis> RestrictedApis::parse(std::string_view flag, std::span<const std::string> texts,
                                             std::string_view header_prefix) {
  RestrictedApis apis;
  for (const std::string& text : texts) {
    auto refuse = [&](const std::string& why) { return invalid_argument(fmt::format("{} {}: {}", flag, text, why)); };
    const size_t colon = text.find(':');
    const size_t equals = colon == std::string::npos ? colon : text.find('=', colon);
    if (equals == std::string::npos || equals == colon + 1 || equals + 1 == text.size()) {
      return refuse("expected <api>[,<api>...]:<header>=<value>");
    }
    const Key key{std::string(header_prefix) + text.substr(colon + 1, equals - colon - 1), text.substr(equals + 1)};
    std::string_view names = std::string_view(text).substr(0, colon);
    while (true) {
      const size_t comma = names.find(',');
      const std::string_view name = names.substr(0, comma);
      const auto found = std::find(kNames.begin(), kNames.end(), name);
      if (found == kNames.end()) {
        return refuse(fmt::format("'{}' is none of the APIs: {}", name, fmt::join(kNames, ", ")));
      }
      std::optional<Key>& place = apis.keys_[static_cast<size_t>(found - kNames.begin())];
      if (place) return refuse(fmt::format("'{}' is restricted twice", name));
      place = key;
      if (comma == std::string_view::npos) break;
      names.remove_prefix(comma + 1);
    }
  }
  return apis;
}

bool RestrictedApis::restricts_any() const {
  return std::any_of(keys_.begin(), keys_.end(), [](const std::optional<Key>& key) { return key.has_value(); });
}

const std::string* RestrictedApis::missing_header(ApiCategory category, const FindHeader& find) const {
  const std::optional<Key>& key = keys_[static_cast<size_t>(category)];
  if (!key) return nullptr;
  const std::optional<std::string_view> value = find(key->header);
  return value && equal_secrets(*value, key->value) ? nullptr : &key->header;
}

struct HeaderPattern::Expression {
  regex_t compiled{};
  ~Expression() { ::regfree(&compiled); }
};

Result<HeaderPattern> HeaderPattern::parse(std::string_view flag, const std::string& expression) {
  HeaderPattern pattern;
  if (expression.empty()) return pattern;
  // Other engines' way to say what always holds here.
  const std::string text = expression.starts_with("(?i)") ? expression.substr(4) : expression;
  auto made = std::make_shared<Expression>();
  if (const int error = ::regcomp(&made->compiled, text.c_str(), REG_EXTENDED | REG_ICASE | REG_NOSUB); error != 0) {
    char why[128];
    ::regerror(error, &made->compiled, why, sizeof why);
    return invalid_argument(fmt::format("{} '{}' is no POSIX extended regular expression: {}", flag, expression, why));
  }
  pattern.expression_ = std::move(made);
  return pattern;
}

bool HeaderPattern::matches(std::string_view header_name) const {
  if (expression_ == nullptr || header_name.size() > kMaxHeaderNameBytes) return false;
  return ::regexec(&expression_->compiled, std::string(header_name).c_str(), 0, nullptr, 0) == 0;
}

}  // namespace flywheel::settings
