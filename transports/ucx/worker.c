/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCP context and worker of a device: configured, opened, and given back to
 * UCX; or abandoned, where UCX would end the program. */
#include "transports/ucx/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/ucx/device.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/load.h"
#include "transports/ucx/receive.h"
#include "transports/ucx/sockets.h"

/* After connections were cut, so many calls of progress, or so many in a row
 * that find nothing, complete the requests. */
#define SETTLE_TURNS 1000
#define SETTLE_IDLE 16
/* Bytes that UCX takes from a TCP socket at a time. */
#define RECEIVED_BYTES ((size_t)260 << 10)

/* ---- opened ---- */

/* Set a variable of UCX, unless the user has. prefix: of a part of UCX, such as
 * "TCP_", or "". UCX before 1.17 knows the variables of its parts only without
 * the prefix. */
static void set_default(ucp_config_t *config, const char *prefix,
			const char *name, const char *value)
{
	char full[64];
	unsigned major, minor, release;
	const char *key = full + strlen("UCX_");
	ucs_status_t status;

	snprintf(full, sizeof(full), "UCX_%s%s", prefix, name);
	if (getenv(full))
		return;
	ucx.ucp_get_version(&major, &minor, &release);
	if (major == 1 && minor < 17)
		key = name;
	status = ucx.ucp_config_modify(config, key, value);
	/* It works all the same, but maybe over another network, or slower. */
	if (status != UCS_OK)
		log_warn("ucx: it does not take %s %s: %s", full, value,
			 ucx.ucs_status_string(status));
}

/* UCX's "self" and the transports of devices are no network. */
static bool is_tcp_only(void)
{
	static const char *const others[] = {"self", "cuda", "cuda_copy",
					     "rocm", "rocm_copy"};
	const char *p = getenv("UCX_TLS");
	bool tcp = !p;

	while (p && *p) {
		size_t len = strcspn(p, ",");
		bool other = false;

		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
			other |= len == strlen(others[i]) &&
				 !strncmp(p, others[i], len);
		if (len == 3 && !strncmp(p, "tcp", 3))
			tcp = true;
		else if (!other)
			return false;
		p += len + (p[len] == ',');
	}
	return tcp;
}

/* Use TCP on the interface where the ranks meet, unless variables of UCX say
 * otherwise. Over TCP, UCX is by far the fastest if it neither cuts messages
 * into small pieces nor asks the receiver before it sends them. */
static void configure(struct tp_device *dev, ucp_config_t *config)
{
	size_t sent = (size_t)dev->base.config.slot_bytes + 1024;
	char number[32];

	dev->tcp = is_tcp_only();
	if (dev->tcp) {
		set_default(config, "", "TLS", "tcp");
		if (*dev->interface.name)
			set_default(config, "", "NET_DEVICES",
				    dev->interface.name);
		set_default(config, "", "RNDV_THRESH", "inf");
		set_default(config, "", "RESOLVE_REMOTE_EP_ID", "n");
		/* Connect without blocking. Else this thread would hold the
		 * lock while it waits for a peer that is not there; and when
		 * UCX reconnects a connection that was closed meanwhile, and
		 * that fails at once, UCX fails an assertion. */
		set_default(config, "TCP_", "CONN_NB", "y");
	}
	if (*config_string(CONFIG_SOCKET_FAMILY))
		set_default(
			config, "TCP_", "AF_PRIO",
			strcmp(config_string(CONFIG_SOCKET_FAMILY), "AF_INET6")
				? "inet"
				: "inet6");
	if (*config_string(CONFIG_PORT_RANGE))
		set_default(config, "TCP_", "PORT_RANGE",
			    config_string(CONFIG_PORT_RANGE));
	snprintf(number, sizeof(number), "%zu", sent);
	set_default(config, "TCP_", "TX_SEG_SIZE", number);
	set_default(config, "", "ZCOPY_THRESH", number);
	/* UCX requires that it is not smaller. */
	snprintf(number, sizeof(number), "%zu",
		 sent > RECEIVED_BYTES ? sent : RECEIVED_BYTES);
	set_default(config, "TCP_", "RX_SEG_SIZE", number);
}

