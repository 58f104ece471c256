#include "tests/faults/worker.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/faults/confine.h"
#include "tests/faults/forks.h"
#include "tests/faults/holdings.h"
#include "tests/faults/seat.h"

namespace ringattn::faults {
namespace {

constexpr unsigned kLifetimeSeconds = 600;  // should the driver forget us

class Worker {
 public:
  explicit Worker(int process) : channel_(kChannelDescriptor), board_(kBoardDescriptor), process_(process) {}
  ~Worker() {
    seats_.clear();
    ringattn_context_destroy(context_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int serve() {
    Message order;
    while (channel_.hear(order, Clock::now() + std::chrono::seconds(kLifetimeSeconds)) == Heard::message) {
      if (order.verb == "end") return 0;
      Message reply;
      if (order.has("on_thread")) {
        std::thread([&] { reply = obey(order); }).join();
      } else {
        reply = obey(order);
      }
      if (!channel_.send(reply)) return 1;
    }
    return 1;
  }

 private:
  Seat& seat(const Message& order) {
    auto& seat = seats_[order.text("ring")];
    if (seat == nullptr) seat = std::make_unique<Seat>(context_, board_.of(process_));
    return *seat;
  }

  Message obey(const Message& order) {
    const std::string& verb = order.verb;
    if (verb == "give_up") return give_up_what(order);
    if (verb == "context") return open(order);
    if (verb == "values") return know(order);
    if (verb == "id") return make_id(order);
    if (verb == "join") return timed([&] { return seat(order).join(order).reply(); }).with("lanes", lanes());
    if (verb == "plan") return timed([&] { return seat(order).make_plan(*values_).reply(); });
    if (verb == "run") return run(order);
    if (verb == "abort") return seat(order).abort(order.text("reason")).reply();
    if (verb == "abort_later") return abort_later(order);
    if (verb == "leave") return timed([&] { return leave(order); });
    if (verb == "holdings") return Holdings::now(static_cast<int>(order.number("threads"))).reply();
    if (verb == "fork") return fork_a_child(order);
    if (verb == "set") return set(order);
    return Message("unknown order").with("verb", verb);
  }

  template <typename Call>
  static Message timed(const Call& call) {
    const std::int64_t start = now_ns();
    Message reply = call();
    return reply.with("took_us", (now_ns() - start) / 1000);
  }

  Message open(const Message& order) {
    ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
    desc.threads = static_cast<std::int32_t>(order.number("threads", 1));
    desc.progress_thread = static_cast<std::int32_t>(order.number("progress_thread"));
    if (order.has("hear_log")) {
      desc.log = hear_log;
      desc.log_user = this;
      desc.log_level = RINGATTN_LOG_INFO;
    }
    return Answer::of(ringattn_context_create(&desc, &context_)).reply();
  }

  static Message give_up_what(const Message& order) {
    Message reply = Answer().reply();
    const std::string why = give_up(order.text("what"), static_cast<unsigned>(order.number("number")));
    if (!why.empty()) reply.with("status", RINGATTN_ERR_UNSUPPORTED).with("message", why);
    return reply;
  }

  // Over what large messages go is told nowhere else.
  static void hear_log(void* user, std::int32_t, const char* text) {
    static constexpr const char* kLanes = "large messages go over ";
    auto& self = *static_cast<Worker*>(user);
    const char* const found = std::strstr(text, kLanes);
    if (found == nullptr) return;
    const std::lock_guard lock(self.lanes_mutex_);
    self.lanes_ = found + std::strlen(kLanes);
  }
  std::string lanes() {
    const std::lock_guard lock(lanes_mutex_);
    return lanes_;
  }

  Message run(const Message& order) {
    Forks forks(order.number("fork_us"));
    Message reply = seat(order).run(order);
    return reply.with("children", forks.stop());
  }

  Message know(const Message& order) {
    support::ProblemLine problem;
    const auto error = support::parse_problem(order.text("problem"), problem);
    if (error) return Message("answer").with("status", RINGATTN_ERR_INVALID_ARGUMENT).with("message", *error);
    values_ = std::make_unique<Values>(problem);
    return Answer().reply();
  }

  Message make_id(const Message& order) {
    ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
    desc.world_size = static_cast<std::int32_t>(order.number("world"));
    desc.arrival_timeout_ms = static_cast<std::int32_t>(order.number("arrival_ms", 30'000));
    ringattn_unique_id id;
    char text[RINGATTN_UNIQUE_ID_TEXT] = "";
    Answer made = Answer::of(ringattn_unique_id_create(context_, &desc, &id));
    if (made.status == RINGATTN_OK) made = Answer::of(ringattn_unique_id_to_text(&id, text, sizeof text));
    return made.reply().with("id", text);
  }

  Message abort_later(const Message& order) {
    seat(order).abort_later(order.number("in_us"), order.text("reason"));
    return Answer().reply();
  }

  Message leave(const Message& order) {
    seats_.erase(order.text("ring"));
    return Answer().reply();
  }

  static Message set(const Message& order) {
    ::setenv(order.text("variable").c_str(), order.text("value").c_str(), 1);
    return Answer().reply();
  }

  // As loaders of data do: a child that only sleeps, or one that uses what it has inherited.
  Message fork_a_child(const Message& order) {
    const bool calls = order.has("calls");
    ringattn_comm* const comm = seat(order).comm();
    const pid_t child = ::fork();
    if (child == 0) {
      if (calls) ::_exit(ringattn_comm_status(comm) == RINGATTN_ERR_FORKED ? 0 : 1);
      ::usleep(static_cast<useconds_t>(order.number("sleep_us")));
      ::_exit(0);
    }
    if (order.has("leave_it")) return Answer().reply().with("child", child);
    int status = -1;
    ::waitpid(child, &status, 0);
    return Answer().reply().with("child_status", status);
  }

  Channel channel_;
  Board board_;
  int process_;
  ringattn_context* context_ = nullptr;
  std::mutex lanes_mutex_;
  std::string lanes_;
  std::unique_ptr<Values> values_;
  std::map<std::string, std::unique_ptr<Seat>> seats_;
};

}  // namespace

int worker_main(int process) {
  ::alarm(kLifetimeSeconds);
  Worker worker(process);
  return worker.serve();
}

}  // namespace ringattn::faults
