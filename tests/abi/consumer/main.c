/* A program outside the library's tree: two ranks in one process, causal attention over six tokens.
 * All keys are zero, so every visible key weighs the same: O is the mean of the values so far, lse = ln(how many). */
#include <math.h>
#include <ringattn.h>
#include <ringattn/transport.h>
#include <stdio.h>

enum { RANKS = 2, TOKENS = 6, LOCAL = TOKENS / RANKS, DIM = 4 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, ringattn_last_error());
  return 1;
}

static ringattn_tensor dense(float* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  ringattn_tensor t = RINGATTN_STRUCT(ringattn_tensor);
  t.dtype = RINGATTN_DTYPE_F32;
  t.data = data;
  t.shape[0] = a;
  t.shape[1] = b;
  t.shape[2] = c;
  t.shape[3] = d;
  return t;
}

int main(void) {
  const uint32_t version =
      RINGATTN_VERSION_MAJOR << 16 | RINGATTN_VERSION_MINOR << 8 | RINGATTN_VERSION_PATCH;
  if (ringattn_version() != version) return fail("the header and the library are of different versions");

  ringattn_context* context = NULL;
  ringattn_comm* comms[RANKS] = {NULL};
  ringattn_plan* plans[RANKS] = {NULL};
  ringattn_comm_desc comm = RINGATTN_STRUCT(ringattn_comm_desc);
  comm.world_size = RANKS;
  ringattn_plan_desc desc[RANKS];
  for (int r = 0; r < RANKS; r++) {
    desc[r] = RINGATTN_STRUCT(ringattn_plan_desc);
    desc[r].batch = desc[r].heads = 1;
    desc[r].seq_q = desc[r].seq_k = TOKENS;
    desc[r].head_dim_qk = DIM;
    desc[r].dtype = RINGATTN_DTYPE_F32;
    desc[r].mask = RINGATTN_MASK_CAUSAL;
    desc[r].partition = RINGATTN_PARTITION_CONTIGUOUS;
  }
  if (ringattn_context_create(NULL, &context)) return fail("ringattn_context_create");
  if (ringattn_comm_create_local(context, &comm, comms)) return fail("ringattn_comm_create_local");
  if (ringattn_plan_create_array(RANKS, comms, desc, plans)) return fail("ringattn_plan_create_array");

  float q[TOKENS * DIM], k[TOKENS * DIM], v[TOKENS * DIM], o[TOKENS * DIM], lse[TOKENS];
  for (int i = 0; i < TOKENS * DIM; i++) {
    q[i] = 1.0f;
    k[i] = 0.0f;
    v[i] = (float)(i / DIM); /* the value of a token is its position */
    o[i] = -1.0f;
  }
  ringattn_tensor tq[RANKS], tk[RANKS], tv[RANKS], to[RANKS], tlse[RANKS];
  ringattn_forward_args args[RANKS];
  for (int r = 0; r < RANKS; r++) {
    const int first = r * LOCAL * DIM;
    tq[r] = dense(q + first, 1, LOCAL, 1, DIM);
    tk[r] = dense(k + first, 1, LOCAL, 1, DIM);
    tv[r] = dense(v + first, 1, LOCAL, 1, DIM);
    to[r] = dense(o + first, 1, LOCAL, 1, DIM);
    tlse[r] = dense(lse + r * LOCAL, 1, 1, LOCAL, 1);
    args[r] = RINGATTN_STRUCT(ringattn_forward_args);
    args[r].q = &tq[r];
    args[r].k = &tk[r];
    args[r].v = &tv[r];
    args[r].o = &to[r];
    args[r].lse = &tlse[r];
  }
  if (ringattn_forward_array(RANKS, plans, args, NULL)) return fail("ringattn_forward_array");

  int wrong = 0;
  for (int i = 0; i < TOKENS; i++) {
    wrong += fabs(lse[i] - log(i + 1.0)) > 1e-5;
    for (int d = 0; d < DIM; d++) wrong += fabs(o[i * DIM + d] - i / 2.0) > 1e-5;
  }
  for (int r = 0; r < RANKS; r++) ringattn_plan_destroy(plans[r]);
  for (int r = 0; r < RANKS; r++) ringattn_comm_destroy(comms[r]);
  ringattn_context_destroy(context);
  printf("%d wrong values\n", wrong);
  return wrong != 0;
}
