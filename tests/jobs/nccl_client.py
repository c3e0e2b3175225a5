# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a job that knows NCCL only by its shared library.

It makes the calls that vLLM's and SGLang's wrappers make, in their order, by
ctypes as they do. Usage: nccl_client.py SCENE WHERE RANK RANKS FOLDER, WHERE
being "host", "cuda:0", "hip:1" (mocks of our tests), or "dicomm": a rank of the
host that calls libdicomm.so itself. NCCL_LIBRARY, LIBDICOMM, MOCK_CUDA and
MOCK_HIP name the libraries.
"""

import ctypes
import os
import struct
import sys
import threading
import time

INT32, FLOAT32 = 2, 7
SUM, MAX = 0, 2
MAGIC = 0xCAFEBEEF
UNDEFINED = -(2**31)
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE, IN_PROGRESS = 0, 4, 5, 6, 7

comm_t = stream_t = buffer_t = window_t = ctypes.c_void_p
int_p = ctypes.POINTER(ctypes.c_int)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of 2.27, as SGLang has it."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cgaClusterSize", ctypes.c_int),
        ("minCTAs", ctypes.c_int),
        ("maxCTAs", ctypes.c_int),
        ("netName", ctypes.c_char_p),
        ("splitShare", ctypes.c_int),
        ("trafficClass", ctypes.c_int),
        ("commName", ctypes.c_char_p),
        ("collnetEnable", ctypes.c_int),
        ("CTAPolicy", ctypes.c_int),
        ("shrinkShare", ctypes.c_int),
        ("nvlsCTAs", ctypes.c_int),
    ]

    def __init__(self, **fields):
        super().__init__()
        for name, kind in self._fields_[3:]:
            if kind is ctypes.c_int:
                setattr(self, name, UNDEFINED)
        self.size, self.magic, self.version = ctypes.sizeof(self), MAGIC, 22705
        for name, value in fields.items():
            setattr(self, name, value)


def check(condition, text):
    if not condition:
        raise SystemExit(f"FAIL: {' '.join(sys.argv[1:5])}: {text}")


class Nccl:
    """The library, by signatures as in pynccl_wrapper.py."""

    size, integer = ctypes.c_size_t, ctypes.c_int
    signatures = {
        "ncclGetVersion": [int_p],
        "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
        "ncclCommInitRank": [ctypes.POINTER(comm_t), integer, UniqueId, integer],
        "ncclCommInitRankConfig": [ctypes.POINTER(comm_t), integer, UniqueId,
                                   integer, ctypes.POINTER(Config)],
        "ncclAllReduce": [buffer_t, buffer_t, size, integer, integer, comm_t,
                          stream_t],
        "ncclReduce": [buffer_t, buffer_t, size, integer, integer, integer,
                       comm_t, stream_t],
        "ncclAllGather": [buffer_t, buffer_t, size, integer, comm_t, stream_t],
        "ncclReduceScatter": [buffer_t, buffer_t, size, integer, integer,
                              comm_t, stream_t],
        "ncclSend": [buffer_t, size, integer, integer, comm_t, stream_t],
        "ncclRecv": [buffer_t, size, integer, integer, comm_t, stream_t],
        "ncclBroadcast": [buffer_t, buffer_t, size, integer, integer, comm_t,
                          stream_t],
        "ncclCommDestroy": [comm_t],
        "ncclCommAbort": [comm_t],
        "ncclCommSuspend": [comm_t, integer],
        "ncclCommResume": [comm_t],
        "ncclGroupStart": [],
        "ncclGroupEnd": [],
        "ncclCommWindowRegister": [comm_t, buffer_t, size,
                                   ctypes.POINTER(window_t), integer],
        "ncclCommWindowDeregister": [comm_t, window_t],
        "ncclCommCount": [comm_t, int_p],
        "ncclCommUserRank": [comm_t, int_p],
        "ncclCommCuDevice": [comm_t, int_p],
        "ncclCommGetAsyncError": [comm_t, int_p],
        "ncclCommMemStats": [comm_t, integer, ctypes.POINTER(ctypes.c_uint64)],
        "ncclMemAlloc": [ctypes.POINTER(buffer_t), size],
        "ncclMemFree": [buffer_t],
        "ncclCommInitAll": [ctypes.POINTER(comm_t), integer, int_p],
        "ncclCommSplit": [comm_t, integer, integer, ctypes.POINTER(comm_t),
                          buffer_t],
        "ncclCommQueryProperties": [comm_t, buffer_t],
        "ncclPutSignal": [buffer_t, size, integer, integer, window_t, size,
                          integer, integer, ctypes.c_uint, comm_t, stream_t],
        "ncclSignal": [integer, integer, integer, ctypes.c_uint, comm_t,
                       stream_t],
        "ncclWaitSignal": [integer, buffer_t, comm_t, stream_t],
    }

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name, arguments in self.signatures.items():
            function = getattr(self.lib, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
        for name in "ncclGetErrorString", "ncclGetLastError":
            getattr(self.lib, name).restype = ctypes.c_char_p
        self.lib.ncclGetLastError.argtypes = [comm_t]

    def last(self, comm=None):
        return self.lib.ncclGetLastError(comm).decode()

    def __getattr__(self, name):
        """nccl.AllReduce(...): ncclAllReduce(...), which has to succeed."""

        def call(*arguments):
            result = getattr(self.lib, "nccl" + name)(*arguments)
            text = self.lib.ncclGetErrorString(result).decode()
            check(result == SUCCESS, f"nccl{name}: {text}: {self.last()}")

        return call

    def refuses(self, name, arguments, result, words):
        got = getattr(self.lib, name)(*arguments)
        check(got == result, f"{name}: {got} instead of {result}: {self.last()}")
        check(words in self.last(), f"{name}: no '{words}' in '{self.last()}'")


# ---- devices ----


class Host:
    def __init__(self):
        self.streams, self.number = [None], -1

    def alloc(self, nbytes):
        memory = ctypes.create_string_buffer(nbytes)
        self.kept = getattr(self, "kept", []) + [memory]
        return ctypes.addressof(memory)

    def write(self, at, data):
        ctypes.memmove(at, data, len(data))

    def read(self, at, nbytes):
        return ctypes.string_at(at, nbytes)

    def sync(self, stream):
        pass


class Mocked:
    """Memory is seen by way of the mock, which hides it from the host."""

    def peek(self, at):
        return self.driver.mock_peek(at)

    def write(self, at, data):
        ctypes.memmove(self.peek(at), data, len(data))

    def read(self, at, nbytes):
        return ctypes.string_at(self.peek(at), nbytes)

    def call(self, name, *arguments):
        error = getattr(self.driver, name)(*arguments)
        check(error == 0, f"{name}: error {error}")

    def load(self, variable):
        self.driver = ctypes.CDLL(os.environ[variable])
        self.driver.mock_peek.restype = ctypes.c_void_p
        self.driver.mock_peek.argtypes = [ctypes.c_void_p]

    def alloc(self, nbytes):
        at = ctypes.c_void_p()
        self.call(self.alloc_name, ctypes.byref(at), ctypes.c_size_t(nbytes))
        return at.value

    def sync(self, stream):
        event = ctypes.c_void_p()
        self.call(*self.event_create(ctypes.byref(event)))
        self.call(self.record, event, ctypes.c_void_p(stream))
        begin = time.time()
        while getattr(self.driver, self.query)(event) == 600:
            check(time.time() - begin < 30, "a stream stands still for 30 s")
            time.sleep(0.0005)
        self.call(self.destroy, event)


class Cuda(Mocked):
    alloc_name = "cuMemAlloc_v2"
    begin_capture, graph = "cuStreamBeginCapture_v2", "cuGraph"
    end_capture = "cuStreamEndCapture"
    record, query, destroy = "cuEventRecord", "cuEventQuery", "cuEventDestroy_v2"

    def __init__(self, number):
        self.number = number
        self.load("MOCK_CUDA")
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        self.streams = [None, stream.value]

    def event_create(self, event):
        return "cuEventCreate", event, 2


class Hip(Mocked):
    alloc_name = "hipMalloc"
    begin_capture, graph = "hipStreamBeginCapture", "hipGraph"
    end_capture = "hipStreamEndCapture"
    record, query, destroy = "hipEventRecord", "hipEventQuery", "hipEventDestroy"

    def __init__(self, number):
        self.number = number
        self.load("MOCK_HIP")
        stream = ctypes.c_void_p()
        self.call("hipInit", 0)
        self.call("hipSetDevice", number)
        self.call("hipStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        self.streams = [None, stream.value]

    def event_create(self, event):
        return "hipEventCreateWithFlags", event, ctypes.c_uint(0x80000002)


# ---- what all scenes need ----


class Rank:
    def __init__(self, where, rank, ranks, folder):
        self.rank, self.ranks, self.folder = rank, ranks, folder
        kind, _, number = where.partition(":")
        kinds = {"host": Host, "cuda": Cuda, "hip": Hip}
        self.device = kinds[kind](*([int(number)] if number else []))
        self.meetings = 0
        self.nccl = Nccl(os.environ["NCCL_LIBRARY"])

    def ints(self, values):
        at = self.device.alloc(4 * max(len(values), 1))
        self.device.write(at, struct.pack(f"{len(values)}i", *values))
        return at

    def values(self, at, n):
        return list(struct.unpack(f"{n}i", self.device.read(at, 4 * n)))

    def expect(self, at, wanted, what):
        got = self.values(at, len(wanted))
        check(got == wanted, f"{what}: {got[:8]} instead of {wanted[:8]}")

    def share(self, make):
        """Bytes of rank 0 for all, by a file, as a store would do it."""
        self.meetings += 1
        path = os.path.join(self.folder, f"id{self.meetings}")
        if self.rank == 0:
            with open(path + ".new", "wb") as out:
                out.write(make())
            os.rename(path + ".new", path)
        begin = time.time()
        while not os.path.exists(path):
            check(time.time() - begin < 30, "rank 0 makes no id")
            time.sleep(0.005)
        with open(path, "rb") as data:
            return data.read()

    def unique_id(self):
        def make():
            made = UniqueId()
            self.nccl.GetUniqueId(ctypes.byref(made))
            return bytes(made)

        return UniqueId.from_buffer_copy(self.share(make))

    def barrier(self, name):
        open(os.path.join(self.folder, f"{name}.{self.rank}"), "w").close()
        begin = time.time()
        for other in range(self.ranks):
            while not os.path.exists(os.path.join(self.folder, f"{name}.{other}")):
                check(time.time() - begin < 30, f"rank {other} is not at {name}")
                time.sleep(0.002)


def operations(me, comm, stream):
    """Each operation of the wrappers, in their order."""
    nccl, n, r = me.nccl, me.ranks, me.rank
    count = 1000
    total = n * (n - 1) // 2
    send, recv = me.ints([r] * count * n), me.ints([-1] * count * n)
    sync = lambda: me.device.sync(stream)
    nccl.AllReduce(send, recv, count, INT32, SUM, comm, stream)
    sync()
    me.expect(recv, [total] * count, "AllReduce")
    nccl.Reduce(send, recv, count, INT32, MAX, n - 1, comm, stream)
    sync()
    if r == n - 1:
        me.expect(recv, [n - 1] * count, "Reduce")
    nccl.AllGather(send, recv, count, INT32, comm, stream)
    sync()
    me.expect(recv, [i for i in range(n) for _ in range(count)], "AllGather")
    nccl.ReduceScatter(send, recv, count, INT32, SUM, comm, stream)
    sync()
    me.expect(recv, [total] * count, "ReduceScatter")
    # From each rank to the next one, in a group as there is more than one.
    nccl.GroupStart()
    nccl.Send(send, count, INT32, (r + 1) % n, comm, stream)
    nccl.Recv(recv, count, INT32, (r - 1) % n, comm, stream)
    nccl.GroupEnd()
    sync()
    me.expect(recv, [(r - 1) % n] * count, "Send, Recv")
    nccl.Broadcast(send, recv, count, INT32, n - 1, comm, stream)
    sync()
    me.expect(recv, [n - 1] * count, "Broadcast")


def one_sided(me, comm, window, at):
    """Each rank puts its number behind that of the next one."""
    nccl, n, r, stream = me.nccl, me.ranks, me.rank, me.device.streams[-1]
    put = (me.ints([r]), 1, INT32, (r + 1) % n, window, 4, 5, 0, 0, comm, stream)
    nccl.PutSignal(*put)
    signal = struct.pack("iiii", 1, (r - 1) % n, 5, 0)
    nccl.WaitSignal(1, signal, comm, stream)
    me.device.sync(stream)
    me.expect(at, [r, (r - 1) % n], "PutSignal")


def whoami(me, comm):
    count, rank, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    me.nccl.CommCount(comm, ctypes.byref(count))
    me.nccl.CommUserRank(comm, ctypes.byref(rank))
    me.nccl.CommCuDevice(comm, ctypes.byref(device))
    check((count.value, rank.value, device.value)
          == (me.ranks, me.rank, me.device.number),
          f"rank {rank.value} of {count.value} on device {device.value}")
    for stat, name in (2, "persist"), (3, "total"):
        held = ctypes.c_uint64(7)
        me.nccl.CommMemStats(comm, stat, ctypes.byref(held))
        check((held.value > 7) if device.value >= 0 else held.value == 0,
              f"device {device.value}: {held.value} bytes ({name})")


def vllm(me):
    """pynccl.py: version, id, init, a warm-up, then what models need."""
    nccl, version = me.nccl, ctypes.c_int()
    nccl.GetVersion(ctypes.byref(version))
    check(version.value >= 22703, f"version {version.value}")
    comm = comm_t()
    nccl.CommInitRank(ctypes.byref(comm), me.ranks, me.unique_id(), me.rank)
    whoami(me, comm)
    for stream in me.device.streams:
        warm = me.ints([0])
        nccl.AllReduce(warm, warm, 1, INT32, SUM, comm, stream)
        me.device.sync(stream)
        operations(me, comm, stream)
    window = window_t()
    at = me.ints([me.rank] * 4096)
    nccl.CommWindowRegister(comm, at, 4 * 4096, ctypes.byref(window), 1)
    check(window.value, "no window")
    one_sided(me, comm, window, at)
    operations(me, comm, me.device.streams[-1])
    nccl.CommWindowDeregister(comm, window)
    properties = ctypes.create_string_buffer(struct.pack("QII", 160, MAGIC, 23102),
                                             160)
    nccl.CommQueryProperties(comm, properties)
    got = struct.unpack_from("iii", properties, 16)
    check(got == (me.rank, me.ranks, me.device.number), f"properties {got}")
    nccl.CommSuspend(comm, 1)
    nccl.refuses("ncclAllReduce",
                 (at, at, 1, INT32, SUM, comm, me.device.streams[-1]),
                 INVALID_USAGE, "suspended")
    nccl.CommResume(comm)
    operations(me, comm, me.device.streams[-1])
    me.barrier("vllm")
    nccl.CommDestroy(comm)


def sglang(me):
    """The same by a configuration, and with memory of the library's."""
    nccl, comm, child = me.nccl, comm_t(), comm_t()
    config = Config(blocking=1, commName=b"tp", minCTAs=4, maxCTAs=16)
    at = buffer_t()
    nccl.MemAlloc(ctypes.byref(at), 1 << 16)  # of the device, without a comm
    nccl.MemFree(at)
    nccl.CommInitRankConfig(ctypes.byref(comm), me.ranks, me.unique_id(), me.rank,
                            ctypes.byref(config))
    nccl.MemAlloc(ctypes.byref(at), 1 << 16)
    me.device.write(at.value, struct.pack("i", 7))
    nccl.AllReduce(at, at, 1, INT32, SUM, comm, None)
    me.device.sync(None)
    me.expect(at.value, [7 * me.ranks], "AllReduce of ncclMemAlloc()")
    nccl.CommSplit(comm, 0, me.ranks - me.rank, ctypes.byref(child), None)
    device = ctypes.c_int()
    nccl.CommCuDevice(child, ctypes.byref(device))
    check(device.value == me.device.number, "a child is on another device")
    data = me.ints([me.rank])
    nccl.AllReduce(data, data, 1, INT32, MAX, child, None)
    me.device.sync(None)
    me.expect(data, [me.ranks - 1], "AllReduce of a split")
    me.barrier("sglang")
    nccl.CommDestroy(child)
    nccl.CommDestroy(comm)
    nccl.MemFree(at)


