/* Four ranks in one process, driven by one thread through the array forms.
 *
 * Queries are zero, so every visible key weighs the same, and the value of token j is j. With a causal mask row i
 * is then the mean of 0..i: i / 2, and lse is ln(i + 1). The program checks both and ends with 0 if they are right. */
#include <math.h>
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, TOKENS = 1003, HEADS = 4, KV_HEADS = 2, DIM = 16 };

static void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  exit(1);
}

/* A dense tensor [1, tokens, heads, dim] of its own memory, all zero. */
static ringattn_tensor make_tensor(int64_t tokens, int64_t heads, int64_t dim) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  const size_t elements = (size_t)(tokens * heads * dim);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.shape[0] = 1;
  tensor.shape[1] = tokens;
  tensor.shape[2] = heads;
  tensor.shape[3] = dim;
  tensor.data = calloc(elements > 0 ? elements : 1, sizeof(float));
  if (tensor.data == NULL) exit(1);
  return tensor;
}

/* Tensor of one rank's lse: [batch, head, seq, 1]. */
static ringattn_tensor make_lse(int64_t tokens) { return make_tensor(HEADS, tokens, 1); }

int main(void) {
  ringattn_context* context = NULL;
  ringattn_comm* comms[RANKS];
  ringattn_plan* plans[RANKS];
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc);
  ringattn_plan_desc descs[RANKS];
  ringattn_forward_args args[RANKS];
  ringattn_tensor q[RANKS], k[RANKS], v[RANKS], o[RANKS], lse[RANKS];
  ringattn_tensor values = make_tensor(TOKENS, KV_HEADS, DIM), result = make_tensor(TOKENS, HEADS, DIM);
  float *value = values.data, *answer = result.data;
  double worst = 0;

  must(ringattn_context_create(NULL, &context), "context");
  ring.world_size = RANKS;
  must(ringattn_comm_create_local(context, &ring, comms), "comms");

  for (int rank = 0; rank < RANKS; ++rank) {
    ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
    desc.batch = 1;
    desc.seq_q = desc.seq_k = TOKENS;
    desc.heads = HEADS;
    desc.kv_heads = KV_HEADS;
    desc.head_dim_qk = DIM;
    desc.dtype = RINGATTN_DTYPE_F32;
    desc.mask = RINGATTN_MASK_CAUSAL;
    desc.partition = RINGATTN_PARTITION_ZIGZAG;
    descs[rank] = desc;
  }
  must(ringattn_plan_create_array(RANKS, comms, descs, plans), "plans");

  for (int64_t i = 0; i < TOKENS * KV_HEADS * DIM; ++i) value[i] = (float)(i / (KV_HEADS * DIM));
  for (int rank = 0; rank < RANKS; ++rank) {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    must(ringattn_plan_get_info(plans[rank], NULL, &info), "info");
    printf("rank %d: %ld tokens, %d steps, %.0f pairs, %lu bytes received\n", rank, (long)info.local_k,
           (int)info.steps, info.pairs, (unsigned long)info.bytes_received);
    q[rank] = make_tensor(info.local_q, HEADS, DIM);
    k[rank] = make_tensor(info.local_k, KV_HEADS, DIM);
    v[rank] = make_tensor(info.local_k, KV_HEADS, DIM);
    o[rank] = make_tensor(info.local_q, HEADS, DIM);
    lse[rank] = make_lse(info.local_q);
    must(ringattn_shard(plans[rank], RINGATTN_AXIS_KEY, rank, NULL, &values, &v[rank]), "shard");
    args[rank] = RINGATTN_STRUCT(ringattn_forward_args);
    args[rank].q = &q[rank];
    args[rank].k = &k[rank];
    args[rank].v = &v[rank];
    args[rank].o = &o[rank];
    args[rank].lse = &lse[rank];
  }

  must(ringattn_forward_array(RANKS, plans, args, NULL), "forward");

  for (int rank = 0; rank < RANKS; ++rank) {
    int64_t position[TOKENS];
    uint64_t count = 0;
    const float* sums = lse[rank].data;
    must(ringattn_unshard(plans[rank], RINGATTN_AXIS_QUERY, rank, NULL, &o[rank], &result), "unshard");
    must(ringattn_plan_positions(plans[rank], RINGATTN_AXIS_QUERY, rank, 0, NULL, NULL, position, TOKENS,
                                 &count),
         "positions");
    for (uint64_t i = 0; i < count; ++i) worst = fmax(worst, fabs(sums[i] - log((double)position[i] + 1)));
  }
  for (int64_t i = 0; i < TOKENS * HEADS * DIM; ++i) {
    const double expected = (double)(i / (HEADS * DIM)) / 2;
    worst = fmax(worst, fabs(answer[i] - expected) / (1 + expected));
  }
  printf("largest error: %.1e\n", worst);

  for (int rank = 0; rank < RANKS; ++rank) {
    free(q[rank].data);
    free(k[rank].data);
    free(v[rank].data);
    free(o[rank].data);
    free(lse[rank].data);
    ringattn_plan_destroy(plans[rank]);
    ringattn_comm_destroy(comms[rank]);
  }
  free(values.data);
  free(result.data);
  ringattn_context_destroy(context);
  return worst < 1e-5 ? 0 : 1;
}
