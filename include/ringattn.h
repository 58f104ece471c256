/* ringattn.h: exact attention over sequences too long for one device.
 *
 *     O = softmax(scale * Q K^T + mask) V        lse = ln(sum over visible keys of exp(scale * q.k))
 *
 * P ranks each hold a shard of the sequence. Queries stay where they are; blocks of keys and values go
 * round a ring while every rank computes with the block it holds (ring attention: Liu, Zaharia, Abbeel
 * 2023, arXiv:2310.01889) and folds it into a running softmax (Milakov, Gimelshein 2018, arXiv:1805.02867).
 * The result is that of unsharded attention, up to rounding.
 *
 * Order of this file is the order of a first reading; sections 11 to 15 are in four more headers, which it
 * includes at its end:
 *     1 version   2 status and messages   3 rules for every struct   4 tensors   5 context
 *     6 comm      7 plan                  8 the values of one call   9 execution  10 requests
 *    11 what a plan tells (ringattn/inspect.h)   12 sharding helpers, 13 merge (ringattn/shards.h)
 *    14 backward (ringattn/backward.h)       15 ranks in processes (ringattn/processes.h)
 *
 * Threads. A context may be used from any thread at any time. Collective calls on a comm and its plans come
 * from one thread at a time (a second thread gets RINGATTN_ERR_BUSY); what a plan tells, ringattn_comm_status
 * and ringattn_comm_abort from any thread. A request is used by one thread at a time, any thread;
 * ringattn_request_cancel from any thread. ringattn_last_error is the calling thread's own.
 *
 * Collective. A call marked "collective" must be made by every rank of the comm, in the same order on all
 * of them: either by one thread a rank, or by one thread for several ranks through the call's array form.
 * Ranks that pass different values all get the same error, and nothing has been computed or written.
 *
 * Fork. Handles do not survive fork(): in the child every call on an inherited handle returns
 * RINGATTN_ERR_FORKED. A new context made in the child works.
 */
#ifndef RINGATTN_H
#define RINGATTN_H

#include <stddef.h>
#include <stdint.h>

#if defined(SWIG) || !defined(__GNUC__)
#define RINGATTN_API
#else
#define RINGATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. Version ---------------------------------------------------------------------------------- */

#define RINGATTN_VERSION_MAJOR 0
#define RINGATTN_VERSION_MINOR 1
#define RINGATTN_VERSION_PATCH 0

/* Version of the loaded library: major << 16 | minor << 8 | patch. Any thread; never fails. */
RINGATTN_API uint32_t ringattn_version(void);

/* One line of JSON about this build on this machine: version, compiler, CPU features, kernels, transports
 * (each with its score or the reason why it cannot run), limits, and every environment variable that the
 * library reads with its value; as they were at the first call. Static string, owned by the library, never
 * NULL. Any thread. */
RINGATTN_API const char* ringattn_build_info(void);

/* ---- 2. Status and messages ---------------------------------------------------------------------- */

/* Fixed width and an open set: judge a value you do not know by its range. The range says what is now
 * broken. */
typedef int32_t ringattn_status;
enum {
  RINGATTN_OK = 0,
  RINGATTN_IN_PROGRESS = 1, /* not an error: the request is still running */

  /* -1..-99: THIS CALL failed. Nothing changed and no output was written; mend the arguments and call
   * again. */
  RINGATTN_ERR_INVALID_ARGUMENT = -1, /* a value that is never right; the message names it */
  /* a legal wish that nothing here can fulfil exactly; the message says why */
  RINGATTN_ERR_UNSUPPORTED = -2,
  RINGATTN_ERR_OUT_OF_MEMORY = -3,
  /* struct_size is too small, or bytes that this library does not know are not zero */
  RINGATTN_ERR_STRUCT_SIZE = -4,
  RINGATTN_ERR_NOT_FOUND = -5, /* no such transport or kernel */
  /* an execution on this comm is unfinished, or another thread is using the handle */
  RINGATTN_ERR_BUSY = -6,
  RINGATTN_ERR_FORKED = -7, /* the handle was made before fork() */