static dicomm_result_t failed(const struct tp_device *dev, const char *what,
			      ucs_status_t status)
{
	char cause[256];

	return FAIL(status == UCS_ERR_NO_MEMORY ? DICOMM_ERR_NO_MEMORY
						: DICOMM_ERR_SYSTEM,
		    "ucx: %s (interface %s): %s%s", what,
		    *dev->interface.name ? dev->interface.name : "unknown",
		    ucx.ucs_status_string(status),
		    ucx_find_cause(cause, sizeof(cause)));
}

static dicomm_result_t open_context(struct tp_device *dev)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
		.estimated_num_eps = (size_t)dev->base.config.ranks,
	};
	ucp_config_t *config;
	ucs_status_t status = ucx.ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return failed(dev, "configuration", status);
	configure(dev, config);
	status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
				      config, &dev->context);
	ucx.ucp_config_release(config);
	if (status == UCS_OK) {
		atomic_fetch_add(&ucx_contexts, 1);
		return DICOMM_SUCCESS;
	}
	dev->context = NULL;
	return failed(dev, "open", status);
}

static ucs_status_t create_worker(struct tp_device *dev)
{
	const ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucs_status_t status;

	status = ucx.ucp_worker_create(dev->context, &params, &dev->worker);
	if (status != UCS_OK)
		dev->worker = NULL;
	return status;
}

static dicomm_result_t open_worker(struct tp_device *dev)
{
	ucp_worker_attr_t attr = {
		.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
			      UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
		.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
	ucs_status_t status = create_worker(dev);
	dicomm_result_t result = DICOMM_SUCCESS;

	if (status != UCS_OK)
		return failed(dev, "open", status);
	status = ucx_receive_register(dev);
	if (status != UCS_OK)
		return failed(dev, "active messages", status);
	status = ucx.ucp_worker_get_efd(dev->worker, &dev->efd);
	if (status != UCS_OK)
		return failed(dev, "events", status);
	status = ucx.ucp_worker_query(dev->worker, &attr);
	if (status != UCS_OK)
		return failed(dev, "address", status);
	if (attr.address_length > sizeof(dev->worker_address)) {
		result = FAIL(DICOMM_ERR_UNSUPPORTED,
			      "ucx: its address has %zu bytes, more than %zu: "
			      "name fewer devices in UCX_NET_DEVICES",
			      attr.address_length, sizeof(dev->worker_address));
	} else {
		dev->worker_address_len = (uint32_t)attr.address_length;
		memcpy(dev->worker_address, attr.address, attr.address_length);
	}
	ucx.ucp_worker_release_address(dev->worker, attr.address);
	return result;
}

/* Block all signals meanwhile, so that threads that UCX starts get none. */
dicomm_result_t ucx_worker_open(struct tp_device *dev)
{
	int files = ucx_try_files();
	struct ucx_sockets before;
	dicomm_result_t status;
	sigset_t all, old;

	if (files < UCX_FILES)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "ucx: it opens up to %d files, and there is room "
			    "for %d: %s (ulimit -n)",
			    UCX_FILES, files, strerror(errno));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ucx_sockets_before(&before);
	status = open_context(dev);
	if (status == DICOMM_SUCCESS)
		status = open_worker(dev);
	if (status == DICOMM_SUCCESS && dev->tcp)
		ucx_sockets_find(dev, &before);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return status;
}

/* ---- ended ---- */

/* Close all endpoints that can be closed. Lock held. */
static void close_all(struct tp_device *dev, ucp_worker_h worker,
		      uint32_t first, uint32_t end, bool force)
{
	uint64_t start = clock_ns();
	bool closed;

	for (uint32_t r = first; r < end; r++)
		ucx_endpoint_close(&dev->endpoints[r], force);
	do {
		closed = true;
		for (uint32_t r = first; r < end; r++)
			closed &= ucx_endpoint_is_closed(&dev->endpoints[r]);
		if (!closed)
			ucx.ucp_worker_progress(worker);
	} while (!closed && clock_ns() - start < FRAMED_DRAIN_NS);
}

