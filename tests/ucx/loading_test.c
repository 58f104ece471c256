/* What loading UCX does to the process that uses the library: nothing. A program of its own, as it has to see the time
 * before. `loading_test LANES`: runs a ring of two threads over "ucx" and compares signal handlers, the first bytes of
 * libc's memory functions, the number of threads, standard output and UCX_ variables before and after; the log must
 * name LANES. `loading_test missing`: the plugin cannot be loaded, and the message says so. 0 = as it should be. */
#define _GNU_SOURCE 1 /* brk, sbrk, process_vm_readv */
#include <dirent.h>
#include <pthread.h>
#include <ringattn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

extern char** environ;
enum { RANKS = 2, TOKENS = 4096, DIM = 64 };

static int failures = 0;
static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAILED: %s\n", what);
  failures += 1;
}
static void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  exit(1);
}

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

static ringattn_tensor tensor_of(float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  const int64_t shape[4] = {a, b, c, d};
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  memcpy(tensor.shape, shape, sizeof shape);
  return tensor;
}

/* Queries are zero, so O is the mean of V over all tokens: here (TOKENS - 1) / 2. */
static void run_ring(ringattn_context* context, ringattn_comm** comms) {
  ringattn_plan* plans[RANKS];
  ringattn_plan_desc descs[RANKS];
  for (int r = 0; r < RANKS; ++r) {
    descs[r] = (ringattn_plan_desc)RINGATTN_STRUCT(ringattn_plan_desc);
    descs[r].batch = descs[r].heads = 1;
    descs[r].seq_q = descs[r].seq_k = TOKENS;
    descs[r].head_dim_qk = DIM;
    descs[r].dtype = RINGATTN_DTYPE_F32;
  }
  must(ringattn_plan_create_array(RANKS, comms, descs, plans), "plans");
  ringattn_forward_args args[RANKS];
  ringattn_tensor q[RANKS], k[RANKS], o[RANKS];
  const int64_t rows = TOKENS / RANKS;
  for (int r = 0; r < RANKS; ++r) {
    const size_t floats = (size_t)(rows * DIM);
    q[r] = tensor_of(calloc(floats, sizeof(float)), 1, rows, 1, DIM);
    k[r] = tensor_of(calloc(floats, sizeof(float)), 1, rows, 1, DIM);
    o[r] = tensor_of(calloc(floats, sizeof(float)), 1, rows, 1, DIM);
    for (int64_t i = 0; i < rows; ++i) ((float*)k[r].data)[i * DIM] = (float)(r * rows + i);
    args[r] = (ringattn_forward_args)RINGATTN_STRUCT(ringattn_forward_args);
    args[r].q = &q[r], args[r].k = args[r].v = &k[r], args[r].o = &o[r];
  }
  must(ringattn_forward_array(RANKS, plans, args, NULL), "forward");
  for (int r = 0; r < RANKS; ++r) {
    const float error = ((float*)o[r].data)[0] - (TOKENS - 1) / 2.0f;
    expect(error < 0.01f && error > -0.01f, "the ring computes the mean of V");
    ringattn_plan_destroy(plans[r]);
    free(q[r].data), free(k[r].data), free(o[r].data);
  }
  (void)context;
}

static ringattn_context* make_context(void) {
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  ringattn_context* context = NULL;
  desc.threads = 1;
  desc.log = keep_lanes;
  desc.log_level = RINGATTN_LOG_INFO;
  must(ringattn_context_create(&desc, &context), "context");
  return context;
}

static void check_missing(void) {
  ringattn_context* const context = make_context();
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
  ringattn_context* const context = make_context();
  const struct process_state before = look();
  ringattn_comm* comms[RANKS];
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = RANKS;
  desc.transport = "ucx";
  must(ringattn_comm_create_local(context, &desc, comms), "comms");
  run_ring(context, comms);
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
