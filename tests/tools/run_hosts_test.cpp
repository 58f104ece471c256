// --host-list: what a list means, who runs where, and where the ranks meet.
#include "tools/ringattn/run_hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tools/ringattn/error.h"
#include "tools/ringattn/remote_shell.h"

namespace ringattn::tool {
namespace {

using Words = std::vector<std::string>;

std::string own_name() {
  char name[256] = {};
  EXPECT_EQ(gethostname(name, sizeof name - 1), 0);
  return name;
}

// "0@b 1@b 0@c": the local rank and the host of each rank.
std::string seats_text(const std::string& list, std::optional<int> ranks = {}) {
  std::string text;
  for (const Seat& seat : seats_on(parse_host_list(list), ranks)) {
    if (!text.empty()) text += " ";
    text.append(std::to_string(seat.local_rank)).append("@").append(seat.target);
  }
  return text;
}

std::string place(const std::string& list, const std::string& rendezvous = "",
                  std::optional<int> ranks = {}) {
  const std::vector<HostEntry> hosts = parse_host_list(list);
  return meeting_place(hosts, seats_on(hosts, ranks), rendezvous);
}

// What it throws; "" = nothing.
template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(RunHosts, RanksFillTheHostsInOrder) {
  EXPECT_EQ(seats_text("b,c:2,d"), "0@b 0@c 1@c 0@d");
  EXPECT_EQ(seats_text("b,c:2,d", 3), "0@b 0@c 1@c");
  EXPECT_EQ(seats_text("b:2,c,b:1"), "0@b 1@b 0@c 2@b");
  EXPECT_EQ(seats_text("me@b.example:2,[2001:db8::1]:2,192.0.2.1"),
            "0@me@b.example 1@me@b.example 0@2001:db8::1 1@2001:db8::1 0@192.0.2.1");
}

TEST(RunHosts, ThisMachineHasManyNames) {
  const std::string own = own_name();
  EXPECT_EQ(seats_text("localhost,127.0.0.1,[::1],127.1.2.3,LOCALHOST," + own), "0@ 1@ 2@ 3@ 4@ 5@");
  EXPECT_EQ(seats_text(own.substr(0, own.find('.')) + ",x" + own), "0@ 0@x" + own);
  EXPECT_EQ(seats_text("me@localhost"), "0@me@localhost") << "another user";
}

TEST(RunHosts, AListThatMakesNoSenseIsRefused) {
  for (const char* entry : {"", "b:", "b:0", "b:-1", "b:4097", "b:2x", "b:2:3", "-b", "-o@b", "b c", "::1",
                            "[b]:2", "[::1", "[::1]2", "@b", "b;c", "$b", "b:99999999999999999999"}) {
    const std::string list = std::string("a,").append(entry).append(",c");
    EXPECT_EQ(refusal([&] { parse_host_list(list); }),
              "--host-list \"" + list + "\": entry 2 is \"" + entry +
                  "\", expected host or host:slots, with 1 to 4096 slots");
  }
  EXPECT_EQ(refusal([] { parse_host_list(""); }),
            "--host-list \"\": entry 1 is \"\", expected host or host:slots, with 1 to 4096 slots");
}

TEST(RunHosts, MoreRanksThanSlotsAreRefused) {
  EXPECT_EQ(refusal([] { seats_text("b,c:2", 4); }), "-n 4: expected at most 3, the slots of --host-list");
  EXPECT_EQ(refusal([] { seats_text("b:4096,c"); }), "--host-list: 4097 slots, expected at most 4096, or -n");
  EXPECT_EQ(refusal([] { seats_text("b:4096,c", 4096); }), "");
}

TEST(RunHosts, TheFirstHostIsWhereTheyMeet) {
  EXPECT_EQ(place("localhost:2"), "");
  EXPECT_EQ(place("localhost,b", "", 1), "") << "nobody runs on b";
  EXPECT_EQ(place("b,c"), "b:21117");
  EXPECT_EQ(place("me@b,localhost"), "b:21117");
  EXPECT_EQ(place("[2001:db8::1],b"), "[2001:db8::1]:21117");
  EXPECT_EQ(place("me@localhost:2"), "localhost:21117");
  EXPECT_EQ(place("b,c", "d:70"), "d:70");
  const std::string own = own_name(), here = place(own + ",b");
  EXPECT_EQ(here.find(own + ":"), 0u) << here;
  EXPECT_NE(here, own + ":21117");
}

TEST(RunHosts, APlaceThatOthersCannotReachIsRefused) {
  EXPECT_EQ(refusal([] { place("localhost,b"); }),
            "--host-list: the first host is \"localhost\", expected a name or an address of it that the "
            "other hosts "
            "can reach, or --rendezvous");
  for (const char* rendezvous : {"127.0.0.1:70", "localhost:70", "[::1]:70"}) {
    EXPECT_EQ(
        refusal([&] { place("b,c", rendezvous); }),
        std::string("--rendezvous \"") + rendezvous + "\": expected a place that the other hosts can reach");
    EXPECT_EQ(place("localhost:2", rendezvous), rendezvous);
  }
  EXPECT_EQ(place("localhost,b", "192.0.2.1:70"), "192.0.2.1:70");
}

TEST(RunHosts, OtherHostsGetWhatIsOfTheRing) {
  const Words all = {"RINGATTN_SECRET=s",   "HOME=/x", "LD_LIBRARY_PATH=/l",
                     "RINGATTN_BAD-NAME=1", "PATH=/p", "nothing"};
  EXPECT_EQ(remote_environment(all, {}), (Words{"RINGATTN_SECRET=s"}));
  EXPECT_EQ(remote_environment(all, {"PATH", "ABSENT"}), (Words{"RINGATTN_SECRET=s", "PATH=/p"}));
  EXPECT_EQ(without_ring(all), (Words{"HOME=/x", "LD_LIBRARY_PATH=/l", "PATH=/p", "nothing"}));
}

TEST(RunHosts, TheCommandIsTheSameForEveryProgram) {
  const Words words = remote_command({"ssh", "-x"}, "b");
  ASSERT_EQ(words.size(), 4u);
  EXPECT_EQ(words[0] + " " + words[1] + " " + words[2], "ssh -x b");
  // Shells of other families read it, too: fish and csh have other ideas of these.
  EXPECT_EQ(words[3].find_first_of("\n!"), std::string::npos);
  EXPECT_EQ(words[3].find("exec /bin/sh -c '"), 0u);
}

}  // namespace
}  // namespace ringattn::tool