/* Complete the requests that were cut off. */
static void settle(ucp_worker_h worker)
{
	for (int n = 0, idle = 0; n < SETTLE_TURNS && idle < SETTLE_IDLE; n++)
		idle = ucx.ucp_worker_progress(worker) ? 0 : idle + 1;
}

static bool is_sound(const struct tp_device *dev)
{
	for (int r = 0; r < dev->base.config.ranks; r++)
		if (!ucx_endpoint_is_sound(&dev->endpoints[r]))
			return false;
	return true;
}

/* Is UCX sending from, or receiving into, memory of the user? */
static bool is_moving(const struct tp_device *dev)
{
	return dev->replying || dev->receiving;
}

/* UCX 1.13 may fail an assertion, and so end the program, when it closes
 * connections while others break. So leave the worker and its connections alone
 * until the process ends. */
static void abandon(struct tp_device *dev)
{
	static struct abandoned {
		struct abandoned *next;
		ucp_context_h context;
		ucp_worker_h worker;
		/* reachable, so that leak checkers do not report them. */
	} * _Atomic abandoned_workers;
	struct abandoned *abandoned = malloc(sizeof(*abandoned));

	log_debug("ucx: rank %d leaves broken connections behind",
		  dev->base.config.rank);
	if (dev->tcp)
		ucx_sockets_close(dev);
	if (!abandoned)
		return;
	abandoned->context = dev->context;
	abandoned->worker = dev->worker ? dev->worker : dev->ended;
	abandoned->next = atomic_load(&abandoned_workers);
	while (!atomic_compare_exchange_weak(&abandoned_workers,
					     &abandoned->next, abandoned))
		;
}

void ucx_worker_end(struct tp_device *dev)
{
	ucp_worker_h worker = dev->worker ? dev->worker : dev->ended;
	bool aborted = !dev->worker;

	if (worker) {
		/* Learn which peers are gone, unless UCX would access memory of
		 * the user. */
		if (aborted && !is_moving(dev) && !dev->sockets_closed)
			settle(worker);
		if (is_moving(dev) || (aborted && !is_sound(dev))) {
			abandon(dev);
			return;
		}
		close_all(dev, worker, 0, (uint32_t)dev->base.config.ranks,
			  aborted);
		settle(worker);
		for (int r = 0; r < dev->base.config.ranks; r++)
			if (dev->endpoints[r].ep || dev->endpoints[r].closing) {
				abandon(dev);
				return;
			}
		ucx.ucp_worker_destroy(worker);
	}
	if (!dev->context)
		return;
	ucx.ucp_cleanup(dev->context);
	atomic_fetch_sub(&ucx_contexts, 1);
}

void ucx_worker_close_endpoints(struct tp_device *dev, uint32_t first,
				uint32_t end)
{
	bool all = !first && end == (uint32_t)dev->base.config.ranks;

	/* UCX 1.13 may end the program when it closes what it still sends by,
	 * to a peer that broke: ucx_worker_end() leaves all of it behind. */
	if (all && dev->tcp && is_moving(dev))
		return;
	close_all(dev, dev->worker, first, end, false);
}

/* To the peers that can be told at once. Others learn it when the connections
 * close. */
static void say_close(struct tp_device *dev)
{
	for (int r = 0; r < dev->base.config.ranks; r++)
		if (dev->endpoints[r].connected)
			ucx_endpoint_say_close(&dev->endpoints[r]);
}

/* TCP moves nothing without progress. Other networks go on by themselves until
 * their endpoints are closed. */
void ucx_worker_stop(struct tp_device *dev)
{
	say_close(dev);
	if (!dev->tcp) {
		close_all(dev, dev->worker, 0, (uint32_t)dev->base.config.ranks,
			  true);
		settle(dev->worker);
	} else if (!is_sound(dev)) {
		/* The worker will be abandoned. Close its sockets now, so that
		 * peers that did not get the close need not wait until this
		 * rank destroys its communicator. */
		ucx_sockets_close(dev);
	}
	dev->ended = dev->worker;
	dev->worker = NULL;
}
