/* Asynchronous O_DIRECT writes beside buffered readers of the same file.
 *
 *   stale_pages aio|uring FILE ROUNDS
 *
 * Each round fills the file with one more value by asynchronous direct writes, waits for
 * them, and reads it through the page cache: every byte must have that value. Three threads
 * read the file meanwhile. Raw system calls, so that no library is needed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIECE = 64 << 10, PIECES = 10, SIZE = PIECE * PIECES };

static const char *path;
static atomic_int done;

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void *reader(void *unused) {
    static _Thread_local char buffer[SIZE];
    int fd = open(path, O_RDONLY);
    if (fd < 0) fail("open for reading");
    while (!atomic_load(&done))
        if (pread(fd, buffer, SIZE, 0) < 0) fail("read");
    close(fd);
    return unused;
}

static aio_context_t context;

static void aio_write(int fd, char *data) {
    struct iocb blocks[PIECES], *list[PIECES];
    struct io_event events[PIECES];
    for (int i = 0; i < PIECES; i++) {
        memset(&blocks[i], 0, sizeof blocks[i]);
        blocks[i].aio_fildes = fd;
        blocks[i].aio_lio_opcode = IOCB_CMD_PWRITE;
        blocks[i].aio_buf = (unsigned long)(data + i * PIECE);
        blocks[i].aio_nbytes = PIECE;
        blocks[i].aio_offset = (long long)i * PIECE;
        list[i] = &blocks[i];
    }
    if (syscall(SYS_io_submit, context, PIECES, list) != PIECES) fail("io_submit");
    if (syscall(SYS_io_getevents, context, PIECES, PIECES, events, NULL) != PIECES) fail("io_getevents");
    for (int i = 0; i < PIECES; i++)
        if (events[i].res != PIECE) { errno = -(int)events[i].res; fail("write"); }
}

static int ring;
static struct io_uring_params params;
static char *submissions, *completions;
static struct io_uring_sqe *entries;

static void uring_begin(void) {
    ring = (int)syscall(SYS_io_uring_setup, PIECES * 2, &params);
    if (ring < 0) { perror("io_uring_setup"); exit(77); }
    submissions = mmap(NULL, params.sq_off.array + params.sq_entries * sizeof(unsigned), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    completions = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    entries = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (submissions == MAP_FAILED || completions == MAP_FAILED || entries == MAP_FAILED) fail("mmap");
}

static void uring_write(int fd, char *data) {
    unsigned mask = *(unsigned *)(submissions + params.sq_off.ring_mask);
    _Atomic unsigned *tail = (_Atomic unsigned *)(submissions + params.sq_off.tail);
    unsigned *array = (unsigned *)(submissions + params.sq_off.array);
    unsigned at = atomic_load(tail);
    for (int i = 0; i < PIECES; i++, at++) {
        struct io_uring_sqe *entry = &entries[at & mask];
        memset(entry, 0, sizeof *entry);
        entry->opcode = IORING_OP_WRITE;
        entry->fd = fd;
        entry->addr = (unsigned long)(data + i * PIECE);
        entry->len = PIECE;
        entry->off = (unsigned long long)i * PIECE;
        array[at & mask] = at & mask;
    }
    atomic_store(tail, at);
    if (syscall(SYS_io_uring_enter, ring, PIECES, PIECES, IORING_ENTER_GETEVENTS, NULL, 0) < 0) fail("io_uring_enter");
    _Atomic unsigned *head = (_Atomic unsigned *)(completions + params.cq_off.head);
    _Atomic unsigned *end = (_Atomic unsigned *)(completions + params.cq_off.tail);
    struct io_uring_cqe *results = (struct io_uring_cqe *)(completions + params.cq_off.cqes);
    unsigned results_mask = *(unsigned *)(completions + params.cq_off.ring_mask);
    unsigned next = atomic_load(head);
    for (int i = 0; i < PIECES; i++, next++) {
        if (next == atomic_load(end)) { fprintf(stderr, "a completion is missing\n"); exit(2); }
        int result = results[next & results_mask].res;
        if (result != PIECE) { errno = -result; fail("write"); }
    }
    atomic_store(head, next);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int uring = !strcmp(argv[1], "uring");
    path = argv[2];
    int rounds = atoi(argv[3]);
    char *data, *seen = malloc(SIZE);
    if (posix_memalign((void **)&data, 4096, SIZE)) return 2;
    memset(data, 0, SIZE);
    int direct = open(path, O_RDWR | O_CREAT | O_DIRECT, 0644), buffered = open(path, O_RDWR);
    if (direct < 0 || buffered < 0) fail("open");
    if (pwrite(buffered, data, SIZE, 0) != SIZE) fail("first write");
    if (uring) uring_begin();
    else if (syscall(SYS_io_setup, PIECES, &context)) fail("io_setup");
    pthread_t readers[3];
    for (int i = 0; i < 3; i++) pthread_create(&readers[i], NULL, reader, NULL);
    for (int round = 1; round <= rounds; round++) {
        memset(data, round & 0xff, SIZE);
        (uring ? uring_write : aio_write)(direct, data);
        if (pread(buffered, seen, SIZE, 0) != SIZE) fail("read");
        if (memcmp(seen, data, SIZE)) {
            int at = 0;
            while (seen[at] == data[at]) at++;
            printf("round %d: byte %d is %d, not %d\n", round, at, seen[at], data[at]);
            return 1;
        }
    }
    atomic_store(&done, 1);
    for (int i = 0; i < 3; i++) pthread_join(readers[i], NULL);
    return 0;
}
