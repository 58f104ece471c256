#include "support/fake_transport.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace ringattn::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Item {
  enum class State { unmatched, silenced, lent, ended };
  State state = State::unmatched;
  ringattn_transfer_v1 transfer{};
  ringattn_status status = RINGATTN_OK;
  const void* data = nullptr;  // of an ended receive
  std::uint64_t loan = 0;      // of a lent send and of the receive that shows its memory
  bool handed_out = false;     // a lent send: the borrower has seen the memory
  Clock::time_point due;       // an ended one: not handed out before
};

struct Group;

struct FakeLink {
  Group* group = nullptr;
  std::int32_t rank = 0;
  bool open = false, closed = false, woken = false;
  std::uint64_t posted = 0;
  ringattn_status status = RINGATTN_OK;  // of this link alone: a scripted failure, or a lost peer
  std::string reason;
  bool dead = false;  // by a scripted failure
  std::list<Item> items;
  ringattn_beat_v1 beat{};
  std::condition_variable wakeup;
};

struct Group {
  bool lends = false;
  FakeScript script;
  std::mt19937_64 random;
  std::mutex mutex;
  std::vector<std::unique_ptr<FakeLink>> links;
  ringattn_status status = RINGATTN_OK;
  std::string reason;
  std::uint64_t next_loan = 1;

  FakeLink& link(std::int32_t rank) { return *links[static_cast<std::size_t>(rank)]; }
};

struct Process {
  using Key = std::tuple<bool, std::uint64_t, std::uint64_t>;  // lends, group
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Group>> groups;
  FakeScript script;
  FakeCounts counts;
};

// Lock order: a group's mutex before the process's, except in open and close, which hold no group.
Process& process() {
  static Process* const instance = new Process;
  return *instance;
}

template <class Change>
void count(Change change) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  change(all.counts);
}

void end_item(Group& group, FakeLink& owner, Item& item, ringattn_status status) {
  item.state = Item::State::ended;
  item.status = status;
  item.due = Clock::now() + std::chrono::microseconds(group.random() % (group.script.max_delay_us + 1));
  owner.wakeup.notify_one();
}

void end_lost(Group& group, FakeLink& owner, Item& item) {
  if (owner.status == RINGATTN_OK) {
    owner.status = RINGATTN_ERR_PEER_LOST;
    owner.reason = "fake: rank " + std::to_string(item.transfer.peer) + " closed its link";
  }
  item.data = nullptr;
  item.loan = 0;
  end_item(group, owner, item, RINGATTN_ERR_PEER_LOST);
}

Item* find_loan(Group& group, std::uint64_t loan, FakeLink** owner) {
  for (auto& link : group.links) {
    for (Item& item : link->items) {
      if (item.state != Item::State::lent || item.loan != loan) continue;
      *owner = link.get();
      return &item;
    }
  }
  return nullptr;
}

// Ends everything that is posted. Memory that a borrower has seen stays lent until it is released.
void end_group(Group& group, ringattn_status status, const std::string& reason) {
  if (group.status != RINGATTN_OK) return;
  group.status = status;
  group.reason = reason;
  for (auto& link : group.links) {
    for (Item& item : link->items) {
      const bool unseen = item.state == Item::State::lent && !item.handed_out;
      const bool shows_unseen = item.state == Item::State::ended && item.loan != 0;
      if (shows_unseen) item.status = status, item.data = nullptr, item.loan = 0;
      if (unseen || item.state == Item::State::unmatched || item.state == Item::State::silenced) {
        end_item(group, *link, item, status);
      }
      item.due = Clock::time_point{};
    }
    link->wakeup.notify_one();
  }
}

Item* find_counterpart(Group& group, const FakeLink& link, const Item& item) {
  for (Item& other : group.link(item.transfer.peer).items) {
    if (&other != &item && other.state == Item::State::unmatched && other.transfer.peer == link.rank &&
        other.transfer.tag == item.transfer.tag && other.transfer.kind != item.transfer.kind) {
      return &other;
    }
  }
  return nullptr;
}

