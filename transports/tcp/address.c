/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank. */
#include <stdio.h>
#include <string.h>

#include "transports/tcp/tcp.h"

_Static_assert(sizeof(struct tcp_address) <=
		       sizeof(((struct tp_blob *)0)->data),
	       "must fit a blob");

const char *tcp_address_protection(uint32_t protection)
{
	static const char *const names[TCP_PROTECTIONS] = {
		[TCP_CLEAR] = "off",
		[TCP_SIGNED] = "sign",
		[TCP_ENCRYPTED] = "on"};

	return protection < TCP_PROTECTIONS ? names[protection] : "unknown";
}

void tcp_address_make(const struct tp_device *dev, struct tp_blob *blob)
{
	struct tcp_address a;

	memset(&a, 0, sizeof(a));
	a.loopback = dev->loopback;
	a.protection = dev->protection;
	memcpy(a.listen, dev->listen, sizeof(a.listen));
	framed_address_make(&dev->base, &a.base, sizeof(a), blob);
}

bool tcp_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct tcp_address *a, char *why, size_t len)
{
	if (!framed_address_parse(&dev->base, blob, &a->base, sizeof(*a), why,
				  len))
		return false;
	if (blob->len != sizeof(*a) || a->listen[sizeof(a->listen) - 1])
		return framed_address_damaged(&dev->base, why, len);
	if (a->protection != dev->protection) {
		snprintf(why, len, "DICOMM_ENCRYPT is %s there, and %s here",
			 tcp_address_protection(a->protection),
			 tcp_address_protection(dev->protection));
		return false;
	}
	if ((a->loopback || dev->loopback) &&
	    a->base.network != dev->base.network) {
		snprintf(why, len,
			 "it is on another machine and listens at %s, this "
			 "rank at %s (see DICOMM_SOCKET_IFNAME)",
			 a->listen, dev->listen);
		return false;
	}
	return true;
}
