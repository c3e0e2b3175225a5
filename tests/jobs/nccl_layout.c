/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sizes, offsets and values of NCCL's interface, one a line. Compiled with a
 * header of NCCL's (HEADER), what that version has; else all of ours, which has
 * to have each of those lines.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef HEADER
#include HEADER
#define SINCE(version) (NCCL_VERSION_CODE >= (version))
#else
#include "compat/nccl/abi.h"
#define SINCE(version) 1
#endif

#define VALUE(name) printf(#name " %lld\n", (long long)(name))
#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type))
#define FIELD(type, field) \
	printf(#type "." #field " %zu\n", offsetof(type, field))

static void values(void)
{
	VALUE(ncclSuccess);
	VALUE(ncclUnhandledCudaError);
	VALUE(ncclSystemError);
	VALUE(ncclInternalError);
	VALUE(ncclInvalidArgument);
	VALUE(ncclInvalidUsage);
	VALUE(ncclRemoteError);
	VALUE(ncclInProgress);
	VALUE(ncclSum);
	VALUE(ncclProd);
	VALUE(ncclMax);
	VALUE(ncclMin);
	VALUE(ncclAvg);
	VALUE(ncclNumOps);
	VALUE(ncclMaxRedOp);
	VALUE(ncclInt8);
	VALUE(ncclUint8);
	VALUE(ncclInt32);
	VALUE(ncclUint32);
	VALUE(ncclInt64);
	VALUE(ncclUint64);
	VALUE(ncclFloat16);
	VALUE(ncclFloat32);
	VALUE(ncclFloat64);
	VALUE(ncclScalarDevice);
	VALUE(ncclScalarHostImmediate);
	VALUE(NCCL_UNIQUE_ID_BYTES);
	SIZE(ncclUniqueId);
	SIZE(ncclResult_t);
	SIZE(ncclDataType_t);
	SIZE(ncclRedOp_t);
#if SINCE(21700)
	VALUE(NCCL_CONFIG_UNDEF_INT);
#endif
#if SINCE(21800)
	VALUE(NCCL_SPLIT_NOCOLOR);
#endif
#if SINCE(22700)
	VALUE(ncclFloat8e4m3);
	VALUE(ncclFloat8e5m2);
	VALUE(NCCL_WIN_DEFAULT);
	VALUE(NCCL_WIN_COLL_SYMMETRIC);
	VALUE(NCCL_SHRINK_DEFAULT);
	VALUE(NCCL_SHRINK_ABORT);
#endif
#if SINCE(22900)
	VALUE(NCCL_SUSPEND_MEM);
	VALUE(ncclStatGpuMemSuspend);
	VALUE(ncclStatGpuMemSuspended);
	VALUE(ncclStatGpuMemPersist);
	VALUE(ncclStatGpuMemTotal);
	VALUE(NCCL_REVOKE_DEFAULT);
	VALUE(NCCL_WIN_STRICT_ORDERING);
	SIZE(ncclWaitSignalDesc_t);
#endif
#if SINCE(23007)
	VALUE(ncclTimeout);
#endif
#if SINCE(23203)
	VALUE(NCCL_WIN_GIN_ONLY);
	VALUE(NCCL_WIN_CFT_COUNTED);
#endif
}

static void fields(void)
{
	FIELD(ncclConfig_t, size);
	FIELD(ncclConfig_t, magic);
	FIELD(ncclConfig_t, version);
	FIELD(ncclConfig_t, blocking);
#if SINCE(21700)
	FIELD(ncclConfig_t, cgaClusterSize);
	FIELD(ncclConfig_t, minCTAs);
	FIELD(ncclConfig_t, maxCTAs);
	FIELD(ncclConfig_t, netName);
#endif
#if SINCE(21800)
	FIELD(ncclConfig_t, splitShare);
#endif
#if SINCE(22200)
	SIZE(ncclSimInfo_t);
	FIELD(ncclSimInfo_t, estimatedTime);
#endif
#if SINCE(22700)
	FIELD(ncclConfig_t, trafficClass);
	FIELD(ncclConfig_t, commName);
	FIELD(ncclConfig_t, collnetEnable);
	FIELD(ncclConfig_t, CTAPolicy);
	FIELD(ncclConfig_t, shrinkShare);
	FIELD(ncclConfig_t, nvlsCTAs);
#endif
#if SINCE(22800)
	FIELD(ncclConfig_t, nChannelsPerNetPeer);
	FIELD(ncclConfig_t, nvlinkCentricSched);
#endif
#if SINCE(22907)
	FIELD(ncclConfig_t, graphUsageMode);
	FIELD(ncclConfig_t, numRmaCtx);
#endif
#if SINCE(23007)
	FIELD(ncclConfig_t, maxP2pPeers);
	FIELD(ncclConfig_t, graphStreamOrdering);
#endif
#if SINCE(23100)
	FIELD(ncclConfig_t, launchOrderImplicit);
	FIELD(ncclConfig_t, numRmaSig);
	FIELD(ncclConfig_t, rmaEagerInit);
	FIELD(ncclCollConfig_t, ext);
	FIELD(ncclCollConfig_t, minCTAs);
	FIELD(ncclCollConfig_t, algSelection);
	FIELD(ncclCollConfig_t, forceAlgSelection);
	FIELD(ncclCollConfig_t, CTAPolicy);
	FIELD(ncclCollConfig_t, userProfilerTag);
#endif
#if SINCE(23200)
	FIELD(ncclConfig_t, hostCftMode);
	FIELD(ncclConfig_t, nvlsHostMode);
	FIELD(ncclCollConfig_t, launchCompletionEvent);
	SIZE(ncclEncryptionConfig_t);
	FIELD(ncclEncryptionConfig_t, mode);
	FIELD(ncclEncryptionConfig_t, psk);
	VALUE(NCCL_API_MAGIC);
#endif
}

/* Of the newest with that layout, as tests/jobs/test_nccl.c plays them */
static void sizes(void)
{
#ifdef HEADER
	printf("ncclConfig_t of 2.%d %zu\n", NCCL_VERSION_CODE / 100 % 100,
	       sizeof(ncclConfig_t));
#else
	static const int published[][2] = {
		{14, 24}, {15, 24}, {16, 24},  {17, 40},  {18, 48},
		{19, 48}, {20, 48}, {21, 48},  {22, 48},  {23, 48},
		{24, 48}, {25, 48}, {26, 48},  {27, 72},  {28, 80},
		{29, 88}, {30, 96}, {31, 112}, {32, 120},
	};

	for (size_t i = 0; i < sizeof(published) / sizeof(*published); i++)
		printf("ncclConfig_t of 2.%d %d\n", published[i][0],
		       published[i][1]);
#endif
}

int main(void)
{
	values();
	fields();
	sizes();
	return 0;
}
