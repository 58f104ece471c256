/* ringattn/transport.h: how bytes travel between ranks. For people who write a transport.
 *
 * A transport is one constant table of functions. One that lives in the application is registered with
 * ringattn_transport_register and then chosen by name. The library never unloads one.
 *
 * A *link* is one rank's open end: posted transfers match by (peer, tag) alone and end in any order. The
 * library calls a link from one thread at a time, except abort, wake, tell, ask and state: any thread, any
 * time. No call but wait blocks.
 *
 * Contract; tests/contract checks each line over every transport present:
 *   - score is pure.
 *   - open does not wait for other ranks longer than open_timeout_ms.
 *   - post never blocks and takes every legal transfer: sizes of 0, transfers to oneself, one-sided traffic.
 *   - A size mismatch ends both sides with RINGATTN_ERR_TRANSPORT, never a truncation.
 *   - After abort every posted transfer has ended within a second and wait returns at once. What a receiver
 *     has borrowed and not yet released ends when it releases it.
 *   - A lost peer gives PEER_LOST, never a hang.
 * */
#ifndef RINGATTN_TRANSPORT_H
#define RINGATTN_TRANSPORT_H
#include "../ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RINGATTN_TRANSPORT_ABI 1u /* changes only on a break; additions grow struct_size */

enum {
  /* A receive ends with a pointer to the sender's own memory instead of a copy; the sender's transfer ends
   * when the receiver has released it. Until then the sender does not change that memory. Only between
   * ranks of one address space. */
  RINGATTN_TRANSPORT_LENDS = 1,
  /* Connects ranks of different processes: has `address` and `connect`. Without it all ranks of a ring are of
   * one process, and a link is ready once it is open. */
  RINGATTN_TRANSPORT_PROCESSES = 2
};

/* What the library offers to a link; outlives it. */
typedef struct ringattn_host_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  void (*log)(void* self, int32_t level, const char* message);
} ringattn_host_v1;

typedef struct ringattn_link_desc_v1 {
  uint32_t struct_size;
  int32_t rank;
  int32_t world_size;
  int32_t open_timeout_ms; /* -1 = no limit */
  uint64_t group[2]; /* links of one ring carry the same value; no other ring of this process ever does */
  const ringattn_host_v1* host;
  /* known to the ranks of this ring alone, for a transport that authenticates its connections; NULL = none */
  const void* secret;
  uint64_t secret_bytes;
} ringattn_link_desc_v1;

/* How a link of another process is reached: bytes that only its transport understands. */
typedef struct ringattn_address_v1 {
  uint32_t struct_size;
  int32_t rank;
  const void* data;
  uint64_t bytes;
} ringattn_address_v1;

enum { RINGATTN_TRANSFER_SEND = 1, RINGATTN_TRANSFER_RECEIVE = 2 };

typedef struct ringattn_transfer_v1 {
  uint32_t struct_size;
  int32_t kind; /* RINGATTN_TRANSFER_... */
  int32_t peer; /* 0..world_size-1, oneself included */
  int32_t reserved;
  uint64_t tag; /* never used twice by one (sender, receiver) while the first is unmatched */
  /* SEND: read. RECEIVE: written; NULL with LENDS. The transport's until the transfer has ended */
  void* data;
  uint64_t bytes;
  uint64_t user; /* comes back in the completion */
} ringattn_transfer_v1;

typedef struct ringattn_completion_v1 {
  uint32_t struct_size;
  ringattn_status status; /* OK, CANCELED (withdrawn), or a comm-range error */
  int32_t kind;
  int32_t peer;
  uint64_t user;
  const void* data; /* a lent receive: the sender's memory; otherwise the receive's own buffer */
  uint64_t bytes;
  uint64_t loan; /* a lent receive: what to give to release; otherwise 0 */
} ringattn_completion_v1;

