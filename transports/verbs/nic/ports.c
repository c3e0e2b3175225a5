/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists, opens and closes the RDMA ports of this machine, and reads their
 * GIDs. */
#include "transports/verbs/nic/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "transports/transport.h"
#include "transports/verbs/nic/choose.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/load.h"
#include "transports/verbs/nic/ipv4.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/registration.h"

#define GIDS_MAX 256
/* A NIC with more ports than this lists virtual functions as ports. Then those
 * without a GID are skipped. */
#define PORTS_OF_A_NIC 2
#define NO_IPV4 "no IPv4 address: has its interface one, and is it up?"
#define PKEYS_MAX 128
/* Vendor numbers of Linux's software iWARP (siw) and RoCE (rxe). The last
 * number is the length of a completion queue of siw that has more than
 * 0x90000 bytes. */
#define SIW_VENDOR 0x626d74
#define RXE_VENDOR 0xffffff
#define SIW_FILLER_CQE 32768

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_nic *nics;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The child of a fork cannot use what its parent opened. */
static void forget(void)
{
	nics = NULL;
	pthread_mutex_init(&lock, NULL);
}

static void setup(void)
{
	/* Most kernels copy pinned pages for the child of a fork. On other
	 * kernels, libibverbs keeps pinned pages out of the child; then the
	 * child lacks everything else on these pages, too. */
	if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED)
		ibv_fork_init();
}

static enum verbs_fabric fabric_of(const struct ibv_device *device,
				   const struct ibv_port_attr *attr)
{
	if (device->transport_type == IBV_TRANSPORT_IWARP)
		return VERBS_IWARP;
	return attr->link_layer == IBV_LINK_LAYER_ETHERNET ? VERBS_ROCE
							   : VERBS_INFINIBAND;
}

/* Returns the rate of one lane of the link in units of 100 Mb/s. `speed` is a
 * code of the InfiniBand specification. */
static uint64_t lane_rate(uint8_t speed)
{
	static const struct {
		uint8_t code;
		uint16_t tenths;
	} rates[] = {{1, 25},   {2, 50},   {4, 100},  {8, 100},
		     {16, 140}, {32, 250}, {64, 500}, {128, 1000}};

	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		if (rates[i].code == speed)
			return rates[i].tenths;
	return 100;
}

static uint64_t rate_of(const struct ibv_port_attr *a)
{
	unsigned lanes = a->active_width == 2    ? 4
			 : a->active_width == 4  ? 8
			 : a->active_width == 8  ? 12
			 : a->active_width == 16 ? 2
						 : 1;

	return lane_rate(a->active_speed) * lanes * 100000000u / 8;
}

static unsigned bits_of(const void *mask, size_t bytes)
{
	unsigned bits = 0;

	for (size_t i = 0; i < bytes; i++)
		bits += (unsigned)__builtin_popcount(
			((const uint8_t *)mask)[i]);
	return bits;
}

/* Returns the length of the subnet's prefix if interface `i` has that address,
 * otherwise 0. */
static unsigned prefix_by(const struct ifaddrs *i, const uint8_t *gid)
{
	int family = i->ifa_addr && i->ifa_netmask ? i->ifa_addr->sa_family
						   : AF_UNSPEC;
	const struct sockaddr_in *a4 = (const void *)i->ifa_addr;
	const struct sockaddr_in *m4 = (const void *)i->ifa_netmask;
	const struct sockaddr_in6 *a6 = (const void *)i->ifa_addr;
	const struct sockaddr_in6 *m6 = (const void *)i->ifa_netmask;

	if (family == AF_INET && IN6_IS_ADDR_V4MAPPED(gid) &&
	    !memcmp(&a4->sin_addr, gid + 12, 4))
		return 96 + bits_of(&m4->sin_addr, 4);
	if (family == AF_INET6 && !memcmp(&a6->sin6_addr, gid, 16))
		return bits_of(&m6->sin6_addr, 16);
	return 0;
}

/* Find the prefixes of all GIDs. Link-local addresses get none, since all links
 * have the same prefix. */
static void find_prefixes(const struct ibv_gid_entry *e, ssize_t n,
			  uint8_t *prefix)
{
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		return;
	for (ssize_t g = 0; g < n; g++)
		for (struct ifaddrs *i = all; i && !prefix[g]; i = i->ifa_next)
			if (!IN6_IS_ADDR_LINKLOCAL(e[g].gid.raw))
				prefix[g] = (uint8_t)prefix_by(i, e[g].gid.raw);
	freeifaddrs(all);
}

/* Read the GID table, best GID first. Returns false, with errno set, if it
 * cannot be read. */
