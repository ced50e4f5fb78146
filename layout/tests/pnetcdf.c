/* Writes a CDF-5 file from all ranks at once: each one a block of columns. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, COLUMNS = 6, RECORDS = 3 };

static void check(int status)
{
    if (status != NC_NOERR) {
        fprintf(stderr, "pnetcdf: %s\n", ncmpi_strerror(status));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks, file, row, column, record, grid, level, mark;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || COLUMNS % ranks != 0)
        return 2;

    check(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_64BIT_DATA, MPI_INFO_NULL, &file));
    check(ncmpi_def_dim(file, "record", NC_UNLIMITED, &record));
    check(ncmpi_def_dim(file, "row", ROWS, &row));
    check(ncmpi_def_dim(file, "column", COLUMNS, &column));
    check(ncmpi_def_var(file, "grid", NC_INT, 2, (int[]){row, column}, &grid));
    check(ncmpi_def_var(file, "level", NC_DOUBLE, 2, (int[]){record, column}, &level));
    check(ncmpi_def_var(file, "mark", NC_SHORT, 2, (int[]){record, column}, &mark));
    check(ncmpi_enddef(file));

    MPI_Offset width = COLUMNS / ranks;
    MPI_Offset start[2] = {0, rank * width};
    MPI_Offset count[2] = {ROWS, width};
    int numbers[ROWS * COLUMNS];
    double levels[RECORDS * COLUMNS];
    short marks[RECORDS * COLUMNS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < width; j++)
            numbers[i * width + j] = 100 + i * COLUMNS + (int)start[1] + j;
    for (int i = 0; i < RECORDS; i++)
        for (int j = 0; j < width; j++) {
            int number = i * COLUMNS + (int)start[1] + j;
            levels[i * width + j] = number / 4.0;
            marks[i * width + j] = (short)(number + 1);
        }
    check(ncmpi_put_vara_int_all(file, grid, start, count, numbers));
    count[0] = RECORDS;
    check(ncmpi_put_vara_double_all(file, level, start, count, levels));
    check(ncmpi_put_vara_short_all(file, mark, start, count, marks));
    check(ncmpi_close(file));
    MPI_Finalize();
    return 0;
}
