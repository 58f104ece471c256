/* Training on packed documents: other boundaries in every batch, one plan for all of them.
 *
 * The row holds at most CAPACITY tokens. Each call says where its documents end; the plan's scope DOCUMENT cuts every
 * document by itself, so that all ranks get the same work whatever the lengths. Each rank asks for the positions of
 * its tokens (for RoPE) and their indices in the row (for token ids and labels). */
#include <math.h>
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 2, CAPACITY = 400, MAX_DOCUMENTS = 8, HEADS = 2, DIM = 4 };

static int check(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return 1;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  return 0;
}

static ringattn_tensor view_of(float* data, int64_t tokens) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  tensor.shape[0] = 1;
  tensor.shape[1] = tokens;
  tensor.shape[2] = HEADS;
  tensor.shape[3] = DIM;
  return tensor;
}

/* One batch: `documents` of them, ending at cu[1..documents]. Returns the largest error, or a negative number. */
static double run_batch(ringattn_plan* const* plans, int64_t documents, const int64_t* cu) {
  static float zero[CAPACITY * HEADS * DIM];
  static float v[RANKS][CAPACITY * HEADS * DIM], o[RANKS][CAPACITY * HEADS * DIM];
  static int64_t position[RANKS][CAPACITY], index[RANKS][CAPACITY];
  ringattn_tensor tq[RANKS], tv[RANKS], to[RANKS];
  ringattn_forward_args args[RANKS];
  uint64_t count[RANKS];
  double worst = 0;
  ringattn_call call = RINGATTN_STRUCT(ringattn_call);
  call.flags = RINGATTN_CALL_SEQUENCES;
  call.sequences = documents;
  call.cu_q = cu; /* cu_k = NULL: the keys have the same boundaries */

  for (int rank = 0; rank < RANKS; ++rank) {
    if (!check(ringattn_plan_positions(plans[rank], RINGATTN_AXIS_KEY, rank, 0, &call, index[rank],
                                       position[rank], CAPACITY, &count[rank]),
               "positions"))
      return -1;
    /* The value of a token is its place in its document: what a document's row must average. */
    for (uint64_t i = 0; i < count[rank] * HEADS * DIM; ++i)
      v[rank][i] = (float)position[rank][i / (HEADS * DIM)];
    tq[rank] = view_of(zero, (int64_t)count[rank]);
    tv[rank] = view_of(v[rank], (int64_t)count[rank]);
    to[rank] = view_of(o[rank], (int64_t)count[rank]);
    args[rank] = RINGATTN_STRUCT(ringattn_forward_args);
    args[rank].q = args[rank].k = &tq[rank];
    args[rank].v = &tv[rank];
    args[rank].o = &to[rank];
    args[rank].call = &call;
  }
  if (!check(ringattn_forward_array(RANKS, plans, args, NULL), "forward")) return -1;
  for (int rank = 0; rank < RANKS; ++rank) {
    ringattn_plan_info info = RINGATTN_STRUCT(ringattn_plan_info);
    if (!check(ringattn_plan_get_info(plans[rank], &call, &info), "info")) return -1;
    printf("  rank %d: %d tokens, the first is token %d of the row; %.0f pairs\n", rank, (int)count[rank],
           count[rank] > 0 ? (int)index[rank][0] : -1, info.pairs);
    for (uint64_t i = 0; i < count[rank] * HEADS * DIM; ++i) {
      const double expected = (double)position[rank][i / (HEADS * DIM)] / 2;
      worst = fmax(worst, fabs(o[rank][i] - expected) / (1 + expected));
    }
  }
  return worst;
}

int main(void) {
  static const int64_t first[] = {0, 100, 101, 400};      /* a full row; a document may have one token */
  static const int64_t second[] = {0, 64, 128, 128, 250}; /* or none, and the row need not be full */
  static const int64_t third[] = {0, 7};
  ringattn_context* context = NULL;
  ringattn_comm* comms[RANKS];
  ringattn_plan* plans[RANKS];
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc);
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  ringattn_plan_desc descs[RANKS];
  double errors[3];
  int right = 1;

  ring.world_size = RANKS;
  desc.batch = 1;
  desc.seq_q = desc.seq_k = CAPACITY;
  desc.max_sequences = MAX_DOCUMENTS;
  desc.heads = HEADS;
  desc.head_dim_qk = DIM;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  desc.partition = RINGATTN_PARTITION_ZIGZAG;
  desc.scope = RINGATTN_SCOPE_DOCUMENT;
  for (int rank = 0; rank < RANKS; ++rank) descs[rank] = desc;
  if (!check(ringattn_context_create(NULL, &context), "context")) return 1;
  if (!check(ringattn_comm_create_local(context, &ring, comms), "comms")) return 1;
  if (!check(ringattn_plan_create_array(RANKS, comms, descs, plans), "plans")) return 1;

  errors[0] = run_batch(plans, 3, first);
  errors[1] = run_batch(plans, 4, second);
  errors[2] = run_batch(plans, 1, third);
  for (int batch = 0; batch < 3; ++batch) {
    printf("batch %d: largest error %.1e\n", batch, errors[batch]);
    right = right && errors[batch] >= 0 && errors[batch] < 1e-5;
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    ringattn_plan_destroy(plans[rank]);
    ringattn_comm_destroy(comms[rank]);
  }
  ringattn_context_destroy(context);
  return right ? 0 : 1;
}