def aborts(me):
    """A rank waits for what does not come; its communicator is aborted."""
    nccl, comm, error = me.nccl, comm_t(), ctypes.c_int()
    nccl.CommInitRank(ctypes.byref(comm), me.ranks, me.unique_id(), me.rank)
    at = me.ints([me.rank])
    me.barrier("aborts")
    if me.rank == 0:
        begin = time.time()
        if me.device.number < 0:
            # On the host it is this call that waits, until rank 1 leaves.
            got = nccl.lib.ncclRecv(at, 1, INT32, 1, comm, None)
            check(got == REMOTE, f"ncclRecv: {got}: {nccl.last(comm)}")
        else:
            nccl.Recv(at, 1, INT32, 1, comm, None)
            while True:
                nccl.CommGetAsyncError(comm, ctypes.byref(error))
                if error.value not in (SUCCESS, IN_PROGRESS):
                    break
                check(time.time() - begin < 20, "nobody noticed the abort")
                time.sleep(0.001)
            check(error.value == REMOTE, f"async error {error.value}")
        check("rank 1" in nccl.last(comm), nccl.last(comm))
        nccl.CommAbort(comm)
        nccl.refuses("ncclCommAbort", (comm,), INVALID_ARGUMENT, "any more")
    else:
        time.sleep(0.2)
        nccl.CommAbort(comm)