static bool find_gids(struct ibv_context *context, uint8_t port,
		      enum verbs_fabric fabric,
		      struct verbs_gid found[VERBS_GIDS], uint32_t *count)
{
	struct ibv_gid_entry *e = calloc(GIDS_MAX, sizeof(*e));
	ssize_t n = e ? ibv_query_gid_table(context, e, GIDS_MAX, 0) : -ENOMEM;
	uint8_t prefix[GIDS_MAX] = {0};

	if (n >= 0) {
		find_prefixes(e, n, prefix);
		*count = verbs_choose_gids(e, prefix, n, port, fabric, found);
	}
	free(e);
	if (n < 0)
		errno = (int)-n;
	return n >= 0;
}

/* Write the last name of the path that this link in the NIC's sysfs folder
 * points to, or "" if there is no such link. */
static void follow(const struct ibv_device *device, const char *link,
		   char name[64])
{
	char path[IBV_SYSFS_PATH_MAX + 16], *real, *last;

	snprintf(path, sizeof(path), "%s/%s", device->ibdev_path, link);
	real = realpath(path, NULL);
	last = real ? strrchr(real, '/') : NULL;
	snprintf(name, 64, "%.63s", last ? last + 1 : "");
	free(real);
}

/* Find the PCI address of a NIC whose sysfs path is like
 * "/sys/devices/pci0000:00/0000:00:01.0/0000:17:00.0". It is "" if the NIC is
 * no PCI device. */
static void find_pci(const struct ibv_device *device, char pci[16])
{
	char name[64];

	follow(device, "device", name);
	snprintf(pci, 16, "%.15s",
		 strlen(name) == strlen("0000:17:00.0") ? name : "");
}

void verbs_nic_say_no_gid(char *text, size_t len)
{
	long long wanted = config_int(CONFIG_IB_GID_INDEX);

	if (wanted < 0)
		snprintf(text, len,
			 "no GID: has its interface an address, and is it up?");
	else
		snprintf(text, len, "no GID of DICOMM_IB_GID_INDEX %lld",
			 wanted);
}

static bool list_port(struct ibv_context *context, uint8_t number,
		      struct verbs_port *out)
{
	struct ibv_device *device = context->device;
	struct verbs_gid gid[VERBS_GIDS];
	struct sockaddr_in address;
	struct ibv_port_attr attr;
	uint32_t gids;

	if (ibv_query_port(context, number, &attr))
		return false;
	*out = (struct verbs_port){.number = number,
				   .active = attr.state == IBV_PORT_ACTIVE,
				   .fabric = fabric_of(device, &attr),
				   .bytes_per_s = rate_of(&attr),
				   .gid = "none"};
	snprintf(out->name, sizeof(out->name), "%s", device->name);
	find_pci(device, out->pci);
	if (!find_gids(context, number, out->fabric, gid, &gids)) {
		snprintf(out->unfit, sizeof(out->unfit),
			 "its GIDs cannot be read: %m");
		return true;
	}
	if (gids) {
		verbs_gid_text(&gid->gid, out->gid);
		if (verbs_uses_rdma_cm(out->fabric) &&
		    !verbs_port_ipv4(out->name, number, &address))
			snprintf(out->unfit, sizeof(out->unfit), NO_IPV4);
		return true;
	}
	verbs_nic_say_no_gid(out->unfit, sizeof(out->unfit));
	return number <= PORTS_OF_A_NIC;
}

/* Make one entry that stands for all ports of a NIC that cannot be used. */
static int list_unfit(const struct ibv_device *device, const char *why,
		      struct verbs_port *out)
{
	*out = (struct verbs_port){.number = 0};
	snprintf(out->name, sizeof(out->name), "%s", device->name);
	snprintf(out->unfit, sizeof(out->unfit), "%s", why);
	return 1;
}

/* List the ports of one NIC. Returns their number, at most `most`. */
static int list_ports_of(struct ibv_device *device, struct verbs_port *ports,
			 int most)
{
	struct ibv_context *context;
	struct ibv_device_attr attr;
	const char *request_error;
	char text[64];
	int n = 0;

	if (!most)
		return 0;
	/* In a container the NIC may be visible without its device file. */
	/* the driver keeps some descriptors open */
	descriptors_fill_standard();
	context = ibv_open_device(device);
	if (!context) {
		snprintf(text, sizeof(text), "it cannot be opened: %m");
		return list_unfit(device, text, ports);
	}
	if (ibv_query_device(context, &attr))
		goto close;
	follow(device, "device/driver", text);
	request_error =
		verbs_choose_objection(device->transport_type, text, &attr);
	if (request_error)
		n = list_unfit(device, request_error, ports);
	else
		for (int p = 1; p <= attr.phys_port_cnt && n < most; p++)
			n += list_port(context, (uint8_t)p, &ports[n]);
close:
	ibv_close_device(context);
	return n;
}

