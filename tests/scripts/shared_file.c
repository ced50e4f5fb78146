/* One file written by all ranks at once: shared_file PATH
 * Independent writes interleave blocks; a collective write goes through a file view.
 * Every rank then reads everything back and checks it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 10007, BLOCKS = 60, ROWS = 300, WIDTH = 257 };

static void need(int code, const char *what) {
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        fprintf(stderr, "%s: %s\n", what, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static unsigned char value(long long offset) {
    unsigned long long x = (unsigned long long)offset * 0x9e3779b97f4a7c15ull;
    return (unsigned char)(x >> 56);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || ranks < 2) {
        fprintf(stderr, "usage: mpiexec -n RANKS shared_file PATH, with at least two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_File file;
    need(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");

    /* Independent: block i belongs to rank i mod ranks; the borders fall within pages. */
    unsigned char *block = malloc(BLOCK);
    for (int i = rank; i < BLOCKS * ranks; i += ranks) {
        long long offset = (long long)i * BLOCK;
        for (int k = 0; k < BLOCK; k++) block[k] = value(offset + k);
        need(MPI_File_write_at(file, offset, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), "independent write");
    }
    need(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);

    /* Collective: rank r owns columns r*WIDTH.. of every row, behind the first part. */
    long long start = (long long)BLOCKS * ranks * BLOCK;
    MPI_Datatype columns;
    MPI_Type_vector(ROWS, WIDTH, WIDTH * ranks, MPI_BYTE, &columns);
    MPI_Type_commit(&columns);
    need(MPI_File_set_view(file, start + (long long)rank * WIDTH, MPI_BYTE, columns, "native", MPI_INFO_NULL), "view");
    unsigned char *mine = malloc((size_t)ROWS * WIDTH);
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < WIDTH; k++)
            mine[row * WIDTH + k] = value(start + (long long)row * WIDTH * ranks + rank * WIDTH + k);
    need(MPI_File_write_all(file, mine, ROWS * WIDTH, MPI_BYTE, MPI_STATUS_IGNORE), "collective write");
    need(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);

    need(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view");
    long long total = start + (long long)ROWS * WIDTH * ranks;
    MPI_Offset size;
    need(MPI_File_get_size(file, &size), "size");
    unsigned char *all = malloc((size_t)total);
    need(MPI_File_read_at_all(file, 0, all, (int)total, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    long long wrong = size != total;
    for (long long i = 0; i < total; i++) wrong += all[i] != value(i);
    if (wrong) fprintf(stderr, "rank %d: %lld of %lld bytes are wrong, size %lld\n", rank, wrong, total, (long long)size);
    long long sum;
    MPI_Allreduce(&wrong, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    need(MPI_File_close(&file), "close");
    if (rank == 0 && sum == 0) printf("%d ranks, %lld bytes, all right\n", ranks, total);
    MPI_Finalize();
    return sum != 0;
}
