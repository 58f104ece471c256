/* A whole transport, for ranks that are threads of one process; 07_custom_transport.c uses it.
 *
 * A ring has one list of what its ranks have posted. The second of two that belong together copies the bytes, and both stay in
 * the list, ended, until `test` has handed them out. One mutex guards everything; `wait` sleeps on the ring's condition
 * variable. include/ringattn/transport.h is the contract, transports/README.md explains it. With caps 0 this transport
 * neither lends memory nor leaves the process. */
#ifndef QUEUE_TRANSPORT_H
#define QUEUE_TRANSPORT_H
#include <pthread.h>
#include <ringattn/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct transfer {
  struct transfer* next;
  ringattn_transfer_v1 posted;
  int32_t owner;
  int ended;
  ringattn_status status; /* once it has ended */
} transfer;

typedef struct rank_link {
  struct ring* ring;
  int32_t rank;
  int open, closed; /* neither: it has yet to open, and may be posted to all the same */
  int woken;        /* a wake before the wait counts */
  int32_t lost;     /* the first peer that closed while something was posted with it; -1 = none */
  ringattn_beat_v1 beat;
} rank_link;

typedef struct ring {
  struct ring* next;
  uint64_t group[2];
  int32_t world_size, open_links;
  pthread_cond_t changed;
  ringattn_status status;
  char reason[256];
  transfer* transfers;
  rank_link* links;
} ring;

static ring* rings;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The library may be newer than this program and have longer structs, so arrays step by the size that they tell. */
static void read_struct(void* to, uint32_t size, const void* array, uint32_t step, int32_t index) {
  memset(to, 0, size);
  memcpy(to, (const char*)array + (size_t)step * (size_t)index, step < size ? step : size);
}

static void write_struct(void* array, uint32_t step, int32_t index, const void* from, uint32_t size) {
  char* to = (char*)array + (size_t)step * (size_t)index;
  memcpy(to, from, step < size ? step : size);
  memcpy(to, &step, sizeof step); /* every struct begins with its size, and this one is the caller's */
}

/* ---- How transfers and rings end; the mutex is held -------------------------------------------------- */

static void end_transfer(ring* all, transfer* one, ringattn_status status) {
  rank_link* owner = &all->links[one->owner];
  if (status == RINGATTN_ERR_PEER_LOST && owner->lost < 0) owner->lost = one->posted.peer;
  one->ended = 1;
  one->status = status;
  pthread_cond_broadcast(&all->changed);
}

/* The first reason wins. */
static void end_ring(ring* all, ringattn_status status, const char* reason) {
  if (all->status != RINGATTN_OK) return;
  all->status = status;
  snprintf(all->reason, sizeof all->reason, "%s", reason);
  for (transfer* one = all->transfers; one != NULL; one = one->next) {
    if (!one->ended) end_transfer(all, one, status);
  }
  pthread_cond_broadcast(&all->changed);
}

static void match(ring* all, transfer* send, transfer* receive) {
  const int equal = send->posted.bytes == receive->posted.bytes;
  if (equal && send->posted.bytes > 0) memcpy(receive->posted.data, send->posted.data, send->posted.bytes);
  end_transfer(all, send, equal ? RINGATTN_OK : RINGATTN_ERR_TRANSPORT);
  end_transfer(all, receive, equal ? RINGATTN_OK : RINGATTN_ERR_TRANSPORT);
  if (equal) return;
  char reason[200]; /* the ranks disagree about what they do: nothing that follows could be trusted */
  snprintf(reason, sizeof reason, "rank %d sends %llu bytes to rank %d, which expects %llu (tag 0x%llx)",
           send->owner, (unsigned long long)send->posted.bytes, receive->owner,
           (unsigned long long)receive->posted.bytes, (unsigned long long)send->posted.tag);
  end_ring(all, RINGATTN_ERR_TRANSPORT, reason);
}

static void add(ring* all, transfer* one) {
  transfer* other = all->transfers;
  while (other != NULL &&
         (other->ended || other->owner != one->posted.peer || other->posted.peer != one->owner ||
          other->posted.tag != one->posted.tag || other->posted.kind == one->posted.kind))
    other = other->next;
  one->next = all->transfers;
  all->transfers = one;
  if (all->status != RINGATTN_OK) /* by one before it in the same array */
    end_transfer(all, one, all->status);
  else if (all->links[one->posted.peer].closed)
    end_transfer(all, one, RINGATTN_ERR_PEER_LOST);
  else if (other != NULL && one->posted.kind == RINGATTN_TRANSFER_SEND)
    match(all, one, other);
  else if (other != NULL)
    match(all, other, one);
}

static ringattn_status status_of(const rank_link* own) {
  if (own->ring->status != RINGATTN_OK) return own->ring->status;
  return own->lost >= 0 ? RINGATTN_ERR_PEER_LOST : RINGATTN_OK;
}