void match(Group& group, FakeLink& sender, Item& send, FakeLink& receiver, Item& receive) {
  const std::uint64_t bytes = send.transfer.bytes;
  if (bytes != receive.transfer.bytes) {
    end_item(group, sender, send, RINGATTN_ERR_TRANSPORT);
    end_item(group, receiver, receive, RINGATTN_ERR_TRANSPORT);
    return end_group(group, RINGATTN_ERR_TRANSPORT,
                     "fake: size mismatch: rank " + std::to_string(sender.rank) + " sends " +
                         std::to_string(bytes) + " bytes to rank " + std::to_string(receiver.rank) +
                         ", which expects " + std::to_string(receive.transfer.bytes));
  }
  if (group.lends) {
    send.state = Item::State::lent;
    send.loan = receive.loan = group.next_loan++;
    receive.data = send.transfer.data;
  } else {
    if (bytes != 0) std::memcpy(receive.transfer.data, send.transfer.data, bytes);
    receive.data = receive.transfer.data;
    end_item(group, sender, send, RINGATTN_OK);
  }
  end_item(group, receiver, receive, RINGATTN_OK);
}

void take(Group& group, FakeLink& link, const ringattn_transfer_v1& transfer) {
  const FakeScript& script = group.script;
  Item& item = link.items.emplace_back();
  item.transfer = transfer;
  const bool sends = transfer.kind == RINGATTN_TRANSFER_SEND;
  const bool fails = link.rank == script.fail_rank && ++link.posted == script.fail_transfer;
  if (group.status != RINGATTN_OK) return end_item(group, link, item, group.status);
  if (fails) return end_item(group, link, item, script.fail_status);
  FakeLink& peer = group.link(transfer.peer);
  if (peer.closed) return end_lost(group, link, item);
  if (sends && link.rank == script.silent_rank) {
    item.state = Item::State::silenced;
    return;
  }
  Item* const other = find_counterpart(group, link, item);
  if (other == nullptr) return;
  if (sends) {
    match(group, link, item, peer, *other);
  } else {
    match(group, peer, *other, link, item);
  }
}

// ---- the table ------------------------------------------------------------------------------------------

FakeLink& as_link(void* link) { return *static_cast<FakeLink*>(link); }

std::int32_t score(const char** why) {
  if (why != nullptr) *why = nullptr;
  return 1;  // never the library's own choice
}

thread_local std::string open_error;

ringattn_status refuse(const char** error, const std::string& message) {
  open_error = "fake: " + message;
  *error = open_error.c_str();
  return RINGATTN_ERR_INVALID_ARGUMENT;
}

template <bool lends>
ringattn_status open(const ringattn_link_desc_v1* desc, void** link, const char** error) {
  *link = nullptr;
  if (desc->world_size < 1 || desc->rank < 0 || desc->rank >= desc->world_size) {
    return refuse(error, "rank outside of the world");
  }
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  auto& slot = all.groups[{lends, desc->group[0], desc->group[1]}];
  if (slot == nullptr) {
    slot = std::make_unique<Group>();
    slot->lends = lends;
    slot->script = all.script;
    slot->random.seed(all.script.seed);
    for (std::int32_t rank = 0; rank < desc->world_size; ++rank) {
      auto& made = slot->links.emplace_back(std::make_unique<FakeLink>());
      made->group = slot.get();
      made->rank = rank;
      made->beat.waits_for = -1;
    }
  }
  if (static_cast<std::int32_t>(slot->links.size()) != desc->world_size) {
    return refuse(error, "world_size " + std::to_string(desc->world_size) + ", but this ring has " +
                             std::to_string(slot->links.size()));
  }
  FakeLink& own = slot->link(desc->rank);
  if (own.open) return refuse(error, "rank " + std::to_string(desc->rank) + " is taken");
  own.open = true;
  *link = &own;
  return RINGATTN_OK;
}

void leave(Group& group, FakeLink& link) {
  const std::lock_guard lock(group.mutex);
  link.closed = true;
  for (auto& other : group.links) {
    for (Item& item : other->items) {
      if (other.get() == &link || item.transfer.peer != link.rank) continue;
      const bool lent = item.state == Item::State::lent;
      const bool unseen_receive = item.state == Item::State::ended && item.loan != 0;
      if (lent && item.handed_out) {
        count([](FakeCounts& counts) { --counts.open_loans; });
        end_item(group, *other, item, group.status);
      } else if (lent || unseen_receive || item.state == Item::State::unmatched ||
                 item.state == Item::State::silenced) {
        end_lost(group, *other, item);
      }
    }
  }
  link.items.clear();
}

