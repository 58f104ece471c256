/* ringattn/processes.h: a ring whose ranks are processes. A part of ringattn.h, which includes it. */
#ifndef RINGATTN_PROCESSES_H
#define RINGATTN_PROCESSES_H
#include "../ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 15. Ranks that are processes ----------------------------------------------------------------- */

/* Three ways to meet. Each makes one rank's comm; every rank of the ring calls the same function, with its own
 * rank, and blocks until all are there (at most arrival_timeout_ms). The ranks agree on a transport: the best
 * that all of them can run, or the one that desc->transport or RINGATTN_TRANSPORT names on every rank. A rank
 * that cannot open its link or reach its peers gets its own status, the others PEER_REFUSED. Arguments are
 * checked before a rank meets anybody: one with wrong ones is to the others a rank that does not come. Then all
 * of ringattn.h is as for local ranks, except that array forms drive the ranks of this process alone.
 *
 * desc: as for ringattn_comm_create_local; with the environment, world_size may be 0.
 *
 * The caller owns *out; NULL on failure. INVALID_ARGUMENT, UNSUPPORTED, NOT_FOUND (transport; no launcher),
 * OUT_OF_MEMORY, STRUCT_SIZE, RANK_MISMATCH, PEER_REFUSED, TRANSPORT, PEER_LOST, TIMEOUT. */

/* Opaque. Whoever holds it can join: carry it to the other ranks by a file of mode 600, a pipe, a broadcast or
 * the environment, not by command line arguments or logs. */
typedef struct ringattn_unique_id {
  uint8_t bytes[256];
} ringattn_unique_id;

/* Room for the text of an id, with its final 0. */
enum { RINGATTN_UNIQUE_ID_TEXT = 384 };

/* Makes the id of one ring of desc->world_size ranks, which then meet at this process: it listens (on every
 * interface, or on what RINGATTN_INTERFACE names) on a thread of its own until they have met, the arrival
 * timeout has passed or the context is destroyed. Not collective. INVALID_ARGUMENT, UNSUPPORTED (no socket;
 * the message has the system's reason), OUT_OF_MEMORY, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_unique_id_create(ringattn_context* context,
                                                       const ringattn_comm_desc* desc,
                                                       ringattn_unique_id* out);

/* An id as one line of printable text, and back. INVALID_ARGUMENT. */
RINGATTN_API ringattn_status ringattn_unique_id_to_text(const ringattn_unique_id* id, char* text,
                                                        uint64_t capacity);
RINGATTN_API ringattn_status ringattn_unique_id_from_text(const char* text, ringattn_unique_id* out);

RINGATTN_API ringattn_status ringattn_comm_create_from_id(ringattn_context* context,
                                                          const ringattn_comm_desc* desc, int32_t rank,
                                                          const ringattn_unique_id* id, ringattn_comm** out);

/* From what a launcher has set: RINGATTN_RANK, RINGATTN_WORLD_SIZE and RINGATTN_RENDEZVOUS (host:port) with
 * RINGATTN_SECRET, or torchrun's, Open MPI's or Slurm's variables. Rank 0 hosts the meeting. Meeting beyond this
 * machine needs RINGATTN_SECRET on every rank, or RINGATTN_INSECURE=1. docs/processes.md has the whole list; the
 * log says at level INFO which was taken. */
RINGATTN_API ringattn_status ringattn_comm_create_from_environment(ringattn_context* context,
                                                                   const ringattn_comm_desc* desc,
                                                                   ringattn_comm** out);

/* All-gather by the caller (MPI, torch.distributed, anything): `own` has `bytes` bytes, the same number on every
 * rank; all[r * bytes] becomes what rank r gave. Returns 0, or anything else for a failure. Called three times,
 * inside ringattn_comm_create_from_allgather, on the calling thread. */
typedef int32_t (*ringattn_allgather_fn)(void* user, const void* own, uint64_t bytes, void* all);

RINGATTN_API ringattn_status ringattn_comm_create_from_allgather(ringattn_context* context,
                                                                 const ringattn_comm_desc* desc, int32_t rank,
                                                                 ringattn_allgather_fn allgather, void* user,
                                                                 ringattn_comm** out);

#ifdef __cplusplus
}
#endif
#endif /* RINGATTN_PROCESSES_H */