/* What a rank tells all others; last value wins. */
typedef struct ringattn_beat_v1 {
  uint32_t struct_size;
  int32_t waits_for;        /* the rank it waits for now, -1 = none */
  uint64_t counter;         /* moves whenever the rank makes progress */
  uint64_t entered;         /* sequence number of the last collective call it has entered, from 1 */
  uint64_t canceled;        /* sequence number of the last one it has canceled, 0 = none */
  uint64_t canceled_before; /* bit i: it has also canceled number canceled - 1 - i */
  uint64_t pulse;           /* moves while the rank lives inside a collective call, 0 = it is in none */
} ringattn_beat_v1;

typedef struct ringattn_transport_v1 {
  uint32_t struct_size;
  uint32_t abi;     /* RINGATTN_TRANSPORT_ABI */
  const char* name; /* [a-z0-9_]+ */
  uint64_t caps;    /* RINGATTN_TRANSPORT_... bits */

  /* 0 = cannot run here, and *why says so (static text); else the higher, the better. */
  int32_t (*score)(const char** why);

  /* *error (static text, or owned by the transport until the thread's next call) says why on failure. */
  ringattn_status (*open)(const ringattn_link_desc_v1* desc, void** link, const char** error);

  /* After every transfer has ended or abort was called. Loans taken from others are returned. Cannot fail.
   */
  void (*close)(void* link);

  /* Takes `count` transfers (an array that steps by the first's struct_size). OK, or a comm-range error:
   * then none was taken, and state says why. */
  ringattn_status (*post)(void* link, const ringattn_transfer_v1* transfers, int32_t count);

  /* Moves things on and hands out at most `capacity` completions, each once. OK (also for none), or the
   * comm-range status of a dead link with nothing more to hand out. */
  ringattn_status (*test)(void* link, ringattn_completion_v1* out, int32_t capacity, int32_t* count);

  /* Gives a loan back. Legal after abort. */
  void (*release)(void* link, uint64_t loan);

  /* Takes back every transfer of this link, sends and receives, whose tag has `value` under `mask` and that
   * has not been matched: it ends CANCELED. Matched ones end as usual. */
  void (*withdraw)(void* link, uint64_t mask, uint64_t value);

  /* Blocks without spinning until a completion can be had, a beat of another rank reports a newer cancel,
   * wake or abort was called, a peer failed, or timeout_ns have passed. May return early. */
  void (*wait)(void* link, uint64_t timeout_ns);

  /* Ends a running or the next wait of this link. */
  void (*wake)(void* link);

  /* The life line: tells all ranks about oneself; asks what `rank` told last (all zero, waits_for -1,
   * before it told anything). */
  void (*tell)(void* link, const ringattn_beat_v1* beat);
  ringattn_status (*ask)(void* link, int32_t rank, ringattn_beat_v1* out);

  /* Ends the link on every rank with this comm-range status and this one-line reason. The first reason
   * wins. */
  void (*abort)(void* link, ringattn_status status, const char* reason);

  /* Status of the link (OK, or why it ended) with its one-line reason, written to `reason` up to capacity,
   * always ended with 0. */
  ringattn_status (*state)(void* link, char* reason, uint64_t capacity);

  /* With PROCESSES, else NULL. After open: writes how this link is reached, at most `capacity` (4096) bytes. */
  ringattn_status (*address)(void* link, void* out, uint64_t capacity, uint64_t* bytes);

  /* With PROCESSES, else NULL. Once, before anything is posted: the addresses of all ranks, by rank, the own one too.
   * Returns when every peer can be reached, at most open_timeout_ms later. *error as in open. */
  ringattn_status (*connect)(void* link, const ringattn_address_v1* addresses, int32_t count,
                             const char** error);
} ringattn_transport_v1;

/* Adds a transport that lives in the application; the table must stay valid for the life of the process. A
 * name that exists already is refused. Any thread. INVALID_ARGUMENT, STRUCT_SIZE. */
RINGATTN_API ringattn_status ringattn_transport_register(const ringattn_transport_v1* transport);

#ifdef __cplusplus
}
#endif
#endif /* RINGATTN_TRANSPORT_H */