void close(void* handle) {
  FakeLink& link = as_link(handle);
  Group* const group = link.group;
  leave(*group, link);
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  link.open = false;
  for (auto entry = all.groups.begin(); entry != all.groups.end(); ++entry) {
    if (entry->second.get() != group) continue;
    const auto& links = group->links;
    if (std::none_of(links.begin(), links.end(), [](auto& other) { return other->open; })) {
      all.groups.erase(entry);
    }
    return;
  }
}

const ringattn_transfer_v1& at(const ringattn_transfer_v1* array, std::int32_t index) {
  const auto* bytes = reinterpret_cast<const char*>(array);
  return *reinterpret_cast<const ringattn_transfer_v1*>(bytes + array->struct_size * std::size_t(index));
}

// Whether the script lets the post of these transfers fail as a whole.
bool refuses(const FakeLink& link, std::int32_t count) {
  const FakeScript& script = link.group->script;
  return link.rank == script.fail_rank && !script.fail_completion && link.posted < script.fail_transfer &&
         link.posted + std::uint64_t(count) >= script.fail_transfer;
}

ringattn_status post(void* handle, const ringattn_transfer_v1* transfers, std::int32_t number) {
  FakeLink& link = as_link(handle);
  Group& group = *link.group;
  const std::lock_guard lock(group.mutex);
  if (group.status != RINGATTN_OK) return group.status;
  if (link.dead) return link.status;
  if (refuses(link, number)) {
    link.dead = true;
    link.status = group.script.fail_status;
    link.reason = "fake: scripted failure of rank " + std::to_string(link.rank);
    return link.status;
  }
  for (std::int32_t i = 0; i < number; ++i) {
    take(group, link, at(transfers, i));
    count([&](FakeCounts& counts) {
      const bool sends = at(transfers, i).kind == RINGATTN_TRANSFER_SEND;
      ++(sends ? counts.sends : counts.receives);
      if (sends) counts.sent_bytes += at(transfers, i).bytes;
    });
  }
  count([&](FakeCounts& counts) {
    ++counts.posts;
    counts.max_in_flight = std::max<std::uint64_t>(counts.max_in_flight, link.items.size());
  });
  return RINGATTN_OK;
}

// The next completion that is due, or end().
std::list<Item>::iterator next_due(Group& group, FakeLink& link) {
  const auto now = Clock::now();
  const auto due = [&](const Item& item) { return item.state == Item::State::ended && item.due <= now; };
  if (!group.script.reorder) return std::find_if(link.items.begin(), link.items.end(), due);
  const auto candidates = std::count_if(link.items.begin(), link.items.end(), due);
  if (candidates == 0) return link.items.end();
  auto skip = static_cast<std::int64_t>(group.random() % static_cast<std::uint64_t>(candidates));
  return std::find_if(link.items.begin(), link.items.end(),
                      [&](const Item& item) { return due(item) && skip-- == 0; });
}

ringattn_completion_v1 hand_out(Group& group, const Item& item) {
  ringattn_completion_v1 completion{};
  completion.struct_size = sizeof completion;
  completion.status = item.status;
  completion.kind = item.transfer.kind;
  completion.peer = item.transfer.peer;
  completion.user = item.transfer.user;
  completion.bytes = item.transfer.bytes;
  completion.data = item.data;
  FakeLink* lender = nullptr;
  if (item.transfer.kind == RINGATTN_TRANSFER_RECEIVE && item.loan != 0) {
    completion.loan = item.loan;
    find_loan(group, item.loan, &lender)->handed_out = true;
    count([](FakeCounts& counts) { ++counts.open_loans; });
  }
  return completion;
}

ringattn_status test(void* handle, ringattn_completion_v1* out, std::int32_t capacity, std::int32_t* number) {
  FakeLink& link = as_link(handle);
  Group& group = *link.group;
  const std::lock_guard lock(group.mutex);
  for (*number = 0; *number < capacity; ++*number) {
    const auto item = next_due(group, link);
    if (item == link.items.end()) break;
    auto* to = reinterpret_cast<char*>(out) + std::size_t(out->struct_size) * std::size_t(*number);
    const std::uint32_t size = out->struct_size;
    ringattn_completion_v1 completion = hand_out(group, *item);
    completion.struct_size = size;
    std::memcpy(to, &completion, std::min<std::size_t>(size, sizeof completion));
    link.items.erase(item);
  }
  if (*number > 0) return RINGATTN_OK;
  return group.status != RINGATTN_OK ? group.status : link.status;
}

