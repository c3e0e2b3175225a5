/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameters, in the order of their names. The file that includes this one
 * defines what a row becomes: ROW(name, type and default, flags, help, other
 * fields).
 *
 * STRING(default)
 * CHOICE(default, choices)
 * BOOL(default)
 * INT(default, least, most)    a default of "auto" or "" reads as -1
 * BYTES(default, least, most)  also with a suffix K, M, G or T
 *
 * config.c says what the flags mean; 0: none.
 */
ROW(ALGO, STRING(""), SHARED,
    "algorithms to use, as allreduce:ring;alltoall:^direct (^: all but these); "
    "unset: least predicted time")
ROW(BOOTSTRAP_TIMEOUT, INT("60", 1, 86400), 0,
    "seconds for all ranks to meet; unset: 60, 600 under a launcher, no end "
    "through libnccl.so.2")
ROW(CACHE_DIR, STRING(""), EMPTY,
    "folder where kernels that were built for a device are kept; unset: "
    "$XDG_CACHE_HOME/dicomm or ~/.cache/dicomm; empty: they are not kept",
    .check = check_absolute)
ROW(COMM_ID, STRING(""), NCCL | LIVE | ID,
    "host:port where rank 0 listens and all ranks meet, or the text of a "
    "unique id")
ROW(COMM_KEY, STRING(""), LIVE | SECRET,
    "secret that ranks prove to know when they join at DICOMM_COMM_ID, or by "
    "torchrun or Slurm; 64 hexadecimal digits are best (openssl rand -hex 32)")
ROW(CONF, STRING(""), 0,
    "file of such variables, lines NAME=VALUE, in the place of ~/.dicomm.conf; "
    "/etc/dicomm.conf comes after it, the environment before both")
ROW(DEBUG,
    CHOICE(LOG_DEFAULT, "none", "error", "version", "warn", "info", "debug",
	   "trace"),
    NCCL, "messages to print, each level with those before it")
ROW(DEBUG_FILE, STRING(""), 0,
    "file that messages are appended to instead of stderr; %h is the host, %p "
    "the process")
ROW(DETERMINISTIC, BOOL("0"), SHARED | PROTECTS,
    "reduce in rank order: the same bits in every run")
ROW(DEVICE, STRING(""), 0,
    "device of this rank and of dicomm_mem_alloc(), as host or cuda:0; unset: "
    "host")
ROW(DRIFT, BOOL("1"), SHARED,
    "measure the links between hosts anew when large collectives no longer "
    "take what they did; not in deterministic mode")
ROW(ENCRYPT, CHOICE("off", "off", "sign", "on"), PROTECTS,
    "data over tcp: in clear; authenticated, so that nobody on the way can "
    "change it; or encrypted as well. With sign or on, no transport leaves the "
    "machine without that")
ROW(GRAPH, CHOICE("auto", "auto", "off"), 0,
    "accept calls on streams that are being captured into graphs of CUDA or "
    "HIP; off: refuse them")
ROW(HOSTID, STRING(""), NCCL,
    "name of this node; ranks of equal names share memory; unset: host name "
    "and boot")
ROW(IB_AR_THRESHOLD, BYTES("8K", 0, 1 << 20), NCCL,
    "longer messages into an inbox are a write and an empty one that tells of "
    "it, as adaptive routing wants")
ROW(IB_CONNECT, CHOICE("oob", "oob", "rdmacm"), SHARED,
    "queue pairs are connected over TCP, or, as those of iWARP always, by "
    "librdmacm")
ROW(IB_EAGER_BYTES, BYTES("4K", 128, 1 << 20), SHARED,
    "longest message that RDMA writes into the receiver's inbox; longer ones "
    "are read by it")
ROW(IB_FLUSH, CHOICE("auto", "auto", "always", "never"), 0,
    "read a byte of a device's memory behind what an adapter writes there, so "
    "that kernels see it: where the driver does not promise that; always; or "
    "never, which leaves it to the adapter")
