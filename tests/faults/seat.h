// A rank process's place in one ring: joins, makes its plan, runs executions and checks them, leaves.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "ringattn.h"
#include "tests/faults/board.h"
#include "tests/faults/messages.h"
#include "tests/faults/values.h"
#include "tests/support/problem_plan.h"
#include "tests/support/rank_tensors.h"

namespace ringattn::faults {

// What a call of the library came to; the message is taken before another call can replace it.
struct Answer {
  ringattn_status status = RINGATTN_OK;
  std::string message;
  static Answer of(ringattn_status status);
  Message reply() const;
};

class Seat {
 public:
  Seat(ringattn_context* context, Progress& progress) : context_(context), progress_(progress) {}
  ~Seat() { leave(); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // way: "id" with the id's text, or "environment" with place and secret. Orders as the driver sends them.
  Answer join(const Message& order);
  Answer make_plan(const Values& values);

  // Executions first, first + 1, ...: even numbers run forward, odd ones backward. Stops at the first that fails, and then
  // also tells what the comm says afterwards. What the order may ask besides: "drive", how to wait (block, wait, test);
  // "act" at execution "at", what this rank does to itself then; "jitter_us", sleeps between executions; "repeat", how often
  // each is made before its result is checked.
  Message run(const Message& order);

  // A thread of its own aborts the comm so many microseconds from now.
  void abort_later(std::int64_t microseconds, const std::string& reason);
  Answer abort(const std::string& reason) const;
  // Also what an exception or the end of the process does.
  void leave();

  ringattn_comm* comm() const { return comm_; }

 private:
  struct Pass {
    bool backward = false;
    bool refuses = false;       // brings arguments that are never right
    std::int64_t pause_ns = 0;  // slow: sleeps so long after each tile
    std::int64_t slow_ns = 0;   // until the execution has taken so long
  };
  Answer execute(const Pass& pass, const std::string& drive);
  Answer start(const Pass& pass, ringattn_request** request);
  Answer drive_slowly(const Pass& pass, ringattn_request* request);
  Pass act(const Message& order, std::uint64_t number);
  Message failed(const Answer& answer, const Pass& pass, std::uint64_t number);

  ringattn_context* context_;
  Progress& progress_;
  const Values* values_ = nullptr;
  std::int32_t rank_ = 0;
  ringattn_comm* comm_ = nullptr;
  ringattn_plan* plan_ = nullptr;
  Owned owned_;
  std::unique_ptr<support::RankTensors> tensors_;
  std::thread aborter_;
};

}  // namespace ringattn::faults
