/* Preloaded into a daemon: file systems on a network or in user space may interrupt any of these
 * calls, and may read and write less than was asked for. The first call of each kind in a thread
 * and a third of the others are interrupted before they are made, and every transfer is cut in
 * half. How often that was goes to $SHALE_INTERRUPTED. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#define CALLS(X)                                                                               \
    X(pread64) X(pwrite64) X(write) X(fsync) X(fdatasync) X(open64) X(ftruncate64)             \
    X(fallocate64) X(rename) X(unlink) X(rmdir) X(mkdir) X(opendir) X(statvfs64) X(msync)

enum {
#define NUMBER(name) N_##name,
    CALLS(NUMBER) COUNT
};

static const char *const names[] = {
#define NAME(name) #name,
    CALLS(NAME)};

static atomic_ulong interrupted[COUNT], cut[COUNT];

/* Of each thread, so that every run does the same; without a period, so that a sequence of calls that
 * is begun again succeeds at last. */
static _Thread_local unsigned turn[COUNT];

/* Only what is done to the store: its lock is opened once the command line is checked. */
static atomic_int begun;

static int interrupt(int call) {
    if (!begun || (turn[call]++ * 2654435761u >> 16) % 3)
        return 0;
    interrupted[call]++;
    errno = EINTR;
    return 1;
}

static int is_file(int fd) {
    struct stat stat;
    return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode);
}

static size_t half(int call, size_t count) {
    if (!begun || count < 2)
        return count;
    cut[call]++;
    return count / 2;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    return interrupt(N_pread64) ? -1 : NEXT(pread64)(fd, to, half(N_pread64, count), at);
}

ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    return interrupt(N_pwrite64) ? -1 : NEXT(pwrite64)(fd, from, half(N_pwrite64, count), at);
}

/* Sockets, pipes and events as well are written like this, all at once. */
ssize_t write(int fd, const void *from, size_t count) {
    if (!is_file(fd))
        return NEXT(write)(fd, from, count);
    return interrupt(N_write) ? -1 : NEXT(write)(fd, from, half(N_write, count));
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    const char *name = strrchr(path, '/');
    if (name && strcmp(name, "/lock") == 0)
        begun = 1;
    return interrupt(N_open64) ? -1 : NEXT(open64)(path, flags, mode);
}

#define SIMPLE(type, failed, name, parameters, arguments)                                      \
    type name parameters { return interrupt(N_##name) ? failed : NEXT(name) arguments; }

SIMPLE(int, -1, fsync, (int fd), (fd))
SIMPLE(int, -1, fdatasync, (int fd), (fd))
SIMPLE(int, -1, ftruncate64, (int fd, off64_t length), (fd, length))
SIMPLE(int, -1, fallocate64, (int fd, int mode, off64_t at, off64_t length), (fd, mode, at, length))
SIMPLE(int, -1, rename, (const char *from, const char *to), (from, to))
SIMPLE(int, -1, unlink, (const char *path), (path))
SIMPLE(int, -1, rmdir, (const char *path), (path))
SIMPLE(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
SIMPLE(DIR *, NULL, opendir, (const char *path), (path))
SIMPLE(int, -1, statvfs64, (const char *path, struct statvfs64 *to), (path, to))
int msync(void *, size_t, int);
SIMPLE(int, -1, msync, (void *at, size_t length, int flags), (at, length, flags))

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("SHALE_INTERRUPTED");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    for (int call = 0; call < COUNT; call++)
        fprintf(file, "%s %lu %lu\n", names[call], interrupted[call], cut[call]);
    fclose(file);
}
