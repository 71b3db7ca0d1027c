// SPDX-License-Identifier: Apache-2.0
// Which sequences run where and when, in virtual time: the production former, told the time by the tests.
#include <gmock/gmock.h>

#include "server/schedule/sequence_former.h"
#include "server/schedule/simulation_test_data.h"

namespace flywheel::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Sequences : public ::testing::Test {
 protected:
  void make(const std::string& strategy, int32_t max_batch_size, int instances = 1) {
    config_ = model_config("sequence_batching { " + strategy + " }", max_batch_size);
    statistics_ = std::make_shared<ModelStatistics>(static_cast<size_t>(instances));
    former_ = std::make_unique<SequenceFormer>(config_, instances, statistics_);
  }
  RequestPtr request(SequenceId id, bool start = false, bool end = false) {
    auto made = std::make_shared<InferRequest>();
    made->sequence = {std::move(id), start, end};
    made->id = "r" + std::to_string(next_++);
    return made;
  }
  Status push(const RequestPtr& request) {
    int instance = -1;
    return former_->push(request, now_, instance);
  }
  RequestPtr push(SequenceId id, bool start = false, bool end = false) {
    RequestPtr made = request(std::move(id), start, end);
    EXPECT_TRUE(push(made).is_ok());
    return made;
  }
  // A batch for the instance as ids, "-" for an empty row; nothing when it has to wait.
  std::vector<std::string> batch(int instance = 0) {
    step_ = former_->next(instance, now_, draining_);
    std::vector<std::string> ids;
    for (const SequenceRow& row : step_.rows) ids.push_back(row.request == nullptr ? "-" : row.request->id);
    return ids;
  }
  void finish(int instance = 0) {
    former_->finish(instance, step_.rows, std::vector<std::vector<OutputTensor>>(step_.rows.size()), now_);
    step_ = {};
  }
  std::vector<std::string> run(int instance = 0) {
    const std::vector<std::string> ids = batch(instance);
    if (!ids.empty()) finish(instance);
    return ids;
  }

  config::ModelConfig config_;
  std::shared_ptr<ModelStatistics> statistics_;
  std::unique_ptr<SequenceFormer> former_;
  SequenceStep step_;
  int64_t now_ = 0;
  bool draining_ = false;
  int next_ = 0;
};

TEST_F(Sequences, MustBeginWithTheStartFlag) {
  make("direct { }", 4);
  const Status status = push(request(uint64_t{42}));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "inference request for sequence 42 to model 'm' must specify the START flag on the first request of the "
            "sequence");
  EXPECT_THAT(push(request(std::string("abc"))).message(), HasSubstr("for sequence abc to model 'm'"));
  EXPECT_EQ(push(request(uint64_t{0}, true)).message(),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  EXPECT_TRUE(former_->empty());
}

TEST_F(Sequences, TakeOneRowARequest) {
  make("direct { }", 4);
  const RequestPtr large = request(uint64_t{1}, true);
  large->batch_size = 2;
  EXPECT_EQ(push(large).message(),
            "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher");
}

TEST_F(Sequences, DirectKeepsEachSequenceInItsRow) {
  make("direct { }", 4);
  push(1u, true);
  push(2u, true);
  push(3u, true);
  EXPECT_THAT(run(), ElementsAre("r0", "r1", "r2"));
  push(3u);
  push(1u);
  EXPECT_THAT(run(), ElementsAre("r4", "-", "r3"));
  push(2u, false, true);
  EXPECT_THAT(run(), ElementsAre("-", "r5"));
  push(9u, true);  // takes the free row
  push(3u);
  EXPECT_THAT(run(), ElementsAre("-", "r6", "r7"));
}

TEST_F(Sequences, RequestsOfOneSequenceRunInOrderOneAtATime) {
  make("oldest { max_candidate_sequences: 4 }", 4);
  push(1u, true);
  push(1u);
  push(2u, true);
  push(1u, false, true);
  EXPECT_THAT(run(), ElementsAre("r0", "r2"));
  EXPECT_THAT(run(), ElementsAre("r1"));
  EXPECT_THAT(run(), ElementsAre("r3"));
  EXPECT_TRUE(former_->empty());
}