void release(void* handle, std::uint64_t loan) {
  Group& group = *as_link(handle).group;
  const std::lock_guard lock(group.mutex);
  FakeLink* lender = nullptr;
  Item* const send = find_loan(group, loan, &lender);
  if (send == nullptr) return;
  count([](FakeCounts& counts) { --counts.open_loans; });
  end_item(group, *lender, *send, group.status);
}

void withdraw(void* handle, std::uint64_t mask, std::uint64_t value) {
  FakeLink& link = as_link(handle);
  const std::lock_guard lock(link.group->mutex);
  for (Item& item : link.items) {
    const bool open = item.state == Item::State::unmatched || item.state == Item::State::silenced;
    if (open && (item.transfer.tag & mask) == value) end_item(*link.group, link, item, RINGATTN_ERR_CANCELED);
  }
}

void wait(void* handle, std::uint64_t timeout_ns) {
  FakeLink& link = as_link(handle);
  Group& group = *link.group;
  std::unique_lock lock(group.mutex);
  const auto limit = std::chrono::nanoseconds(std::min<std::uint64_t>(timeout_ns, 3600000000000u));
  const auto deadline = Clock::now() + limit;
  while (!link.woken && group.status == RINGATTN_OK && !link.dead && Clock::now() < deadline) {
    auto until = deadline;
    for (const Item& item : link.items) {
      if (item.state == Item::State::ended) until = std::min(until, item.due);
    }
    if (until <= Clock::now()) break;
    link.wakeup.wait_until(lock, until);
  }
  link.woken = false;
}

void wake_link(FakeLink& link) {
  link.woken = true;
  link.wakeup.notify_one();
}

void wake(void* handle) {
  FakeLink& link = as_link(handle);
  const std::lock_guard lock(link.group->mutex);
  wake_link(link);
}

void tell(void* handle, const ringattn_beat_v1* beat) {
  FakeLink& link = as_link(handle);
  const std::lock_guard lock(link.group->mutex);
  const bool newer_cancel = beat->canceled > link.beat.canceled;
  link.beat = *beat;
  for (auto& other : link.group->links) {
    if (newer_cancel && other.get() != &link) wake_link(*other);
  }
}

ringattn_status ask(void* handle, std::int32_t rank, ringattn_beat_v1* out) {
  Group& group = *as_link(handle).group;
  if (rank < 0 || rank >= static_cast<std::int32_t>(group.links.size())) return RINGATTN_ERR_INVALID_ARGUMENT;
  const std::lock_guard lock(group.mutex);
  const std::uint32_t size = out->struct_size;
  *out = group.link(rank).beat;
  out->struct_size = size;
  return RINGATTN_OK;
}

void abort(void* handle, ringattn_status status, const char* reason) {
  Group& group = *as_link(handle).group;
  const std::lock_guard lock(group.mutex);
  end_group(group, status, reason != nullptr ? reason : "");
}

ringattn_status state(void* handle, char* reason, std::uint64_t capacity) {
  FakeLink& link = as_link(handle);
  Group& group = *link.group;
  const std::lock_guard lock(group.mutex);
  const bool own = group.status == RINGATTN_OK && link.status != RINGATTN_OK;
  std::snprintf(reason, capacity, "%s", (own ? link.reason : group.reason).c_str());
  return own ? link.status : group.status;
}

template <bool lends>
constexpr ringattn_transport_v1 kTable = {
    .struct_size = sizeof(ringattn_transport_v1),
    .abi = RINGATTN_TRANSPORT_ABI,
    .name = lends ? "fake_lend" : "fake_copy",
    .caps = lends ? std::uint64_t{RINGATTN_TRANSPORT_LENDS} : std::uint64_t{0},
    .score = score,
    .open = open<lends>,
    .close = close,
    .post = post,
    .test = test,
    .release = release,
    .withdraw = withdraw,
    .wait = wait,
    .wake = wake,
    .tell = tell,
    .ask = ask,
    .abort = abort,
    .state = state,
    .address = nullptr,
    .connect = nullptr,
};

}  // namespace

void fake_script(const FakeScript& script) {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  all.script = script;
  all.counts = FakeCounts{};
}

FakeCounts fake_counts() {
  Process& all = process();
  const std::lock_guard lock(all.mutex);
  return all.counts;
}

const ringattn_transport_v1* fake_lend() { return &kTable<true>; }
const ringattn_transport_v1* fake_copy() { return &kTable<false>; }

}  // namespace ringattn::test