/* List all ports of the machine. If there are none, `why` says why. */
static int list_ports(struct verbs_port *ports, char *why, size_t len)
{
	struct ibv_device **devices;
	int n = 0, count = 0;

	if (!verbs_load(why, len))
		return 0;
	fork_add(FORK_NICS, forget);
	pthread_once(&once, setup);
	devices = ibv_get_device_list(&count);
	if (!devices || !count)
		snprintf(why, len, "no RDMA device: %s",
			 strerror(devices ? ENODEV : errno));
	for (int i = 0; devices && i < count; i++)
		n += list_ports_of(devices[i], &ports[n], VERBS_PORTS_MAX - n);
	if (devices)
		ibv_free_device_list(devices);
	return n;
}

bool verbs_nic_find(char *why, size_t len)
{
	struct verbs_port ports[VERBS_PORTS_MAX];
	int n = list_ports(ports, why, len);

	return n && verbs_choose_usable(ports, n, why, len) > 0;
}

static dicomm_result_t choose_gids(struct verbs_nic *nic)
{
	char why[64];

	if (!find_gids(nic->context, nic->port, nic->fabric, nic->gid,
		       &nic->gids))
		return FAIL(errno == ENOMEM ? DICOMM_ERR_NO_MEMORY
					    : DICOMM_ERR_SYSTEM,
			    "verbs %s port %u: read its GIDs: %m", nic->name,
			    nic->port);
	if (nic->gids)
		return DICOMM_SUCCESS;
	verbs_nic_say_no_gid(why, sizeof(why));
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "verbs %s port %u: %s",
		    nic->name, nic->port, why);
}

/* RoCE and iWARP have one partition, so there is no choice. */
static uint16_t find_pkey(const struct verbs_nic *nic)
{
	uint16_t keys[PKEYS_MAX];
	unsigned n = 0;
	__be16 key;

	if (nic->fabric != VERBS_INFINIBAND)
		return 0;
	while (n < nic->port_attr.pkey_tbl_len && n < PKEYS_MAX &&
	       !ibv_query_pkey(nic->context, nic->port, (int)n, &key))
		keys[n++] = ntohs(key);
	return verbs_choose_pkey(keys, n);
}

void verbs_nic_refresh(struct verbs_nic *nic)
{
	struct ibv_port_attr attr;

	if (!atomic_exchange(&nic->changed, false))
		return;
	if (!ibv_query_port(nic->context, nic->port, &attr)) {
		nic->port_attr.lid = attr.lid;
		nic->port_attr.flags = attr.flags;
		nic->port_attr.active_mtu = attr.active_mtu;
	}
	nic->pkey_index = find_pkey(nic);
	if (!find_gids(nic->context, nic->port, nic->fabric, nic->gid,
		       &nic->gids))
		atomic_store(&nic->changed, true);
}

bool verbs_nic_has_gid(const struct verbs_nic *nic, const struct verbs_gid *gid)
{
	union ibv_gid now;

	/* If the NIC has failed, the query fails, and the GID counts
	 * as present. */
	return ibv_query_gid(nic->context, nic->port, gid->index, &now) ||
	       !memcmp(&now, &gid->gid, sizeof(now));
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; devices && devices[i] && !context; i++)
		if (!strcmp(devices[i]->name, name))
			context = ibv_open_device(devices[i]);
	if (devices)
		ibv_free_device_list(devices);
	return context;
}

bool verbs_nic_is_software(const struct verbs_nic *nic)
{
	return nic->attr.vendor_id == SIW_VENDOR ||
	       nic->attr.vendor_id == RXE_VENDOR;
}

/* libsiw takes the mmap offset 0x90000 of a queue for an error. So create a
 * completion queue that occupies this offset and is used for nothing else. */
static bool fill_siw_offset(struct verbs_nic *nic)
{
	if (nic->attr.vendor_id != SIW_VENDOR)
		return true;
	nic->siw_filler =
		ibv_create_cq(nic->context, SIW_FILLER_CQE, NULL, NULL, 0);
	return nic->siw_filler != NULL;
}

static dicomm_result_t open_port(const struct verbs_port *port,
				 struct verbs_nic **out)
{
	struct verbs_nic *nic = calloc(1, sizeof(*nic));
	dicomm_result_t status;
	char driver[64];

