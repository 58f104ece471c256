#include "run_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "error.h"

namespace ringattn::tool {
namespace {

constexpr std::size_t kFull = 1 << 20;
constexpr std::size_t kLongestLine = 1 << 20;

}  // namespace

bool RankOutput::full() const { return text_.size() - begin_ >= kFull; }

void RankOutput::write_some() {
  // A pipe that poll() reports takes this much without blocking.
  std::string_view chunk = std::string_view(text_).substr(begin_, PIPE_BUF);
  const std::size_t last = chunk.rfind('\n');
  if (last != std::string_view::npos) chunk = chunk.substr(0, last + 1);
  const ssize_t written = ::write(descriptor_, chunk.data(), chunk.size());
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    throw RunFailed(fmt::format("cannot write to standard {}: {}",
                                descriptor_ == STDOUT_FILENO ? "output" : "error", std::strerror(errno)));
  }
  if (written == 0) return;
  begin_ += static_cast<std::size_t>(written);
  within_line_ = text_[begin_ - 1] != '\n';
  if (empty() || begin_ >= kFull) {
    text_.erase(0, begin_);
    begin_ = 0;
  }
}

RankLines::RankLines(int rank, RankOutput& to) : prefix_(fmt::format("[{}] ", rank)), to_(&to) {}

void RankLines::pass_on(std::string_view line) {
  to_->add(prefix_);
  to_->add(rest_);
  to_->add(line);
  to_->add("\n");
  rest_.clear();
}

void RankLines::add(std::string_view bytes) {
  for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    pass_on(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  rest_ += bytes;
  if (rest_.size() >= kLongestLine) pass_on("");
}

void RankLines::end() {
  if (!rest_.empty()) pass_on("");
}

}  // namespace ringattn::tool
