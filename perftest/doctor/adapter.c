/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA adapters, devices, their drivers, and what is between them. */
#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dicomm.h"
#include "perftest/doctor/doctor.h"

#define RDMA_PORTS "/sys/class/infiniband/*/ports/*"
#define PCI_DEVICES "/sys/bus/pci/devices/*"
#define LIBRARIES_MAX 16

static const char *last_part(const char *path)
{
	return strrchr(path, '/') + 1;
}

/* ---- RDMA ---- */

static void no_rdma(struct doctor *d)
{
	doctor_tell(d, VERDICT_OK, "no RDMA adapter");
}

/* Writes "mlx5_0:1" of ".../mlx5_0/ports/1". */
static const char *port_name(const char *path, char name[DOCTOR_LINE])
{
	const char *begin = path + strlen("/sys/class/infiniband/");

	snprintf(name, DOCTOR_LINE, "%.*s:%s", (int)strcspn(begin, "/"), begin,
		 last_part(path));
	return name;
}

static void tell_port(struct doctor *d, const char *path, void *ctx)
{
	char state[DOCTOR_LINE] = "state not known", rate[DOCTOR_LINE] = "";
	char layer[DOCTOR_LINE] = "link layer not known", name[DOCTOR_LINE];
	enum verdict verdict = VERDICT_UNKNOWN;

	(void)ctx;
	if (doctor_read(d, state, "%s/state", path))
		verdict = atoi(state) == 4 ? VERDICT_OK : VERDICT_WARN;
	doctor_read(d, layer, "%s/link_layer", path);
	doctor_read(d, rate, "%s/rate", path);
	doctor_tell(d, verdict, "%s: %s, %s, %s", port_name(path, name), state,
		    layer, rate);
}

static void rdma_port(struct doctor *d)
{
	if (!doctor_each(d, RDMA_PORTS, tell_port, NULL))
		no_rdma(d);
}

/* Returns how good a GID is, in the order of the library
 * (transports/verbs/nic/choose.c); 0: there is none. */
static int gid_worth(struct doctor *d, const char *port, int index,
		     char text[INET6_ADDRSTRLEN], bool *v2)
{
	const struct in6_addr none = IN6ADDR_ANY_INIT;
	char line[DOCTOR_LINE];
	struct in6_addr gid;

	*v2 = false;
	if (!doctor_read(d, line, "%s/gids/%d", port, index) ||
	    inet_pton(AF_INET6, line, &gid) != 1 ||
	    IN6_ARE_ADDR_EQUAL(&gid, &none))
		return 0;
	inet_ntop(AF_INET6, &gid, text, INET6_ADDRSTRLEN);
	if (doctor_read(d, line, "%s/gid_attrs/types/%d", port, index))
		*v2 = strstr(line, "v2");
	if (IN6_IS_ADDR_LINKLOCAL(&gid))
		return *v2 ? 10 : 1;
	return (*v2 ? 11 : 2) + IN6_IS_ADDR_V4MAPPED(&gid);
}

static void tell_gid(struct doctor *d, const char *path, void *told)
{
	char name[DOCTOR_LINE], text[INET6_ADDRSTRLEN], best[sizeof(text)] = "";
	const char *index = doctor_param("DICOMM_IB_GID_INDEX");
	int wanted = *index >= '0' && *index <= '9' ? atoi(index) : -1;
	int first = wanted < 0 ? 0 : wanted;
	int last = wanted < 0 ? 255 : wanted, most = 0, at = wanted;
	bool v2 = false, is_v2;

	if (!doctor_read(d, name, "%s/link_layer", path) ||
	    strcmp(name, "Ethernet"))
		return;
	*(bool *)told = true;
	for (int i = first; i <= last; i++) {
		int worth = gid_worth(d, path, i, text, &is_v2);

		if (worth <= most)
			continue;
		most = worth;
		at = i;
		v2 = is_v2;
		memcpy(best, text, sizeof(best));
	}
	port_name(path, name);
	if (most)
		doctor_tell(d, most > 10 ? VERDICT_OK : VERDICT_WARN,
			    "%s: index %d, %s, %s", name, at,
			    v2 ? "RoCE v2" : "RoCE v1", best);
	else if (wanted >= 0)
		doctor_tell(d, VERDICT_BAD, "%s: index %d is empty", name, at);
	else
		doctor_tell(d, VERDICT_WARN, "%s: none", name);
}

