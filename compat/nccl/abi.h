/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface of NCCL 2.32 and of RCCL, in our own declarations: what
 * programs that were built against their headers pass and expect. Where nccl.h
 * was included before, its types serve, so that a test lets the compiler
 * compare the signatures.
 */
#ifndef DICOMM_COMPAT_NCCL_ABI_H
#define DICOMM_COMPAT_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef NCCL_H_

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7, /* since 2.14 */
	ncclTimeout = 8,    /* since 2.30.7 */
	ncclNumResults = 9
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT (-0x7fffffff - 1)
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_API_MAGIC 0xcafebeefu
#define NCCL_SIM_INFO_MAGIC 0x74685283u

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_CFT_COUNTED 0x08

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

/* Grows at its end: config.c says since when there is what. */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cgaClusterSize;
	int minCTAs;
	int maxCTAs;
	const char *netName;
	int splitShare;
	int trafficClass;
	const char *commName;
	int collnetEnable;
	int CTAPolicy;
	int shrinkShare;
	int nvlsCTAs;
	int nChannelsPerNetPeer;
	int nvlinkCentricSched;
	int graphUsageMode;
	int numRmaCtx;
	int maxP2pPeers;
	int graphStreamOrdering;
	int launchOrderImplicit;
	int numRmaSig;
	int rmaEagerInit;
	int hostCftMode;
	int nvlsHostMode;
} ncclConfig_t;

/* Of one collective, since 2.31 */
typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	void *ext;
	int minCTAs;
	int maxCTAs;
	int nvlsCTAs;
	int cgaClusterSize;
	const char *algSelection;
	int forceAlgSelection;
	int CTAPolicy;
	uint64_t userProfilerTag;
	cudaEvent_t launchCompletionEvent; /* since 2.32 */
} ncclCollConfig_t;

typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	float estimatedTime; /* microseconds */
} ncclSimInfo_t;

typedef enum {
	ncclStatGpuMemSuspend = 0,
	ncclStatGpuMemSuspended = 1,
	ncclStatGpuMemPersist = 2,
	ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

typedef enum {
	ncclSum = 0,
	ncclProd = 1,
	ncclMax = 2,
	ncclMin = 3,
	ncclAvg = 4,
	ncclNumOps = 5,
	ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
	ncclInt8 = 0,
	ncclChar = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclInt = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclHalf = 6,
	ncclFloat32 = 7,
	ncclFloat = 7,
	ncclFloat64 = 8,
	ncclDouble = 8,
	ncclBfloat16 = 9,
	ncclFloat8e4m3 = 10, /* since 2.24 */
	ncclFloat8e5m2 = 11,
	ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
	ncclScalarDevice = 0,
	ncclScalarHostImmediate = 1
} ncclScalarResidence_t;

typedef struct {
	int opCnt;
	int peer;
	int sigIdx;
	int ctx;
} ncclWaitSignalDesc_t;

typedef struct {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int mode;
	const char *psk;
} ncclEncryptionConfig_t;

typedef struct ncclParamHandle *ncclParamHandle_t;

#else

/* What the header that was included is too old to have */
#if NCCL_VERSION_CODE < 22200
typedef void ncclSimInfo_t;
#endif
#if NCCL_VERSION_CODE < 22700
typedef struct ncclWindow_vidmem *ncclWindow_t;
#endif
#if NCCL_VERSION_CODE < 22900
typedef int ncclCommMemStat_t;
typedef void ncclWaitSignalDesc_t;
#endif
#if NCCL_VERSION_CODE < 23000
typedef struct ncclParamHandle *ncclParamHandle_t;
#endif
#if NCCL_VERSION_CODE < 23200
typedef void ncclEncryptionConfig_t;
#endif

#endif

/* Of nccl_device.h, which no program in C can include */
#ifndef _NCCL_DEVICE_CORE_H_

typedef struct ncclTeam {
	int nRanks, rank, stride;
} ncclTeam_t;

typedef struct ncclMultimemHandle {
	void *mcBasePtr;
} ncclMultimemHandle_t;

/* As long as `size` says: that of 2.29 ends with railedGinType. */
typedef struct ncclCommProperties {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int rank;
	int nRanks;
	int cudaDev;
	int nvmlDev;
	bool deviceApiSupport;
	bool multimemSupport;
	int ginType;
	int nLsaTeams;
	bool hostRmaSupport;
	int railedGinType;
	uint64_t commHash;
	int ginMinStride;
	int ginConnectionType;
	bool ginSupport[64];
	size_t devCommRuntimeVersionSize;
	bool cftSupport;
	bool cftMulticastSupport;
	bool cftCountedSupport;
} ncclCommProperties_t;

#endif

#pragma GCC visibility push(default)

void ncclDicommIslandsOff(void);
ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t ncclMemFree(void *ptr);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
				    ncclUniqueId id, int rank,
				    ncclConfig_t *config);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id,
			      int rank);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
			   ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int nexclude,
			    ncclComm_t *newcomm, ncclConfig_t *config,
			    int flags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id,
			  int rank, ncclComm_t *newcomm, ncclConfig_t *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int rank,
				      int nids, ncclUniqueId *ids,
				      ncclConfig_t *config);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
			      void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat,
			      uint64_t *value);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
				    ncclWindow_t *win, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar,
				      ncclDataType_t type,
				      ncclScalarResidence_t residence,
				      ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count,
			ncclDataType_t type, ncclRedOp_t op, int root,
			ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t type, int root,
		       ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count,
			   ncclDataType_t type, int root, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
			   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount,
			       ncclDataType_t type, ncclRedOp_t op,
			       ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count,
			  ncclDataType_t type, ncclComm_t comm,
			  cudaStream_t stream);