  /* -100..-199: THIS REQUEST failed. The comm is intact, the next collective call may follow at once. */
  /* ranks passed different values; same status and message on all of them */
  RINGATTN_ERR_RANK_MISMATCH = -100,
  /* another rank refused its own arguments; the message names it and its reason */
  RINGATTN_ERR_PEER_REFUSED = -101,
  RINGATTN_ERR_CANCELED = -102,

  /* -200..-299: THE COMM is dead. Destroy it and build a new one. */
  RINGATTN_ERR_TRANSPORT = -200,
  RINGATTN_ERR_PEER_LOST = -201,
  /* a rank made no progress for longer than the comm allows; the message names it */
  RINGATTN_ERR_TIMEOUT = -202,
  RINGATTN_ERR_ABORTED = -203, /* ringattn_comm_abort was called, here or by a peer */

  /* -300..-399: THE CONTEXT is dead. */
  RINGATTN_ERR_DEVICE = -300,
  RINGATTN_ERR_INTERNAL = -301 /* a defect of this library; please report the message */
};

/* Name of a status, for example "RINGATTN_ERR_TIMEOUT"; "RINGATTN_UNKNOWN" for one this library does not
 * know. Static string, never NULL. Any thread, also from inside a log callback. */
RINGATTN_API const char* ringattn_status_name(ringattn_status status);

/* Message of the calling thread's last failed call: one line with field, value and what was expected; ""
 * when its last call succeeded. Never NULL; valid until this thread's next call of the library. */
RINGATTN_API const char* ringattn_last_error(void);

/* ---- 3. Rules for every struct ------------------------------------------------------------------- */

/* Every struct begins with struct_size = sizeof it. Zero is the default of every other field; where zero is
 * also a value, a flag says that the field counts. Fields are only ever appended. A struct of an older
 * header is read to its end and the rest is taken as zero; one of a newer header is refused
 * (RINGATTN_ERR_STRUCT_SIZE) if bytes that this library does not know are not zero; so is a size below that
 * of the struct's first version, or above 4096. A struct that the library fills is written up to the
 * smaller of both sizes. In an array of structs the first element's struct_size is the step.
 *
 *     ringattn_plan_desc desc = RINGATTN_STRUCT(ringattn_plan_desc); */
#ifdef __cplusplus
#define RINGATTN_STRUCT(T)                             \
  ([] {                                                \
    T t_ = T();                                        \
    t_.struct_size = static_cast<uint32_t>(sizeof(T)); \
    return t_;                                         \
  }())
#else
#define RINGATTN_STRUCT(T) ((T){.struct_size = sizeof(T)})
#endif

/* ---- 4. Tensors ---------------------------------------------------------------------------------- */

typedef int32_t ringattn_dtype;
enum {
  RINGATTN_DTYPE_F32 = 1,
  RINGATTN_DTYPE_F16 = 2,  /* IEEE binary16 */
  RINGATTN_DTYPE_BF16 = 3, /* upper half of an F32 */
  /* I32 and I64: only for ringattn_shard and ringattn_unshard (token ids, labels) */
  RINGATTN_DTYPE_I32 = 4,
  RINGATTN_DTYPE_I64 = 5
};
enum { RINGATTN_DEVICE_CPU = 0 };

/* A view of the caller's memory. Axes are always [batch, seq, head, dim], whatever the memory order: the
 * strides, in elements, tell. BSHD, BHSD, SBHD and slices of them need no copy; a packed THD tensor is [1,
 * T, H, D]; lse is [batch, head, seq, 1]. stride[3] must be 1 (unless shape[3] is 1). A stride of 0 is
 * legal for inputs only. Without RINGATTN_TENSOR_STRIDES the tensor is dense in the order of its axes and
 * the stride fields are not read. `data` may have any alignment; NULL is legal where a size is 0. The
 * struct is read during the call. The memory is borrowed until the execution has ended. */