static void rdma_gid(struct doctor *d)
{
	bool told = false;

	doctor_each(d, RDMA_PORTS, tell_gid, &told);
	if (!told)
		doctor_tell(d, VERDICT_OK, "no RoCE port");
}

static void verbs(struct doctor *d)
{
	dicomm_transport_info_t t;

	if (!doctor_each(d, RDMA_PORTS, NULL, NULL)) {
		no_rdma(d);
		return;
	}
	for (int i = 0; dicomm_transport_info(i, &t) == DICOMM_SUCCESS; i++)
		if (!strcmp(t.name, "verbs")) {
			doctor_tell(d, t.usable ? VERDICT_OK : VERDICT_WARN,
				    "%susable: %s", t.usable ? "" : "not ",
				    t.reason);
			return;
		}
	doctor_tell(d, VERDICT_WARN, "not in this build");
}

/* ---- UCX ---- */

struct libraries {
	char *path[LIBRARIES_MAX]; /* owned */
	int n;
};

/* Adds the file that a path leads to, unless it is there already. */
static void add_library(struct doctor *d, const char *path, void *ctx)
{
	struct libraries *l = ctx;
	char whole[PATH_MAX], *real;
	bool known = false;

	snprintf(whole, sizeof(whole), "%s%s", d->root, path);
	real = realpath(whole, NULL);
	for (int i = 0; real && i < l->n; i++)
		known |= !strcmp(l->path[i], real);
	if (real && !known && l->n < LIBRARIES_MAX)
		l->path[l->n++] = real;
	else
		free(real);
}

static void ucx(struct doctor *d)
{
	const char *const folders[] = {"/usr/lib",   "/usr/lib64",
				       "/usr/lib/*", "/usr/local/lib",
				       "/opt/*/lib", "/opt/*/*/lib"};
	const char *paths = getenv("LD_LIBRARY_PATH");
	char text[DOCTOR_LINE] = "none", pattern[PATH_MAX];
	struct libraries l = {.n = 0};
	size_t at = 0, n;

	for (; paths && *paths; paths += n + (paths[n] == ':')) {
		n = strcspn(paths, ":");
		snprintf(pattern, sizeof(pattern), "%.*s/libucp.so.0", (int)n,
			 paths);
		doctor_each(d, pattern, add_library, &l);
	}
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(pattern, sizeof(pattern), "%s/libucp.so.0",
			 folders[i]);
		doctor_each(d, pattern, add_library, &l);
	}
	for (int i = 0; i < l.n; free(l.path[i++]))
		if (at < sizeof(text))
			at += (size_t)snprintf(text + at, sizeof(text) - at,
					       "%s%s", i ? ", " : "",
					       l.path[i]);
	doctor_tell(d, l.n > 1 ? VERDICT_WARN : VERDICT_OK, "%s", text);
}

/* ---- devices ---- */

struct vendor {
	const char *id;
	const char *kind; /* of device, as the library calls it */
	const char *version;
};

static const struct vendor vendors[] = {
	{"0x10de", "cuda", "/sys/module/nvidia/version"},
	{"0x1002", "hip", "/sys/module/amdgpu/version"},
	{"0x8086", "ze", "/sys/module/xe/version"},
};

/* Returns the vendor if this is a device that ranks might compute on: a
 * display or an accelerator. */