class Graph:
    """The calls of a function, captured as PyTorch and vLLM do."""

    RELAXED = 2

    def __init__(self, device, stream, calls):
        self.device, self.stream = device, ctypes.c_void_p(stream)
        self.made, self.exec = ctypes.c_void_p(), ctypes.c_void_p()
        device.call(device.begin_capture, self.stream, self.RELAXED)
        calls()
        device.call(device.end_capture, self.stream, ctypes.byref(self.made))
        device.call(device.graph + "InstantiateWithFlags",
                    ctypes.byref(self.exec), self.made, ctypes.c_ulonglong(0))

    def replay(self):
        self.device.call(self.device.graph + "Launch", self.exec, self.stream)

    def destroy(self):
        self.device.call(self.device.graph + "ExecDestroy", self.exec)
        self.device.call(self.device.graph + "Destroy", self.made)


def graphs(me):
    """A graph for each batch size, of what a model's layers need; replays among
    calls that are not captured."""
    nccl, n, comm = me.nccl, me.ranks, comm_t()
    nccl.CommInitRank(ctypes.byref(comm), n, me.unique_id(), me.rank)
    stream = me.device.streams[-1]
    operations(me, comm, stream)
    captured = []
    for count in 512, 64, 8:
        send, sums = me.ints([0] * count), me.ints([-1] * count)
        every = me.ints([-1] * count * n)

        def layers():
            nccl.AllReduce(send, sums, count, INT32, SUM, comm, stream)
            nccl.AllGather(sums, every, count, INT32, comm, stream)
            nccl.GroupStart()
            nccl.AllReduce(sums, sums, count, INT32, MAX, comm, stream)
            nccl.GroupEnd()

        graph = Graph(me.device, stream, layers)
        captured.append((count, send, sums, every, graph))
    for i in range(100):
        count, send, sums, every, graph = captured[i % len(captured)]
        me.device.write(send, struct.pack("i", me.rank + i) * count)
        graph.replay()
        if i % 4 == 0:
            operations(me, comm, stream)
        me.device.sync(stream)
        total = n * (n - 1) // 2 + n * i
        me.expect(sums, [total] * count, f"replay {i}: AllReduce")
        me.expect(every, [total] * count * n, f"replay {i}: AllGather")
    for *_, graph in captured:
        graph.destroy()
    me.barrier("graphs")
    nccl.CommDestroy(comm)


