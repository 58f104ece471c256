/* Ranks that are processes of MPI, which meet through the caller's own all-gather.
 *
 *     mpicc 06_mpi.c -lringattn -lm && mpirun -n 4 ./a.out
 *
 * Two rings at once, as in a program whose ranks are also split by tensor or pipeline: the processes of even and of odd number
 * each make a ring of their own from a communicator of MPI. The library calls the all-gather three times, and MPI is not
 * needed by it afterwards.
 *
 * Queries are zero, the value of token j is j: under the causal mask row i of the output is the mean of 0..i. Every process
 * checks its own shard; 0 means that all are right. */
#include <math.h>
#include <mpi.h>
#include <ringattn.h>
#include <stdio.h>

enum { TOKENS = 421 };

static void must(ringattn_status status, const char* what) {
  if (status == RINGATTN_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ringattn_status_name(status), ringattn_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The whole of what MPI does for the library; what is gathered here is small. */
static int32_t allgather(void* user, const void* own, uint64_t bytes, void* all) {
  MPI_Comm* group = user;
  return MPI_Allgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *group);
}

static ringattn_comm* make_ring(ringattn_context* context, MPI_Comm* group) {
  ringattn_comm* comm = NULL;
  ringattn_comm_desc ring = RINGATTN_STRUCT(ringattn_comm_desc);
  int rank = 0, world = 0;
  MPI_Comm_rank(*group, &rank);
  MPI_Comm_size(*group, &world);
  ring.world_size = world;
  must(ringattn_comm_create_from_allgather(context, &ring, rank, allgather, group, &comm), "comm");
  return comm;
}

static ringattn_plan* make_plan(ringattn_comm* comm) {
  ringattn_plan* plan = NULL;
  ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc);
  desc.batch = desc.heads = desc.head_dim_qk = 1;
  desc.seq_q = desc.seq_k = TOKENS;
  desc.dtype = RINGATTN_DTYPE_F32;
  desc.mask = RINGATTN_MASK_CAUSAL;
  desc.partition = RINGATTN_PARTITION_ZIGZAG;
  must(ringattn_plan_create(comm, &desc, &plan), "plan");
  return plan;
}

static ringattn_tensor view_of(float* data, int64_t tokens) {
  ringattn_tensor tensor = RINGATTN_STRUCT(ringattn_tensor);
  tensor.dtype = RINGATTN_DTYPE_F32;
  tensor.data = data;
  tensor.shape[0] = tensor.shape[2] = tensor.shape[3] = 1;
  tensor.shape[1] = tokens;
  return tensor;
}

/* The largest error of this rank's rows. */
static double attend(ringattn_plan* plan, int rank) {
  static float zero[TOKENS], value[TOKENS], out[TOKENS];
  int64_t position[TOKENS];
  uint64_t count = 0;
  double worst = 0;
  must(ringattn_plan_positions(plan, RINGATTN_AXIS_KEY, rank, 0, NULL, NULL, position, TOKENS, &count),
       "positions");
  for (uint64_t i = 0; i < count; ++i) value[i] = (float)position[i];

  const ringattn_tensor qk = view_of(zero, (int64_t)count), v = view_of(value, (int64_t)count),
                        o = view_of(out, (int64_t)count);
  ringattn_forward_args args = RINGATTN_STRUCT(ringattn_forward_args);
  args.q = args.k = &qk;
  args.v = &v;
  args.o = &o;
  must(ringattn_forward(plan, &args, NULL), "forward");
  for (uint64_t i = 0; i < count; ++i) {
    const double expected = (double)position[i] / 2;
    worst = fmax(worst, fabs(out[i] - expected) / (1 + expected));
  }
  return worst;
}

int main(int argc, char** argv) {
  ringattn_context* context = NULL;
  ringattn_context_desc context_desc = RINGATTN_STRUCT(ringattn_context_desc);
  MPI_Comm group;
  int process = 0, processes = 0, rank = 0, world = 0;
  double worst = 0, own = 0;

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  MPI_Comm_split(MPI_COMM_WORLD, process % 2, process, &group);

  context_desc.threads = 1; /* several processes share this machine */
  must(ringattn_context_create(&context_desc, &context), "context");
  ringattn_comm* comm = make_ring(context, &group);
  must(ringattn_comm_rank(comm, &rank, &world), "rank");
  ringattn_plan* plan = make_plan(comm);
  own = attend(plan, rank);

  ringattn_plan_destroy(plan);
  ringattn_comm_destroy(comm);
  ringattn_context_destroy(context);
  MPI_Allreduce(&own, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (process == 0)
    printf("%d processes in rings of %d, %d tokens, largest error %.1e\n", processes, world, TOKENS, worst);
  MPI_Comm_free(&group);
  MPI_Finalize();
  return worst < 1e-5 ? 0 : 1;
}
