/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank, and the interface by which it is reached. */
#include "transports/ucx/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "transports/ucx/device.h"

_Static_assert(sizeof(struct ucx_address) <=
		       sizeof(((struct tp_blob *)0)->data),
	       "must fit a blob");

/* Is `text` the address `a`, without brackets and port? */
static bool is_address(const struct sockaddr *a, const char *text)
{
	char mine[INET6_ADDRSTRLEN];
	const void *bytes;

	if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6))
		return false;
	bytes = a->sa_family == AF_INET
			? (const void *)&(
				  (const struct sockaddr_in *)(const void *)a)
				  ->sin_addr
			: (const void *)&(
				  (const struct sockaddr_in6 *)(const void *)a)
				  ->sin6_addr;
	return inet_ntop(a->sa_family, bytes, mine, sizeof(mine)) &&
	       !strcmp(mine, text);
}

static void interface_of(const char *address, struct ucx_interface *out)
{
	struct ifaddrs *all, *i;

	if (getifaddrs(&all) < 0)
		return;
	for (i = all; i; i = i->ifa_next)
		if (strlen(i->ifa_name) < sizeof(out->name) &&
		    is_address(i->ifa_addr, address)) {
			strcpy(out->name, i->ifa_name);
			out->loopback = i->ifa_flags & IFF_LOOPBACK;
			break;
		}
	freeifaddrs(all);
}

void ucx_interface_find(const struct tp_config *config,
			struct ucx_interface *out)
{
	char text[80] = "", *begin = text, *end;
	int fd;

	memset(out, 0, sizeof(*out));
	if (!config->listen || config->listen(&fd, text) != DICOMM_SUCCESS)
		return;
	close(fd);
	end = strrchr(text, ':');
	if (!end)
		return;
	*end = '\0';
	if (*begin == '[') {
		begin++;
		begin[strcspn(begin, "]%")] = '\0';
	}
	interface_of(begin, out);
}

static uint32_t bytes_of(const struct ucx_address *a)
{
	return (uint32_t)offsetof(struct ucx_address, worker) + a->worker_len;
}

void ucx_address_make(const struct tp_device *dev, struct tp_blob *blob)
{
	struct ucx_address a;

	memset(&a, 0, sizeof(a));
	a.loopback = dev->interface.loopback;
	memcpy(a.interface, dev->interface.name, sizeof(a.interface));
	a.worker_len = dev->worker_address_len;
	memcpy(a.worker, dev->worker_address, dev->worker_address_len);
	framed_address_make(&dev->base, &a.base, bytes_of(&a), blob);
}

bool ucx_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct ucx_address *a, char *why, size_t len)
{
	if (!framed_address_parse(&dev->base, blob, &a->base, sizeof(*a), why,
				  len))
		return false;
	if (a->worker_len > sizeof(a->worker) || blob->len != bytes_of(a))
		return framed_address_damaged(&dev->base, why, len);
	a->interface[sizeof(a->interface) - 1] = '\0';
	if ((a->loopback || dev->interface.loopback) &&
	    a->base.network != dev->base.network) {
		snprintf(why, len,
			 "it is on another machine, its interface is %s, mine "
			 "is %s (see DICOMM_SOCKET_IFNAME)",
			 a->interface, dev->interface.name);
		return false;
	}
	return true;
}
