/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the IPv4 address of a port: librdmacm tells which port an address
 * belongs to. */
#include "transports/verbs/nic/ipv4.h"

#include <ifaddrs.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "src/base/config.h"
#include "transports/verbs/nic/gid.h"

bool verbs_uses_rdma_cm(enum verbs_fabric fabric)
{
	return fabric == VERBS_IWARP ||
	       !strcmp(config_string(CONFIG_IB_CONNECT), "rdmacm");
}

/* Returns true if one of the port's interfaces has that address. */
static bool is_address_of(const char *name, uint8_t port, struct sockaddr *a)
{
	struct rdma_cm_id *id;
	bool is;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return false;
	is = !rdma_bind_addr(id, a) && id->verbs &&
	     !strcmp(ibv_get_device_name(id->verbs->device), name) &&
	     id->port_num == port;
	rdma_destroy_id(id);
	return is;
}

bool verbs_port_ipv4(const char *name, uint8_t port, struct sockaddr_in *out)
{
	struct ifaddrs *all, *i;
	bool found = false;

	if (getifaddrs(&all))
		return false;
	for (i = all; i && !found; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
		    !is_address_of(name, port, i->ifa_addr))
			continue;
		memcpy(out, i->ifa_addr, sizeof(*out));
		out->sin_port = 0;
		found = true;
	}
	freeifaddrs(all);
	return found;
}
