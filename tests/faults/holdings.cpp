#include "tests/faults/holdings.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace ringattn::faults {
namespace {

int entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

int mappings_of_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("/dev/shm/") != std::string::npos ? 1 : 0;
  return count;
}

// Pages that are there; what was only asked for does not count.
std::int64_t kib_in_memory() {
  std::ifstream file("/proc/self/statm");
  std::int64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace

Holdings Holdings::now(int most_threads) {
  for (int i = 0; most_threads > 0 && i < 200 && entries("/proc/self/task") > most_threads; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return {entries("/proc/self/fd"), entries("/proc/self/task"), mappings_of_shared_memory(), kib_in_memory()};
}

Message Holdings::reply() const {
  return Message("holdings")
      .with("descriptors", descriptors)
      .with("threads", threads)
      .with("shared_memory", shared_memory)
      .with("resident_kib", resident_kib);
}

Holdings Holdings::from(const Message& message) {
  return {static_cast<int>(message.number("descriptors")), static_cast<int>(message.number("threads")),
          static_cast<int>(message.number("shared_memory")), message.number("resident_kib")};
}

std::string Holdings::more_than(const Holdings& before) const {
  std::string text;
  const auto compare = [&](const char* what, int now, int then) {
    if (now > then)
      text += std::string(what) + ": " + std::to_string(now) + ", before " + std::to_string(then) + "; ";
  };
  compare("descriptors", descriptors, before.descriptors);
  compare("threads", threads, before.threads);
  compare("mappings of /dev/shm", shared_memory, before.shared_memory);
  return text;
}

}  // namespace ringattn::faults
