/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interface this host is reached by. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/fork.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/boot/net/interface.h"

#define SPEC_MAX 1024 /* characters of DICOMM_SOCKET_IFNAME */

/* Of the last connection to another host by which this process has met its
 * peers: others reach this host there. len 0: none yet. */
static struct sock_address learned;

/* What was chosen last. A communicator needs several listeners, and to list the
 * interfaces takes longer than to listen. */
#define KEPT_NS 1000000000u
static struct {
	uint64_t until_ns, of;
	struct interface chosen;
} kept;
static uint64_t lessons; /* times that something else was learned */

/* Returns true if an entry of the list, n characters long, matches this
 * name. */
static bool entry_matches(const char *entry, size_t n, bool exact,
			  const char *name)
{
	if (!n || strncmp(entry, name, n))
		return false;
	return !exact || !name[n];
}

/* Such interfaces seldom lead to another host, so they are excluded unless they
 * are named. */
static bool is_local(const char *name)
{
	return entry_matches("lo", 2, false, name) ||
	       entry_matches("docker", 6, false, name);
}

bool interface_matches(const char *spec, const char *name)
{
	bool exclude, exact, found = false;
	size_t n;

	if (!*spec)
		return !is_local(name);
	exclude = *spec == '^';
	if (exclude && is_local(name))
		return false;
	spec += exclude;
	exact = *spec == '=';
	spec += exact;
	for (; *spec; spec += n + (spec[n] == ',')) {
		n = strcspn(spec, ",");
		/* NCCL's grammar allows "name:port", for another purpose. */
		found |= entry_matches(spec, strcspn(spec, ",:"), exact, name);
	}
	return found != exclude;
}

int interface_family(void)
{
	const char *family = config_string(CONFIG_SOCKET_FAMILY);

	if (!strcmp(family, "AF_INET"))
		return AF_INET;
	return !strcmp(family, "AF_INET6") ? AF_INET6 : AF_UNSPEC;
}

/* Returns true if another host can use this address as it is. A link-local
 * address needs a scope, and scopes differ between hosts. */
static bool is_usable(const struct ifaddrs *i, int family)
{
	const struct sockaddr_in6 *in6;

	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
	    !(i->ifa_flags & IFF_RUNNING))
		return false;
	if (i->ifa_addr->sa_family != family)
		return false;
	if (family == AF_INET)
		return true;
	in6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
	return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

static const struct ifaddrs *find(const struct ifaddrs *all, const char *spec,
				  int family)
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (is_usable(i, family) &&
		    interface_matches(spec, i->ifa_name))
			return i;
	return NULL;
}

static const struct ifaddrs *find_any_family(const struct ifaddrs *all,
					     const char *spec)
{
	const struct ifaddrs *i = NULL;
	int family = interface_family();

	if (family != AF_INET6)
		i = find(all, spec, AF_INET);
	if (!i && family != AF_INET)
		i = find(all, spec, AF_INET6);
	return i;
}

static void list_names(const struct ifaddrs *all, char *text, size_t len)
{
	size_t n = 0;

	text[0] = '\0';
	for (const struct ifaddrs *i = all; i && n < len; i = i->ifa_next)
		if (is_usable(i, AF_INET) || is_usable(i, AF_INET6))
			n += (size_t)snprintf(text + n, len - n, " %s",
					      i->ifa_name);
}

/* Returns true unless the list excludes lo by name. */
static bool may_use_loopback(const char *spec)
{
	char list[SPEC_MAX];

	if (!*spec)
		return true;
	if (*spec != '^')
		return false;
	snprintf(list, sizeof(list), "%s", spec + 1);
	return !interface_matches(list, "lo");
}

static const void *bytes_of(const void *address)
{
	const struct sockaddr_in *v4 = address;
	const struct sockaddr_in6 *v6 = address;

	return v4->sin_family == AF_INET ? (const void *)&v4->sin_addr
					 : &v6->sin6_addr;
}

static size_t address_bytes(const struct sock_address *address)
{
	return address->storage.ss_family == AF_INET ? sizeof(struct in_addr)
						     : sizeof(struct in6_addr);
}

static bool is_at(const struct ifaddrs *i, const struct sock_address *address)
{
	return address->len && is_usable(i, address->storage.ss_family) &&
	       !memcmp(bytes_of(i->ifa_addr), bytes_of(&address->storage),
		       address_bytes(address));
}

/* The interface that has led to the others, if it is still there. */
static const struct ifaddrs *find_learned(const struct ifaddrs *all)
{
	struct sock_address address;
	int family = interface_family();

	fork_lock(FORK_INTERFACE);
	address = learned;
	fork_unlock(FORK_INTERFACE);
	if (family && address.storage.ss_family != family)
		return NULL;
	for (; all; all = all->ifa_next)
		if (is_at(all, &address))
			return all;
	return NULL;
}