def leaves(me):
    """Nothing is destroyed, and nobody minds."""
    nccl, comm = me.nccl, comm_t()
    nccl.CommInitRank(ctypes.byref(comm), me.ranks, me.unique_id(), me.rank)
    for _ in range(3):
        operations(me, comm, me.device.streams[-1])


def dicomm(rank, ranks, folder):
    """A rank that calls dicomm.h, and takes part in operations()."""
    me = Rank("host", rank, ranks, folder)
    lib = ctypes.CDLL(os.environ["LIBDICOMM"])
    lib.dicomm_comm_init_rank.argtypes = [
        ctypes.POINTER(comm_t), ctypes.c_int, UniqueId, ctypes.c_int]
    lib.dicomm_get_last_error.restype = ctypes.c_char_p
    comm = comm_t()

    class Direct:
        """operations() by the functions of dicomm.h"""

        names = {"AllReduce": "allreduce", "Reduce": "reduce", "Send": "send",
                 "AllGather": "allgather", "ReduceScatter": "reduce_scatter",
                 "Recv": "recv", "Broadcast": "broadcast",
                 "GroupStart": "group_start", "GroupEnd": "group_end"}

        def __getattr__(self, name):
            function = getattr(lib, "dicomm_" + self.names[name])
            function.argtypes = Nccl.signatures["nccl" + name]

            def call(*arguments):
                result = function(*arguments)
                check(result == 0, f"{name}: {lib.dicomm_get_last_error(None)}")

            return call

    status = lib.dicomm_comm_init_rank(ctypes.byref(comm), ranks, me.unique_id(),
                                       rank)
    check(status == 0, f"init: {lib.dicomm_get_last_error(None)}")
    me.nccl = Direct()
    operations(me, comm, None)
    me.barrier("meets")
    lib.dicomm_comm_destroy(comm)


