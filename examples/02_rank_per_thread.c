/* One thread a rank, single form: every rank calls for itself, as it would in a process of its own.
 *
 * Rank 0 also starts its first execution asynchronously and does something else meanwhile. All plans of the context
 * share its worker threads; here the context has one, so the ranks' own threads do the work. */
#include <math.h>
#include <pthread.h>
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, TOKENS = 600, DIM = 8, ROUNDS = 4 };

typedef struct rank_state {
  ringattn_comm* comm;
  int rank;
  double worst;
  int failed;
} rank_state;

static ringattn_tensor view_of(float* data, int64_t tokens) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  tensor.shape[0] = 1;
  tensor.shape[1] = tokens;
  tensor.shape[2] = 1;
  tensor.shape[3] = DIM;
  return tensor;
}

/* A rank that fails alone would leave its peers waiting for it: it ends the comm, and they get ABORTED at once. */
static int fails(rank_state* state, ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return 0;
  fprintf(stderr, "rank %d: %s: %s: %s\n", state->rank, what, ringattn_status_name(status),
          ringattn_last_error());
  ringattn_comm_abort(state->comm, what);
  state->failed = 1;
  return 1;
}

static int run_rounds(rank_state* state, ringattn_plan* plan) {
  static float zero[TOKENS * DIM]; /* queries and keys of all ranks */
  float v[TOKENS * DIM], o[TOKENS * DIM];
  int64_t position[TOKENS];
  uint64_t count = 0;
  if (fails(state,
            ringattn_plan_positions(plan, RINGATTN_AXIS_KEY, state->rank, 0, NULL, NULL, position, TOKENS,
                                    &count),
            "positions"))
    return 1;
  for (uint64_t i = 0; i < count; ++i) {
    for (int d = 0; d < DIM; ++d) v[i * DIM + (uint64_t)d] = (float)position[i];
  }
  const ringattn_tensor tq = view_of(zero, (int64_t)count), tk = tq, tv = view_of(v, (int64_t)count);
  const ringattn_tensor to = view_of(o, (int64_t)count);
  ringattn_forward_args args = RINGATTN_STRUCT(ringattn_forward_args);
  args.q = &tq;
  args.k = &tk;
  args.v = &tv;
  args.o = &to;
  for (int round = 0; round < ROUNDS; ++round) {
    if (round == 0 && state->rank == 0) {
      ringattn_request* request = NULL;
      ringattn_status status;
      if (fails(state, ringattn_forward(plan, &args, &request), "forward")) return 1;
      do { /* a millisecond at a time, with room for something else in between */
        status = ringattn_request_wait(request, 1);
      } while (status == RINGATTN_IN_PROGRESS);
      if (fails(state, status, "wait")) return 1;
      ringattn_request_destroy(request);
    } else if (fails(state, ringattn_forward(plan, &args, NULL), "forward")) {
      return 1;
    }
    for (uint64_t i = 0; i < count * DIM; ++i) {
      const double expected = (double)position[i / DIM] / 2;
      state->worst = fmax(state->worst, fabs(o[i] - expected) / (1 + expected));
    }
  }
  return 0;
}

static void* run_rank(void* argument) {
  rank_state* state = argument;
  ringattn_plan* plan = NULL;
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = 1;
  desc.seq_q = desc.seq_k = TOKENS;
  desc.heads = 1;
  desc.head_dim_qk = DIM;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  desc.partition = RINGATTN_PARTITION_STRIPED;
  /* Collective: every rank's thread makes this call, and each gets its own plan. */
  if (fails(state, ringattn_plan_create(state->comm, &desc, &plan), "plan")) return NULL;
  run_rounds(state, plan);
  ringattn_plan_destroy(plan);
  return NULL;
}

int main(void) {
  ringattn_context* context = NULL;
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc);
  ringattn_comm* comms[RANKS];
  pthread_t threads[RANKS];
  rank_state states[RANKS];
  double worst = 0;
  int failed = 0;

  context_desc.threads = 1;
  if (ringattn_context_create(&context_desc, &context) != RINGATTN_OK) return 1;
  ring.world_size = RANKS;
  if (ringattn_comm_create_local(context, &ring, comms) != RINGATTN_OK) return 1;
  for (int rank = 0; rank < RANKS; ++rank) {
    const rank_state state = {comms[rank], rank, 0, 0};
    states[rank] = state;
    if (pthread_create(&threads[rank], NULL, run_rank, &states[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    pthread_join(threads[rank], NULL);
    worst = fmax(worst, states[rank].worst);
    failed |= states[rank].failed;
  }
  /* Nobody uses the comms any more. */
  for (int rank = 0; rank < RANKS; ++rank) ringattn_comm_destroy(comms[rank]);
  ringattn_context_destroy(context);
  printf("%d ranks, %d rounds, largest error: %.1e\n", RANKS, ROUNDS, worst);
  return !failed && worst < 1e-5 ? 0 : 1;
}
