/* SPDX-License-Identifier: BSD-3-Clause */
/* The IPv4 address of a port, by which librdmacm connects. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_IPV4_H
#define DICOMM_TRANSPORTS_VERBS_NIC_IPV4_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

/* Does librdmacm connect the queue pairs of that fabric? */
bool verbs_uses_rdma_cm(enum verbs_fabric fabric);
/* An IPv4 address of one of the port's interfaces; false: it has none. */
bool verbs_port_ipv4(const char *nic, uint8_t port, struct sockaddr_in *out);

#endif
