// The CPU kernels alone, on one thread: their rate over the FMA peak of the same moment, and over the scalar reference.
// Nothing is timed before the result was compared with fp64.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/denormals.h"
#include "base/float_convert.h"
#include "bench/fma_peak.h"
#include "kernels/kernel.h"
#include "kernels/reference/reference.h"

namespace ringattn::bench {
namespace {

using kernels::Kernel;

struct AlignedDelete {
  void operator()(char* memory) const { ::operator delete (memory, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<char, AlignedDelete>;

AlignedBytes aligned_bytes(std::size_t count) {
  return AlignedBytes(static_cast<char*>(::operator new (count, std::align_val_t{64})));
}

// One head of attention, rows x keys; causal is bottom-right.
struct Problem {
  std::int64_t rows, keys, dim;
  DType dtype;
  bool causal;
  std::int64_t group = 1;
  std::int64_t heads = 1;  // K/V heads side by side in memory; one of them is computed

  std::int64_t keys_of(std::int64_t row) const { return causal ? keys - rows + row + 1 : keys; }
  double flops(std::int64_t begin, std::int64_t end) const {
    double pairs = 0;
    for (std::int64_t row = begin; row < end; ++row) pairs += static_cast<double>(keys_of(row));
    return 4.0 * pairs * static_cast<double>(dim * group);
  }
};

class Runner {
 public:
  explicit Runner(const Problem& problem)
      : problem_(problem),
        shape_{problem.dim,   problem.dim,   problem.group,
               problem.dtype, problem.dtype, 1 / std::sqrt(static_cast<double>(problem.dim)),
               false,         problem.dtype},
        q_(random_tensor(problem.rows * problem.group, 1)),
        k_(random_tensor(problem.keys * problem.heads, 2)),
        v_(random_tensor(problem.keys * problem.heads, 3)),
        o_(q_.size()) {}

  // Rows [begin, end), tile by tile, as the executor does it.
  void run(const Kernel& kernel, std::int64_t begin, std::int64_t end_row) {
    const AlignedBytes state = aligned_bytes(kernel.state_bytes(shape_));
    const AlignedBytes scratch = aligned_bytes(kernel.scratch_bytes(shape_));
    const DenormalsAreZero guard;
    const std::int64_t stride = problem_.group * problem_.dim, kv_stride = problem_.heads * problem_.dim;
    std::int64_t lo[kernels::kMaxLanes] = {}, hi[kernels::kMaxLanes];
    for (std::int64_t first = begin * problem_.group; first < end_row * problem_.group;
         first += kernel.lanes) {
      const int lanes =
          static_cast<int>(std::min<std::int64_t>(kernel.lanes, end_row * problem_.group - first));
      for (int lane = 0; lane < lanes; ++lane) hi[lane] = problem_.keys_of((first + lane) / problem_.group);
      kernel.begin(shape_, state.get());
      bool packed = false;
      for (std::int64_t key = 0; key < hi[lanes - 1]; key += kernel.keys_per_task) {
        const std::int64_t end = std::min(key + kernel.keys_per_task, hi[lanes - 1]);
        kernel.attend(shape_, {q_.data(), stride, problem_.dim, first, lanes, packed},
                      {k_.data(), kv_stride, v_.data(), kv_stride, key, end, lo, hi, hi[0] >= end},
                      state.get(), scratch.get());
        packed = true;
      }
      kernel.finalize(shape_, {o_.data(), stride, problem_.dim, nullptr, 0, 0, first, lanes}, state.get());
    }
  }

  // Largest difference to fp64 over rows [begin, end).
  double error(const Kernel& kernel, std::int64_t begin, std::int64_t end) {
    run(kernels::reference_fp64_kernel(), begin, end);
    const std::vector<char> expected = o_;
    run(kernel, begin, end);
    double largest = 0;
    const std::int64_t row = problem_.group * problem_.dim;
    for (std::int64_t i = begin * row; i < end * row; ++i) {
      const double difference = static_cast<double>(number(o_, i)) - static_cast<double>(number(expected, i));
      if (!(std::abs(difference) <= largest)) largest = std::abs(difference);
    }
    return largest;
  }

  double seconds(const Kernel& kernel, std::int64_t begin, std::int64_t end) {
    const double start = thread_seconds();
    run(kernel, begin, end);
    return thread_seconds() - start;
  }

  double tolerance() const {
    return problem_.dtype == DType::f32 ? 1e-5 : problem_.dtype == DType::f16 ? 1e-3 : 1e-2;
  }

 private:
  std::vector<char> random_tensor(std::int64_t rows, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> floats(static_cast<std::size_t>(rows * problem_.dim));
    for (float& value : floats) value = normal(random);
    std::vector<char> bytes(floats.size() * static_cast<std::size_t>(size_of(problem_.dtype)));
    store_floats(floats.data(), static_cast<std::int64_t>(floats.size()), bytes.data(), problem_.dtype);
    return bytes;
  }
  float number(const std::vector<char>& tensor, std::int64_t index) const {
    float value = 0;
    load_floats(element_at(tensor.data(), index, problem_.dtype), problem_.dtype, 1, &value);
    return value;
  }

  Problem problem_;
  kernels::Shape shape_;
  std::vector<char> q_, k_, v_, o_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// of_peak: median over the runs, best_of_peak: the best run, both over the mean of the peaks just before and after.
// "not measured" (a negative ratio) where no peak could be trusted. over_reference: over the scalar fp32 kernel.
void attend(benchmark::State& state, const Kernel& kernel, const Problem& problem) {
  Runner runner(problem);
  const std::int64_t checked = std::max<std::int64_t>(problem.rows - kernel.lanes, 0);
  const double error = runner.error(kernel, checked, problem.rows);
  if (!(error <= runner.tolerance())) {
    state.SkipWithError(fmt::format("wrong result: off by {}", error).c_str());
    return;
  }
  const double flops = problem.flops(0, problem.rows);
  std::vector<double> rates, ratios;
  FmaPeak before = measure_fma_peak();
  for (auto _ : state) {
    const double seconds = runner.seconds(kernel, 0, problem.rows);
    const FmaPeak after = measure_fma_peak();
    state.SetIterationTime(seconds);
    rates.push_back(flops / seconds);
    if (before.trusted && after.trusted) {
      ratios.push_back(rates.back() * 2 / (before.flops_per_second + after.flops_per_second));
    }
    before = after;
  }
  const std::int64_t last = std::max<std::int64_t>(problem.rows - 16, 0);
  const double reference =
      problem.flops(last, problem.rows) / runner.seconds(kernels::reference_kernel(), last, problem.rows);
  state.counters["of_peak"] = ratios.empty() ? -1 : median(ratios);
  state.counters["best_of_peak"] = ratios.empty() ? -1 : *std::max_element(ratios.begin(), ratios.end());
  state.counters["over_reference"] = median(rates) / reference;
  state.counters["max_error"] = error;
}

void add(const Kernel& kernel, const std::string& name, const Problem& problem) {
  benchmark::RegisterBenchmark(
      fmt::format("attend/{}/{}", kernel.name, name).c_str(),
      [&kernel, problem](benchmark::State& state) { attend(state, kernel, problem); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(31);
}

const bool kRegistered = [] {
  for (const Kernel* kernel : kernels::kernels()) {
    if (kernel == &kernels::reference_kernel()) continue;
    for (const std::int64_t dim : {64, 80, 96, 128, 256}) {
      const std::string d = fmt::format("d{}", dim);
      add(*kernel, d + "/f32/full", {2048, 2048, dim, DType::f32, false});
      add(*kernel, d + "/f32/causal", {2048, 2048, dim, DType::f32, true});
    }
    for (const std::int64_t dim : {64, 128}) {
      const std::string d = fmt::format("d{}", dim);
      add(*kernel, d + "/f32/full_8_heads_interleaved", {2048, 2048, dim, DType::f32, false, 1, 8});
      add(*kernel, d + "/f32/ring_step", {512, 480, dim, DType::f32, false});
      add(*kernel, d + "/bf16/full", {2048, 2048, dim, DType::bf16, false});
      add(*kernel, d + "/f16/full", {2048, 2048, dim, DType::f16, false});
      add(*kernel, d + "/f32/decode_group4", {1, 65536, dim, DType::f32, false, 4});
    }
  }
  return true;
}();

}  // namespace
}  // namespace ringattn::bench

BENCHMARK_MAIN();