static const struct ifaddrs *choose(const struct ifaddrs *all, const char *spec,
				    const char **why)
{
	const struct ifaddrs *i = NULL;

	*why = "it leads to where ranks meet";
	if (!*spec)
		i = find_learned(all);
	if (i)
		return i;
	*why = *spec ? "DICOMM_SOCKET_IFNAME" : "the first that is up";
	i = find_any_family(all, spec);
	/* A machine without a network still has loopback. */
	if (!i && may_use_loopback(spec)) {
		*why = "no other is up";
		i = find_any_family(all, "=lo");
	}
	return i;
}

static void take(const struct ifaddrs *i, struct interface *chosen)
{
	struct sock_address *address = &chosen->address;

	snprintf(chosen->name, sizeof(chosen->name), "%s", i->ifa_name);
	address->len = i->ifa_addr->sa_family == AF_INET
			       ? sizeof(struct sockaddr_in)
			       : sizeof(struct sockaddr_in6);
	memcpy(&address->storage, i->ifa_addr, address->len);
}

static dicomm_result_t look(const char *spec, struct interface *chosen)
{
	const struct ifaddrs *found;
	dicomm_result_t status = DICOMM_SUCCESS;
	struct ifaddrs *all;
	char names[256];

	*chosen = (struct interface){.address = {.len = 0}};
	if (getifaddrs(&all) < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "interfaces: list: %m");
	found = choose(all, spec, &chosen->why);
	if (found) {
		take(found, chosen);
	} else {
		list_names(all, names, sizeof(names));
		status = FAIL(DICOMM_ERR_INVALID_USAGE,
			      "no interface to listen on: "
			      "DICOMM_SOCKET_IFNAME \"%s\" "
			      "DICOMM_SOCKET_FAMILY \"%s\", up are:%s",
			      spec, config_string(CONFIG_SOCKET_FAMILY), names);
	}
	freeifaddrs(all);
	return status;
}

/* On which the last choice depends. Threads may have network namespaces of
 * their own. Returns false if that is not known. */
static bool identify(const char *spec, uint64_t *of)
{
	int family = interface_family();
	struct stat st;

	if (stat("/proc/thread-self/ns/net", &st) < 0)
		return false;
	*of = hash_bytes(HASH_START, spec, strlen(spec));
	*of = hash_bytes(*of, &family, sizeof(family));
	*of = hash_bytes(*of, &st.st_ino, sizeof(st.st_ino));
	return true;
}

dicomm_result_t interface_choose(struct interface *chosen)
{
	const char *spec = config_string(CONFIG_SOCKET_IFNAME);
	uint64_t of = 0, now = clock_ns();
	bool known = identify(spec, &of), is_kept;
	uint64_t seen;

	fork_lock(FORK_INTERFACE);
	seen = lessons;
	is_kept = known && kept.until_ns > now && kept.of == of;
	if (is_kept)
		*chosen = kept.chosen;
	fork_unlock(FORK_INTERFACE);
	if (is_kept)
		return DICOMM_SUCCESS;
	TRY(look(spec, chosen));
	fork_lock(FORK_INTERFACE);
	kept.of = of;
	/* Another thread may have learned of a better one meanwhile. */
	kept.until_ns = known && seen == lessons ? now + KEPT_NS : 0;
	kept.chosen = *chosen;
	fork_unlock(FORK_INTERFACE);
	return DICOMM_SUCCESS;
}

void interface_forget(void)
{
	fork_lock(FORK_INTERFACE);
	kept.until_ns = 0;
	fork_unlock(FORK_INTERFACE);
}

/* A listener of both families gets IPv4 addresses as ::ffff:10.0.0.1. */
static void unmap(struct sock_address *address)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
	struct sockaddr_in v4 = {.sin_family = AF_INET};

	if (v6->sin6_family != AF_INET6 ||
	    !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return;
	v4.sin_port = v6->sin6_port;
	memcpy(&v4.sin_addr, &v6->sin6_addr.s6_addr[12], 4);
	memset(address, 0, sizeof(*address));
	memcpy(&address->storage, &v4, sizeof(v4));
	address->len = sizeof(v4);
}

static bool leads_away(const struct sock_address *address)
{
	const struct sockaddr_in6 *v6 = (const void *)&address->storage;
	const struct sockaddr_in *v4 = (const void *)&address->storage;

	if (v4->sin_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET;
	return v6->sin6_family == AF_INET6 &&
	       !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) &&
	       !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

void interface_learn(int fd)
{
	struct sock_address own = {.len = sizeof(own.storage)};

	if (getsockname(fd, (struct sockaddr *)&own.storage, &own.len) < 0)
		return;
	unmap(&own);
	if (!leads_away(&own))
		return;
	fork_lock(FORK_INTERFACE);
	if (kept.chosen.address.len != own.len ||
	    memcmp(bytes_of(&kept.chosen.address.storage),
		   bytes_of(&own.storage), address_bytes(&own))) {
		kept.until_ns = 0;
		lessons++;
	}
	learned = own;
	fork_unlock(FORK_INTERFACE);
}

void interface_learn_toward(const struct sock_address *to)
{
	/* Nothing is sent: connect() only looks up the route. */
	int fd = descriptors_high(
		socket(to->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return;
	if (!connect(fd, (const struct sockaddr *)&to->storage, to->len))
		interface_learn(fd);
	close(fd);
}
