/* ringattn/shards.h: where tokens live, copies to and from shards, merge. A part of ringattn.h, which
 * includes it. */
#ifndef RINGATTN_SHARDS_H
#define RINGATTN_SHARDS_H
#include "../ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 12. Sharding helpers ------------------------------------------------------------------------ */

enum { RINGATTN_AXIS_QUERY = 0, RINGATTN_AXIS_KEY = 1 };

/* Local length of one rank's shard in one row of the batch, for the values of one call (NULL = full). Any
 * thread. INVALID_ARGUMENT. */
RINGATTN_API ringattn_status ringattn_plan_local_length(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                                        int64_t batch_row, const ringattn_call* call,
                                                        int64_t* length);

/* Where each local token of a rank is. index[i]: in the row of its axis (0..total-1), for labels and
 * gathering. position[i]: in its own sequence, the query offset included, for RoPE. Either may be NULL;
 * each has room for `capacity` values; a capacity below the local length is INVALID_ARGUMENT, and neither is
 * written. *count = local length. Any thread. */
RINGATTN_API ringattn_status ringattn_plan_positions(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                                     int64_t batch_row, const ringattn_call* call,
                                                     int64_t* index, int64_t* position, uint64_t capacity,
                                                     uint64_t* count);

/* Copies one rank's tokens out of a global tensor into its local shard, or back. Axes [batch, seq, head,
 * dim] (for lse the view with shape {B, S, H, 1}, stride {H * S, 1, S, 1}); any head count and dim, equal
 * in both; any dtype, equal in both. The global seq is at least the row's total, the local seq at least the
 * local length; rows beyond are left as they are (fill a global O with 0 and a global lse with -inf first).
 * Any thread; blocks; not collective. INVALID_ARGUMENT, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_shard(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                            const ringattn_call* call, const ringattn_tensor* global,
                                            const ringattn_tensor* local);
RINGATTN_API ringattn_status ringattn_unshard(const ringattn_plan* plan, int32_t axis, int32_t rank,
                                              const ringattn_call* call, const ringattn_tensor* local,
                                              const ringattn_tensor* global);

/* ---- 13. Merge of partial results ---------------------------------------------------------------- */

/* Combines attention over two disjoint sets of keys, for the same queries:
 *     lse = ln(exp(lse_a) + exp(lse_b))
 *     o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b          in fp32, one rounding at the end.
 * Natural logarithms; a row with lse = -inf is empty and counts for nothing, whatever its o; two empty rows
 * give O = 0, lse = -inf. o tensors are [batch, seq, heads, dim], each of F32, F16 or BF16; lse tensors are
 * F32 [batch, heads, seq, 1]. o and lse may be o_a and lse_a (in place); otherwise outputs must not overlap
 * inputs. Any thread; blocks; not collective. INVALID_ARGUMENT, UNSUPPORTED, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_merge(ringattn_context* context, const ringattn_tensor* o_a,
                                            const ringattn_tensor* lse_a, const ringattn_tensor* o_b,
                                            const ringattn_tensor* lse_b, const ringattn_tensor* o,
                                            const ringattn_tensor* lse);

#ifdef __cplusplus
}
#endif
#endif /* RINGATTN_SHARDS_H */
