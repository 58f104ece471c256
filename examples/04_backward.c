/* A training step's attention on four ranks: forward, then the gradients. One thread, array forms.
 *
 * Queries are zero, so row i weighs the keys 0..i alike: 1 / (i + 1) each. Key j and value j are the number j in
 * channel 0, and the gradient of row i is i + 1 there. In closed form, per head:
 *     dV[j] = sum over i >= j of (i + 1) / (i + 1)       = N - j
 *     dQ[i] = scale (i + 1) variance of the numbers 0..i = scale (i + 1) i (i + 2) / 12
 *     dK    = 0, as q is 0
 * The program checks all three and ends with 0 if they are right. */
#include <math.h>
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, TOKENS = 503, DIM = 16 };

static void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  exit(1);
}

/* A dense tensor of its own memory, all zero. */
static ringattn_tensor make_tensor(int64_t seq, int64_t dim) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.shape[0] = tensor.shape[2] = 1;
  tensor.shape[1] = seq;
  tensor.shape[3] = dim;
  tensor.data = calloc((size_t)(seq * dim + 1), sizeof(float));
  if (tensor.data == NULL) exit(1);
  return tensor;
}

static float* row(const ringattn_tensor* tensor, int64_t i) {
  return (float*)tensor->data + i * tensor->shape[3];
}

int main(void) {
  ringattn_context* context = NULL;
  ringattn_comm* comms[RANKS];
  ringattn_plan* plans[RANKS];
  ringattn_plan_desc descs[RANKS];
  ringattn_tensor q[RANKS], k[RANKS], o[RANKS], lse[RANKS], d_o[RANKS], d_q[RANKS], d_k[RANKS], d_v[RANKS];
  ringattn_forward_args forward[RANKS];
  ringattn_backward_args backward[RANKS];
  int64_t positions[RANKS][TOKENS];
  const double scale = 1 / sqrt((double)DIM);
  double worst = 0;

  must(ringattn_context_create(NULL, &context), "context");
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc);
  ring.world_size = RANKS;
  must(ringattn_comm_create_local(context, &ring, comms), "comms");
  for (int r = 0; r < RANKS; ++r) {
    ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
    desc.flags = RINGATTN_PLAN_BACKWARD; /* the same plan runs both */
    desc.batch = desc.heads = 1;
    desc.seq_q = desc.seq_k = TOKENS;
    desc.head_dim_qk = DIM;
    desc.dtype = RINGATTN_DTYPE_F32;
    desc.mask = RINGATTN_MASK_CAUSAL;
    desc.partition = RINGATTN_PARTITION_ZIGZAG;
    descs[r] = desc;
  }
  must(ringattn_plan_create_array(RANKS, comms, descs, plans), "plans");

  for (int r = 0; r < RANKS; ++r) {
    uint64_t count = 0;
    must(ringattn_plan_positions(plans[r], RINGATTN_AXIS_KEY, r, 0, NULL, NULL, positions[r], TOKENS, &count),
         "positions");
    const int64_t n = (int64_t)count;
    q[r] = make_tensor(n, DIM), k[r] = make_tensor(n, DIM), o[r] = make_tensor(n, DIM),
    d_o[r] = make_tensor(n, DIM);
    d_q[r] = make_tensor(n, DIM), d_k[r] = make_tensor(n, DIM), d_v[r] = make_tensor(n, DIM);
    lse[r] = make_tensor(1, 1);
    lse[r].shape[2] = n; /* [batch, head, seq, 1] */
    lse[r].data = realloc(lse[r].data, (size_t)(n + 1) * sizeof(float));
    if (lse[r].data == NULL) exit(1);
    for (int64_t i = 0; i < n; ++i) {
      row(&k[r], i)[0] = (float)positions[r][i];
      row(&d_o[r], i)[0] = (float)(positions[r][i] + 1);
    }
    forward[r] = RINGATTN_STRUCT(ringattn_forward_args);
    forward[r].q = &q[r], forward[r].k = forward[r].v = &k[r], forward[r].o = &o[r], forward[r].lse = &lse[r];
    backward[r] = RINGATTN_STRUCT(ringattn_backward_args);
    backward[r].q = &q[r], backward[r].k = backward[r].v = &k[r], backward[r].o = &o[r],
    backward[r].lse = &lse[r];
    backward[r].d_o = &d_o[r], backward[r].d_q = &d_q[r], backward[r].d_k = &d_k[r],
    backward[r].d_v = &d_v[r];
  }
  must(ringattn_forward_array(RANKS, plans, forward, NULL), "forward");
  must(ringattn_backward_array(RANKS, plans, backward, NULL), "backward");

  for (int r = 0; r < RANKS; ++r) {
    for (int64_t i = 0; i < k[r].shape[1]; ++i) {
      const double p = (double)positions[r][i];
      const double expected_q = scale * (p + 1) * p * (p + 2) / 12, expected_v = TOKENS - p;
      worst = fmax(worst, fabs(row(&d_q[r], i)[0] - expected_q) / (1 + expected_q));
      worst = fmax(worst, fabs(row(&d_v[r], i)[0] - expected_v) / expected_v);
      worst = fmax(worst, fabs(row(&d_k[r], i)[0]));
    }
  }
  for (int r = 0; r < RANKS; ++r) {
    ringattn_plan_destroy(plans[r]);
    ringattn_comm_destroy(comms[r]);
    free(q[r].data), free(k[r].data), free(o[r].data), free(lse[r].data), free(d_o[r].data);
    free(d_q[r].data), free(d_k[r].data), free(d_v[r].data);
  }
  ringattn_context_destroy(context);
  printf("largest error of a gradient, relative to it: %.1e\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