ROW(IB_GID_INDEX, INT("auto", 0, 255), NCCL,
    "GID that a NIC uses; auto: RoCE v2 before v1, one of the other NIC's "
    "subnet before others, this namespace's own before others', IPv4 before "
    "IPv6")
ROW(IB_HCA, STRING(""), NCCL,
    "RDMA devices to use, as mlx5,rxe0:1 (prefixes, ports), =mlx5_0 (exact) or "
    "^mlx5_1 (all but these)")
ROW(IB_NICS, INT("4", 1, 4), 0,
    "RDMA ports that a rank shares its traffic over, at most: far ones only if "
    "they are faster than all that are nearer")
ROW(IB_PCI_RELAXED_ORDERING, BOOL("1"), 0,
    "let the NIC write large messages in any order of their bytes")
ROW(IB_PKEY, INT("auto", 0, 65535), NCCL,
    "place of an InfiniBand port's table of partitions; auto: the first of a "
    "full member")
ROW(IB_QPS_PER_CONNECTION, INT("1", 1, 8), NCCL,
    "queue pairs between two ports for the traffic of two ranks; all ports "
    "together at most 8")
ROW(IB_RETRY_CNT, INT("7", 0, 7), NCCL,
    "times that a NIC sends again what was not answered")
ROW(IB_SL, INT("0", 0, 15), NCCL, "InfiniBand service level")
ROW(IB_TC, INT("0", 0, 255), NCCL, "traffic class of RDMA packets")
ROW(IB_TIMEOUT, INT("18", 1, 31), NCCL,
    "a NIC waits 4.096 us times 2 to this power for an answer")
ROW(ISLAND, CHOICE("off", "off", "auto", "nccl", "rccl"), SHARED,
    "large collectives go by the vendor's library between the ranks of a host, "
    "and by this one between hosts; auto: where that is predicted to be faster "
    "and there is one")
ROW(ISLAND_BYTES, BYTES("auto", 0, INT64_MAX), SHARED,
    "least bytes of the longer buffer that go by islands; auto: from where "
    "that is predicted to be faster")
ROW(ISLAND_LIBRARY, STRING(""), 0,
    "path of the vendor's library; unset: libnccl.so.2 or librccl.so.1 as the "
    "loader finds it")
ROW(ISLAND_PART_BYTES, BYTES("auto", 0, INT64_MAX), SHARED,
    "most bytes of the longer buffer in a part, while the vendor's library is "
    "at "
    "work on the next one; 0: calls are not cut into parts; auto: what is "
    "predicted to be fastest, or 4 MiB if DICOMM_ISLAND_BYTES is set")
ROW(JOB_INFO, BOOL("1"), 0,
    "tell other processes of this user on this machine what this one does, for "
    "dicomm-info --job")
ROW(JOB_PORT, BOOL("1"), 0,
    "rank 0 keeps listening at the port where the ranks met, to tell who knows "
    "DICOMM_COMM_KEY what they do, for dicomm-info --job HOST:PORT; without "
    "that secret, or with DICOMM_JOB_INFO=off, it does not")
ROW(METRICS, STRING(""), 0,
    "file that this process writes its counters to, anew every 5 s, for the "
    "textfile collector of Prometheus' node exporter; %h is the host, %p the "
    "process, %r its rank in its first communicator; without %p and %r, "
    ".%h.%p.prom is appended")
ROW(NCCL_VERSION, STRING("2.30.7"), 0,
    "version of NCCL that libdicomm's libnccl.so.2 says it is, as 2.27.5")
ROW(PORT_RANGE, STRING(""), PROTECTS,
    "ports to listen on, as 20000-20100; unset: any", .check = check_port_range)
