"""What uu_walk_all() says of a program's threads, beside sys._current_frames(). The library's path is the argument."""

import ctypes
import sys
import threading
import traceback

u8, u16, u32, u64, size_t, pointer = (
    ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
SEMANTIC = 4


class Request(ctypes.Structure):
    _fields_ = [("size", u32), ("flags", u32), ("ucontext", pointer), ("frames", pointer), ("capacity", size_t),
                ("skip", u32), ("reserved", u32), ("frame", pointer), ("user", pointer), ("words", size_t),
                ("count", u32), ("stop", u16), ("doubt", u16)]


class Info(ctypes.Structure):
    _fields_ = [("size", u32), ("kind", u32), ("flags", u32), ("line", u32), ("first_line", u32), ("omitted", u32),
                ("address", u64), ("file_address", u64), ("file_offset", u64), ("position", u64),
                ("build_id_len", u32), ("reserved", u32), ("build_id", u8 * 32), ("language", ctypes.c_char * 16),
                ("function", ctypes.c_char * 512), ("file", ctypes.c_char * 1024)]


class Thread(ctypes.Structure):
    _fields_ = [("tid", u32), ("error", ctypes.c_int32), ("name", ctypes.c_char * 16), ("first", size_t),
                ("words", size_t), ("count", u32), ("stop", u16), ("doubt", u16)]


uu = ctypes.CDLL(sys.argv[1])
assert uu.uu_setup() > 0
words = (u64 * 200000)()
ready = threading.Semaphore(0)
leave = threading.Lock()
leave.acquire()


def waits(depth):
    if depth:
        waits(depth - 1)
    else:
        ready.release()
        with leave:
            pass


def spins(depth):
    if depth:
        spins(depth - 1)
    else:
        ready.release()
        while leave.locked(): pass


threads = [threading.Thread(target=(waits, spins)[i % 4 == 3], args=(i,), daemon=True) for i in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    ready.acquire()


def mine(thread):
    at, found = thread.first, []
    while at < thread.first + thread.words:
        info = Info(size=ctypes.sizeof(Info))
        at += uu.uu_describe(ctypes.byref(words, 8 * at), ctypes.byref(info))
        found.append((info.function.decode().split(".")[-1], info.file.decode(), info.line))
    return found


def theirs(ident):
    stack = traceback.extract_stack(sys._current_frames()[ident])
    return [(frame.name, frame.filename, frame.lineno) for frame in reversed(stack)]


for handled in range(2):
    answered = set()
    while len(answered) < len(threads):
        request = Request(size=ctypes.sizeof(Request), flags=SEMANTIC, frames=ctypes.addressof(words), capacity=200000)
        table = (Thread * 64)()
        count = uu.uu_walk_all(ctypes.byref(request), table, 64, u64(10_000_000_000))
        assert count == len(threads) + 1, count
        for walked in table[:count]:
            thread = [thread for thread in threads if thread.native_id == walked.tid]
            if not thread or walked.error == -110:
                continue
            assert (walked.error, walked.stop, walked.doubt) == (0, 1, 0), (walked.error, walked.stop, walked.doubt)
            assert mine(walked) == theirs(thread[0].ident), (mine(walked), theirs(thread[0].ident))
            answered.add(walked.tid)
    uu.uu_handle_faults()
leave.release()
for thread in threads:
    thread.join()
print("ok")
