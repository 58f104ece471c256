/* A transport of the application, registered and then used by its name. The transport is in 07_queue_transport.h.
 *
 * Each rank has a thread. Queries are zero and the value of token j is j, so under the causal mask row i of the output is the
 * mean of 0..i. 0 means that every rank's rows are right. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "07_queue_transport.h"

enum { RANKS = 3, TOKENS = 300 };
static ringattn_comm* comms[RANKS];
static double worst[RANKS]; /* the largest error of each rank */

static ringattn_tensor view_of(float* data, uint64_t tokens) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  tensor.shape[0] = tensor.shape[2] = tensor.shape[3] = 1;
  tensor.shape[1] = (int64_t)tokens;
  return tensor;
}

static ringattn_status attend(ringattn_comm* comm, int32_t rank, ringattn_plan** plan) {
  float zero[TOKENS] = {0}, value[TOKENS], out[TOKENS];
  int64_t position[TOKENS];
  uint64_t count = 0;
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = desc.heads = desc.head_dim_qk = 1;
  desc.seq_q = desc.seq_k = TOKENS;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  desc.partition = RINGATTN_PARTITION_ZIGZAG;
  ringattn_status status = ringattn_plan_create(comm, &desc, plan);
  if (status != RINGATTN_OK) return status;
  status = ringattn_plan_positions(*plan, RINGATTN_AXIS_KEY, rank, 0, NULL, NULL, position, TOKENS, &count);
  if (status != RINGATTN_OK) return status;
  for (uint64_t i = 0; i < count; ++i) value[i] = (float)position[i];
  const ringattn_tensor qk = view_of(zero, count), v = view_of(value, count), o = view_of(out, count);
  ringattn_forward_args args = RINGATTN_STRUCT(ringattn_forward_args);
  args.q = args.k = &qk, args.v = &v, args.o = &o;
  status = ringattn_forward(*plan, &args, NULL);
  for (uint64_t i = 0; i < count && status == RINGATTN_OK; ++i) {
    const double expected = (double)position[i] / 2;
    worst[rank] = fmax(worst[rank], fabs(out[i] - expected) / (1 + expected));
  }
  return status;
}

static void* run_rank(void* comm) {
  int32_t rank = 0;
  ringattn_plan* plan = NULL;
  ringattn_comm_rank(comm, &rank, NULL);
  if (attend(comm, rank, &plan) != RINGATTN_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, ringattn_last_error());
    ringattn_comm_abort(comm, "a rank has failed"); /* or the others would wait for it */
    worst[rank] = INFINITY;
  }
  ringattn_plan_destroy(plan);
  return NULL;
}

int main(void) {
  ringattn_context* context = NULL;
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  ringattn_comm_desc desc = RINGATTN_STRUCT(ringattn_comm_desc);
  pthread_t threads[RANKS];
  int wrong = 0;

  context_desc.threads = 1;
  desc.world_size = RANKS;
  desc.transport = "queue";
  if (ringattn_transport_register(&queue_transport) != RINGATTN_OK ||
      ringattn_context_create(&context_desc, &context) != RINGATTN_OK ||
      ringattn_comm_create_local(context, &desc, comms) != RINGATTN_OK) {
    fprintf(stderr, "%s\n", ringattn_last_error());
    return 1;
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    if (pthread_create(&threads[rank], NULL, run_rank, comms[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < RANKS; ++rank) {
    printf("rank %d of %d over \"queue\": largest error %.1e\n", rank, RANKS, worst[rank]);
    wrong += !(worst[rank] < 1e-5);
    ringattn_comm_destroy(comms[rank]);
  }
  ringattn_context_destroy(context);
  return wrong != 0;
}
