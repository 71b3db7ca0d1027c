// SPDX-License-Identifier: Apache-2.0
// Which requests of which sequences run together, and where: each sequence has a slot of one instance from its first
// request to its last, and waits in the backlog until one is free. The direct strategy gives every slot its row of the
// instance's batch, present or not; the oldest strategy batches what came first. Pure logic over times that it is told:
// the sequence scheduler runs it, tests run it in virtual time. Thread safety: none of its own; its owner's lock guards
// it. Never calls a request's callback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "flywheel/status.h"
#include "server/config/model_config.h"
#include "server/schedule/batch_policy.h"
#include "server/schedule/request.h"
#include "server/schedule/statistics.h"

namespace flywheel::schedule {

using SequenceId = std::variant<uint64_t, std::string>;

// A row of an instance's batch.
struct SequenceRow {
  RequestPtr request;  // null: nothing for this slot; the row is there to keep the others in their place
  size_t slot = 0;
  std::vector<OutputTensor> state;  // as the sequence's last step left it; empty: it begins
};

struct SequenceStep {
  enum class Kind : uint8_t {
    kWait,    // until something changes or until wait_until_ns
    kBatch,   // execute `rows` together, then call finish()
    kRefuse,  // answer `refused` with `status`
  };
  Kind kind = Kind::kWait;
  std::vector<SequenceRow> rows;
  DispatchReason reason = DispatchReason::kNoDelay;
  int64_t wait_until_ns = kNever;
  std::vector<RequestPtr> refused;
  Status status;
  FailureReason failure = FailureReason::kNone;
};

class SequenceFormer {
 public:
  // REQUIRES: config.sequence_batching.
  SequenceFormer(const config::ModelConfig& config, int instances, std::shared_ptr<ModelStatistics> statistics);

  // Takes the request or says why not; a refusal has been counted, but not answered. `instance`: which one it is for;
  // -1: the backlog.
  Status push(const RequestPtr& request, int64_t now_ns, int& instance);
  // Some request was cancelled: its sequence ends, see removals().
  void note_cancelled() { any_cancelled_ = true; }
  // What an instance that executes nothing is to do.
  SequenceStep next(int instance, int64_t now_ns, bool draining);
  // The batch that next() gave is done. `states`: what the rows' sequences go on with, by row; those of failed rows are
  // empty, and leave the state as it was.
  void finish(int instance, const std::vector<SequenceRow>& rows, std::vector<std::vector<OutputTensor>> states,
              int64_t now_ns);
  // Ends sequences that were cancelled, whose time in the backlog ran out or that were silent for too long. kRefuse:
  // call it again.
  SequenceStep removals(int64_t now_ns, bool draining);
  // The instance does not answer: its sequences end, and it gets no others until finish() is called for it.
  SequenceStep hang(int instance, int64_t now_ns, Status status);
  // Takes out all that waits, to be refused.
  SequenceStep abandon(int64_t now_ns, Status status);

  // When removals() may have something to do because of a request that was pushed now, and because of what was
  // finished.
  int64_t removal_ns(const InferRequest& request, int64_t now_ns) const;
  int64_t idle_end_ns(int64_t now_ns) const;
  size_t size() const { return waiting_; }
  bool empty() const { return waiting_ == 0; }

 private:
  struct Slot {
    bool used = false;
    bool ends = false;  // the last request of the sequence has come
    bool in_flight = false;
    bool ends_early = false;  // to be freed when what is in flight returns
    SequenceId id;
    std::deque<RequestPtr> queue;
    int64_t touched_ns = 0;
    std::vector<OutputTensor> state;
  };
  struct Backlog {
    SequenceId id;
    bool ends = false;
    std::deque<RequestPtr> queue;
    int64_t expiry_ns = kNever;
  };
  struct Lane {
    std::vector<Slot> slots;
    bool hung = false;
  };
  using Place = std::pair<int, size_t>;  // instance and slot

  Slot* find_free(Place& place);
  void free_slot(Place place, int64_t now_ns);
  void forget(const SequenceId& id, const Slot* slot);
  void take(Slot& slot, SequenceRow& row, int64_t now_ns);
  SequenceStep refuse(std::vector<RequestPtr> requests, int64_t now_ns, Status status, FailureReason failure);
  SequenceStep next_direct(Lane& lane, int64_t now_ns, bool draining);
  SequenceStep next_oldest(Lane& lane, int64_t now_ns, bool draining);
  bool fit(const Slot& a, const Slot& b) const;

  const std::string model_name_;
  const config::SequenceBatching batching_;
  const int64_t max_batch_;
  const int64_t delay_ns_;
  const int64_t idle_ns_;
  std::vector<int64_t> preferred_;
  std::vector<Lane> lanes_;
  std::map<SequenceId, Place> open_;  // sequences with a slot that have not ended
  std::list<Backlog> backlog_;
  std::map<SequenceId, std::list<Backlog>::iterator> open_backlog_;
  std::shared_ptr<ModelStatistics> statistics_;
  size_t waiting_ = 0;
  bool any_cancelled_ = false;
};

}  // namespace flywheel::schedule
