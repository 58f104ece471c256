/* The layout of every published struct, as programs built against earlier headers know it (64-bit machines).
 * A new field is appended with its own line and a new SIZE; a line that has to change is a break of the ABI.
 * Compiling this file is the test. */
#include <stddef.h>

#include "ringattn.h"
#include "ringattn/transport.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #type "." #field)

SIZE(ringattn_tensor, 96);
AT(ringattn_tensor, struct_size, 0);
AT(ringattn_tensor, dtype, 4);
AT(ringattn_tensor, device_type, 8);
AT(ringattn_tensor, device_id, 12);
AT(ringattn_tensor, flags, 16);
AT(ringattn_tensor, data, 24);
AT(ringattn_tensor, shape, 32);
AT(ringattn_tensor, stride, 64);

SIZE(ringattn_context_desc, 64);
AT(ringattn_context_desc, struct_size, 0);
AT(ringattn_context_desc, device_type, 4);
AT(ringattn_context_desc, device_id, 8);
AT(ringattn_context_desc, threads, 12);
AT(ringattn_context_desc, progress_thread, 16);
AT(ringattn_context_desc, max_workers, 20);
AT(ringattn_context_desc, parallel_for, 24);
AT(ringattn_context_desc, parallel_user, 32);
AT(ringattn_context_desc, log, 40);
AT(ringattn_context_desc, log_user, 48);
AT(ringattn_context_desc, log_level, 56);
AT(ringattn_context_desc, reserved, 60);

SIZE(ringattn_comm_desc, 24);
AT(ringattn_comm_desc, struct_size, 0);
AT(ringattn_comm_desc, world_size, 4);
AT(ringattn_comm_desc, timeout_ms, 8);
AT(ringattn_comm_desc, arrival_timeout_ms, 12);
AT(ringattn_comm_desc, transport, 16);

SIZE(ringattn_run, 24);
AT(ringattn_run, first, 0);
AT(ringattn_run, length, 8);
AT(ringattn_run, stride, 16);

SIZE(ringattn_plan_desc, 176);
AT(ringattn_plan_desc, struct_size, 0);
AT(ringattn_plan_desc, flags, 4);
AT(ringattn_plan_desc, batch, 8);
AT(ringattn_plan_desc, seq_q, 16);
AT(ringattn_plan_desc, seq_k, 24);
AT(ringattn_plan_desc, heads, 32);
AT(ringattn_plan_desc, kv_heads, 40);
AT(ringattn_plan_desc, head_dim_qk, 48);
AT(ringattn_plan_desc, head_dim_v, 56);
AT(ringattn_plan_desc, max_sequences, 64);
AT(ringattn_plan_desc, dtype, 72);
AT(ringattn_plan_desc, dtype_out, 76);
AT(ringattn_plan_desc, mask, 80);
AT(ringattn_plan_desc, accuracy, 84);
AT(ringattn_plan_desc, window_left, 88);
AT(ringattn_plan_desc, window_right, 96);
AT(ringattn_plan_desc, scale, 104);
AT(ringattn_plan_desc, partition, 112);
AT(ringattn_plan_desc, query_cut, 116);
AT(ringattn_plan_desc, scope, 120);
AT(ringattn_plan_desc, schedule, 124);
AT(ringattn_plan_desc, stripe, 128);
AT(ringattn_plan_desc, runs_k, 136);
AT(ringattn_plan_desc, runs_k_count, 144);
AT(ringattn_plan_desc, runs_q, 152);
AT(ringattn_plan_desc, runs_q_count, 160);
AT(ringattn_plan_desc, dtype_grad, 168);
AT(ringattn_plan_desc, reserved, 172);

SIZE(ringattn_facts, 16);
AT(ringattn_facts, struct_size, 0);
AT(ringattn_facts, lends, 4);
AT(ringattn_facts, descs, 8);