TEST_F(Sequences, WaitInTheBacklogForASlot) {
  make("direct { }", 1);
  push(1u, true);
  push(2u, true);
  push(2u, false, true);
  push(3u, true, true);
  EXPECT_THAT(run(), ElementsAre("r0"));
  EXPECT_THAT(run(), IsEmpty());
  push(1u, false, true);
  EXPECT_THAT(run(), ElementsAre("r4"));
  EXPECT_THAT(run(), ElementsAre("r1"));
  EXPECT_THAT(run(), ElementsAre("r2"));
  EXPECT_THAT(run(), ElementsAre("r3"));
}

TEST_F(Sequences, SpreadOverInstancesAndStayThere) {
  make("direct { }", 2, 2);
  push(1u, true);
  push(2u, true);
  push(3u, true);
  EXPECT_THAT(run(0), ElementsAre("r0", "r2"));
  EXPECT_THAT(run(1), ElementsAre("r1"));
  push(2u);
  EXPECT_THAT(run(0), IsEmpty());
  EXPECT_THAT(run(1), ElementsAre("r3"));
}

TEST_F(Sequences, NumbersAndStringsAreDifferentIds) {
  make("oldest { max_candidate_sequences: 4 }", 4);
  push(uint64_t{7}, true);
  EXPECT_FALSE(push(request(std::string("7"))).is_ok());
  push(std::string("7"), true);
  EXPECT_THAT(run(), ElementsAre("r0", "r2"));
}

TEST_F(Sequences, ASilentSequenceLosesItsSlot) {
  make("direct { } max_sequence_idle_microseconds: 5000", 1);
  push(1u, true);
  push(2u, true);
  EXPECT_THAT(run(), ElementsAre("r0"));
  EXPECT_EQ(former_->removals(now_, false).wait_until_ns, 5 * kMs);
  now_ = 5 * kMs;
  EXPECT_EQ(former_->removals(now_, false).kind, SequenceStep::Kind::kWait);
  EXPECT_THAT(run(), ElementsAre("r1"));
  EXPECT_THAT(push(request(1u)).message(), HasSubstr("must specify the START flag"));
}

TEST_F(Sequences, ASecondStartEndsTheFirstSequence) {
  make("direct { }", 1);
  push(1u, true);
  push(1u, true);
  EXPECT_THAT(batch(), ElementsAre("r0"));
  std::vector<std::vector<OutputTensor>> states(1);
  states[0].push_back({.name = "s"});
  former_->finish(0, step_.rows, states, now_);
  EXPECT_THAT(batch(), ElementsAre("r1"));
  EXPECT_THAT(step_.rows[0].state, IsEmpty());
}

TEST_F(Sequences, StatesGoFromStepToStep) {
  make("direct { }", 1);
  push(1u, true);
  push(1u);
  push(1u);
  EXPECT_THAT(batch(), ElementsAre("r0"));
  std::vector<std::vector<OutputTensor>> states(1);
  states[0].push_back({.name = "s"});
  former_->finish(0, step_.rows, states, now_);
  EXPECT_THAT(batch(), ElementsAre("r1"));
  ASSERT_EQ(step_.rows[0].state.size(), 1u);
  finish();  // failed: no states
  EXPECT_THAT(batch(), ElementsAre("r2"));
  EXPECT_EQ(step_.rows[0].state.size(), 1u);
}

TEST_F(Sequences, DirectWaitsForEnoughSlots) {
  make("direct { max_queue_delay_microseconds: 3000 minimum_slot_utilization: 0.75 }", 4);
  push(1u, true);
  EXPECT_THAT(batch(), IsEmpty());
  EXPECT_EQ(step_.wait_until_ns, 3 * kMs);
  push(2u, true);
  EXPECT_THAT(batch(), IsEmpty());
  push(3u, true);
  EXPECT_THAT(run(), ElementsAre("r0", "r1", "r2"));
  push(2u);
  now_ += 3 * kMs;
  EXPECT_THAT(run(), ElementsAre("-", "r3"));
}

