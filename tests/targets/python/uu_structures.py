"""The structures of uu.h, for scripts that call the library by ctypes."""

import ctypes

u8, u16, u32, u64, size_t, pointer = (
    ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
NATIVE, WINDOW, SEMANTIC, NO_INTERPRETER = 1, 2, 4, 8


class Request(ctypes.Structure):
    _fields_ = [("size", u32), ("flags", u32), ("ucontext", pointer), ("frames", pointer), ("capacity", size_t),
                ("skip", u32), ("reserved", u32), ("frame", pointer), ("user", pointer), ("words", size_t),
                ("count", u32), ("stop", u16), ("doubt", u16)]


class Info(ctypes.Structure):
    _fields_ = [("size", u32), ("kind", u32), ("flags", u32), ("line", u32), ("first_line", u32), ("omitted", u32),
                ("address", u64), ("file_address", u64), ("file_offset", u64), ("position", u64),
                ("build_id_len", u32), ("reserved", u32), ("build_id", u8 * 32), ("language", ctypes.c_char * 16),
                ("function", ctypes.c_char * 512), ("file", ctypes.c_char * 1024)]
