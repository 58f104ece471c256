#include "comm/meeting.h"

#include "base/clock.h"
#include "comm/meeting_join.h"
#include "comm/meeting_messages.h"

namespace ringattn::comm {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kLeaveWait = 2'000'000'000;  // for the host to see that this rank has left

}  // namespace

Meeting::Meeting(Channel channel, std::string place, std::int32_t rank, std::int32_t world,
                 std::uint64_t deadline_ns)
    : channel_(std::move(channel)),
      place_(std::move(place)),
      rank_(rank),
      world_(world),
      deadline_ns_(deadline_ns) {}

Status Meeting::join(const UniqueId& id, std::int32_t rank, std::int32_t world, const JoinOptions& options,
                     std::unique_ptr<Meeting>& out) {
  out.reset();
  RINGATTN_TRY(start_crypto());
  if (world < 1 || world > 4096) return invalid("world: " + std::to_string(world) + ", expected 1..4096");
  UniqueId checked;
  RINGATTN_TRY(UniqueId::from_bytes(id.bytes(), checked));
  Joining joining;
  joining.rank = rank;
  joining.world = world;
  joining.timeout_ms = options.timeout_ms;
  if (options.timeout_ms >= 0) {
    joining.deadline_ns = now_ns() + static_cast<std::uint64_t>(options.timeout_ms) * 1'000'000;
  }
  if (!options.interface.empty()) RINGATTN_TRY(own_addresses(options.interface, joining.from));
  std::optional<Channel> channel;
  std::string place;
  RINGATTN_TRY(join_host(checked, joining, channel, place));
  out.reset(new Meeting(std::move(*channel), std::move(place), rank, world, joining.deadline_ns));
  return {};
}

Status Meeting::fail(ringattn_status code, const std::string& why) {
  failed_ = Status(code, "meeting at " + place_ + ", rank " + std::to_string(rank_) + ", round " +
                             std::to_string(round_) + ": " + why);
  return failed_;
}

Status Meeting::exchange(FrameType wanted, Frame& frame) {
  // The host ends the meeting when this rank's time is over, and says who was missing: give it the time to.
  const std::uint64_t until = deadline_ns_ > kNever - kGrace ? kNever : deadline_ns_ + kGrace;
  switch (wait_for_frame(channel_, until, frame)) {
    case Channel::Result::done:
      break;
    case Channel::Result::blocked:
      return fail(RINGATTN_ERR_TIMEOUT, "no word from the host in time");
    case Channel::Result::closed:
      return fail(RINGATTN_ERR_PEER_LOST, "the host was lost: " + channel_.trouble());
    case Channel::Result::broken:
      return fail(RINGATTN_ERR_TRANSPORT, channel_.trouble());
  }
  if (frame.type == wanted) return {};
  if (frame.type != FrameType::end) return fail(RINGATTN_ERR_TRANSPORT, "frame that nobody expected");
  failed_ = read_notice(frame.payload).status;
  return failed_;
}

Status Meeting::gather(Bytes own, std::vector<std::vector<std::uint8_t>>& all) {
  if (!failed_.ok()) return failed_;
  if (left_) return invalid("gather: rank " + std::to_string(rank_) + " has left the meeting");
  if (own.size() > kMostPart) {
    return invalid("gather: " + std::to_string(own.size()) + " bytes, expected at most " +
                   std::to_string(kMostPart));
  }
  channel_.queue(FrameType::part, Payload({own.begin(), own.end()}));
  Frame frame;
  RINGATTN_TRY(exchange(FrameType::all, frame));
  if (!read_all_parts(frame.payload, world_, all)) {
    return fail(RINGATTN_ERR_TRANSPORT, "the bytes of all ranks are malformed");
  }
  ++round_;
  return {};
}

Status Meeting::leave() {
  if (!failed_.ok()) return failed_;
  if (left_) return {};
  left_ = true;
  channel_.queue(FrameType::leave, Payload());
  Frame frame;
  const std::uint64_t until = now_ns() + kLeaveWait;
  switch (wait_for_frame(channel_, until, frame)) {
    case Channel::Result::closed:
      return {};  // as agreed
    case Channel::Result::blocked:
      return fail(RINGATTN_ERR_TIMEOUT, "the host has not seen within 2 s that this rank left");
    case Channel::Result::broken:
      return fail(RINGATTN_ERR_TRANSPORT, channel_.trouble());
    case Channel::Result::done:
      break;
  }
  failed_ = frame.type == FrameType::end ? read_notice(frame.payload).status
                                         : fail(RINGATTN_ERR_TRANSPORT, "frame that nobody expected");
  return failed_;
}

}  // namespace ringattn::comm