enum { RINGATTN_TENSOR_STRIDES = 1 };
typedef struct ringattn_tensor {
  uint32_t struct_size;
  ringattn_dtype dtype;
  int32_t device_type; /* RINGATTN_DEVICE_CPU */
  int32_t device_id;   /* 0 */
  uint64_t flags;      /* RINGATTN_TENSOR_STRIDES or 0 */
  void* data;          /* outputs are written, inputs never */
  int64_t shape[4];
  int64_t stride[4]; /* read only with RINGATTN_TENSOR_STRIDES */
} ringattn_tensor;

/* ---- 5. Context: a device, its threads, a log ---------------------------------------------------- */

typedef struct ringattn_context ringattn_context;

enum { RINGATTN_LOG_ERROR = 1, RINGATTN_LOG_WARN = 2, RINGATTN_LOG_INFO = 3, RINGATTN_LOG_DEBUG = 4 };

/* Takes one line of log. May come from any thread; the library holds no lock of its own. From inside it
 * only ringattn_status_name may be called. `message` is valid during the call only. */
typedef void (*ringattn_log_fn)(void* user, int32_t level, const char* message);

/* The body of a parallel loop, and the loop itself: run body(arg, i, worker) for every 0 <= i < n and
 * return when all have ended. `worker` is below max_workers and no two bodies of one loop run at the same
 * time with the same one. Running them one after the other is legal. */
typedef void (*ringattn_body_fn)(void* arg, int32_t i, int32_t worker);
typedef void (*ringattn_parallel_for_fn)(void* user, int32_t n, ringattn_body_fn body, void* arg);

typedef struct ringattn_context_desc {
  uint32_t struct_size;
  int32_t device_type; /* RINGATTN_DEVICE_CPU */
  int32_t device_id;   /* 0 */
  /* threads that compute, the caller's included; 0 = one per core this process may use */
  int32_t threads;
  /* 1 = a thread of the library advances requests; 0 = only test, wait and blocking calls do */
  int32_t progress_thread;
  int32_t max_workers; /* with parallel_for: its largest `worker` + 1, 1..1024; otherwise 0 */
  /* the host's own loop instead of the library's threads (oneTBB); then `threads` must be 0 */
  ringattn_parallel_for_fn parallel_for;
  void* parallel_user;
  ringattn_log_fn log; /* NULL = standard error, and only what RINGATTN_LOG asks for */
  void* log_user;
  int32_t log_level; /* with `log`: the most detailed level wanted; 0 = RINGATTN_LOG_WARN */
  int32_t reserved;  /* 0 */
} ringattn_context_desc;

/* Makes a context; desc may be NULL for all defaults. On failure *out is NULL. Blocks briefly. The caller
 * owns *out. INVALID_ARGUMENT, UNSUPPORTED (device), OUT_OF_MEMORY, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_context_create(const ringattn_context_desc* desc,
                                                     ringattn_context** out);

/* Destroys a context. NULL is legal. Its comms, plans and requests must have been destroyed before:
 * otherwise nothing is done and the log says so. */
RINGATTN_API void ringattn_context_destroy(ringattn_context* context);

/* ---- 6. Comm: one rank's place in a ring --------------------------------------------------------- */

typedef struct ringattn_comm ringattn_comm;

typedef struct ringattn_comm_desc {
  uint32_t struct_size;
  int32_t world_size; /* ranks, 1..4096 */
  /* a rank that makes no progress for so long while others wait for it is lost; 0 = 60 s, -1 = never */
  int32_t timeout_ms;
  /* how long ranks wait for one that has not yet entered a collective call; 0 = 600 s, -1 = never */
  int32_t arrival_timeout_ms;
  /* NULL = the best that can run, or what RINGATTN_TRANSPORT names; else for example "local" */
  const char* transport;
} ringattn_comm_desc;

/* Makes all ranks of a ring inside this process: out[r] becomes rank r of desc->world_size. Each comm may
 * then be used by a thread of its own, or all by one thread through the array forms. Not collective: one
 * call makes them all. On failure all out[r] are NULL. The caller owns each comm. INVALID_ARGUMENT,
 * NOT_FOUND (transport), UNSUPPORTED, OUT_OF_MEMORY, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_comm_create_local(ringattn_context* context,
                                                        const ringattn_comm_desc* desc, ringattn_comm** out);

/* Rank and world size of a comm; either pointer may be NULL. INVALID_ARGUMENT. */
RINGATTN_API ringattn_status ringattn_comm_rank(const ringattn_comm* comm, int32_t* rank,
                                                int32_t* world_size);

