/* Where UCX does not let go of what it was given, that is left behind and the process lives: to destroy it would end the
 * process. UCX does so when something in it or below fails, so this program stands in its way: the plugin finds these
 * functions before UCX's own. 0 = as it should be. */
#define _GNU_SOURCE 1 /* clock_gettime, nanosleep */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "small_ring.h"

/* What the functions below are told to do. */
static atomic_int keep_receives = 0; /* a receive is taken, and nothing is ever heard of it again */
static atomic_int keep_closes = 0;   /* an endpoint is never known to be closed */
static atomic_int kept = 0, asked = 0;

static void* real(const char* name) {
  void* const library = dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
  void* const function = library == NULL ? NULL : dlsym(library, name);
  if (function == NULL) abort();
  return function;
}

/* As in ucp/api/ucp.h, with pointers for what is not looked into. */
enum { IN_PROGRESS = 1 };
static char kept_request[256];

void* ucp_tag_recv_nbx(void* worker, void* buffer, size_t count, uint64_t tag, uint64_t mask,
                       const void* param) {
  if (!keep_receives)
    return ((void* (*)(void*, void*, size_t, uint64_t, uint64_t, const void*))real("ucp_tag_recv_nbx"))(
        worker, buffer, count, tag, mask, param);
  atomic_fetch_add(&kept, 1);
  return kept_request;
}

void ucp_request_cancel(void* worker, void* request) {
  if (request != kept_request) ((void (*)(void*, void*))real("ucp_request_cancel"))(worker, request);
}

/* UCX closes it, and never says so. */
void* ucp_ep_close_nbx(void* endpoint, const void* param) {
  void* const closing = ((void* (*)(void*, const void*))real("ucp_ep_close_nbx"))(endpoint, param);
  return keep_closes ? kept_request : closing;
}

signed char ucp_request_check_status(void* request) {
  if (request != kept_request) return ((signed char (*)(void*))real("ucp_request_check_status"))(request);
  atomic_fetch_add(&asked, 1);
  return IN_PROGRESS;
}

static char errors[4096];
static void keep_errors(void* user, int32_t level, const char* message) {
  (void)user;
  if (level != RINGATTN_LOG_ERROR) return;
  strncat(errors, message, sizeof errors - strlen(errors) - 1);
  strncat(errors, "; ", sizeof errors - strlen(errors) - 1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void* abort_soon(void* comm) {
  for (double until = now() + 10; kept == 0 && now() < until;)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  must(ringattn_comm_abort(comm, "enough"), "abort");
  return NULL;
}

static void destroy(ringattn_comm** comms) {
  for (int r = 0; r < RANKS; ++r) ringattn_comm_destroy(comms[r]);
}

static void check_that_it_goes_on(ringattn_context* context) {
  ringattn_comm* comms[RANKS];
  make_comms(context, comms);
  run_ring(comms);
  destroy(comms);
}

/* The calls end all the same, though only after a second: until then the memory may be in use. */
static void check_receives(ringattn_context* context) {
  ringattn_comm* comms[RANKS];
  make_comms(context, comms);
  keep_receives = 1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, abort_soon, comms[0]) != 0) abort();
  const double start = now();
  const ringattn_status status = try_ring(comms);
  const double took = now() - start;
  pthread_join(thread, NULL);
  destroy(comms);
  keep_receives = 0;
  fprintf(stderr, "%d receives kept: %s after %.2f s; log: %s\n", kept, ringattn_status_name(status), took,
          errors);
  expect(kept > 0, "receives go by UCX");
  expect(status == RINGATTN_ERR_ABORTED, "the call ends with the abort");
  expect(took > 0.9 && took < 8, "it ends after a second");
  expect(strstr(errors, "could not be taken back within a second") != NULL,
         "that memory is left behind is logged");
}

static void check_closes(ringattn_context* context) {
  ringattn_comm* comms[RANKS];
  make_comms(context, comms);
  run_ring(comms);
  keep_closes = 1;
  const double start = now();
  destroy(comms);
  const double took = now() - start;
  keep_closes = 0;
  fprintf(stderr, "asked %d times: two comms were destroyed after %.2f s\n", asked, took);
  expect(asked > 0, "endpoints are closed by UCX");
  expect(took > 0.9 && took < 8, "what is not closed within a second is left behind");
}

int main(void) {
  ringattn_context* const context = make_context(keep_errors);
  check_that_it_goes_on(context);
  check_receives(context);
  check_that_it_goes_on(context);
  check_closes(context);
  check_that_it_goes_on(context);
  ringattn_context_destroy(context);
  return failures == 0 ? 0 : 1;
}
