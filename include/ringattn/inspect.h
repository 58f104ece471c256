/* ringattn/inspect.h: what a plan tells. A part of ringattn.h, which includes it. */
#ifndef RINGATTN_INSPECT_H
#define RINGATTN_INSPECT_H
#include "../ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 11. What a plan tells ----------------------------------------------------------------------- */

typedef struct ringattn_plan_info {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  int32_t steps; /* K/V blocks that this rank computes with, its own included */
  /* local length of this rank's queries for the values given (the longest row of the batch) */
  int64_t local_q;
  int64_t local_k;
  int64_t local_capacity_q; /* the most that any call may have */
  int64_t local_capacity_k;
  uint64_t workspace_bytes;     /* of one execution, the same for every call of the plan */
  uint64_t workspace_alignment; /* in bytes */
  uint64_t plan_bytes;          /* other memory that the plan holds */
  /* by this rank in one forward, K/V only; what a lending transport lends counts too */
  uint64_t bytes_sent;
  uint64_t bytes_received;
  double pairs;      /* visible (query, key) pairs of this rank: batch x heads x pairs */
  double pairs_max;  /* of the rank with the most */
  double pairs_mean; /* over all ranks */
  double flops;      /* 2 x (head_dim_qk + head_dim_v) x pairs */
  /* transfers are hidden where a machine's (compute flop/s) / (link byte/s) is at most this: the least over
   * this rank's steps of a step's flops / bytes received meanwhile; +inf where nothing is received */
  double overlap_flops_per_byte;
  /* the same of one backward, with dK and dV; 0 without RINGATTN_PLAN_BACKWARD. Flops: 2 x (3 head_dim_qk +
   * 2 head_dim_v) x pairs */
  uint64_t backward_bytes_sent;
  uint64_t backward_bytes_received;
  double backward_flops;
} ringattn_plan_info;

/* Figures of a plan or a preview for the values of one call (NULL = full). Any thread. INVALID_ARGUMENT,
 * STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_plan_get_info(const ringattn_plan* plan, const ringattn_call* call,
                                                    ringattn_plan_info* out);

enum { RINGATTN_DESCRIBE_TEXT = 0, RINGATTN_DESCRIBE_JSON = 1 };

/* The plan in words: TEXT is one line in the grammar of the command line's PROBLEM; JSON adds kernel,
 * figures of every rank, and this rank's list of operations with their dependencies. Writes at most
 * `capacity` bytes with the final 0 and sets *needed (may be NULL) to what the whole takes; too small a
 * capacity is INVALID_ARGUMENT and writes nothing; text = NULL with capacity 0 only asks, and is OK. Any
 * thread. */
RINGATTN_API ringattn_status ringattn_plan_describe(const ringattn_plan* plan, const ringattn_call* call,
                                                    int32_t format, char* text, uint64_t capacity,
                                                    uint64_t* needed);

/* Times of this plan's last finished execution, in nanoseconds of wall time unless said. */
typedef struct ringattn_times {
  uint32_t struct_size;
  int32_t workers;      /* workers that computed at least one tile */
  uint64_t total_ns;    /* from the call to the end of this rank's part */
  uint64_t agree_ns;    /* until all ranks had agreed on the values of the call */
  uint64_t compute_ns;  /* sum over workers of the time in tiles */
  uint64_t transfer_ns; /* sum over received blocks of the time from posting to arrival */
  /* time in which this rank had unfinished work, but no tile to compute; the agreement counts too */
  uint64_t exposed_wait_ns;
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t tiles; /* tiles computed */
  /* sum over workers of the time between two tiles in which they looked for what had arrived; where the
   * processor moves the bytes (TCP), that time too */
  uint64_t poll_ns;
} ringattn_times;
RINGATTN_API ringattn_status ringattn_plan_get_times(const ringattn_plan* plan, ringattn_times* out);

enum {
  RINGATTN_EVENT_TILE = 1,    /* a worker computed a tile; block = owner of the K/V; item = tile number */
  RINGATTN_EVENT_RECEIVE = 2, /* from posting to arrival; peer = sender; block = owner */
  RINGATTN_EVENT_SEND = 3,    /* from posting to completion; peer = receiver */
  RINGATTN_EVENT_WAIT = 4,    /* nothing to compute */
  RINGATTN_EVENT_AGREE = 5,
  /* a worker moved memory: packed K/V, added an arrived gradient, wrote dK and dV; block = owner */
  RINGATTN_EVENT_MOVE = 6
};
typedef struct ringattn_event {
  uint32_t struct_size;
  int32_t kind;   /* RINGATTN_EVENT_... */
  int32_t worker; /* of a tile; else -1 */
  int32_t peer;   /* -1 = none */
  int32_t block;  /* -1 = none */
  int32_t item;
  uint64_t start_ns; /* CLOCK_MONOTONIC */
  uint64_t end_ns;
  uint64_t bytes;
} ringattn_event;

/* Events of the last finished execution of a plan with RINGATTN_PLAN_TRACE. Writes at most `capacity` of
 * them (events[0].struct_size is the step) and sets *count to how many there are; `dropped` (may be NULL):
 * how many found no room. INVALID_ARGUMENT, STRUCT_SIZE, BUSY while an execution is under way. */
RINGATTN_API ringattn_status ringattn_plan_trace(const ringattn_plan* plan, ringattn_event* events,
                                                 uint64_t capacity, uint64_t* count, uint64_t* dropped);

#ifdef __cplusplus
}
#endif
#endif /* RINGATTN_INSPECT_H */
