"""Opens a file by its handle after its name was removed: handles.py FILE"""
import ctypes
import os
import sys

AT_FDCWD = -100


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    path = sys.argv[1]
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0) < 0:
        sys.exit("name_to_handle_at: " + os.strerror(ctypes.get_errno()))
    top = os.open(os.path.dirname(path), os.O_RDONLY)
    os.rename(path, path + ".moved")
    file = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        sys.exit("open_by_handle_at: " + os.strerror(ctypes.get_errno()))
    print(os.read(file, 100).decode())


main()