ncclResult_t ncclGather(const void *send, void *recv, size_t count,
			ncclDataType_t type, int root, ncclComm_t comm,
			cudaStream_t stream);
ncclResult_t ncclScatter(const void *send, void *recv, size_t count,
			 ncclDataType_t type, int root, ncclComm_t comm,
			 cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type,
		      int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
		      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclPutSignal(const void *local, size_t count, ncclDataType_t type,
			   int peer, ncclWindow_t win, size_t offset,
			   int signal, int ctx, unsigned int flags,
			   ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned int flags,
			ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals,
			    ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);
void ncclResetDebugInit(void);
void ncclResetDebugInitInternal(void);

/* Since 2.30.7 */
ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key);
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out);
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out);
ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int max, int *len);
ncclResult_t ncclParamGetParameter(const char *key, const char **value,
				   int *len);
ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *len);
void ncclParamDumpAll(void);

/* Since 2.32 */
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config);

/* Since 2.31, which older headers lack the type for */
#if !defined(NCCL_H_) || NCCL_VERSION_CODE >= 23100
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count,
				 ncclDataType_t type, ncclRedOp_t op,
				 ncclComm_t comm, cudaStream_t stream,
				 const ncclCollConfig_t *config);
ncclResult_t ncclBroadcastConfig(const void *send, void *recv, size_t count,
				 ncclDataType_t type, int root, ncclComm_t comm,
				 cudaStream_t stream,
				 const ncclCollConfig_t *config);
ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count,
			      ncclDataType_t type, ncclRedOp_t op, int root,
			      ncclComm_t comm, cudaStream_t stream,
			      const ncclCollConfig_t *config);
ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t sendcount,
				 ncclDataType_t type, ncclComm_t comm,
				 cudaStream_t stream,
				 const ncclCollConfig_t *config);
ncclResult_t ncclReduceScatterConfig(const void *send, void *recv,
				     size_t recvcount, ncclDataType_t type,
				     ncclRedOp_t op, ncclComm_t comm,
				     cudaStream_t stream,
				     const ncclCollConfig_t *config);
ncclResult_t ncclAlltoAllConfig(const void *send, void *recv, size_t count,
				ncclDataType_t type, ncclComm_t comm,
				cudaStream_t stream,
				const ncclCollConfig_t *config);
ncclResult_t ncclGatherConfig(const void *send, void *recv, size_t count,
			      ncclDataType_t type, int root, ncclComm_t comm,
			      cudaStream_t stream,
			      const ncclCollConfig_t *config);
ncclResult_t ncclScatterConfig(const void *send, void *recv, size_t count,
			       ncclDataType_t type, int root, ncclComm_t comm,
			       cudaStream_t stream,
			       const ncclCollConfig_t *config);
#endif

/* Of the device interface. Pointers that nothing is done with are void. */
ncclResult_t ncclCommQueryProperties(ncclComm_t comm,
				     ncclCommProperties_t *properties);
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements,
			       void *dev);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *dev);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t win, size_t offset,
					     void **ptr);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t win, size_t offset,
					  ncclMultimemHandle_t multimem,
					  void **ptr);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t win, size_t offset, int rank,
				     void **ptr);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t win, size_t offset, int peer,
				      void **ptr);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t win, size_t offset,
					 uint32_t *id, size_t *at);
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t win, size_t offset, int peer,
				    ncclTeam_t team, uint32_t *id, size_t *at);
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t win, size_t offset, int peer,
				     uint32_t *id, size_t *at);
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
ncclTeam_t ncclTeamCft(ncclComm_t comm, int mode);
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int n,
					     void *handle, void *requirement);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team,
					     int n, void *handle,
					     void *requirement);
ncclResult_t ncclGinOutboxCreateRequirement(int nblocks, int size_log2,
					    void *handle, void *requirement);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nblocks,
					      int size_log2, void *handle,
					      void *requirement);
int ncclLLA2ACalcSlots(int elements, int bytes);
ncclResult_t ncclLLA2ACreateRequirement(int nblocks, int nslots, void *handle,
					void *requirement);

/* Of RCCL only */
ncclResult_t ncclAllReduceWithBias(const void *send, void *recv, size_t count,
				   ncclDataType_t type, ncclRedOp_t op,
				   ncclComm_t comm, cudaStream_t stream,
				   const void *acc);
ncclResult_t ncclAllToAll(const void *send, void *recv, size_t count,
			  ncclDataType_t type, ncclComm_t comm,
			  cudaStream_t stream);
ncclResult_t ncclAlltoAllv(const void *send, const size_t *sendcounts,
			   const size_t *senddispls, void *recv,
			   const size_t *recvcounts, const size_t *recvdispls,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t ncclAllToAllv(const void *send, const size_t *sendcounts,
			   const size_t *senddispls, void *recv,
			   const size_t *recvcounts, const size_t *recvdispls,
			   ncclDataType_t type, ncclComm_t comm,
			   cudaStream_t stream);
ncclResult_t mscclLoadAlgo(const char *path, int *handle, int rank);
ncclResult_t mscclRunAlgo(const void *send, const size_t *sendcounts,
			  const size_t *senddispls, void *recv,
			  const size_t *recvcounts, const size_t *recvdispls,
			  size_t count, ncclDataType_t type, int root, int peer,
			  ncclRedOp_t op, int handle, ncclComm_t comm,
			  cudaStream_t stream);
ncclResult_t mscclUnloadAlgo(int handle);

#pragma GCC visibility pop

/* Each function is there under a second name, with a p before it, for tools
 * that replace the first and call the second. */
#define NCCL_ALIAS(name)                                              \
	extern __typeof__(name) p##name                               \
		__attribute__((alias(#name), visibility("default"))); \
	extern __typeof__(name) p##name

#endif
