// SPDX-License-Identifier: Apache-2.0
#include "server/schedule/request.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace flywheel::schedule {
namespace {

TEST(InferRequest, GivesOneLastResponse) {
  InferRequest request;
  std::vector<bool> finals;
  request.on_response = [&](InferRequest&, InferResponse response) { finals.push_back(response.final); };
  EXPECT_TRUE(request.respond({.final = false}));
  EXPECT_TRUE(request.respond({.final = false}));
  EXPECT_TRUE(request.respond({}));
  EXPECT_FALSE(request.respond({}));
  EXPECT_FALSE(request.respond({.final = false}));
  EXPECT_EQ(finals, (std::vector<bool>{false, false, true}));
}

TEST(InferRequest, NothingFollowsTheLastResponseWhoeverGivesIt) {
  for (int round = 0; round < 50; ++round) {
    InferRequest request;
    std::atomic<int> inside{0}, last{0};
    std::atomic<bool> wrong{false};
    request.on_response = [&](InferRequest&, const InferResponse& response) {
      if (inside.fetch_add(1) != 0 || last.load() != 0) wrong = true;
      std::this_thread::yield();
      if (response.final) ++last;
      --inside;
    };
    std::thread stream([&] {
      while (request.respond({.final = false})) {}
    });
    std::thread first([&] { request.respond({}); }), second([&] { request.respond({}); });
    first.join();
    second.join();
    stream.join();
    EXPECT_FALSE(wrong);
    EXPECT_EQ(last, 1);
  }
}

TEST(SequencePosition, KnowsNumbersAndNames) {
  EXPECT_FALSE(SequencePosition().any());
  EXPECT_TRUE(SequencePosition{.id = uint64_t{7}}.any());
  EXPECT_FALSE(SequencePosition{.id = std::string()}.any());
  EXPECT_TRUE(SequencePosition{.id = std::string("a")}.any());
}

}  // namespace
}  // namespace flywheel::schedule