ROW(PROBE, CHOICE("auto", "auto", "off", "on"), SHARED,
    "measure the links between hosts at init, where there is no "
    "DICOMM_TOPO_FILE; auto: if some network does not say its rate, as TCP or "
    "software RDMA (RDMA adapters do), and no earlier communicator of these "
    "hosts knows it; on: for each communicator again")
ROW(RANGES, CHOICE("auto", "auto", "off", "nvtx", "roctx"), 0,
    "show each operation as a range to a profiler, by the library of NVTX or "
    "ROCTX; auto: by NVTX where NVTX_INJECTION64_PATH is set, as by Nsight "
    "Systems")
ROW(RANK, INT("", 0, INT32_MAX), LIVE,
    "this rank, for dicomm_comm_init_env(); unset: from the launcher")
ROW(SHM_CMA, CHOICE("auto", "auto", "on", "off"), 0,
    "read large messages straight from the sender's memory (process_vm_readv); "
    "auto: where that was measured to be faster and each rank has a core")
ROW(SHM_CMA_THRESHOLD, BYTES("16K", 0, INT64_MAX), 0,
    "least message for DICOMM_SHM_CMA, if DICOMM_SHM_MAP_THRESHOLD is not "
    "higher")
ROW(SHM_MAP_THRESHOLD, BYTES("4K", 0, INT64_MAX), 0,
    "least message that is sent by reference: the receiver reads the memory of "
    "the sender")
ROW(SHM_SLOT_BYTES, BYTES("32K", 4096, 16 << 20), SHARED | CHOSEN,
    "data that one slot of a shared ring holds", .check = check_pages)
/* At most 64, the number of bits in a receiver's mask. */
ROW(SHM_SLOTS, INT("16", 4, 64), SHARED | CHOSEN,
    "slots of a shared ring, a power of two", .check = check_power_of_two)
ROW(SIZE, INT("", 1, INT32_MAX), LIVE,
    "number of ranks, for dicomm_comm_init_env(); unset: from the launcher")
ROW(SOCKET_FAMILY, CHOICE("", "AF_INET", "AF_INET6"), NCCL | PROTECTS,
    "address family to meet over, and of tcp and ucx; unset: either")
ROW(SOCKET_IFNAME, STRING(""), NCCL,
    "interfaces to meet over, and for tcp and ucx, as eth,ib (prefixes), =eth0 "
    "(exact) or ^virbr (all but these, lo and docker)")
ROW(SPIN, INT("auto", 0, INT32_MAX), 0,
    "polls before a waiting rank yields its core, or auto")
ROW(STAGING, CHOICE("auto", "auto", "never"), PROTECTS,
    "pass device memory through host memory where no direct path, or no "
    "kernel, exists; never: fail instead")
ROW(TCP_CONNECTIONS, INT("1", 1, 8), 0,
    "TCP connections between two ranks, for networks that give one less than a "
    "link has")
ROW(TCP_SILENT_MS, INT("90000", 0, 86400000), 0,
    "milliseconds without an answer after which a host counts as dead; the "
    "network may be away for half of that; 0: only the kernel gives up, after "
    "a quarter of an hour",
    .check = check_silent)
ROW(TIMEOUT_MS, INT("1800000", 0, INT32_MAX), 0,
    "milliseconds after which a waiting operation fails; 0: never")
ROW(TOPO_FILE, STRING(""), 0,
    "description of hosts and of the network between them, as JSON; that of "
    "rank 0 serves ranks that were given none")
ROW(TRACE, STRING(""), 0,
    "file that the operations of this process are written to, for Chrome's "
    "trace viewer, Perfetto and dicomm-info --trace; %h is the host, %p the "
    "process; without %p, .%h.%p.json is appended")
ROW(TRANSPORTS, STRING(""), 0,
    "transports to use, as shm or ^shm (all but these); unset: all but ucx")
ROW(WARN_LATE_MS, INT("60000", 0, INT32_MAX), 0,
    "milliseconds after which a late peer is named in a warning; 0: never")