/* Ends a comm at once, from any thread: every execution on it, on every rank, ends with ABORTED and
 * `reason` (NULL = none) in its message within a second; every later call on it returns the same. Does not
 * block. Then destroy it. INVALID_ARGUMENT, FORKED. */
RINGATTN_API ringattn_status ringattn_comm_abort(ringattn_comm* comm, const char* reason);

/* OK while the comm can be used, otherwise the comm-range status that ended it, with its message in
 * ringattn_last_error. Any thread. */
RINGATTN_API ringattn_status ringattn_comm_status(const ringattn_comm* comm);

/* Destroys a comm. NULL is legal. Its plans and requests must have been destroyed before, else nothing is
 * done and the log says so. */
RINGATTN_API void ringattn_comm_destroy(ringattn_comm* comm);

/* ---- 7. Plan: one problem, decided once, run many times ------------------------------------------ */

/* Mask. With positions p_q and p_k inside one sequence, key k is visible to query q if and only if both
 * belong to the same sequence and  p_q - left <= p_k <= p_q + right.  A key's position is its index in its
 * sequence; a query's is query_offset + its index, where query_offset = (keys - queries of that sequence)
 * unless the call gives one: masks are bottom-right aligned, so 2 queries on 5 keys, causal, see 4 and 5
 * keys; 5 queries on 2 keys see 0, 0, 0, 1 and 2. A row without a visible key is O = 0, lse = -inf. FULL:
 * left and right unbounded. CAUSAL: right = 0. WINDOW_LEFT / WINDOW_RIGHT: that side is bounded by
 * window_left / window_right (0 = up to the query's own position). CAUSAL with a WINDOW_RIGHT above 0 is
 * refused. */
enum {
  RINGATTN_MASK_FULL = 0,
  RINGATTN_MASK_CAUSAL = 1,
  RINGATTN_MASK_WINDOW_LEFT = 2,
  RINGATTN_MASK_WINDOW_RIGHT = 4
};

/* Partition: which of P ranks owns which of the L positions of an axis. These formulas are ABI.
 *   CONTIGUOUS  P pieces in order, the first L mod P of them one longer: rank r owns piece r.
 *   STRIPED     position p belongs to rank floor(p / stripe) mod P (Brandon et al. 2023, arXiv:2311.09431).
 *   ZIGZAG      2P pieces in order, the first L mod 2P of them one longer: rank r owns pieces r and
 *               2P - 1 - r.
 *   EXPLICIT    each rank gives its own runs in its plan_desc; together they cover 0..L-1 exactly once.
 * Local order is the order of positions (EXPLICIT: the order of the runs as given). */
enum {
  RINGATTN_PARTITION_CONTIGUOUS = 0,
  RINGATTN_PARTITION_STRIPED = 1,
  RINGATTN_PARTITION_ZIGZAG = 2,
  RINGATTN_PARTITION_EXPLICIT = 3
};

/* How the query axis is cut.
 *   AUTO       LIKE_KEYS where seq_q = seq_k and the scope is CAPACITY, else BY_INDEX.
 *   LIKE_KEYS  a query belongs to the owner of its position in the key row (start of its sequence's keys
 *              + position), so that a new token's query, key and value live on one rank. Scope CAPACITY
 *              only. A call whose query lies outside the key row is refused.
 *   BY_INDEX   queries are cut by their index with the same kind of partition, over seq_q (scope CAPACITY)
 *              or the call's lengths.
 */
enum { RINGATTN_QUERY_CUT_AUTO = 0, RINGATTN_QUERY_CUT_LIKE_KEYS = 1, RINGATTN_QUERY_CUT_BY_INDEX = 2 };

