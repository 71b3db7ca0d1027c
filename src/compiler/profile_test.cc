// SPDX-License-Identifier: Apache-2.0
#include "compiler/profile.h"

#include <gtest/gtest.h>

#include "compiler/ir/text.h"

namespace flywheel {
namespace {

std::vector<std::string> completed(const std::string& inputs, const std::vector<std::string>& given,
                                   const ShapeHints& hints = {}) {
  auto graph = ir::parse("graph @g {\n" + inputs + "}\n");
  EXPECT_TRUE(graph.is_ok()) << graph.status().to_string();
  std::map<std::string, ProfileShape> profile;
  for (const std::string& text : given) profile.insert(parse_profile(text).value());
  std::vector<std::string> notes;
  auto result = complete_profile(*graph.value(), profile, hints, notes);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  std::vector<std::string> lines;
  for (const auto& [name, shape] : result.value()) lines.push_back(profile_to_string(name, shape));
  if (!notes.empty()) lines.push_back(std::to_string(notes.size()) + " notes");
  return lines;
}
using Lines = std::vector<std::string>;

TEST(Profile, DefaultsFollowTheKindOfInput) {
  EXPECT_EQ(completed("input %x: f32[n, 3, 224, 224]\n", {}),
            (Lines{"x:1x3x224x224,8x3x224x224,32x3x224x224", "1 notes"}));
  EXPECT_EQ(completed("input %x: f32[n, 3, h, w]\n", {}), (Lines{"x:1x3x32x32,1x3x256x256,8x3x512x512", "1 notes"}));
  EXPECT_EQ(completed("input %ids: i64[n, l]\n", {}), (Lines{"ids:1x1,8x128,32x512", "1 notes"}));
  EXPECT_EQ(completed("input %x: f32[4, 5]\n", {}), (Lines{"x:4x5,4x5,4x5"}));
}

TEST(Profile, InputsShareSymbols) {
  EXPECT_EQ(completed("input %ids: i64[n, l]\ninput %mask: i64[n, l]\n", {"ids:1x16,2x32,4x64"}),
            (Lines{"ids:1x16,2x32,4x64", "mask:1x16,2x32,4x64"}));
}

TEST(Profile, HintsStandInForDefaults) {
  const std::string image = "input %x: f32[n, 3, h, w]\n";
  EXPECT_EQ(completed(image, {}, {64, {{"x", {-1, 3, 224, 160}}}}), (Lines{"x:1x3x224x160,8x3x224x160,64x3x224x160"}));
  EXPECT_EQ(completed(image, {}, {2, {}}), (Lines{"x:1x3x32x32,2x3x256x256,2x3x512x512", "1 notes"}));
  EXPECT_EQ(completed(image, {}, {0, {{"x", {7, 3, 224, 224}}}}), (Lines{"x:7x3x224x224,7x3x224x224,7x3x224x224"}));
  // What is given comes first, a hint of another rank says nothing, and fixed dims stay.
  EXPECT_EQ(completed(image, {"x:1x3x8x8"}, {64, {{"x", {-1, 3, 224, 224}}}}), (Lines{"x:1x3x8x8,1x3x8x8,1x3x8x8"}));
  EXPECT_EQ(completed("input %x: f32[n, 4]\n", {}, {64, {{"x", {9}}}}), (Lines{"x:1x4,8x4,64x4"}));
  EXPECT_EQ(completed("input %x: f32[2, 4]\n", {}, {64, {{"x", {3, 4}}}}), (Lines{"x:2x4,2x4,2x4"}));
  EXPECT_EQ(completed("input %a: i64[n, l]\ninput %b: i64[n, l]\n", {}, {16, {{"b", {-1, 32}}}}),
            (Lines{"a:1x32,8x32,16x32", "b:1x32,8x32,16x32"}));
}

TEST(Profile, NotesOnlyWhatIsGuessed) {
  EXPECT_EQ(completed("input %x: f32[n, 4]\n", {}, {64, {}}), (Lines{"x:1x4,8x4,64x4"}));
}

TEST(Profile, RefusesNonsense) {
  for (const char* text :
       {"1x3", ":1x3", "x:1x3,2x3", "x:1xx3", "x:-1x3", "x:1x3,2x3,4x3,8x3", "x:99999999999999999999"})
    EXPECT_FALSE(parse_profile(text).is_ok()) << text;
  EXPECT_EQ(parse_profile("a:b:2x3").value().first, "a:b");
}

}  // namespace
}  // namespace flywheel
