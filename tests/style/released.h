/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface of release 0.2: values, places of fields where pointers have 64
 * bits, functions. symbols.sh compiles it behind dicomm.h. A release adds what
 * is new in it; what is here neither changes nor goes while the soname stays.
 */
#include <stddef.h>

#define SAME(name, value) \
	_Static_assert((name) == (value), #name " was " #value)
#define PLACE(type, field, bytes)                                \
	_Static_assert(sizeof(void *) != 8 ||                    \
			       offsetof(type, field) == (bytes), \
		       #type "." #field " was at byte " #bytes)

SAME(DICOMM_SUCCESS, 0);
SAME(DICOMM_ERR_DEVICE, 1);
SAME(DICOMM_ERR_SYSTEM, 2);
SAME(DICOMM_ERR_INTERNAL, 3);
SAME(DICOMM_ERR_INVALID_ARGUMENT, 4);
SAME(DICOMM_ERR_INVALID_USAGE, 5);
SAME(DICOMM_ERR_REMOTE, 6);
SAME(DICOMM_IN_PROGRESS, 7);
SAME(DICOMM_ERR_TIMEOUT, 8);
SAME(DICOMM_ERR_NO_MEMORY, 16);
SAME(DICOMM_ERR_UNSUPPORTED, 17);
SAME(DICOMM_ERR_NO_PATH, 18);
SAME(DICOMM_ERR_ABORTED, 19);
SAME(DICOMM_INT8, 0);
SAME(DICOMM_CHAR, 0);
SAME(DICOMM_UINT8, 1);
SAME(DICOMM_INT32, 2);
SAME(DICOMM_INT, 2);
SAME(DICOMM_UINT32, 3);
SAME(DICOMM_INT64, 4);
SAME(DICOMM_UINT64, 5);
SAME(DICOMM_FLOAT16, 6);
SAME(DICOMM_HALF, 6);
SAME(DICOMM_FLOAT32, 7);
SAME(DICOMM_FLOAT, 7);
SAME(DICOMM_FLOAT64, 8);
SAME(DICOMM_DOUBLE, 8);
SAME(DICOMM_BFLOAT16, 9);
SAME(DICOMM_FLOAT8E4M3, 10);
SAME(DICOMM_FLOAT8E5M2, 11);
SAME(DICOMM_INT16, 16);
SAME(DICOMM_UINT16, 17);
SAME(DICOMM_FLOAT8E4M3FNUZ, 18);
SAME(DICOMM_FLOAT8E5M2FNUZ, 19);
SAME(DICOMM_BOOL, 20);
SAME(DICOMM_COMPLEX64, 21);
SAME(DICOMM_COMPLEX128, 22);
SAME(DICOMM_BYTES2, 23);
SAME(DICOMM_BYTES4, 24);
SAME(DICOMM_BYTES8, 25);
SAME(DICOMM_BYTES16, 26);
SAME(DICOMM_SUM, 0);
SAME(DICOMM_PROD, 1);
SAME(DICOMM_MAX, 2);
SAME(DICOMM_MIN, 3);
SAME(DICOMM_AVG, 4);
SAME(DICOMM_BAND, 16);
SAME(DICOMM_BOR, 17);
SAME(DICOMM_BXOR, 18);
SAME(DICOMM_MAX_REDOP, 0x7fffffff);
SAME(DICOMM_SCALAR_DEVICE, 0);
SAME(DICOMM_SCALAR_HOST_IMMEDIATE, 1);
SAME(DICOMM_REPLICATE, 0);
SAME(DICOMM_SHARD, 1);
SAME(DICOMM_PARTIAL, 2);
SAME(DICOMM_WAY_AUTO, 0);
SAME(DICOMM_WAY_DIRECT, 1);
SAME(DICOMM_WAY_SCATTER, 2);
SAME(DICOMM_WAY_LEADER, 3);

PLACE(dicomm_unique_id_t, text, 0);
PLACE(dicomm_status_t, count, 0);
PLACE(dicomm_status_t, source, 8);
PLACE(dicomm_status_t, tag, 12);
PLACE(dicomm_config_t, size, 0);
PLACE(dicomm_config_t, magic, 8);
PLACE(dicomm_config_t, version, 12);
PLACE(dicomm_config_t, device, 16);
PLACE(dicomm_config_t, name, 24);
PLACE(dicomm_config_t, blocking, 32);
PLACE(dicomm_config_t, timeout_ms, 36);
PLACE(dicomm_config_t, transports, 40);
PLACE(dicomm_config_t, staging, 48);
PLACE(dicomm_config_t, deterministic, 56);
PLACE(dicomm_config_t, lanes, 60);
PLACE(dicomm_config_t, log_fn, 64);
PLACE(dicomm_config_t, log_ctx, 72);
PLACE(dicomm_config_t, bootstrap, 80);
PLACE(dicomm_config_t, bootstrap_timeout_ms, 96);
PLACE(dicomm_config_t, island, 104);
PLACE(dicomm_stats_t, size, 0);
PLACE(dicomm_stats_t, operations, 8);
PLACE(dicomm_stats_t, messages_sent, 16);
PLACE(dicomm_stats_t, messages_received, 24);
PLACE(dicomm_stats_t, bytes_sent, 32);
PLACE(dicomm_stats_t, bytes_received, 40);
PLACE(dicomm_stats_t, bytes_direct, 48);
PLACE(dicomm_stats_t, bytes_staged, 56);
PLACE(dicomm_stats_t, bytes_ring, 64);
PLACE(dicomm_stats_t, bytes_mapped, 72);
PLACE(dicomm_stats_t, bytes_cma, 80);
PLACE(dicomm_stats_t, connected_peers, 88);
PLACE(dicomm_stats_t, memory_bytes, 96);
PLACE(dicomm_stats_t, bytes_rdma, 104);
PLACE(dicomm_stats_t, bytes_landed, 112);
PLACE(dicomm_stats_t, bytes_copied, 120);
PLACE(dicomm_stats_t, device_bytes, 128);
PLACE(dicomm_stats_t, under_way, 136);
PLACE(dicomm_stats_t, comm_hash, 144);
PLACE(dicomm_param_info_t, name, 0);
PLACE(dicomm_param_info_t, type, 8);
PLACE(dicomm_param_info_t, default_value, 16);
PLACE(dicomm_param_info_t, value, 24);
PLACE(dicomm_param_info_t, origin, 32);
PLACE(dicomm_param_info_t, help, 40);
PLACE(dicomm_transport_info_t, name, 0);
PLACE(dicomm_transport_info_t, usable, 8);
PLACE(dicomm_transport_info_t, reason, 12);
PLACE(dicomm_device_kind_info_t, name, 0);
PLACE(dicomm_device_kind_info_t, devices, 8);
PLACE(dicomm_device_kind_info_t, reason, 12);
PLACE(dicomm_adapter_info_t, device, 0);
PLACE(dicomm_adapter_info_t, transport, 32);
PLACE(dicomm_adapter_info_t, adapter, 40);
PLACE(dicomm_adapter_info_t, direct, 120);
PLACE(dicomm_adapter_info_t, how, 124);
PLACE(dicomm_device_info_t, name, 0);
PLACE(dicomm_device_info_t, vendor, 32);
PLACE(dicomm_device_info_t, description, 64);
PLACE(dicomm_device_info_t, pci, 192);
PLACE(dicomm_box_t, rank, 0);
PLACE(dicomm_box_t, term, 4);
PLACE(dicomm_box_t, lo, 8);
PLACE(dicomm_box_t, hi, 72);
PLACE(dicomm_box_t, offset, 136);
PLACE(dicomm_box_t, stride, 144);
PLACE(dicomm_placement_t, kind, 0);
PLACE(dicomm_placement_t, axis, 4);
PLACE(dicomm_placement_t, extents, 8);
PLACE(dicomm_mesh_t, dims, 0);
PLACE(dicomm_mesh_t, extent, 4);
PLACE(dicomm_mesh_t, ranks, 40);
PLACE(dicomm_mesh_t, placements, 48);
PLACE(dicomm_tensor_t, size, 0);
PLACE(dicomm_tensor_t, name, 8);
PLACE(dicomm_tensor_t, type, 16);
PLACE(dicomm_tensor_t, axes, 20);
PLACE(dicomm_tensor_t, shape, 24);
PLACE(dicomm_tensor_t, source, 88);
PLACE(dicomm_tensor_t, sources, 96);
PLACE(dicomm_tensor_t, target, 104);
PLACE(dicomm_tensor_t, targets, 112);
PLACE(dicomm_tensor_t, terms, 120);
PLACE(dicomm_tensor_t, weights, 128);
PLACE(dicomm_redistribute_config_t, size, 0);
PLACE(dicomm_redistribute_config_t, way, 8);
PLACE(dicomm_redistribute_config_t, staging_bytes, 16);
PLACE(dicomm_redistribute_config_t, allow_unwanted, 24);
PLACE(dicomm_redistribute_config_t, local, 28);
PLACE(dicomm_wait_signal_desc_t, count, 0);
PLACE(dicomm_wait_signal_desc_t, peer, 4);
PLACE(dicomm_wait_signal_desc_t, signal, 8);
PLACE(dicomm_wait_signal_desc_t, context, 12);
PLACE(dicomm_redistribute_info_t, size, 0);
PLACE(dicomm_redistribute_info_t, way, 8);
PLACE(dicomm_redistribute_info_t, seconds, 16);
PLACE(dicomm_redistribute_info_t, seconds_of, 24);
PLACE(dicomm_redistribute_info_t, messages_sent, 56);
PLACE(dicomm_redistribute_info_t, messages_received, 64);
PLACE(dicomm_redistribute_info_t, bytes_sent, 72);
PLACE(dicomm_redistribute_info_t, bytes_received, 80);
PLACE(dicomm_redistribute_info_t, bytes_of_all, 88);
PLACE(dicomm_redistribute_info_t, bytes_between_hosts, 96);
PLACE(dicomm_redistribute_info_t, rounds, 104);
PLACE(dicomm_redistribute_info_t, staging_bytes, 112);
PLACE(dicomm_redistribute_info_t, plan_bytes, 120);

dicomm_result_t dicomm_get_version(int *version);
const char *dicomm_get_error_string(dicomm_result_t result);
const char *dicomm_get_last_error(dicomm_comm_t comm);
dicomm_result_t dicomm_get_unique_id(dicomm_unique_id_t *id);
dicomm_result_t dicomm_unique_id_at(const char *address, int rank,
				    dicomm_unique_id_t *id);
dicomm_result_t dicomm_comm_init_rank(dicomm_comm_t *comm, int nranks,
				      dicomm_unique_id_t id, int rank);
dicomm_result_t dicomm_comm_init_rank_config(dicomm_comm_t *comm, int nranks,
					     dicomm_unique_id_t id, int rank,
					     const dicomm_config_t *config);
dicomm_result_t dicomm_comm_init_env(dicomm_comm_t *comm);
dicomm_result_t dicomm_comm_init_env_config(dicomm_comm_t *comm,
					    const dicomm_config_t *config);
dicomm_result_t dicomm_comm_init_all(dicomm_comm_t *comms, int ndev,
				     const char *const *devices);
dicomm_result_t dicomm_comm_split(dicomm_comm_t comm, int color, int key,
				  dicomm_comm_t *newcomm,
				  const dicomm_config_t *config);
dicomm_result_t dicomm_comm_create_group(dicomm_comm_t comm, const int *ranks,
					 int nranks, int tag,
					 dicomm_comm_t *newcomm,
					 const dicomm_config_t *config);
dicomm_result_t dicomm_comm_shrink(dicomm_comm_t comm, const int *exclude,
				   int nexclude, dicomm_comm_t *newcomm,
				   const dicomm_config_t *config);
dicomm_result_t dicomm_comm_get_unique_id(dicomm_comm_t comm,
					  dicomm_unique_id_t *id);
dicomm_result_t dicomm_comm_grow(dicomm_comm_t comm, int nranks,
				 const dicomm_unique_id_t *id, int rank,
				 dicomm_comm_t *newcomm,
				 const dicomm_config_t *config);
dicomm_result_t dicomm_comm_finalize(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_destroy(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_abort(dicomm_comm_t comm);
dicomm_result_t dicomm_comm_set_timeout(dicomm_comm_t comm, int timeout_ms);
dicomm_result_t dicomm_comm_get_async_error(dicomm_comm_t comm,
					    dicomm_result_t *async_error);
dicomm_result_t dicomm_comm_count(dicomm_comm_t comm, int *count);
dicomm_result_t dicomm_comm_user_rank(dicomm_comm_t comm, int *rank);
dicomm_result_t dicomm_comm_device(dicomm_comm_t comm, const char **device);
dicomm_result_t dicomm_comm_stats(dicomm_comm_t comm, dicomm_stats_t *stats);
dicomm_result_t dicomm_comm_explain(dicomm_comm_t comm, const char *operation,
				    size_t count, dicomm_datatype_t type,
				    char *text, size_t len);
dicomm_result_t dicomm_mem_alloc(void **ptr, size_t size);
dicomm_result_t dicomm_comm_mem_alloc(dicomm_comm_t comm, void **ptr,
				      size_t size);
dicomm_result_t dicomm_comm_memcpy(dicomm_comm_t comm, void *dst,
				   const void *src, size_t size,
				   dicomm_stream_t stream);
dicomm_result_t dicomm_comm_stream_synchronize(dicomm_comm_t comm,
					       dicomm_stream_t stream);
dicomm_result_t dicomm_mem_free(void *ptr);
dicomm_result_t dicomm_comm_register(dicomm_comm_t comm, void *buff,
				     size_t size, void **handle);
dicomm_result_t dicomm_comm_deregister(dicomm_comm_t comm, void *handle);
dicomm_result_t dicomm_redop_create_premulsum(
	dicomm_redop_t *op, const void *scalar, dicomm_datatype_t type,
	dicomm_scalar_residence_t residence, dicomm_comm_t comm);
dicomm_result_t dicomm_redop_destroy(dicomm_redop_t op, dicomm_comm_t comm);
dicomm_result_t dicomm_group_start(void);
dicomm_result_t dicomm_group_end(void);
dicomm_result_t dicomm_allreduce(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, dicomm_redop_t op,
				 dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_reduce(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, dicomm_redop_t op,
			      int root, dicomm_comm_t comm,
			      dicomm_stream_t stream);
dicomm_result_t dicomm_broadcast(const void *send, void *recv, size_t count,
				 dicomm_datatype_t type, int root,
				 dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_reduce_scatter(const void *send, void *recv,
				      size_t recvcount, dicomm_datatype_t type,
				      dicomm_redop_t op, dicomm_comm_t comm,
				      dicomm_stream_t stream);
dicomm_result_t dicomm_allgather(const void *send, void *recv, size_t sendcount,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);
dicomm_result_t dicomm_alltoall(const void *send, void *recv, size_t count,
				dicomm_datatype_t type, dicomm_comm_t comm,
				dicomm_stream_t stream);
dicomm_result_t dicomm_gather(const void *send, void *recv, size_t count,
			      dicomm_datatype_t type, int root,
			      dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_scatter(const void *send, void *recv, size_t count,
			       dicomm_datatype_t type, int root,
			       dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_send(const void *send, size_t count,
			    dicomm_datatype_t type, int peer,
			    dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_recv(void *recv, size_t count, dicomm_datatype_t type,
			    int peer, dicomm_comm_t comm,
			    dicomm_stream_t stream);
dicomm_result_t dicomm_send_tag(const void *send, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_recv_tag(void *recv, size_t count,
				dicomm_datatype_t type, int peer, int tag,
				dicomm_comm_t comm, dicomm_stream_t stream,
				dicomm_status_t *status);
dicomm_result_t dicomm_alltoallv(const void *send, const size_t *sendcounts,
				 const size_t *senddispls, void *recv,
				 const size_t *recvcounts,
				 const size_t *recvdispls,
				 dicomm_datatype_t type, dicomm_comm_t comm,
				 dicomm_stream_t stream);
dicomm_result_t dicomm_allgatherv(const void *send, void *recv,
				  const size_t *recvcounts,
				  const size_t *recvdispls,
				  dicomm_datatype_t type, dicomm_comm_t comm,
				  dicomm_stream_t stream);
dicomm_result_t dicomm_reduce_scatterv(const void *send, void *recv,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, dicomm_comm_t comm,
				       dicomm_stream_t stream);
dicomm_result_t dicomm_gatherv(const void *send, size_t sendcount, void *recv,
			       const size_t *recvcounts,
			       const size_t *recvdispls, dicomm_datatype_t type,
			       int root, dicomm_comm_t comm,
			       dicomm_stream_t stream);
dicomm_result_t dicomm_scatterv(const void *send, const size_t *sendcounts,
				const size_t *senddispls, void *recv,
				size_t recvcount, dicomm_datatype_t type,
				int root, dicomm_comm_t comm,
				dicomm_stream_t stream);
dicomm_result_t
dicomm_alltoallv_list(const void *const *sends, const size_t *sendcounts,
		      void *const *recvs, const size_t *recvcounts,
		      dicomm_datatype_t type, dicomm_comm_t comm,
		      dicomm_stream_t stream);
dicomm_result_t dicomm_allgatherv_list(const void *send, void *const *recvs,
				       const size_t *recvcounts,
				       dicomm_datatype_t type,
				       dicomm_comm_t comm,
				       dicomm_stream_t stream);
dicomm_result_t
dicomm_reduce_scatterv_list(const void *const *sends, void *recv,
			    const size_t *recvcounts, dicomm_datatype_t type,
			    dicomm_redop_t op, dicomm_comm_t comm,
			    dicomm_stream_t stream);
dicomm_result_t dicomm_gatherv_list(const void *send, size_t sendcount,
				    void *const *recvs,
				    const size_t *recvcounts,
				    dicomm_datatype_t type, int root,
				    dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_scatterv_list(const void *const *sends,
				     const size_t *sendcounts, void *recv,
				     size_t recvcount, dicomm_datatype_t type,
				     int root, dicomm_comm_t comm,
				     dicomm_stream_t stream);
dicomm_result_t dicomm_reduce_local(const void *send, void *recv, size_t count,
				    dicomm_datatype_t type, dicomm_redop_t op,
				    dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_barrier(dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_mesh_boxes(const dicomm_mesh_t *mesh, int axes,
				  const int64_t *shape, int first_term,
				  dicomm_box_t *boxes);
dicomm_result_t dicomm_redistribute_plan(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm);
dicomm_result_t dicomm_redistribute_plan_own(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm);
dicomm_result_t dicomm_redistribute_run(dicomm_redistribute_t plan,
					const void *const *source,
					void *const *target,
					dicomm_stream_t stream);
dicomm_result_t dicomm_redistribute_info(dicomm_redistribute_t plan,
					 dicomm_redistribute_info_t *info);
dicomm_result_t dicomm_redistribute_link(dicomm_redistribute_t plan, int peer,
					 uint64_t *sent, uint64_t *received);
dicomm_result_t dicomm_redistribute_explain(dicomm_redistribute_t plan,
					    char *text, size_t len);
dicomm_result_t dicomm_redistribute_free(dicomm_redistribute_t plan);
dicomm_result_t dicomm_comm_window_register(dicomm_comm_t comm, void *buff,
					    size_t size, dicomm_window_t *win,
					    int flags);
dicomm_result_t dicomm_comm_window_deregister(dicomm_comm_t comm,
					      dicomm_window_t win);
dicomm_result_t dicomm_put_signal(const void *local, size_t count,
				  dicomm_datatype_t type, int peer,
				  dicomm_window_t win, size_t offset,
				  int signal, int context, unsigned int flags,
				  dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_signal(int peer, int signal, int context,
			      unsigned int flags, dicomm_comm_t comm,
			      dicomm_stream_t stream);
dicomm_result_t dicomm_wait_signal(int n,
				   const dicomm_wait_signal_desc_t *descs,
				   dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_get(void *local, size_t count, dicomm_datatype_t type,
			   int peer, dicomm_window_t win, size_t offset,
			   dicomm_comm_t comm, dicomm_stream_t stream);
dicomm_result_t dicomm_host_stream_create(dicomm_stream_t *stream);
dicomm_result_t dicomm_host_stream_synchronize(dicomm_stream_t stream);
dicomm_result_t dicomm_host_stream_destroy(dicomm_stream_t stream);
dicomm_result_t dicomm_host_stream_request(dicomm_stream_t stream,
					   dicomm_request_t *request);
dicomm_result_t dicomm_request_query(dicomm_request_t request);
dicomm_result_t dicomm_request_wait(dicomm_request_t request, int timeout_ms);
dicomm_result_t dicomm_request_call(dicomm_request_t request,
				    dicomm_request_fn_t fn, void *ctx);
dicomm_result_t dicomm_request_free(dicomm_request_t request);
dicomm_result_t dicomm_param_info(int index, dicomm_param_info_t *info);
dicomm_result_t dicomm_transport_info(int index, dicomm_transport_info_t *info);
dicomm_result_t dicomm_device_info(int index, dicomm_device_info_t *info);
dicomm_result_t dicomm_device_kind_info(int index,
					dicomm_device_kind_info_t *info);
dicomm_result_t dicomm_explain(const char *operation, int nranks, size_t bytes,
			       char *text, size_t len);
dicomm_result_t dicomm_predict(const char *topology, const char *operation,
			       int nranks, int index, const size_t *bytes,
			       int n, const char **algorithm, double *seconds);
dicomm_result_t dicomm_adapter_info(int index, dicomm_adapter_info_t *info);
dicomm_result_t dicomm_explain_devices(const char *first, const char *second,
				       char *text, size_t len);
PLACE(dicomm_network_info_t, interface, 0);
PLACE(dicomm_network_info_t, address, 64);
PLACE(dicomm_network_info_t, reason, 128);
dicomm_result_t dicomm_network_info(dicomm_network_info_t *info);
dicomm_result_t dicomm_job_info(const char *address, dicomm_job_fn_t fn,
				void *ctx);
