/* What loading UCX does to the process that uses the library: nothing. A program of its own, as it has to see the time
 * before. `loading_test LANES`: runs a ring of two threads over "ucx" and compares signal handlers, the first bytes of
 * libc's memory functions, the number of threads, standard output and UCX_ variables before and after; the log must
 * name LANES. `loading_test missing`: the plugin cannot be loaded, and the message says so. 0 = as it should be. */
#define _GNU_SOURCE 1 /* brk, sbrk, process_vm_readv */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "small_ring.h"

extern char** environ;

static char lanes[512];
static void keep_lanes(void* user, int32_t level, const char* message) {
  (void)user, (void)level;
  const char* const found = strstr(message, "large messages go over ");
  if (found != NULL) snprintf(lanes, sizeof lanes, "%s", found + strlen("large messages go over "));
}

static int entries(const char* folder) {
  int count = 0;
  DIR* const open = opendir(folder);
  while (open != NULL && readdir(open) != NULL) count += 1;
  if (open != NULL) closedir(open);
  return count;
}
static int ucx_variables(void) {
  int count = 0;
  for (char** each = environ; *each != NULL; ++each) count += strncmp(*each, "UCX_", 4) == 0;
  return count;
}

static const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT,
                               SIGHUP,  SIGINT, SIGTERM, SIGCHLD, SIGPIPE};
enum { SIGNALS = sizeof kSignals / sizeof kSignals[0] };

struct process_state {
  void (*handlers[SIGNALS])(int);
  unsigned char code[4][16];
  int threads, variables;
  off_t printed;
};

static void own_handler(int number) { (void)number; }

static struct process_state look(void) {
  struct process_state state;
  memset(&state, 0, sizeof state);
  for (int i = 0; i < SIGNALS; ++i) {
    struct sigaction action;
    sigaction(kSignals[i], NULL, &action);
    state.handlers[i] = action.sa_handler;
  }
  void* const functions[4] = {(void*)munmap, (void*)mmap, (void*)brk, (void*)sbrk};
  for (int i = 0; i < 4; ++i) memcpy(state.code[i], functions[i], sizeof state.code[i]);
  state.threads = entries("/proc/self/task");
  state.variables = ucx_variables();
  struct stat file;
  fflush(stdout);
  state.printed = fstat(STDOUT_FILENO, &file) == 0 ? file.st_size : -1;
  return state;
}

static void check_missing(void) {
  ringattn_context* const context = make_context(keep_lanes);
  ringattn_comm* comms[RANKS];
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = RANKS;
  desc.transport = "ucx";
  const ringattn_status status = ringattn_comm_create_local(context, &desc, comms);
  fprintf(stderr, "%s: %s\n", ringattn_status_name(status), ringattn_last_error());
  expect(status == RINGATTN_ERR_UNSUPPORTED, "a plugin that is missing is UNSUPPORTED");
  expect(strstr(ringattn_last_error(), "libringattn_ucx.so") != NULL, "the message names the file");
  ringattn_context_destroy(context);
}

/* Containers may forbid to read the memory of other processes; then shared memory alone is left. */
static int may_read_processes(void) {
  char from = 1, to = 0;
  const struct iovec here = {&to, 1}, there = {&from, 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

static void check_loading(const char* wanted) {
  for (int i = 0; i < 4; ++i) signal(kSignals[i], own_handler);
  ringattn_context* const context = make_context(keep_lanes);
  const struct process_state before = look();
  ringattn_comm* comms[RANKS];
  make_comms(context, comms);
  run_ring(comms);
  for (int r = 0; r < RANKS; ++r) ringattn_comm_destroy(comms[r]);
  const struct process_state after = look();
  fprintf(stderr, "lanes: %s; threads before and after: %d %d\n", lanes, before.threads, after.threads);
  expect(strcmp(lanes, wanted) == 0, wanted);
  expect(memcmp(before.handlers, after.handlers, sizeof before.handlers) == 0,
         "signal handlers are untouched");
  expect(memcmp(before.code, after.code, sizeof before.code) == 0, "libc's memory functions are untouched");
  expect(before.threads == after.threads, "no thread is left");
  expect(before.variables == after.variables, "no UCX_ variable is left");
  expect(before.printed == after.printed, "nothing goes to standard output");
  ringattn_context_destroy(context);
}

int main(int count, char** arguments) {
  FILE* const file = tmpfile(); /* where standard output can be measured */
  if (count != 2 || file == NULL || dup2(fileno(file), STDOUT_FILENO) < 0) return 2;
  if (strcmp(arguments[1], "missing") == 0) {
    check_missing();
  } else if (strcmp(arguments[1], "posix, cma") == 0 && !may_read_processes()) {
    fprintf(stderr, "process_vm_readv is forbidden here: without cma\n");
    check_loading("posix");
  } else {
    check_loading(arguments[1]);
  }
  return failures == 0 ? 0 : 1;
}
