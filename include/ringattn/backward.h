/* ringattn/backward.h: gradients. A part of ringattn.h, which includes it. */
#ifndef RINGATTN_BACKWARD_H
#define RINGATTN_BACKWARD_H
#include "../ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 14. Backward -------------------------------------------------------------------------------- */

/* From what flows into O and lse to what flows into Q, K and V. With P = exp(scale * Q K^T - lse) over the
 * visible pairs (recomputed block by block: Dao et al. 2022, arXiv:2205.14135, algorithm 4):
 *
 *     delta = rowsum(dO * O) - dlse        dS = P * (dO V^T - delta)
 *     dQ = scale * dS K                    dK = scale * dS^T Q                    dV = P^T dO
 *
 * The plan needs RINGATTN_PLAN_BACKWARD; the same plan also runs forward. Keys and values go round the ring
 * once more; each rank adds its part of dK and dV to a sum that follows them and then goes home to their
 * owner (Liu, Zaharia, Abbeel 2023). Sums are kept and sent in fp32. A query head's part of a shared kv head
 * is summed (GQA). A row without a visible key gives nothing and gets dQ = 0; local rows beyond the call's
 * local length are padding: not read; dQ, dK, dV = 0.
 *
 * All tensors are this rank's shards, of the same local lengths as in forward. */
typedef struct ringattn_backward_args {
  uint32_t struct_size;
  uint32_t flags;             /* 0 */
  const ringattn_tensor* q;   /* [batch, local q, heads, head_dim_qk] */
  const ringattn_tensor* k;   /* [batch, local k, kv_heads, head_dim_qk] */
  const ringattn_tensor* v;   /* [batch, local k, kv_heads, head_dim_v] */
  const ringattn_tensor* o;   /* what forward wrote: [batch, local q, heads, head_dim_v], dtype_out */
  const ringattn_tensor* lse; /* what forward wrote: [batch, heads, local q, 1], F32 */
  const ringattn_tensor* d_o; /* gradient of O: like o */
  /* gradient of lse, like lse, F32; NULL = lse was not used */
  const ringattn_tensor* d_lse;
  /* out, dtype_grad, like q, k and v; must not overlap each other or an input of any rank */
  const ringattn_tensor* d_q;
  const ringattn_tensor* d_k;
  const ringattn_tensor* d_v;
  const ringattn_call* call; /* that of the forward; NULL = the plan's full lengths */
  /* with RINGATTN_PLAN_CALLER_WORKSPACE: at least the plan's workspace_bytes, so aligned, of no tensor; else
   * NULL */
  void* workspace;
  uint64_t workspace_bytes;
  ringattn_progress_fn progress; /* NULL = none */
  void* progress_user;
} ringattn_backward_args;

/* Computes dQ, dK and dV. Collective, blocking or with a request, exactly as ringattn_forward; outputs are
 * untouched after call-range errors, RANK_MISMATCH and PEER_REFUSED. Results are the same bit for bit from
 * run to run, whatever the number of threads and the timing. INVALID_ARGUMENT (also: a plan without
 * RINGATTN_PLAN_BACKWARD), UNSUPPORTED, OUT_OF_MEMORY, STRUCT_SIZE, BUSY, FORKED, request range, comm
 * range. */
RINGATTN_API ringattn_status ringattn_backward(ringattn_plan* plan, const ringattn_backward_args* args,
                                               ringattn_request** request);

/* The same for `count` plans of different comms (ranks) in one process, driven by the calling thread; one
 * request for all. */
RINGATTN_API ringattn_status ringattn_backward_array(int32_t count, ringattn_plan* const* plans,
                                                     const ringattn_backward_args* args,
                                                     ringattn_request** request);

#ifdef __cplusplus
}
#endif
#endif /* RINGATTN_BACKWARD_H */