static const struct vendor *vendor_of(struct doctor *d, const char *pci)
{
	char class[DOCTOR_LINE], id[DOCTOR_LINE];

	if (!doctor_read(d, class, "%s/class", pci) ||
	    !doctor_read(d, id, "%s/vendor", pci) ||
	    (strncmp(class, "0x03", 4) && strncmp(class, "0x12", 4)))
		return NULL;
	for (size_t i = 0; i < sizeof(vendors) / sizeof(*vendors); i++)
		if (!strcmp(vendors[i].id, id))
			return &vendors[i];
	return NULL;
}

struct count {
	const struct vendor *vendor; /* NULL: any */
	int devices;
};

static void count_device(struct doctor *d, const char *path, void *ctx)
{
	const struct vendor *v = vendor_of(d, path);
	struct count *c = ctx;

	c->devices += v && (!c->vendor || v == c->vendor);
}

static int count_devices(struct doctor *d, const struct vendor *vendor)
{
	struct count c = {.vendor = vendor};

	doctor_each(d, PCI_DEVICES, count_device, &c);
	return c.devices;
}

static void device_driver(struct doctor *d)
{
	dicomm_device_kind_info_t kind;
	char version[DOCTOR_LINE];
	int told = 0;

	for (int i = 0; dicomm_device_kind_info(i, &kind) == DICOMM_SUCCESS;
	     i++)
		for (size_t j = 0; j < sizeof(vendors) / sizeof(*vendors);
		     j++) {
			const struct vendor *v = &vendors[j];
			int here = count_devices(d, v);

			if (strcmp(v->kind, kind.name) ||
			    (!here && !kind.devices))
				continue;
			if (!doctor_read(d, version, "%s", v->version))
				snprintf(version, sizeof(version), "not known");
			doctor_tell(d, kind.devices ? VERDICT_OK : VERDICT_WARN,
				    "%s: %d on the bus, %d usable, version "
				    "%s%s%s",
				    kind.name, here, kind.devices, version,
				    kind.devices ? "" : "; ",
				    kind.devices ? "" : kind.reason);
			told++;
		}
	if (!told)
		doctor_tell(d, VERDICT_OK, "no GPU");
}

static void peer_memory(struct doctor *d)
{
	const char *const modules[] = {"nvidia_peermem", "nv_peer_mem",
				       "amdgpu"};
	char path[64], line[DOCTOR_LINE];
	dicomm_adapter_info_t a;
	int i = 0;

	for (; dicomm_adapter_info(i, &a) == DICOMM_SUCCESS; i++)
		doctor_tell(d, a.direct ? VERDICT_OK : VERDICT_WARN,
			    "%s, %s: %s", a.device, a.adapter, a.how);
	if (i)
		return;
	if (!count_devices(d, NULL) ||
	    !doctor_each(d, RDMA_PORTS, NULL, NULL)) {
		doctor_tell(d, VERDICT_OK, "no GPU beside an RDMA adapter");
		return;
	}
	for (size_t j = 0; j < sizeof(modules) / sizeof(*modules); j++) {
		snprintf(path, sizeof(path), "/sys/module/%s", modules[j]);
		if (doctor_each(d, path, NULL, NULL)) {
			doctor_tell(d, VERDICT_OK, "module %s", modules[j]);
			return;
		}
	}
	if (doctor_read_key(d, line, "/proc/driver/nvidia/version",
			    "Open Kernel Module"))
		doctor_tell(d, VERDICT_OK, "open kernel modules, for dma-buf");
	else
		doctor_tell(d, VERDICT_WARN, "no module for it is loaded");
}

/* ---- between them ---- */

struct domains {
	int known, translated;
};

static void add_domain(struct doctor *d, const char *path, void *ctx)
{
	char rdma[PATH_MAX], line[DOCTOR_LINE];
	struct domains *domains = ctx;

	snprintf(rdma, sizeof(rdma), "%s/infiniband", path);
	if ((!vendor_of(d, path) && !doctor_each(d, rdma, NULL, NULL)) ||
	    !doctor_read(d, line, "%s/iommu_group/type", path))
		return;
	domains->known++;
	domains->translated += strcmp(line, "identity") != 0;
}

