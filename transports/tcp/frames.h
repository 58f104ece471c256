// What two ranks say to each other once they are connected.
//
// Each pair has two connections. *Data* carries transfers and may stand still for as long as a peer computes.
// *Life* carries beats, aborts and goodbyes; what is under way on it is bounded, so it never stands still,
// and the kernel may be told to give it up when the other host does not answer for four seconds. One
// connection cannot be both: TCP_USER_TIMEOUT also ends one whose peer is well and has a full buffer.
#pragma once
#include <bit>
#include <cstdint>

namespace ringattn::tcp {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

enum class Channel : std::uint8_t { life = 0, data = 1 };
inline constexpr int kChannels = 2;

enum class FrameType : std::uint16_t {
  // Data. `id` is the sender's name of the send, `other` the receiver's name of the receive.
  eager = 1,  // tag, bytes, id; the message follows
  offer,      // tag, bytes, id: a message that waits for its receive
  accept,     // id, other: the receive is there, send
  piece,      // other, offset, bytes; a part of the message follows
  done,       // id: all of it has arrived
  cancel,     // tag, id: takes an eager message or an offer back, unless it has met its receive; status 1:
              // an offer also then, as its sender no longer waits for the answer
  canceled,   // id: it had not, and is forgotten
  // Before the first transfer, where there is a carrier; `id` counts the attempts.
  carrier_address,  // bytes: how the carrier of the peer is reached follows; none = it could not open one
  carrier_verdict,  // status: whether the carrier of the peer reaches all ranks
  // Life.
  beat,        // see Beat below
  beat_taken,  // lets the teller send more
  abort,       // status; a reason of `bytes` follows
  // Both: nothing follows. End of stream after it is a leave, without it a death.
  goodbye
};

struct Frame {
  std::uint32_t magic = 0x31415452;  // "RTA1"
  FrameType type = FrameType::goodbye;
  std::uint16_t reserved = 0;
  std::int32_t status = 0;  // beat: waits_for
  std::int32_t zero = 0;
  std::uint64_t tag = 0;     // beat: counter
  std::uint64_t bytes = 0;   // beat: entered
  std::uint64_t id = 0;      // beat: canceled
  std::uint64_t other = 0;   // beat: canceled_before
  std::uint64_t offset = 0;  // beat: pulse
};
static_assert(sizeof(Frame) == 56);

inline constexpr std::uint64_t kEagerBytes = 4096;     // larger messages wait for their receive
inline constexpr std::uint32_t kEagerMessages = 64;    // unmatched ones per peer; more are offered
inline constexpr std::uint64_t kPieceBytes = 1 << 20;  // between two pieces other frames get their turn
inline constexpr std::uint64_t kCarrierAddressBytes = 4096;
inline constexpr std::uint32_t kBeatsUnderWay = 8;  // per peer; later ones replace each other
// With a new call or cancel there may be more: who is in no call any more does not look whether there is room again.
inline constexpr std::uint32_t kNewsUnderWay = 64;
inline constexpr std::uint64_t kReasonBytes = 512;

}  // namespace ringattn::tcp
