/* SPDX-License-Identifier: BSD-3-Clause */
/* What exists so that programs load, and says that it is not there. */
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/group.h"
#include "compat/nccl/other.h"

/* Nothing is done with most of what these are given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static ncclResult_t lacking(const char *f, const char *what)
{
	ncclResult_t result = nccl_refuse(
		ncclInvalidUsage, "%s: %s: libdicomm's NCCL interface has none",
		f, what);

	return nccl_refused(result);
}

#define DEVICE "the device interface, by which kernels communicate"

/* Is it in effect? That is settled when a parameter is first asked for. */
static bool is_encrypted(void)
{
	dicomm_param_info_t info;

	for (int i = 0; dicomm_param_info(i, &info) == DICOMM_SUCCESS; i++)
		if (!strcmp(info.name, "DICOMM_ENCRYPT"))
			return !strcmp(info.value, "on");
	return false;
}

/* As by DICOMM_ENCRYPT=on, for communicators that are not there yet. Ids have
 * secrets of their own; the program's is for NCCL_COMM_ID. */
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
	if (!config)
		return ncclSuccess;
	if (config->magic != NCCL_API_MAGIC || config->size < sizeof(*config))
		return nccl_refuse(ncclInvalidArgument,
				   "%s: config: magic 0x%x, size %zu: not "
				   "initialised by "
				   "NCCL_ENCRYPTION_CONFIG_INITIALIZER",
				   __func__, config->magic, config->size);
	if (!config->mode)
		return ncclSuccess;
	setenv("DICOMM_ENCRYPT", "on", 1);
	nccl_look_around();
	if (config->psk && *config->psk)
		setenv("DICOMM_COMM_KEY", config->psk, 0);
	if (is_encrypted())
		return ncclSuccess;
	return nccl_refuse(
		ncclInvalidUsage,
		"%s: too late, DICOMM_ENCRYPT was read already: call "
		"it first, or set that variable",
		__func__);
}
NCCL_ALIAS(ncclSetEncryption);

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements,
			       void *dev)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *dev)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclDevCommDestroy);

static ncclResult_t no_pointer(const char *f, void **ptr)
{
	if (ptr)
		*ptr = NULL;
	return lacking(f, DEVICE);
}

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t win, size_t offset,
					     void **ptr)
{
	return no_pointer(__func__, ptr);
}
NCCL_ALIAS(ncclGetLsaMultimemDevicePointer);

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t win, size_t offset,
					  ncclMultimemHandle_t multimem,
					  void **ptr)
{
	return no_pointer(__func__, ptr);
}
NCCL_ALIAS(ncclGetMultimemDevicePointer);

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t win, size_t offset, int rank,
				     void **ptr)
{
	return no_pointer(__func__, ptr);
}
NCCL_ALIAS(ncclGetLsaDevicePointer);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t win, size_t offset, int peer,
				      void **ptr)
{
	return no_pointer(__func__, ptr);
}
NCCL_ALIAS(ncclGetPeerDevicePointer);

ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t win, size_t offset,
					 uint32_t *id, size_t *at)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGetMultimemDeviceLeInfo);

ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t win, size_t offset, int peer,
				    ncclTeam_t team, uint32_t *id, size_t *at)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGetCftDeviceLeInfo);

ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t win, size_t offset, int peer,
				     uint32_t *id, size_t *at)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGetPeerDeviceLeInfo);

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int n,
					     void *handle, void *requirement)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclLsaBarrierCreateRequirement);

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team,
					     int n, void *handle,
					     void *requirement)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGinBarrierCreateRequirement);

ncclResult_t ncclGinOutboxCreateRequirement(int nblocks, int size_log2,
					    void *handle, void *requirement)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGinOutboxCreateRequirement);

ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nblocks,
					      int size_log2, void *handle,
					      void *requirement)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclGinInboxA2ACreateRequirement);

/* A number of slots, which has no room for an error: none. */
int ncclLLA2ACalcSlots(int elements, int bytes)
{
	lacking(__func__, DEVICE);
	return 0;
}
NCCL_ALIAS(ncclLLA2ACalcSlots);

ncclResult_t ncclLLA2ACreateRequirement(int nblocks, int nslots, void *handle,
					void *requirement)
{
	return lacking(__func__, DEVICE);
}
NCCL_ALIAS(ncclLLA2ACreateRequirement);

#define MSCCL "algorithms of MSCCL"

ncclResult_t mscclLoadAlgo(const char *path, int *handle, int rank)
{
	if (handle)
		*handle = -1;
	return lacking(__func__, MSCCL);
}
NCCL_ALIAS(mscclLoadAlgo);

ncclResult_t mscclRunAlgo(const void *send, const size_t *sendcounts,
			  const size_t *senddispls, void *recv,
			  const size_t *recvcounts, const size_t *recvdispls,
			  size_t count, ncclDataType_t type, int root, int peer,
			  ncclRedOp_t op, int handle, ncclComm_t comm,
			  cudaStream_t stream)
{
	return lacking(__func__, MSCCL);
}
NCCL_ALIAS(mscclRunAlgo);

ncclResult_t mscclUnloadAlgo(int handle)
{
	return lacking(__func__, MSCCL);
}
NCCL_ALIAS(mscclUnloadAlgo);

/* The library reads how much it says once; NCCL itself calls this obsolete. */
void ncclResetDebugInit(void)
{
}
NCCL_ALIAS(ncclResetDebugInit);

void ncclResetDebugInitInternal(void)
{
}