SIZE(ringattn_call, 40);
AT(ringattn_call, struct_size, 0);
AT(ringattn_call, flags, 4);
AT(ringattn_call, sequences, 8);
AT(ringattn_call, cu_q, 16);
AT(ringattn_call, cu_k, 24);
AT(ringattn_call, query_offset, 32);

SIZE(ringattn_forward_args, 88);
AT(ringattn_forward_args, struct_size, 0);
AT(ringattn_forward_args, flags, 4);
AT(ringattn_forward_args, q, 8);
AT(ringattn_forward_args, k, 16);
AT(ringattn_forward_args, v, 24);
AT(ringattn_forward_args, o, 32);
AT(ringattn_forward_args, lse, 40);
AT(ringattn_forward_args, call, 48);
AT(ringattn_forward_args, workspace, 56);
AT(ringattn_forward_args, workspace_bytes, 64);
AT(ringattn_forward_args, progress, 72);
AT(ringattn_forward_args, progress_user, 80);

SIZE(ringattn_backward_args, 128);
AT(ringattn_backward_args, struct_size, 0);
AT(ringattn_backward_args, flags, 4);
AT(ringattn_backward_args, q, 8);
AT(ringattn_backward_args, k, 16);
AT(ringattn_backward_args, v, 24);
AT(ringattn_backward_args, o, 32);
AT(ringattn_backward_args, lse, 40);
AT(ringattn_backward_args, d_o, 48);
AT(ringattn_backward_args, d_lse, 56);
AT(ringattn_backward_args, d_q, 64);
AT(ringattn_backward_args, d_k, 72);
AT(ringattn_backward_args, d_v, 80);
AT(ringattn_backward_args, call, 88);
AT(ringattn_backward_args, workspace, 96);
AT(ringattn_backward_args, workspace_bytes, 104);
AT(ringattn_backward_args, progress, 112);
AT(ringattn_backward_args, progress_user, 120);

SIZE(ringattn_plan_info, 152);
AT(ringattn_plan_info, struct_size, 0);
AT(ringattn_plan_info, rank, 4);
AT(ringattn_plan_info, world_size, 8);
AT(ringattn_plan_info, steps, 12);
AT(ringattn_plan_info, local_q, 16);
AT(ringattn_plan_info, local_k, 24);
AT(ringattn_plan_info, local_capacity_q, 32);
AT(ringattn_plan_info, local_capacity_k, 40);
AT(ringattn_plan_info, workspace_bytes, 48);
AT(ringattn_plan_info, workspace_alignment, 56);
AT(ringattn_plan_info, plan_bytes, 64);
AT(ringattn_plan_info, bytes_sent, 72);
AT(ringattn_plan_info, bytes_received, 80);
AT(ringattn_plan_info, pairs, 88);
AT(ringattn_plan_info, pairs_max, 96);
AT(ringattn_plan_info, pairs_mean, 104);
AT(ringattn_plan_info, flops, 112);
AT(ringattn_plan_info, overlap_flops_per_byte, 120);
AT(ringattn_plan_info, backward_bytes_sent, 128);
AT(ringattn_plan_info, backward_bytes_received, 136);
AT(ringattn_plan_info, backward_flops, 144);

SIZE(ringattn_times, 80);
AT(ringattn_times, struct_size, 0);
AT(ringattn_times, workers, 4);
AT(ringattn_times, total_ns, 8);
AT(ringattn_times, agree_ns, 16);
AT(ringattn_times, compute_ns, 24);
AT(ringattn_times, transfer_ns, 32);
AT(ringattn_times, exposed_wait_ns, 40);
AT(ringattn_times, bytes_sent, 48);
AT(ringattn_times, bytes_received, 56);
AT(ringattn_times, tiles, 64);
AT(ringattn_times, poll_ns, 72);

