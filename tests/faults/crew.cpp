#include "tests/faults/crew.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ringattn.h"

namespace ringattn::faults {

std::string text_of(int rank, const Message& answer) {
  std::string text =
      "rank " + std::to_string(rank) + ": " + answer.text("name") + ": " + answer.text("message");
  if (answer.has("call")) text += " [" + answer.text("call") + " " + answer.text("execution") + "]";
  if (answer.has("wrong")) text += " WRONG " + answer.text("wrong");
  return text;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(fd, any, bytes) == 0 && ::getsockname(fd, any, &bytes) == 0;
  ::close(fd);
  if (!bound) throw Failure("no free port");
  return ntohs(address.sin_port);
}

Crew::Crew(int size, const std::vector<Whereabouts>& where) {
  within(std::chrono::seconds(60));
  processes_.reserve(static_cast<std::size_t>(size));
  for (int process = 0; process < size; ++process)
    processes_.emplace_back(process, board_.fd(), where[static_cast<std::size_t>(process) % where.size()]);
}

Members Crew::everybody() const {
  Members all;
  for (int process = 0; process < size(); ++process) all.push_back(process);
  return all;
}

void Crew::within(std::chrono::milliseconds limit, std::chrono::milliseconds silence) {
  deadline_ = Clock::now() + limit;
  silence_ = silence;
}

std::uint64_t Crew::all_progress() {
  std::uint64_t sum = 0;
  for (int process = 0; process < size(); ++process)
    sum += progress(process).begun.load() + progress(process).ended.load();
  return sum;
}

Message Crew::answer(int member) {
  std::uint64_t before = all_progress();
  auto silent_until = Clock::now() + silence_;
  for (;;) {
    const auto look = Clock::now() + std::chrono::milliseconds(500);
    Message message;
    if ((*this)[member].hear(message, std::min(look, deadline_))) return message;
    const std::uint64_t now = all_progress();
    if (now != std::exchange(before, now)) silent_until = Clock::now() + silence_;
    if (Clock::now() >= std::min(silent_until, deadline_)) (*this)[member].hang();
  }
}

std::vector<Message> Crew::answers(const Members& members) {
  std::vector<Message> all;
  for (const int member : members) all.push_back(answer(member));
  return all;
}

std::vector<Message> Crew::ask(const Members& members, const std::function<Message(int rank)>& order) {
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    (*this)[members[rank]].order(order(static_cast<int>(rank)));
  return answers(members);
}

std::vector<Message> Crew::ask(const Members& members, const Message& order) {
  return ask(members, [&](int) { return order; });
}

void Crew::must(const Members& members, const Message& order) {
  const std::vector<Message> all = ask(members, order);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].number("status", -1) != RINGATTN_OK)
      throw Failure("'" + order.verb + "': " + text_of(static_cast<int>(rank), all[rank]));
  }
}

void Crew::prepare(const Message& context, const std::string& problem, const std::string& transport) {
  const Members all = everybody();
  must(all, context);
  must(all, Message("values").with("problem", problem));
  const RingOrder alone{.name = "alone", .transport = transport};
  std::vector<Message> ids = ask(all, Message("id").with("world", 1));
  const auto join = [&](int rank) {
    return Message("join")
        .with("ring", alone.name)
        .with("id", ids[static_cast<std::size_t>(rank)].text("id"))
        .with("rank", 0)
        .with("world", 1)
        .with("transport", transport);
  };
  for (const Message& answer : ask(all, join)) {
    if (answer.number("status", -1) != RINGATTN_OK) throw Failure(answer.text("message"));
  }
  must(all, Message("plan").with("ring", alone.name));
  run(all, alone, 0, 2);
  leave(all, alone);
}

std::function<Message(int rank)> Crew::join_orders(const Members& members, const RingOrder& ring) {
  const auto world = static_cast<std::int64_t>(members.size());
  Message order = Message("join")
                      .with("ring", ring.name)
                      .with("world", world)
                      .with("transport", ring.transport)
                      .with("timeout_ms", ring.timeout_ms)
                      .with("arrival_ms", ring.arrival_ms);
  if (ring.environment) {
    order.with("way", "environment")
        .with("place", ring.place.empty() ? "127.0.0.1:" + std::to_string(free_port()) : ring.place)
        .with("secret", ring.secret);
  } else {
    const Message made =
        ask({members[0]}, Message("id").with("world", world).with("arrival_ms", ring.arrival_ms))[0];
    if (made.number("status", -1) != RINGATTN_OK) throw Failure("'id': " + text_of(0, made));
    order.with("way", "id").with("id", made.text("id"));
  }
  return [order](int rank) { return Message(order).with("rank", rank); };
}

void Crew::make_ring(const Members& members, const RingOrder& ring) {
  const std::vector<Message> joined = ask(members, join_orders(members, ring));
  for (std::size_t rank = 0; rank < joined.size(); ++rank) {
    if (joined[rank].number("status", -1) != RINGATTN_OK)
      throw Failure("'join': " + text_of(static_cast<int>(rank), joined[rank]));
  }
  must(members, Message("plan").with("ring", ring.name));
}

void Crew::run(const Members& members, const RingOrder& ring, int first, int count) {
  const Message order = Message("run").with("ring", ring.name).with("first", first).with("count", count);
  const std::vector<Message> all = ask(members, order);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].number("status", -1) != RINGATTN_OK || all[rank].has("wrong"))
      throw Failure("'run': " + text_of(static_cast<int>(rank), all[rank]));
  }
}

void Crew::leave(const Members& members, const RingOrder& ring) {
  must(members, Message("leave").with("ring", ring.name));
}

std::vector<Holdings> Crew::holdings(const Members& members, const std::vector<Holdings>& before) {
  std::vector<Holdings> all;
  const auto order = [&](int rank) {
    const std::size_t place = static_cast<std::size_t>(rank);
    return Message("holdings").with("threads", before.empty() ? 0 : before[place].threads);
  };
  for (const Message& answer : ask(members, order)) all.push_back(Holdings::from(answer));
  return all;
}

void Crew::dismiss(const Members& members) {
  for (const int member : members) (*this)[member].order("end");
  for (const int member : members) {
    const int status = (*this)[member].reap(deadline_);
    if (status != 0)
      throw Failure("process " + std::to_string(member) + " ended with exit status " +
                    std::to_string(status));
  }
}

}  // namespace ringattn::faults