/* What the partition cuts: CAPACITY = the plan's seq_k (seq_q), whatever a call's lengths are (the only
 * scope for cached keys); CALL = the row's length in this call (all its sequences together); DOCUMENT =
 * each sequence of the call by itself, local order sequence by sequence. Rows of a batch with lengths are
 * each cut by themselves in CALL and DOCUMENT. */
enum { RINGATTN_SCOPE_CAPACITY = 0, RINGATTN_SCOPE_CALL = 1, RINGATTN_SCOPE_DOCUMENT = 2 };

/* Positions first, first + stride, ... (length of them). */
typedef struct ringattn_run {
  int64_t first;
  int64_t length;
  int64_t stride; /* 0 = 1 */
} ringattn_run;

enum { RINGATTN_SCHEDULE_AUTO = 0, RINGATTN_SCHEDULE_RING = 1 };
/* EXACT: probabilities kept in at least 16 bits; DEFAULT: within the error rule of docs/numerics.md. */
enum { RINGATTN_ACCURACY_DEFAULT = 0, RINGATTN_ACCURACY_EXACT = 1 };
enum {
  RINGATTN_PLAN_TRACE = 1, /* record events; see ringattn_plan_trace */
  /* every execution brings its workspace, so that plans that run one after the other share one */
  RINGATTN_PLAN_CALLER_WORKSPACE = 2,
  RINGATTN_PLAN_BACKWARD = 4 /* also ringattn_backward; takes more workspace. Equal on all ranks */
};

typedef struct ringattn_plan_desc {
  uint32_t struct_size;
  uint32_t flags; /* RINGATTN_PLAN_... bits */
  int64_t batch;  /* >= 0 */
  int64_t seq_q;  /* capacity: global queries of a row, over all ranks, >= 0 */
  int64_t seq_k;  /* capacity: global keys of a row */
  int64_t heads;  /* query heads, >= 1 */
  /* 0 = heads; else it divides heads (1 = MQA); query head h uses kv head h / (heads / kv_heads) */
  int64_t kv_heads;
  int64_t head_dim_qk;      /* 1..576 */
  int64_t head_dim_v;       /* 0 = head_dim_qk; else 1..576 */
  int64_t max_sequences;    /* most sequences of one call; 0 = max(1, batch) */
  ringattn_dtype dtype;     /* of q, k, v: F32, F16 or BF16 */
  ringattn_dtype dtype_out; /* of o: 0 = dtype; or F32 */
  uint32_t mask;            /* RINGATTN_MASK_... bits */
  int32_t accuracy;         /* RINGATTN_ACCURACY_... */
  int64_t window_left;      /* read only with RINGATTN_MASK_WINDOW_LEFT, 0..2^48 */
  int64_t window_right;     /* read only with RINGATTN_MASK_WINDOW_RIGHT, 0..2^48 */
  double scale;             /* 0 = 1 / sqrt(head_dim_qk); else up to 2^127 */
  int32_t partition;        /* RINGATTN_PARTITION_... */
  int32_t query_cut;        /* RINGATTN_QUERY_CUT_... */
  int32_t scope;            /* RINGATTN_SCOPE_...; EXPLICIT needs CAPACITY */
  int32_t schedule;         /* RINGATTN_SCHEDULE_... */
  int64_t stripe;           /* STRIPED: positions of one stripe, 0 = 1; else 0 */
  /* EXPLICIT: this rank's own keys, runs_k_count of them; borrowed during the call */
  const ringattn_run* runs_k;
  int64_t runs_k_count;
  const ringattn_run* runs_q; /* EXPLICIT with query cut BY_INDEX: this rank's own queries */
  int64_t runs_q_count;
  /* with RINGATTN_PLAN_BACKWARD, of d_q, d_k, d_v: 0 = dtype; or F32. Without: 0 */
  ringattn_dtype dtype_grad;
  int32_t reserved; /* 0 */
} ringattn_plan_desc;

typedef struct ringattn_plan ringattn_plan;

/* Can a plan for this description run here? OK, or the status and message that ringattn_plan_preview would
 * give. Any thread. */
RINGATTN_API ringattn_status ringattn_supports(ringattn_context* context, const ringattn_plan_desc* desc);