	if (!nic)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	memcpy(nic->name, port->name, sizeof(nic->name));
	nic->port = port->number;
	nic->fabric = port->fabric;
	nic->refs = 1;
	pthread_mutex_init(&nic->lock, NULL);
	nic->context = open_named(nic->name);
	if (!nic->context) {
		status = FAIL(DICOMM_ERR_SYSTEM, "verbs %s: open: %m",
			      nic->name);
		goto free_nic;
	}
	/* The connection thread waits for its events together with others. */
	if (fcntl(nic->context->async_fd, F_SETFL, O_NONBLOCK) < 0) {
		status = FAIL(DICOMM_ERR_SYSTEM, "verbs %s: events: %m",
			      nic->name);
		goto close;
	}
	if (ibv_query_device(nic->context, &nic->attr) ||
	    ibv_query_port(nic->context, nic->port, &nic->port_attr)) {
		status = FAIL(DICOMM_ERR_SYSTEM, "verbs %s port %u: query: %m",
			      nic->name, nic->port);
		goto close;
	}
	nic->bytes_per_s = rate_of(&nic->port_attr);
	follow(nic->context->device, "device/driver", driver);
	nic->cq_grows = verbs_choose_grows(nic->fabric, driver);
	nic->pkey_index = find_pkey(nic);
	status = choose_gids(nic);
	if (status == DICOMM_SUCCESS && verbs_uses_rdma_cm(nic->fabric) &&
	    !verbs_port_ipv4(nic->name, nic->port, &nic->address))
		status = FAIL(DICOMM_ERR_NO_PATH, "verbs %s port %u: " NO_IPV4,
			      nic->name, nic->port);
	if (status != DICOMM_SUCCESS)
		goto close;
	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd || !fill_siw_offset(nic)) {
		if (nic->pd)
			ibv_dealloc_pd(nic->pd);
		status = FAIL(DICOMM_ERR_SYSTEM,
			      "verbs %s: protection domain: %m", nic->name);
		goto close;
	}
	*out = nic;
	return DICOMM_SUCCESS;

close:
	ibv_close_device(nic->context);
free_nic:
	pthread_mutex_destroy(&nic->lock);
	free(nic);
	return status;
}

static dicomm_result_t get_locked(const struct verbs_port *port,
				  struct verbs_nic **out)
{
	for (struct verbs_nic *nic = nics; nic; nic = nic->next)
		if (!strcmp(nic->name, port->name) &&
		    nic->port == port->number) {
			nic->refs++;
			*out = nic;
			return DICOMM_SUCCESS;
		}
	TRY(open_port(port, out));
	(*out)->next = nics;
	nics = *out;
	return DICOMM_SUCCESS;
}

static void find_steps(struct verbs_port *ports, int n,
		       const struct tp_place *place)
{
	for (int i = 0; i < n; i++)
		ports[i].steps =
			place->steps && n > 1
				? place->steps(place->pci, ports[i].pci)
				: UINT32_MAX;
}

dicomm_result_t verbs_nics_get(unsigned turn, const struct tp_place *place,
			       struct verbs_nic *out[VERBS_RAILS],
			       unsigned *count)
{
	struct verbs_port ports[VERBS_PORTS_MAX];
	dicomm_result_t status = DICOMM_SUCCESS;
	char why[256];
	unsigned taken, got = 0;
	int n = list_ports(ports, why, sizeof(why));

	if (n)
		n = verbs_choose_usable(ports, n, why, sizeof(why));
	if (!n)
		return FAIL(DICOMM_ERR_NO_PATH, "verbs: %s", why);
	find_steps(ports, n, place);
	taken = verbs_choose_take(ports, (unsigned)n, turn);
	pthread_mutex_lock(&lock);
	while (got < taken && status == DICOMM_SUCCESS) {
		status = get_locked(&ports[got], &out[got]);
		got += status == DICOMM_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	*count = got;
	if (status != DICOMM_SUCCESS)
		while (got)
			verbs_nic_put(out[--got]);
	return status;
}

void verbs_nic_put(struct verbs_nic *nic)
{
	struct verbs_nic **at;

	if (!nic)
		return;
	pthread_mutex_lock(&lock);
	if (--nic->refs) {
		pthread_mutex_unlock(&lock);
		return;
	}
	for (at = &nics; *at != nic; at = &(*at)->next)
		;
	*at = nic->next;
	pthread_mutex_unlock(&lock);
	verbs_mr_free_all(nic);
	if (nic->siw_filler)
		ibv_destroy_cq(nic->siw_filler);
	ibv_dealloc_pd(nic->pd);
	ibv_close_device(nic->context);
	pthread_mutex_destroy(&nic->lock);
	free(nic);
}
