#include "base/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace ringattn {
namespace {
std::atomic<std::uint32_t> generation{1};

struct Watch {
  Watch() {
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  }
};
}  // namespace

std::uint32_t process_generation() {
  static const Watch watch;
  return generation.load(std::memory_order_relaxed);
}

}  // namespace ringattn