/* What a rank cannot know alone. Zero (or NULL) = peers are like this machine and the transport copies: an
 * upper bound of the bytes. */
typedef struct ringattn_facts {
  uint32_t struct_size;
  int32_t lends; /* 1 = the transport lends instead of copying (local) */
  /* EXPLICIT: the descriptions of all ranks, in rank order, for their runs; else NULL */
  const ringattn_plan_desc* descs;
} ringattn_facts;

/* A plan for rank `rank` of `world_size` that cannot be executed but tells all the rest (section 11):
 * nothing is sent, no comm is needed. Not collective. INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY,
 * STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_plan_preview(ringattn_context* context, const ringattn_plan_desc* desc,
                                                   int32_t rank, int32_t world_size,
                                                   const ringattn_facts* facts, ringattn_plan** out);

/* Makes a plan. Collective; blocks until all ranks have answered (at most arrival_timeout_ms). All memory
 * of later executions is allocated here. All ranks describe the same problem, or all get RANK_MISMATCH with
 * rank, field and both values; a rank that refuses its own description gets its own status and the others
 * get PEER_REFUSED; nobody hangs. On failure *out is NULL. The caller owns *out. INVALID_ARGUMENT,
 * UNSUPPORTED, OUT_OF_MEMORY, STRUCT_SIZE, NOT_FOUND, BUSY, FORKED, RANK_MISMATCH, PEER_REFUSED, comm
 * range. */
RINGATTN_API ringattn_status ringattn_plan_create(ringattn_comm* comm, const ringattn_plan_desc* desc,
                                                  ringattn_plan** out);

/* The same for `count` comms, descriptions and results, driven by the calling thread. On failure all out[i]
 * are NULL and the status is the first refusing rank's own (its message names the rank). */
RINGATTN_API ringattn_status ringattn_plan_create_array(int32_t count, ringattn_comm* const* comms,
                                                        const ringattn_plan_desc* descs, ringattn_plan** out);

/* Destroys a plan. NULL is legal. While it is being executed, or a request of it exists, nothing is done and
 * the log says so. Not collective. */
RINGATTN_API void ringattn_plan_destroy(ringattn_plan* plan);

/* ---- 8. The values of one call ------------------------------------------------------------------- */

/* What may change from call to call without a new plan. Equal on all ranks, in host memory, read during the
 * call. NULL stands for one sequence of seq_q queries and seq_k keys in every row.
 *
 * Sequence s has cu_q[s+1] - cu_q[s] queries and cu_k[s+1] - cu_k[s] keys; both arrays have sequences + 1
 * entries, start at 0 and do not fall. batch = 1: the sequences (documents) follow one another in the row;
 * what lies beyond the last is padding, whose rows become O = 0, lse = -inf. batch > 1: sequences = batch,
 * and row b holds sequence b from its own start, up to the row's capacity. */
enum { RINGATTN_CALL_SEQUENCES = 1, RINGATTN_CALL_QUERY_OFFSET = 2 };
typedef struct ringattn_call {
  uint32_t struct_size;
  uint32_t flags;      /* which of the fields below count: RINGATTN_CALL_... bits */
  int64_t sequences;   /* with SEQUENCES: how many, 0..max_sequences; 0 = no token at all */
  const int64_t* cu_q; /* with SEQUENCES */
  const int64_t* cu_k; /* with SEQUENCES; NULL = cu_q */
  /* with QUERY_OFFSET: position of each sequence's first query; may be negative. See section 7, Mask. */
  int64_t query_offset;
} ringattn_call;

/* ---- 9. Execution -------------------------------------------------------------------------------- */

typedef struct ringattn_request ringattn_request;

/* Hears how far one rank is: `done` of `total` K/V blocks that it computes with, from 0 to total, in order.
 * Called by whoever advances the execution, one call at a time for a rank; may call only
 * ringattn_status_name and ringattn_request_cancel. */
typedef void (*ringattn_progress_fn)(void* user, int32_t rank, int32_t done, int32_t total);