static void iommu(struct doctor *d)
{
	struct domains n = {0};

	if (!doctor_each(d, "/sys/class/iommu", NULL, NULL)) {
		doctor_tell(d, VERDICT_UNKNOWN, "not known");
		return;
	}
	if (!doctor_each(d, "/sys/class/iommu/*", NULL, NULL)) {
		doctor_tell(d, VERDICT_OK, "off");
		return;
	}
	doctor_each(d, PCI_DEVICES, add_domain, &n);
	doctor_tell(d, n.translated ? VERDICT_WARN : VERDICT_OK,
		    "on; translates for %d of %d GPUs and RDMA adapters",
		    n.translated, n.known);
}

/* Returns 1 if a bridge sends what its devices say to each other up to the
 * root, by ACS, 0 if not, and -1 if that is not known: only root can read
 * beyond the first bytes. The capabilities are a list. */
static int redirects(struct doctor *d, const char *pci)
{
	uint8_t config[4096];
	char path[PATH_MAX];
	size_t at = 0x100, len = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s%s/config", d->root, pci);
	f = fopen(path, "re");
	if (f) {
		len = fread(config, 1, sizeof(config), f);
		fclose(f);
	}
	/* 4096 bytes have room for this many capabilities. */
	for (int i = 0; i < 480 && at >= 0x100 && at + 8 <= len; i++) {
		unsigned id = config[at] | (unsigned)config[at + 1] << 8;

		/* Redirection of requests, of completions */
		if (id == 0x000d)
			return (config[at + 6] & 0x0c) != 0;
		at = (config[at + 2] >> 4 | (unsigned)config[at + 3] << 4) &
		     0xffc;
	}
	return len > 0x100 ? 0 : -1;
}

static void count_bridge(struct doctor *d, const char *path, void *ctx)
{
	int *count = ctx; /* not known, off, on */
	char class[DOCTOR_LINE];

	if (doctor_read(d, class, "%s/class", path) &&
	    !strncmp(class, "0x0604", 6))
		count[redirects(d, path) + 1]++;
}

static void pci_acs(struct doctor *d)
{
	int count[3] = {0};

	if (!count_devices(d, NULL)) {
		doctor_tell(d, VERDICT_OK, "no GPU");
		return;
	}
	doctor_each(d, PCI_DEVICES, count_bridge, count);
	if (count[2])
		doctor_tell(d, VERDICT_WARN, "on, of %d of %d bridges",
			    count[2], count[0] + count[1] + count[2]);
	else if (count[0])
		doctor_tell(d, VERDICT_UNKNOWN, "not known; root can read it");
	else
		doctor_tell(d, VERDICT_OK, "off");
}

const struct check adapter_checks[] = {
	{"rdma port", "ACTIVE",
	 "cable and switch; on InfiniBand, a subnet manager such as opensm",
	 rdma_port},
	{"rdma gid", "RoCE v2 with an address that is not link-local",
	 "an address for its interface; DICOMM_IB_GID_INDEX", rdma_gid},
	{"verbs", "usable, where there is RDMA",
	 "rdma-core, /dev/infiniband in the container, DICOMM_IB_HCA", verbs},
	{"ucx", "one libucp.so.0, for two in one process fail",
	 "remove one, or name that of MPI first in LD_LIBRARY_PATH", ucx},
	{"device driver", "usable, where there is such a device",
	 "install or update driver and runtime; /dev/nvidia*, /dev/kfd or "
	 "/dev/dri in the container",
	 device_driver},
	{"peer memory", "adapters reach the memory of devices",
	 "modprobe nvidia_peermem, or the open kernel modules for dma-buf",
	 peer_memory},
	{"iommu", "off or pass-through, for GPUs and RDMA adapters",
	 "boot with iommu=pt", iommu},
	{"pci acs", "off on bridges, so that devices reach each other",
	 "turn ACS off in the firmware, or by setpci, unless virtual machines "
	 "share the host",
	 pci_acs},
	{NULL, NULL, NULL, NULL},
};
