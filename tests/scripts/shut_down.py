"""Ends an ext4 or XFS as the death of its device would: shut_down.py MOUNTPOINT"""
import fcntl
import os
import struct
import sys

GOING_DOWN = 0x8004587D
#: Nothing is flushed, not even what the journal holds in memory.
NO_LOG_FLUSH = 2

directory = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
fcntl.ioctl(directory, GOING_DOWN, struct.pack("I", NO_LOG_FLUSH))
