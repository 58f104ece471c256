// Which rank this is and where the ranks meet: every launcher's variables, missing ones, and nonsense.
#include "comm/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "comm/launcher_meet.h"
#include "comm/launcher_variables.h"
#include "tests/comm/meeting_case.h"

namespace ringattn::comm {
namespace {

using Environment = std::map<std::string, std::string>;

const char* const kSecretText = "0123456789abcdef0123456789abcdef";

Status read(const Environment& variables, Launch& out) {
  return read_launch(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      out);
}

Launch good(const Environment& variables) {
  Launch launch;
  expect_ok(read(variables, launch));
  return launch;
}

void refused(const Environment& variables, const std::vector<std::string>& words,
             ringattn_status code = RINGATTN_ERR_INVALID_ARGUMENT) {
  Launch launch;
  expect_failure(read(variables, launch), code, words);
}

Environment with(Environment variables, const Environment& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Environment without(Environment variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

bool same_secret(const Launch& a, const Launch& b) {
  return equal_in_constant_time(a.secret.bytes(), b.secret.bytes());
}

const Environment kOwn = {
    {"RINGATTN_RANK", "1"}, {"RINGATTN_WORLD_SIZE", "4"}, {"RINGATTN_RENDEZVOUS", "127.0.0.1:4711"}};
const Environment kTorch = {{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                            {"RINGATTN_SECRET", kSecretText}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                              {"PMIX_NAMESPACE", "1234567169"}};
const Environment kSlurm = {{"SLURM_PROCID", "2"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NNODES", "2"},
                            {"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NODELIST", "n[1-3,7]"},
                            {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.9"},
                            {"RINGATTN_SECRET", kSecretText}};

TEST(Launcher, OwnVariables) {
  const Launch launch = good(with(kOwn, {{"RINGATTN_LOCAL_RANK", "1"}, {"RINGATTN_INTERFACE", "eth0"}}));
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.host, "127.0.0.1");
  EXPECT_EQ(launch.port, 4711);
  EXPECT_EQ(launch.interface, "eth0");
  EXPECT_EQ(launch.source, "RINGATTN_RANK: rank 1 of 4, meeting at 127.0.0.1:4711 (RINGATTN_RENDEZVOUS)");
  EXPECT_EQ(good(kOwn).local_rank, -1);
}

TEST(Launcher, OwnVariablesThatAreMissing) {
  refused(without(kOwn, "RINGATTN_RANK"), {"RINGATTN_RANK: not set", "number of this rank"});
  refused(without(kOwn, "RINGATTN_WORLD_SIZE"), {"RINGATTN_WORLD_SIZE: not set", "number of ranks"});
  refused(without(kOwn, "RINGATTN_RENDEZVOUS"), {"RINGATTN_RENDEZVOUS: not set", "host:port"});
  refused(with(kOwn, {{"RINGATTN_RANK", ""}}), {"RINGATTN_RANK: not set"});
}

TEST(Launcher, NumbersThatMakeNoSense) {
  for (const char* rank : {"x", "1x", " 1", "-1", "99999999999999999999", "1.0", "0x1"}) {
    refused(with(kOwn, {{"RINGATTN_RANK", rank}}),
            {std::string("RINGATTN_RANK: \"") + rank + "\"", "0..4095"});
  }
  refused(with(kOwn, {{"RINGATTN_RANK", "4"}}),
          {"RINGATTN_RANK: 4, expected 0..3", "RINGATTN_WORLD_SIZE is 4"});
  refused(with(kOwn, {{"RINGATTN_WORLD_SIZE", "0"}}), {"RINGATTN_WORLD_SIZE: \"0\"", "1..4096"});
  refused(with(kOwn, {{"RINGATTN_WORLD_SIZE", "4097"}}), {"RINGATTN_WORLD_SIZE", "1..4096"});
  refused(with(kOwn, {{"RINGATTN_LOCAL_RANK", "many"}}), {"RINGATTN_LOCAL_RANK: \"many\""});
}

TEST(Launcher, PlacesThatMakeNoSense) {
  for (const char* place :
       {"node", "node:", ":80", "node:0", "node:65536", "node:http", "::1:80", "[::1]", "[node]:80",
        "[127.0.0.1]:80", "a b:80", "0.0.0.0:80", "[::]:80", "http://node:80"}) {
    refused(with(kOwn, {{"RINGATTN_RENDEZVOUS", place}}), {std::string("RINGATTN_RENDEZVOUS: \"") + place});
  }
  EXPECT_EQ(good(with(kOwn, {{"RINGATTN_RENDEZVOUS", "[::1]:80"}})).host, "::1");
  EXPECT_EQ(good(with(kOwn, {{"RINGATTN_RENDEZVOUS", "localhost:80"}})).host, "localhost");
}

TEST(Launcher, BeyondLoopbackASecretIsNeeded) {
  for (const char* place : {"192.0.2.1:80", "node:80", "[2001:db8::1]:80"}) {
    const Environment open = with(kOwn, {{"RINGATTN_RENDEZVOUS", place}});
    refused(open, {"RINGATTN_SECRET: not set", "not loopback", "RINGATTN_INSECURE=1"});
    refused(with(open, {{"RINGATTN_INSECURE", "0"}}), {"RINGATTN_SECRET: not set"});
    good(with(open, {{"RINGATTN_INSECURE", "1"}}));
    good(with(open, {{"RINGATTN_SECRET", kSecretText}}));
    refused(with(open, {{"RINGATTN_INSECURE", "yes"}}), {"RINGATTN_INSECURE: \"yes\"", "0 or 1"});
  }
}

TEST(Launcher, ASecretIsNeverShown) {
  refused(with(kOwn, {{"RINGATTN_SECRET", "hunter2"}}), {"RINGATTN_SECRET: 7 characters", "at least 16"});
  Launch launch;
  EXPECT_EQ(read(with(kOwn, {{"RINGATTN_SECRET", "hunter2"}}), launch).message().find("hunter2"),
            std::string::npos);
  EXPECT_EQ(good(with(kOwn, {{"RINGATTN_SECRET", kSecretText}})).source.find(kSecretText), std::string::npos);
  EXPECT_FALSE(same_secret(good(kOwn), good(with(kOwn, {{"RINGATTN_SECRET", kSecretText}}))));
  EXPECT_TRUE(same_secret(good(kOwn), good(with(kOwn, {{"RINGATTN_RANK", "2"}}))));
}

TEST(Launcher, Torchrun) {
  const Launch launch = good(kTorch);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.host, "node7");
  EXPECT_EQ(launch.port, 29500 + 1117);
  EXPECT_EQ(launch.source, "torchrun: rank 3 of 4, meeting at node7:30617");
  EXPECT_EQ(good(with(kTorch, {{"MASTER_PORT", "65000"}})).port, 65000 - 1117);
  EXPECT_EQ(good(with(kTorch, {{"RINGATTN_RENDEZVOUS", "m:5"}})).port, 5);
}

TEST(Launcher, TorchrunOnOneHostMeetsOnLoopback) {
  const Launch launch = good(without(with(kTorch, {{"LOCAL_WORLD_SIZE", "4"}}), "RINGATTN_SECRET"));
  EXPECT_EQ(launch.host, "127.0.0.1");
  EXPECT_EQ(launch.port, 30617);
}

TEST(Launcher, TorchrunsRunAndRestartArePartOfTheKey) {
  const Launch launch = good(kTorch);
  EXPECT_FALSE(same_secret(launch, good(with(kTorch, {{"TORCHELASTIC_RUN_ID", "other"}}))));
  EXPECT_FALSE(same_secret(launch, good(with(kTorch, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))));
  EXPECT_TRUE(same_secret(launch, good(with(kTorch, {{"RANK", "0"}}))));
}

TEST(Launcher, TorchrunsVariablesThatAreMissing) {
  refused(without(kTorch, "RANK"), {"RANK: not set"});
  refused(without(kTorch, "WORLD_SIZE"), {"WORLD_SIZE: not set"});
  refused(without(kTorch, "MASTER_ADDR"), {"MASTER_ADDR: not set", "host of rank 0"});
  refused(without(kTorch, "MASTER_PORT"), {"MASTER_PORT: not set", "a port"});
  refused(without(kTorch, "RINGATTN_SECRET"), {"RINGATTN_SECRET: not set", "node7"});
  refused(with(kTorch, {{"MASTER_ADDR", "0.0.0.0"}}), {"MASTER_ADDR: \"0.0.0.0\""});
  refused(with(kTorch, {{"RANK", "4"}}), {"RANK: 4, expected 0..3"});
}

TEST(Launcher, OpenMpi) {
  const Launch launch = good(kOpenMpi);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.host, "127.0.0.1");
  EXPECT_GE(launch.port, 16384);
  EXPECT_LE(launch.port, 32767);
  EXPECT_NE(launch.port, good(with(kOpenMpi, {{"PMIX_NAMESPACE", "1234567170"}})).port);
  EXPECT_EQ(launch.port, good(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).port);
  refused(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE: not set"});
  refused(without(kOpenMpi, "PMIX_NAMESPACE"), {"PMIX_NAMESPACE: not set"});
  refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
          {"RINGATTN_RENDEZVOUS: not set", "several hosts"});
  const Launch far = good(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                          {"RINGATTN_RENDEZVOUS", "n1:9"},
                                          {"RINGATTN_SECRET", kSecretText}}));
  EXPECT_EQ(far.host, "n1");
}

TEST(Launcher, Slurm) {
  const Launch launch = good(kSlurm);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_rank, 0);
  EXPECT_EQ(launch.host, "n1");
  EXPECT_GE(launch.port, 16384);
  EXPECT_LE(launch.port, 32767);
  EXPECT_NE(launch.port, good(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port);
  EXPECT_FALSE(same_secret(launch, good(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))));
  EXPECT_EQ(good(without(kSlurm, "SLURM_STEP_NODELIST")).host, "192.0.2.9");
  EXPECT_EQ(good(with(kSlurm, {{"SLURM_NNODES", "1"}})).host, "127.0.0.1");
  refused(without(kSlurm, "SLURM_NTASKS"), {"SLURM_NTASKS: not set"});
  refused(without(kSlurm, "SLURM_JOB_ID"), {"SLURM_JOB_ID: not set"});
  refused(without(without(kSlurm, "SLURM_STEP_NODELIST"), "SLURM_LAUNCH_NODE_IPADDR"),
          {"SLURM_LAUNCH_NODE_IPADDR: not set", "SLURM_STEP_NODELIST"});
  refused(with(kSlurm, {{"SLURM_STEP_NODELIST", "n["}}), {"SLURM_STEP_NODELIST: \"n[\""});
}

TEST(Launcher, ListsOfNodes) {
  const Environment lists = {{"n1", "n1"},           {"n[1-3,7]", "n1"},
                             {"n[7,1-3]", "n7"},     {"n[001-128],m2", "n001"},
                             {"m2,n[1-3]", "m2"},    {"rack[01-03]n[4,6]", "rack01n4"},
                             {"n[1-2]-ib", "n1-ib"}, {"gpu-a.example.org,x", "gpu-a.example.org"}};
  for (const auto& [list, first] : lists) {
    std::string node;
    expect_ok(first_node("LIST", list, node));
    EXPECT_EQ(node, first) << list;
  }
  for (const char* list : {"", ",", "n[", "n[]", "n[1-3", "n]", "n[[1]]", "n[a-b]", "n 1", "n[-3]"}) {
    std::string node;
    EXPECT_FALSE(first_node("LIST", list, node).ok()) << list << " gave " << node;
  }
}

TEST(Launcher, TheOrderOfLaunchers) {
  const Environment all = with(with(kSlurm, kOpenMpi), kTorch);
  EXPECT_EQ(good(with(all, kOwn)).source.substr(0, 13), "RINGATTN_RANK");
  EXPECT_EQ(good(all).source.substr(0, 8), "torchrun");
  EXPECT_EQ(good(with(kSlurm, kOpenMpi)).source.substr(0, 8), "Open MPI");
  EXPECT_EQ(good(kSlurm).source.substr(0, 5), "Slurm");
  refused({}, {"none found", "RINGATTN_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"},
          RINGATTN_ERR_NOT_FOUND);
  refused({{"RANK", "0"}}, {"none found"}, RINGATTN_ERR_NOT_FOUND);
}

TEST(Launcher, OneRankNeedsNoPlace) {
  const Launch launch = good({{"RINGATTN_RANK", "0"}, {"RINGATTN_WORLD_SIZE", "1"}});
  std::unique_ptr<MeetingHost> host;
  std::unique_ptr<Meeting> meeting;
  expect_ok(meet(launch, 5'000, host, meeting));
  expect_ok(gather_rounds(*meeting, 2));
  expect_ok(meeting->leave());
}

// Ranks do not agree on when one meeting ends and the next one, at the same place with the same key, begins.
TEST(Launcher, MeetingsFollowOneAnotherAtTheSamePlace) {
  std::uint16_t port = 0;
  {
    std::unique_ptr<MeetingHost> host;
    expect_ok(MeetingHost::start(loopback_host(1), host));
    port = host->id().port();
  }
  const std::string place = "127.0.0.1:" + std::to_string(port);
  support::run_threads(3, [&](int rank) {
    const Launch launch = good({{"RINGATTN_RANK", std::to_string(rank)},
                                {"RINGATTN_WORLD_SIZE", "3"},
                                {"RINGATTN_RENDEZVOUS", place}});
    for (int i = 0; i < 10; ++i) {
      std::unique_ptr<MeetingHost> host;
      std::unique_ptr<Meeting> meeting;
      const Status status = meet(launch, 20'000, host, meeting);
      expect_ok(status);
      if (!status.ok()) return;
      expect_ok(gather_rounds(*meeting, 1));
      expect_ok(meeting->leave());
      if (host) expect_ok(host->wait(5'000));
    }
  });
}

TEST(Launcher, RankZeroSaysThatThePortIsTaken) {
  std::unique_ptr<MeetingHost> holder, host;
  expect_ok(MeetingHost::start(loopback_host(1), holder));
  const Launch launch = good({{"RINGATTN_RANK", "0"},
                              {"RINGATTN_WORLD_SIZE", "2"},
                              {"RINGATTN_RENDEZVOUS", "127.0.0.1:" + std::to_string(holder->id().port())}});
  std::unique_ptr<Meeting> meeting;
  expect_failure(meet(launch, 5'000, host, meeting), RINGATTN_ERR_TRANSPORT, {"Address already in use"});
  EXPECT_EQ(host, nullptr);
  EXPECT_EQ(meeting, nullptr);
}

}  // namespace
}  // namespace ringattn::comm
