/* A ring of two threads over "ucx" whose result is known, for programs that look at what UCX does to their process. */
#ifndef RINGATTN_TESTS_UCX_SMALL_RING_H
#define RINGATTN_TESTS_UCX_SMALL_RING_H
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static ringattn_tensor tensor_of(float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  const int64_t shape[4] = {a, b, c, d};
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  memcpy(tensor.shape, shape, sizeof shape);
  return tensor;
}

/* Queries are zero, so O is the mean of V over all tokens: here (TOKENS - 1) / 2. What the forward call came to. */
static ringattn_status try_ring(ringattn_comm** comms) {
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
  const ringattn_status status = ringattn_forward_array(RANKS, plans, args, NULL);
  for (int r = 0; r < RANKS; ++r) {
    const float error = ((float*)o[r].data)[0] - (TOKENS - 1) / 2.0f;
    expect(status != RINGATTN_OK || (error < 0.01f && error > -0.01f), "the ring computes the mean of V");
    ringattn_plan_destroy(plans[r]);
    free(q[r].data), free(k[r].data), free(o[r].data);
  }
  return status;
}
static void run_ring(ringattn_comm** comms) { must(try_ring(comms), "forward"); }

static ringattn_context* make_context(ringattn_log_fn log) {
  ringattn_context_desc desc = RINGATTN_STRUCT(ringattn_context_desc);
  ringattn_context* context = NULL;
  desc.threads = 1;
  desc.log = log;
  desc.log_level = RINGATTN_LOG_INFO;
  must(ringattn_context_create(&desc, &context), "context");
  return context;
}

static void make_comms(ringattn_context* context, ringattn_comm** comms) {
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  desc.world_size = RANKS;
  desc.transport = "ucx";
  must(ringattn_comm_create_local(context, &desc, comms), "comms");
}

#endif /* RINGATTN_TESTS_UCX_SMALL_RING_H */