/* ---- Open and close ----------------------------------------------------------------------------------- */

static int32_t queue_score(const char** why) {
  if (why != NULL) *why = NULL;
  return 1; /* below the library's own: used only where it is named */
}

static ring* make_ring(const ringattn_link_desc_v1* desc) {
  ring* all = calloc(1, sizeof *all);
  rank_link* links = calloc((size_t)desc->world_size, sizeof *links);
  if (all == NULL || links == NULL) {
    free(all), free(links);
    return NULL;
  }
  pthread_condattr_t monotonic; /* so that nobody who sets the clock makes a rank wait */
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&all->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  memcpy(all->group, desc->group, sizeof all->group);
  all->world_size = desc->world_size;
  all->links = links;
  all->next = rings;
  rings = all;
  for (int32_t rank = 0; rank < desc->world_size; ++rank) {
    links[rank].ring = all;
    links[rank].rank = rank;
    links[rank].lost = links[rank].beat.waits_for = -1;
  }
  return all;
}

static void free_ring(ring* all) {
  ring** place = &rings;
  while (*place != all) place = &(*place)->next;
  *place = all->next;
  pthread_cond_destroy(&all->changed);
  free(all->links);
  free(all);
}

/* The first rank makes the ring. Nobody waits for the others. */
static const char* enter(const ringattn_link_desc_v1* desc, void** link) {
  if (desc->rank < 0 || desc->rank >= desc->world_size) return "queue: no such rank";
  ring* all = rings;
  while (all != NULL && memcmp(all->group, desc->group, sizeof all->group) != 0) all = all->next;
  if (all == NULL) all = make_ring(desc);
  if (all == NULL) return "queue: out of memory";
  if (all->world_size != desc->world_size) return "queue: another world_size than the ring's";
  rank_link* own = &all->links[desc->rank];
  if (own->open || own->closed) return "queue: this rank is or was there already";
  if (all->status != RINGATTN_OK) return "queue: this ring has ended";
  own->open = 1;
  ++all->open_links;
  *link = own;
  return NULL;
}

static ringattn_status queue_open(const ringattn_link_desc_v1* given, void** link, const char** error) {
  ringattn_link_desc_v1 desc;
  read_struct(&desc, sizeof desc, given, given->struct_size, 0);
  *link = NULL;
  pthread_mutex_lock(&mutex);
  const char* refusal = enter(&desc, link);
  pthread_mutex_unlock(&mutex);
  if (refusal == NULL) return RINGATTN_OK;
  if (error != NULL) *error = refusal;
  return RINGATTN_ERR_INVALID_ARGUMENT;
}

static void queue_close(void* link) {
  rank_link* own = link;
  ring* all = own->ring;
  pthread_mutex_lock(&mutex);
  own->open = 0;
  own->closed = 1;
  transfer** place = &all->transfers;
  while (*place != NULL) {
    transfer* one = *place;
    if (one->owner == own->rank) {
      *place = one->next;
      free(one);
      continue;
    }
    if (!one->ended && one->posted.peer == own->rank) end_transfer(all, one, RINGATTN_ERR_PEER_LOST);
    place = &one->next;
  }
  if (--all->open_links == 0) free_ring(all);
  pthread_mutex_unlock(&mutex);
}

/* ---- Transfers ------------------------------------------------------------------------------------------ */