TEST_F(Sequences, OldestWaitsForPreferredSizes) {
  make("oldest { max_candidate_sequences: 8 preferred_batch_size: [2, 4] max_queue_delay_microseconds: 3000 }", 8);
  push(1u, true);
  EXPECT_THAT(batch(), IsEmpty());
  EXPECT_EQ(step_.wait_until_ns, 3 * kMs);
  push(2u, true);
  push(3u, true);
  EXPECT_THAT(run(), ElementsAre("r0", "r1"));
  EXPECT_THAT(batch(), IsEmpty());
  now_ = 3 * kMs;
  EXPECT_THAT(run(), ElementsAre("r2"));
}

TEST_F(Sequences, DifferentShapesDoNotShareABatch) {
  make("direct { }", 4);
  const RequestPtr first = request(1u, true), second = request(2u, true);
  first->signature = {1, 3};
  second->signature = {1, 5};
  EXPECT_TRUE(push(first).is_ok());
  EXPECT_TRUE(push(second).is_ok());
  EXPECT_THAT(run(), ElementsAre("r0"));
  EXPECT_THAT(run(), ElementsAre("-", "r1"));
}

TEST_F(Sequences, CancellingARequestEndsItsSequence) {
  make("direct { }", 1);
  push(1u, true);
  EXPECT_THAT(batch(), ElementsAre("r0"));
  const RequestPtr second = push(1u);
  push(1u);
  push(2u, true);
  second->cancel();
  former_->note_cancelled();
  const SequenceStep refused = former_->removals(now_, false);
  EXPECT_EQ(refused.kind, SequenceStep::Kind::kRefuse);
  EXPECT_EQ(refused.status.code(), Code::kCancelled);
  EXPECT_EQ(refused.refused.size(), 2u);
  EXPECT_FALSE(push(request(1u)).is_ok());
  finish();
  EXPECT_THAT(run(), ElementsAre("r3"));
}

TEST_F(Sequences, TimeInTheBacklogRunsOut) {
  make("direct { }", 1);
  push(1u, true);
  const RequestPtr late = request(2u, true);
  late->timeout_us = 1000;
  EXPECT_TRUE(push(late).is_ok());
  EXPECT_EQ(former_->removals(now_, false).wait_until_ns, kMs);
  now_ = kMs;
  const SequenceStep refused = former_->removals(now_, false);
  ASSERT_EQ(refused.kind, SequenceStep::Kind::kRefuse);
  EXPECT_EQ(refused.status.message(), "timeout of the corresponding sequence has been expired");
  EXPECT_EQ(refused.status.code(), Code::kUnavailable);
  EXPECT_THAT(push(request(2u)).message(), HasSubstr("START"));
}

TEST_F(Sequences, DrainingFreesSlotsThatWaitForMore) {
  make("direct { }", 1);
  push(1u, true);
  push(2u, true);
  EXPECT_THAT(run(), ElementsAre("r0"));
  draining_ = true;
  EXPECT_EQ(former_->removals(now_, true).kind, SequenceStep::Kind::kWait);
  EXPECT_THAT(run(), ElementsAre("r1"));
  EXPECT_TRUE(former_->empty());
}

TEST_F(Sequences, AHungInstanceGetsNoMore) {
  make("direct { }", 1, 2);
  push(1u, true);
  EXPECT_THAT(batch(0), ElementsAre("r0"));
  const SequenceStep hung = step_;
  push(1u);
  const SequenceStep refused = former_->hang(0, now_, internal_error("hangs"));
  EXPECT_EQ(refused.refused.size(), 1u);
  push(2u, true);
  push(3u, true);
  EXPECT_THAT(run(1), ElementsAre("r2"));
  former_->finish(0, hung.rows, {}, now_);
  EXPECT_THAT(run(0), ElementsAre("r3"));
}

}  // namespace
}  // namespace flywheel::schedule