/* This rank's shards. The seq axis of q, o (and lse) is at least this call's local length of the queries
 * and at most the plan's local capacity (section 12); k and v likewise. Local rows beyond the call's local
 * length are padding: not read; O = 0, lse = -inf. Memory that is written must be read or written nowhere
 * else by any rank: checked within a call, so for all ranks of an array; between calls it is up to you. */
typedef struct ringattn_forward_args {
  uint32_t struct_size;
  uint32_t flags;           /* 0 */
  const ringattn_tensor* q; /* [batch, local q, heads, head_dim_qk] */
  const ringattn_tensor* k; /* [batch, local k, kv_heads, head_dim_qk] */
  const ringattn_tensor* v; /* [batch, local k, kv_heads, head_dim_v] */
  /* out: [batch, local q, heads, head_dim_v], dtype_out; must not overlap an input of any rank */
  const ringattn_tensor* o;
  /* out: [batch, heads, local q, 1], F32, natural logarithm; NULL = not wanted */
  const ringattn_tensor* lse;
  const ringattn_call* call; /* NULL = the plan's full lengths */
  /* with RINGATTN_PLAN_CALLER_WORKSPACE: at least the plan's workspace_bytes, so aligned, of no tensor; else
   * NULL */
  void* workspace;
  uint64_t workspace_bytes;
  ringattn_progress_fn progress; /* NULL = none */
  void* progress_user;
} ringattn_forward_args;

/* Computes O and lse. Collective. With request = NULL it blocks until this rank's part has ended; otherwise
 * it returns once the arguments are checked, *request must be waited for, and tensors stay borrowed until
 * then. A rank that refuses its own arguments returns when its peers have heard of it, in both forms (at
 * most arrival_timeout_ms). Outputs are untouched after call-range errors, RANK_MISMATCH and PEER_REFUSED,
 * and unspecified after others. One execution at a time on a comm, others get BUSY. Results are the same
 * bit for bit from run to run, whatever the number of threads and the timing. INVALID_ARGUMENT,
 * UNSUPPORTED, OUT_OF_MEMORY, STRUCT_SIZE, BUSY, FORKED, request range, comm range. */
RINGATTN_API ringattn_status ringattn_forward(ringattn_plan* plan, const ringattn_forward_args* args,
                                              ringattn_request** request);

/* The same for `count` plans of different comms (ranks) in one process, driven by the calling thread; one
 * request for all. */
RINGATTN_API ringattn_status ringattn_forward_array(int32_t count, ringattn_plan* const* plans,
                                                    const ringattn_forward_args* args,
                                                    ringattn_request** request);

/* ---- 10. Requests -------------------------------------------------------------------------------- */

/* Advances a request a little (at most one tile per worker) and tells its state: IN_PROGRESS, or its final
 * status, again and again. Does not block. Like wait it also advances other unfinished requests of the
 * context, so that ranks may be waited for in any order. */
RINGATTN_API ringattn_status ringattn_request_test(ringattn_request* request);

/* Advances a request until it has ended, or until timeout_ms have passed (-1 = no limit): then IN_PROGRESS,
 * and nothing has changed. */
RINGATTN_API ringattn_status ringattn_request_wait(ringattn_request* request, int64_t timeout_ms);

/* Asks for the end of a request, on every rank: ranks whose part had ended report OK, all others CANCELED;
 * the comm stays usable. Any thread; does not block; wait still has to be called. */
RINGATTN_API ringattn_status ringattn_request_cancel(ringattn_request* request);

/* The request's own message: "" unless it failed. Owned by the request, never NULL. */
RINGATTN_API const char* ringattn_request_message(const ringattn_request* request);

/* Releases a request. NULL is legal. An unfinished one is canceled and waited for. */
RINGATTN_API void ringattn_request_destroy(ringattn_request* request);

#ifdef __cplusplus
}
#endif

#include "ringattn/backward.h"  /* 14 */
#include "ringattn/inspect.h"   /* 11 */
#include "ringattn/processes.h" /* 15 */
#include "ringattn/shards.h"    /* 12, 13 */

#endif /* RINGATTN_H */
