#include "transports/tcp/dial.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ringattn::tcp {
namespace {

using std::chrono::milliseconds;

// For the first address that swallows packets; doubles with each round, for slow networks.
constexpr milliseconds kConnectLimit{1000}, kLongestConnectLimit{8000};
// A peer that listens already may begin to answer a little later; then the next address gets its turn.
constexpr milliseconds kChallengeLimit{5000};
// Once it has answered it is the right one. Longer, since it may take our answer as the end of the handshake.
constexpr milliseconds kVerdictLimit{10000};
constexpr milliseconds kPause{50}, kLongestPause{1000};  // between rounds
constexpr int kRefusedRounds = 5;

milliseconds doubled(milliseconds first, int times, milliseconds longest) {
  return std::min(first * (1 << std::min(times, 10)), longest);
}

}  // namespace

pollfd Dial::to_poll() const {
  const short events = state_ == State::connecting ? POLLOUT : POLLIN;
  return {state_ == State::pausing ? -1 : socket_.get(), events, 0};
}

void Dial::advance(bool ready) {
  const bool overdue = Clock::now() >= due_;
  switch (state_) {
    case State::pausing:
      if (overdue) start();
      return;
    case State::connecting:
      if (ready) return connected();
      break;
    case State::challenged:
      if (ready) return answer();
      break;
    case State::answered:
      if (ready) return judge();
      break;
    case State::done:
      return;
  }
  if (overdue) fail(state_ == State::connecting ? "no answer" : "connected, but no answer");
}

void Dial::start() {
  got_ = 0;
  state_ = State::connecting;
  due_ = Clock::now() + doubled(kConnectLimit, round_, kLongestConnectLimit);
  socket_ = begin_connect(addresses_[at_]);
  if (!socket_) fail(std::strerror(errno), errno == ECONNREFUSED);
}

void Dial::connected() {
  const int error = socket_error(socket_);
  if (error != 0) return fail(std::strerror(error), error == ECONNREFUSED);
  state_ = State::challenged;
  due_ = Clock::now() + kChallengeLimit;
}

void Dial::answer() {
  if (!read_whole(&challenge_, sizeof challenge_)) return;
  if (challenge_.magic != kMagic) return fail("something else listens there");
  if (challenge_.version != kProtocol) {
    return fail("it speaks version " + std::to_string(challenge_.version) + " of the protocol, not " +
                std::to_string(kProtocol));
  }
  hello_ = make_hello(*ring_, challenge_, from_, to_, channel_);
  // Into an empty socket buffer: whole or not at all.
  if (::send(socket_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello_)) {
    return fail(std::strerror(errno));
  }
  state_ = State::answered;
  due_ = Clock::now() + kVerdictLimit;
}

void Dial::judge() {
  if (!read_whole(&welcome_, sizeof welcome_)) return;
  if (!is_genuine(*ring_, challenge_, hello_, welcome_)) return fail("it does not know this ring's secret");
  if (welcome_.verdict == Verdict::already_here) {
    return fail("it has a connection with a rank " + std::to_string(from_) + " already");
  }
  if (welcome_.verdict != Verdict::welcome) return fail("it belongs to another ring");
  state_ = State::done;
}

bool Dial::read_whole(void* message, std::size_t bytes) {
  const ssize_t count = ::recv(socket_.get(), static_cast<char*>(message) + got_, bytes - got_, 0);
  if (count > 0) {
    got_ += static_cast<std::size_t>(count);
    if (got_ < bytes) return false;
    got_ = 0;
    return true;
  }
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (count < 0) {
    fail(std::strerror(errno));
  } else {
    fail(state_ == State::answered ? "it refused the handshake: another secret?"
                                   : "it closed the connection");
  }
  return false;
}

// On to the next address; after the last one a pause.
void Dial::fail(const std::string& why, bool nobody_listens) {
  socket_.reset();
  errors_[at_] = why;
  only_refused_ &= nobody_listens;
  state_ = State::pausing;
  due_ = Clock::now();
  if (++at_ < addresses_.size()) return;
  at_ = 0;
  due_ += doubled(kPause, round_, kLongestPause);
  refused_rounds_ = only_refused_ ? refused_rounds_ + 1 : 0;
  only_refused_ = true;
  ++round_;
}

bool Dial::refused() const { return refused_rounds_ >= kRefusedRounds; }

std::string Dial::tried() const {
  std::string text;
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    if (errors_[i].empty()) continue;
    if (!text.empty()) text += ", ";
    text += addresses_[i].text() + " (" + errors_[i] + ")";
  }
  return text;
}

}  // namespace ringattn::tcp
