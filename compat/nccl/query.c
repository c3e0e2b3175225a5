/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs ask: versions, errors, who and where a rank is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/handle.h"

ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return nccl_refuse(ncclInvalidArgument, "%s: version is NULL",
				   __func__);
	*version = nccl_version();
	return ncclSuccess;
}
NCCL_ALIAS(ncclGetVersion);

const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] = "a device or its driver failed",
		[ncclSystemError] = "a system call failed, or memory ran out",
		[ncclInternalError] = "a fault of libdicomm",
		[ncclInvalidArgument] = "invalid argument",
		[ncclInvalidUsage] = "invalid usage",
		[ncclRemoteError] = "another rank died, left or failed",
		[ncclInProgress] = "in progress",
		[ncclTimeout] = "a peer did not come in time",
	};

	if ((unsigned)result >= sizeof(texts) / sizeof(*texts))
		return "unknown result code";
	return texts[result];
}
NCCL_ALIAS(ncclGetErrorString);

/* Why a communicator is broken, from any thread; else the last error. */
const char *ncclGetLastError(ncclComm_t comm)
{
	static _Thread_local char text[1024];
	dicomm_result_t error = DICOMM_SUCCESS;

	if (!nccl_enter_shared(comm,
			       NCCL_IN(NCCL_LIVE) | NCCL_IN(NCCL_SUSPENDED)))
		return nccl_last_text();
	dicomm_comm_get_async_error(comm->comm, &error);
	if (error != DICOMM_SUCCESS && error != DICOMM_IN_PROGRESS)
		snprintf(text, sizeof(text), "%s",
			 dicomm_get_last_error(comm->comm));
	nccl_leave_shared(comm);
	return error != DICOMM_SUCCESS && error != DICOMM_IN_PROGRESS
		       ? text
		       : nccl_last_text();
}
NCCL_ALIAS(ncclGetLastError);

/* One that was revoked is at rest, and in that not broken. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	dicomm_result_t status, now = DICOMM_SUCCESS;
	bool revoked;

	if (!error)
		return nccl_refuse(ncclInvalidArgument, "%s: error is NULL",
				   __func__);
	if (nccl_is_handle(comm) && atomic_load(&comm->state) == NCCL_FAILED) {
		*error = comm->failure;
		return ncclSuccess;
	}
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	revoked = atomic_load(&comm->state) == NCCL_REVOKED;
	status = dicomm_comm_get_async_error(comm->comm, &now);
	if (revoked || now == DICOMM_SUCCESS)
		now = nccl_children_state(comm);
	if (now == DICOMM_SUCCESS)
		nccl_child_is_made(comm);
	nccl_leave_shared(comm);
	if (status != DICOMM_SUCCESS)
		return nccl_failed(status);
	*error = nccl_result(now);
	return ncclSuccess;
}
NCCL_ALIAS(ncclCommGetAsyncError);

static ncclResult_t ask(const char *f, struct ncclComm *c, int *out,
			const char *name,
			dicomm_result_t (*query)(dicomm_comm_t, int *))
{
	dicomm_result_t status;

	if (!out)
		return nccl_refuse(ncclInvalidArgument, "%s: %s is NULL", f,
				   name);
	if (!nccl_enter_shared(c, NCCL_THERE))
		return nccl_handle_refuse(f, c);
	status = query(c->comm, out);
	nccl_leave_shared(c);
	return nccl_from(status);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	return ask(__func__, comm, count, "count", dicomm_comm_count);
}
NCCL_ALIAS(ncclCommCount);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	return ask(__func__, comm, rank, "rank", dicomm_comm_user_rank);
}
NCCL_ALIAS(ncclCommUserRank);

/* "cuda:1" is 1, the host is -1. */
static dicomm_result_t device_number(dicomm_comm_t comm, int *device)
{
	const char *name, *colon;
	dicomm_result_t status = dicomm_comm_device(comm, &name);

	if (status != DICOMM_SUCCESS)
		return status;
	colon = strchr(name, ':');
	*device = colon ? atoi(colon + 1) : strcmp(name, "host") ? 0 : -1;
	return DICOMM_SUCCESS;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	return ask(__func__, comm, device, "device", device_number);
}
NCCL_ALIAS(ncclCommCuDevice);