SIZE(ringattn_event, 48);
AT(ringattn_event, struct_size, 0);
AT(ringattn_event, kind, 4);
AT(ringattn_event, worker, 8);
AT(ringattn_event, peer, 12);
AT(ringattn_event, block, 16);
AT(ringattn_event, item, 20);
AT(ringattn_event, start_ns, 24);
AT(ringattn_event, end_ns, 32);
AT(ringattn_event, bytes, 40);

SIZE(ringattn_unique_id, 256);
AT(ringattn_unique_id, bytes, 0);

SIZE(ringattn_host_v1, 24);
AT(ringattn_host_v1, struct_size, 0);
AT(ringattn_host_v1, reserved, 4);
AT(ringattn_host_v1, self, 8);
AT(ringattn_host_v1, log, 16);

SIZE(ringattn_link_desc_v1, 56);
AT(ringattn_link_desc_v1, struct_size, 0);
AT(ringattn_link_desc_v1, rank, 4);
AT(ringattn_link_desc_v1, world_size, 8);
AT(ringattn_link_desc_v1, open_timeout_ms, 12);
AT(ringattn_link_desc_v1, group, 16);
AT(ringattn_link_desc_v1, host, 32);
AT(ringattn_link_desc_v1, secret, 40);
AT(ringattn_link_desc_v1, secret_bytes, 48);

SIZE(ringattn_address_v1, 24);
AT(ringattn_address_v1, struct_size, 0);
AT(ringattn_address_v1, rank, 4);
AT(ringattn_address_v1, data, 8);
AT(ringattn_address_v1, bytes, 16);

SIZE(ringattn_transfer_v1, 48);
AT(ringattn_transfer_v1, struct_size, 0);
AT(ringattn_transfer_v1, kind, 4);
AT(ringattn_transfer_v1, peer, 8);
AT(ringattn_transfer_v1, reserved, 12);
AT(ringattn_transfer_v1, tag, 16);
AT(ringattn_transfer_v1, data, 24);
AT(ringattn_transfer_v1, bytes, 32);
AT(ringattn_transfer_v1, user, 40);

SIZE(ringattn_completion_v1, 48);
AT(ringattn_completion_v1, struct_size, 0);
AT(ringattn_completion_v1, status, 4);
AT(ringattn_completion_v1, kind, 8);
AT(ringattn_completion_v1, peer, 12);
AT(ringattn_completion_v1, user, 16);
AT(ringattn_completion_v1, data, 24);
AT(ringattn_completion_v1, bytes, 32);
AT(ringattn_completion_v1, loan, 40);

SIZE(ringattn_beat_v1, 48);
AT(ringattn_beat_v1, struct_size, 0);
AT(ringattn_beat_v1, waits_for, 4);
AT(ringattn_beat_v1, counter, 8);
AT(ringattn_beat_v1, entered, 16);
AT(ringattn_beat_v1, canceled, 24);
AT(ringattn_beat_v1, canceled_before, 32);
AT(ringattn_beat_v1, pulse, 40);

SIZE(ringattn_transport_v1, 144);
AT(ringattn_transport_v1, struct_size, 0);
AT(ringattn_transport_v1, abi, 4);
AT(ringattn_transport_v1, name, 8);
AT(ringattn_transport_v1, caps, 16);
AT(ringattn_transport_v1, score, 24);
AT(ringattn_transport_v1, open, 32);
AT(ringattn_transport_v1, close, 40);
AT(ringattn_transport_v1, post, 48);
AT(ringattn_transport_v1, test, 56);
AT(ringattn_transport_v1, release, 64);
AT(ringattn_transport_v1, withdraw, 72);
AT(ringattn_transport_v1, wait, 80);
AT(ringattn_transport_v1, wake, 88);
AT(ringattn_transport_v1, tell, 96);
AT(ringattn_transport_v1, ask, 104);
AT(ringattn_transport_v1, abort, 112);
AT(ringattn_transport_v1, state, 120);
AT(ringattn_transport_v1, address, 128);
AT(ringattn_transport_v1, connect, 136);
