#include "tests/faults/batch.h"

#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/faults/crew.h"

namespace ringattn::faults {

std::string why_not(const std::string& transport) {
  try {
    Crew crew(1);
    crew.prepare(Message("context").with("threads", 1), "n=4 dim=4 ranks=1", transport);
    crew.dismiss(crew.everybody());
    return "";
  } catch (const Failure& failure) {
    return failure.what();
  }
}

void run_batch(const Batch& batch, const std::function<bool(const Outcome&)>& hear) {
  std::atomic<int> next{0};
  std::mutex mutex;
  bool wanted = true;
  // The threads stay until all is over: processes die with the thread that started them.
  const auto work = [&] {
    for (int i = next++; i < batch.count; i = next++) {
      const auto seed = batch.first_seed + static_cast<std::uint64_t>(i);
      Fault fault = draw(seed, batch.kinds, batch.transports);
      if (batch.change) batch.change(fault);
      const Outcome outcome = run_fault(fault, batch.limits);
      const std::lock_guard lock(mutex);
      wanted = wanted && hear(outcome);
      if (!wanted) next = batch.count;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < batch.at_once; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

namespace {
bool shared_memory_is_own = false;
}

bool own_shared_memory() {
  shared_memory_is_own =
      ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      ::mount("ringattn-faults", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=1g") == 0;
  return shared_memory_is_own;
}

bool resize_own_shared_memory(const std::string& size) {
  return shared_memory_is_own && ::mount(nullptr, "/dev/shm", nullptr, MS_REMOUNT | MS_NOSUID | MS_NODEV,
                                         ("size=" + size).c_str()) == 0;
}

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored))
    names.insert(entry.path().filename());
  return names;
}

}  // namespace ringattn::faults
