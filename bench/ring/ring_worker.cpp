// One rank of `./dev bench ring`, started by a launcher; or both ranks of a ring of threads; or two processes with a plain
// socket between them. Every rank writes one line of JSON a case, with all that it has measured.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "case.h"
#include "overlap.h"
#include "step.h"

namespace {

using namespace ringattn::bench;
using Json = nlohmann::json;

struct Options {
  enum class What { overlap, step, threads, wire } what = What::overlap;
  int pairs = 31;
  int calls = 1000;  // executions a batch
  bool pin = false;  // each rank on its own core
  std::string out = ".";
  std::vector<Shape> shapes;
  std::vector<std::size_t> sizes;  // of messages
};

constexpr const char* kUsage =
    "overlap|step|threads TOKENS[:HEADS:KV_HEADS:DIM]... or wire BYTES..., each with pairs=N, calls=N, pin, "
    "out=FOLDER";

bool read_word(const std::string& word, Options& options) {
  const auto number = [&](const char* name) { return std::atoi(word.c_str() + std::strlen(name)); };
  if (word == "overlap")
    options.what = Options::What::overlap;
  else if (word == "step")
    options.what = Options::What::step;
  else if (word == "threads")
    options.what = Options::What::threads;
  else if (word == "wire")
    options.what = Options::What::wire;
  else if (word == "pin")
    options.pin = true;
  else if (word.rfind("pairs=", 0) == 0)
    options.pairs = std::max(3, number("pairs="));
  else if (word.rfind("calls=", 0) == 0)
    options.calls = std::max(1, number("calls="));
  else if (word.rfind("out=", 0) == 0)
    options.out = word.substr(4);
  else
    return false;
  return true;
}

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    if (read_word(words[i], options)) continue;
    Shape shape;
    long long tokens = 0, heads = shape.heads, kv_heads = shape.kv_heads, dim = shape.dim;
    if (std::sscanf(words[i], "%lld:%lld:%lld:%lld", &tokens, &heads, &kv_heads, &dim) < 1 || tokens < 1) {
      fmt::print(stderr, "\"{}\": expected {}\n", words[i], kUsage);
      std::exit(2);
    }
    options.shapes.push_back({tokens, heads, kv_heads, dim});
    options.sizes.push_back(static_cast<std::size_t>(tokens));
  }
  return options;
}

// A file a rank: lines of several ranks on one pipe would mix.
class Output {
 public:
  Output(const Options& options, std::int32_t rank)
      : file_(std::fopen(fmt::format("{}/{}.jsonl", options.out, rank).c_str(), "w")) {
    if (file_ == nullptr) {
      std::perror(options.out.c_str());
      std::exit(3);
    }
  }
  ~Output() { std::fclose(file_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  void line(const Json& json) { fmt::print(file_, "{}\n", json.dump()); }

 private:
  std::FILE* file_;
};

ringattn_context* create_context() {
  auto desc = RINGATTN_STRUCT(ringattn_context_desc);
  desc.threads = 1;
  ringattn_context* context = nullptr;
  must(ringattn_context_create(&desc, &context), "context");
  return context;
}

void run_rank(const Options& options, ringattn_comm* ring, ringattn_comm* alone) {
  std::int32_t rank = 0, world = 0;
  must(ringattn_comm_rank(ring, &rank, &world), "rank");
  if (options.pin) stay_on_core(rank);
  Output output(options, rank);
  for (const Shape& shape : options.shapes) {
    output.line(options.what == Options::What::overlap
                    ? measure_overlap(ring, alone, world, shape, options.pairs)
                    : measure_step(ring, alone, world, shape, options.pairs, options.calls));
  }
}

void run_process(const Options& options) {
  ringattn_context* const context = create_context();
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  ringattn_comm* ring = nullptr;
  must(ringattn_comm_create_from_environment(context, &desc, &ring), "comm");
  ringattn_comm* const alone = create_alone(context);
  run_rank(options, ring, alone);
  ringattn_comm_destroy(alone);
  ringattn_comm_destroy(ring);
  ringattn_context_destroy(context);
}

void run_threads(const Options& options) {
  ringattn_context* const context = create_context();
  auto desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = 2;
  desc.transport = "local";
  ringattn_comm *ring[2], *alone[2] = {create_alone(context), create_alone(context)};
  must(ringattn_comm_create_local(context, &desc, ring), "comm");
  std::thread other([&] { run_rank(options, ring[1], alone[1]); });
  run_rank(options, ring[0], alone[0]);
  other.join();
  for (ringattn_comm* comm : {ring[0], ring[1], alone[0], alone[1]}) ringattn_comm_destroy(comm);
  ringattn_context_destroy(context);
}

void run_wire(const Options& options) {
  Output output(options, 0);
  for (const std::size_t bytes : options.sizes)
    output.line({{"bytes", bytes}, {"one_way", ping_pong(bytes, options.pairs, options.calls)}});
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  switch (options.what) {
    case Options::What::overlap:
    case Options::What::step:
      run_process(options);
      break;
    case Options::What::threads:
      run_threads(options);
      break;
    case Options::What::wire:
      run_wire(options);
      break;
  }
  return 0;
}
