/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of fabrics and GIDs, for messages. */
#include "transports/verbs/nic/gid.h"

#include <arpa/inet.h>
#include <stdbool.h>

const char *verbs_fabric_name(enum verbs_fabric fabric)
{
	static const char *const names[] = {"InfiniBand", "RoCE", "iWARP"};

	return names[fabric];
}

void verbs_gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(gid->raw);

	inet_ntop(v4 ? AF_INET : AF_INET6, gid->raw + (v4 ? 12 : 0), text,
		  INET6_ADDRSTRLEN);
}
