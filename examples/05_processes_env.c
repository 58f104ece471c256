/* Ranks that are processes: a program that any launcher starts.
 *
 *     ringattn run -n 4 -- ./05_processes_env          mpirun -n 4 ./05_processes_env
 *     torchrun --no-python --nproc-per-node 4 ./05_processes_env          srun -n 4 ./05_processes_env
 *
 * Started alone it is a ring of one rank. The values are those of 04_backward.c: queries are zero, key and value of
 * token j are the number j in channel 0, the gradient of row i is i + 1 there. So, under the causal mask,
 *     O[i]  = mean of 0..i = i / 2
 *     dV[j] = N - j
 *     dQ[i] = scale (i + 1) i (i + 2) / 12
 * Every rank checks its own shard; 0 means that it is right. */
#include <math.h>
#include <ringattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 503, DIM = 16 };

/* A rank that ends tells its peers by that alone: they get RINGATTN_ERR_PEER_LOST, and the launcher ends them. */
static void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  exit(1);
}

static ringattn_comm* join_ring(ringattn_context* context) {
  ringattn_comm* comm = NULL;
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc); /* world_size 0: the launcher's */
  const ringattn_status status = ringattn_comm_create_from_environment(context, &ring, &comm);
  if (status == RINGATTN_ERR_NOT_FOUND) { /* no launcher */
    ring.world_size = 1;
    must(ringattn_comm_create_local(context, &ring, &comm), "local comm");
    return comm;
  }
  must(status, "comm");
  return comm;
}

/* A dense tensor of its own memory, all zero. */
static ringattn_tensor make_tensor(int64_t seq, int64_t heads, int64_t dim) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.shape[0] = 1;
  tensor.shape[1] = seq;
  tensor.shape[2] = heads;
  tensor.shape[3] = dim;
  tensor.data = calloc((size_t)(seq * heads * dim + 1), sizeof(float));
  if (tensor.data == NULL) exit(1);
  return tensor;
}

static float* row(const ringattn_tensor* tensor, int64_t i) {
  return (float*)tensor->data + i * tensor->shape[3];
}

static double relative(double value, double expected) {
  return fabs(value - expected) / (1 + fabs(expected));
}

int main(void) {
  ringattn_context* context = NULL;
  ringattn_plan* plan = NULL;
  int32_t rank = 0, world = 0;
  uint64_t count = 0;
  int64_t positions[TOKENS];
  const double scale = 1 / sqrt((double)DIM);
  double worst = 0;

  must(ringattn_context_create(NULL, &context), "context");
  ringattn_comm* comm = join_ring(context);
  must(ringattn_comm_rank(comm, &rank, &world), "rank");

  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc); /* the same on every rank */
  desc.flags = RINGATTN_PLAN_BACKWARD;
  desc.batch = desc.heads = 1;
  desc.seq_q = desc.seq_k = TOKENS;
  desc.head_dim_qk = DIM;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  desc.partition = RINGATTN_PARTITION_ZIGZAG;
  must(ringattn_plan_create(comm, &desc, &plan), "plan");
  must(ringattn_plan_positions(plan, RINGATTN_AXIS_KEY, rank, 0, NULL, NULL, positions, TOKENS, &count),
       "positions");

  const int64_t n = (int64_t)count;
  const ringattn_tensor q = make_tensor(n, 1, DIM), k = make_tensor(n, 1, DIM), o = make_tensor(n, 1, DIM);
  const ringattn_tensor d_q = make_tensor(n, 1, DIM), d_k = make_tensor(n, 1, DIM),
                        d_v = make_tensor(n, 1, DIM), d_o = make_tensor(n, 1, DIM);
  const ringattn_tensor lse = make_tensor(1, n, 1); /* [batch, head, seq, 1] */
  for (int64_t i = 0; i < n; ++i) {
    row(&k, i)[0] = (float)positions[i]; /* k is v as well */
    row(&d_o, i)[0] = (float)(positions[i] + 1);
  }

  ringattn_forward_args forward = RINGATTN_STRUCT(ringattn_forward_args);
  forward.q = &q, forward.k = forward.v = &k, forward.o = &o, forward.lse = &lse;
  must(ringattn_forward(plan, &forward, NULL), "forward");
  ringattn_backward_args backward = RINGATTN_STRUCT(ringattn_backward_args);
  backward.q = &q, backward.k = backward.v = &k, backward.o = &o, backward.lse = &lse;
  backward.d_o = &d_o, backward.d_q = &d_q, backward.d_k = &d_k, backward.d_v = &d_v;
  must(ringattn_backward(plan, &backward, NULL), "backward");

  for (int64_t i = 0; i < n; ++i) {
    const double p = (double)positions[i];
    worst = fmax(worst, relative(row(&o, i)[0], p / 2));
    worst = fmax(worst, relative(row(&d_q, i)[0], scale * (p + 1) * p * (p + 2) / 12));
    worst = fmax(worst, relative(row(&d_v, i)[0], TOKENS - p));
    worst = fmax(worst, fabs(row(&d_k, i)[0]));
  }
  ringattn_plan_destroy(plan);
  ringattn_comm_destroy(comm);
  ringattn_context_destroy(context);
  free(q.data), free(k.data), free(o.data), free(lse.data);
  free(d_q.data), free(d_k.data), free(d_v.data), free(d_o.data);
  if (rank == 0) printf("rank 0 of %d: %d tokens, largest error %.1e\n", world, (int)n, worst);
  if (!(worst < 1e-5)) fprintf(stderr, "rank %d of %d is wrong by %.1e\n", rank, world, worst);
  return worst < 1e-5 ? 0 : 1;
}