/* All or none: there is memory for all of them before the first is taken. */
static ringattn_status queue_post(void* link, const ringattn_transfer_v1* transfers, int32_t count) {
  rank_link* own = link;
  transfer* taken = NULL;
  int32_t made = 0;
  for (; made < count; ++made) {
    transfer* one = calloc(1, sizeof *one);
    if (one == NULL) break;
    read_struct(&one->posted, sizeof one->posted, transfers, transfers->struct_size, made);
    one->owner = own->rank;
    one->next = taken;
    taken = one;
  }
  pthread_mutex_lock(&mutex);
  if (made < count) end_ring(own->ring, RINGATTN_ERR_TRANSPORT, "queue: out of memory");
  const ringattn_status status = own->ring->status;
  while (taken != NULL) {
    transfer* one = taken;
    taken = one->next;
    if (status == RINGATTN_OK)
      add(own->ring, one);
    else
      free(one);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

static int has_ended(const rank_link* own) {
  const transfer* one = own->ring->transfers;
  while (one != NULL && !(one->ended && one->owner == own->rank)) one = one->next;
  return one != NULL;
}

static ringattn_status queue_test(void* link, ringattn_completion_v1* out, int32_t capacity, int32_t* count) {
  rank_link* own = link;
  *count = 0;
  pthread_mutex_lock(&mutex);
  transfer** place = &own->ring->transfers;
  while (*place != NULL && *count < capacity) {
    transfer* one = *place;
    if (!one->ended || one->owner != own->rank) {
      place = &one->next;
      continue;
    }
    ringattn_completion_v1 completion = {0};
    completion.status = one->status;
    completion.kind = one->posted.kind;
    completion.peer = one->posted.peer;
    completion.user = one->posted.user;
    completion.bytes = one->posted.bytes;
    if (one->posted.kind == RINGATTN_TRANSFER_RECEIVE) completion.data = one->posted.data;
    write_struct(out, out->struct_size, (*count)++, &completion, sizeof completion);
    *place = one->next;
    free(one);
  }
  const ringattn_status status = *count > 0 || has_ended(own) ? RINGATTN_OK : status_of(own);
  pthread_mutex_unlock(&mutex);
  return status;
}

static void queue_release(void* link, uint64_t loan) { /* nothing is ever lent */
  (void)link, (void)loan;
}

static void queue_withdraw(void* link, uint64_t mask, uint64_t value) {
  rank_link* own = link;
  pthread_mutex_lock(&mutex);
  for (transfer* one = own->ring->transfers; one != NULL; one = one->next) {
    if (!one->ended && one->owner == own->rank && (one->posted.tag & mask) == value)
      end_transfer(own->ring, one, RINGATTN_ERR_CANCELED);
  }
  pthread_mutex_unlock(&mutex);
}

/* ---- Waiting, the life line, the end -------------------------------------------------------------------- */

static void queue_wait(void* link, uint64_t timeout_ns) {
  rank_link* own = link;
  const uint64_t longest = 3600ull * 1000000000; /* to return early is allowed */
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const uint64_t ns = (uint64_t)until.tv_nsec + (timeout_ns < longest ? timeout_ns : longest);
  until.tv_sec += (time_t)(ns / 1000000000);
  until.tv_nsec = (long)(ns % 1000000000);
  int late = 0;
  pthread_mutex_lock(&mutex);
  while (!late && !own->woken && !has_ended(own) && own->ring->status == RINGATTN_OK)
    late = pthread_cond_timedwait(&own->ring->changed, &mutex, &until) != 0;
  own->woken = 0;
  pthread_mutex_unlock(&mutex);
}

static void queue_wake(void* link) {
  rank_link* own = link;
  pthread_mutex_lock(&mutex);
  own->woken = 1;
  pthread_cond_broadcast(&own->ring->changed);
  pthread_mutex_unlock(&mutex);
}

static void queue_tell(void* link, const ringattn_beat_v1* beat) {
  rank_link* own = link;
  pthread_mutex_lock(&mutex);
  const uint64_t canceled = own->beat.canceled;
  read_struct(&own->beat, sizeof own->beat, beat, beat->struct_size, 0);
  if (own->beat.canceled > canceled) { /* progress alone wakes nobody */
    for (int32_t rank = 0; rank < own->ring->world_size; ++rank)
      own->ring->links[rank].woken |= rank != own->rank;
    pthread_cond_broadcast(&own->ring->changed);
  }
  pthread_mutex_unlock(&mutex);
}

static ringattn_status queue_ask(void* link, int32_t rank, ringattn_beat_v1* out) {
  rank_link* own = link;
  if (rank < 0 || rank >= own->ring->world_size) return RINGATTN_ERR_INVALID_ARGUMENT;
  pthread_mutex_lock(&mutex);
  write_struct(out, out->struct_size, 0, &own->ring->links[rank].beat, sizeof(ringattn_beat_v1));
  pthread_mutex_unlock(&mutex);
  return RINGATTN_OK;
}

static void queue_abort(void* link, ringattn_status status, const char* reason) {
  rank_link* own = link;
  const int of_a_comm = status <= -200 && status > -300;
  pthread_mutex_lock(&mutex);
  end_ring(own->ring, of_a_comm ? status : RINGATTN_ERR_ABORTED, reason == NULL ? "" : reason);
  pthread_mutex_unlock(&mutex);
}

static ringattn_status queue_state(void* link, char* reason, uint64_t capacity) {
  rank_link* own = link;
  pthread_mutex_lock(&mutex);
  const ringattn_status status = status_of(own);
  if (reason != NULL && status != own->ring->status)
    snprintf(reason, capacity, "rank %d closed its link while rank %d had a transfer with it", own->lost,
             own->rank);
  else if (reason != NULL)
    snprintf(reason, capacity, "%s", own->ring->reason);
  pthread_mutex_unlock(&mutex);
  return status;
}

static const ringattn_transport_v1 queue_transport = {
    .struct_size = sizeof(ringattn_transport_v1),
    .abi = RINGATTN_TRANSPORT_ABI,
    .name = "queue",
    .score = queue_score,
    .open = queue_open,
    .close = queue_close,
    .post = queue_post,
    .test = queue_test,
    .release = queue_release,
    .withdraw = queue_withdraw,
    .wait = queue_wait,
    .wake = queue_wake,
    .tell = queue_tell,
    .ask = queue_ask,
    .abort = queue_abort,
    .state = queue_state,
};

#endif /* QUEUE_TRANSPORT_H */
