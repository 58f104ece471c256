#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace ringattn::tool {
namespace {

constexpr std::size_t kLabelWidth = 12;

bool speaks_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text(value);
    return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

std::size_t columns_of(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string bar(double done, std::size_t width) {
  static const bool utf8 = speaks_utf8();
  const auto full = static_cast<std::size_t>(std::lround(done * static_cast<double>(width)));
  std::string out;
  for (std::size_t i = 0; i < width; ++i) out += i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
  return out;
}

// "3 s left", once there is something to judge by.
std::string left_text(double done, double seconds) {
  if (done < 0.02 || seconds < 0.3) return "";
  return duration_text(std::ceil(seconds * (1 - done) / done)) + " left";
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.2g} s", seconds);
  if (seconds < 60)
    return seconds == std::floor(seconds) ? fmt::format("{:.0f} s", seconds)
                                          : fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(std::lround(seconds));
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

Progress::Progress(std::FILE* stream, bool terminal, std::string label)
    : stream_(stream),
      terminal_(terminal),
      label_(std::move(label)),
      start_(std::chrono::steady_clock::now()) {
  last_ = start_;
  if (terminal_) draw(0);
}

Progress::~Progress() {
  if (!finished_) clear();
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::update(double done) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000))) return;
  last_ = now;
  draw(done < 0 ? done : std::min(done, 1.0));
}

void Progress::draw(double done) {
  const double spent = seconds();
  if (!terminal_) {
    const std::string how_far = done < 0 ? duration_text(std::floor(spent)) + " so far"
                                         : fmt::format("{:3.0f}%  {}", 100 * done, left_text(done, spent));
    fmt::print(stream_, "{:<{}} {}\n", label_, kLabelWidth, how_far);
    std::fflush(stream_);
    return;
  }
  std::string line = fmt::format("{:<{}} ", label_, kLabelWidth);
  if (done < 0) {
    line += duration_text(std::floor(spent));
  } else {
    const std::size_t rest = line.size() + 6 + 16;  // label, per cent, time left
    const std::size_t columns = columns_of(stream_);
    line += bar(done, columns > rest + 10 ? std::min<std::size_t>(columns - rest, 48) : 10);
    line += fmt::format(" {:3.0f}% {}", 100 * done, left_text(done, spent));
  }
  fmt::print(stream_, "\r{}\x1b[K", line);
  std::fflush(stream_);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
  drawn_ = false;
}

void Progress::finish(const std::string& result) {
  finished_ = true;
  clear();
  fmt::print(stream_, "{:<{}} {:>7}  {}\n", label_, kLabelWidth, duration_text(seconds()), result);
  std::fflush(stream_);
}

}  // namespace ringattn::tool