def meets(me):
    """operations() with whom there is."""
    comm = comm_t()
    me.nccl.CommInitRank(ctypes.byref(comm), me.ranks, me.unique_id(), me.rank)
    whoami(me, comm)
    operations(me, comm, me.device.streams[-1])
    me.barrier("meets")
    me.nccl.CommDestroy(comm)


def devices(me):
    """One process that is a rank on each device, and what a device refuses."""
    nccl, comms = me.nccl, (comm_t * 2)()
    nccl.CommInitAll(comms, 2, (ctypes.c_int * 2)(0, 1))
    for i in range(2):
        device = ctypes.c_int()
        nccl.CommCuDevice(comms[i], ctypes.byref(device))
        check(device.value == i, f"rank {i} is on device {device.value}")
    # A thread that has chosen no device
    found = ctypes.c_int()

    def join():
        comm, made = comm_t(), UniqueId()
        nccl.GetUniqueId(ctypes.byref(made))
        nccl.CommInitRank(ctypes.byref(comm), 1, made, 0)
        nccl.CommCuDevice(comm, ctypes.byref(found))
        nccl.CommDestroy(comm)

    thread = threading.Thread(target=join)
    thread.start()
    thread.join()
    check(found.value == -1, f"a thread without a device has {found.value}")
    stream = me.device.streams[-1]
    at = me.ints([1])
    text = ctypes.create_string_buffer(8)
    nccl.refuses("ncclAllReduce",
                 (text, text, 1, INT32, SUM, comms[0], stream),
                 INVALID_ARGUMENT, "")
    # What the program has from its driver is freed, as NCCL does.
    nccl.MemFree(at)
    nccl.refuses("ncclMemFree", (ctypes.addressof(text),), INVALID_ARGUMENT, "")
    for i in range(2):
        nccl.CommAbort(comms[i])


def main():
    scene, where, rank, ranks, folder = sys.argv[1:]
    if where == "dicomm":
        dicomm(int(rank), int(ranks), folder)
    else:
        globals()[scene](Rank(where, int(rank), int(ranks), folder))
    print(f"{scene} {where} {rank}: done")


if __name__ == "__main__":
    main()