static dicomm_result_t device_bytes(dicomm_comm_t comm, uint64_t *bytes)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};
	dicomm_result_t status = dicomm_comm_stats(comm, &stats);

	*bytes = stats.device_bytes;
	return status;
}

/* No memory of a GPU is given back while a communicator is suspended. */
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat,
			      uint64_t *value)
{
	dicomm_result_t status;
	uint64_t bytes = 0;

	if (!value)
		return nccl_refuse(ncclInvalidArgument, "%s: value is NULL",
				   __func__);
	if ((unsigned)stat > ncclStatGpuMemTotal)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: stat %d: there is none", __func__,
				   (int)stat);
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	status = device_bytes(comm->comm, &bytes);
	nccl_leave_shared(comm);
	if (status != DICOMM_SUCCESS)
		return nccl_failed(status);
	switch (stat) {
	case ncclStatGpuMemSuspend:
		*value = 0;
		break;
	case ncclStatGpuMemSuspended:
		*value = atomic_load(&comm->state) == NCCL_SUSPENDED;
		break;
	case ncclStatGpuMemPersist:
	case ncclStatGpuMemTotal:
		*value = bytes;
		break;
	}
	return ncclSuccess;
}
NCCL_ALIAS(ncclCommMemStats);

/* Programs take what is there only if this says so: nothing of the device
 * interface is. */
ncclResult_t ncclCommQueryProperties(ncclComm_t comm,
				     ncclCommProperties_t *properties)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};
	ncclCommProperties_t p = {0};
	size_t size;

	if (!properties)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: properties is NULL", __func__);
	size = properties->size;
	if (properties->magic != NCCL_API_MAGIC ||
	    size < offsetof(ncclCommProperties_t, railedGinType) + sizeof(int))
		return nccl_refuse(ncclInvalidArgument,
				   "%s: properties: magic 0x%x, size %zu: not "
				   "initialised by "
				   "NCCL_COMM_PROPERTIES_INITIALIZER",
				   __func__, properties->magic, size);
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	dicomm_comm_user_rank(comm->comm, &p.rank);
	dicomm_comm_count(comm->comm, &p.nRanks);
	device_number(comm->comm, &p.cudaDev);
	dicomm_comm_stats(comm->comm, &stats);
	nccl_leave_shared(comm);
	p.commHash = stats.comm_hash;
	p.nvmlDev = p.cudaDev;
	p.nLsaTeams = p.nRanks; /* of one rank each */
	p.hostRmaSupport = true;
	p.ginMinStride = 1;
	p.size = size;
	p.magic = properties->magic;
	p.version = properties->version;
	memcpy(properties, &p, size < sizeof(p) ? size : sizeof(p));
	return ncclSuccess;
}
NCCL_ALIAS(ncclCommQueryProperties);

/* ---- teams: ranks, and those whose memory they reach, which are none ---- */

static ncclTeam_t team(const char *f, struct ncclComm *comm, bool world)
{
	ncclTeam_t t = {1, 0, 1};

	if (!nccl_enter_shared(comm, NCCL_THERE)) {
		nccl_handle_refuse(f, comm);
		return (ncclTeam_t){0, 0, 0};
	}
	if (world) {
		dicomm_comm_count(comm->comm, &t.nRanks);
		dicomm_comm_user_rank(comm->comm, &t.rank);
	}
	nccl_leave_shared(comm);
	return t;
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm)
{
	return team(__func__, comm, true);
}
NCCL_ALIAS(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm)
{
	return team(__func__, comm, false);
}
NCCL_ALIAS(ncclTeamLsa);

/* Those of equal rank in their teams of load and store: all */
ncclTeam_t ncclTeamRail(ncclComm_t comm)
{
	return team(__func__, comm, true);
}
NCCL_ALIAS(ncclTeamRail);

ncclTeam_t ncclTeamCft(ncclComm_t comm, int mode)
{
	(void)mode;
	return team(__func__, comm, false);
}
NCCL_ALIAS(ncclTeamCft);

ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm)
{
	return team(__func__, comm, false);
}
NCCL_ALIAS(ncclTeamCftMultimem);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t t, int rank)
{
	return team(__func__, comm, true).rank + (rank - t.rank) * t.stride;
}
NCCL_ALIAS(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t t, int rank)
{
	return team(__func__, comm, false).rank + (rank - t.rank) * t.stride;
}
NCCL_ALIAS(ncclTeamRankToLsa);
