/* A plate that cools down: the C half of the demo. It calls back into Python after every few steps. */
#include <math.h>
#include <stddef.h>

/* Called after each round; a non-zero answer ends the run. */
typedef int (*heat_watch)(int round, const double *plate);

static void relax_row(double *to, const double *from, size_t side) {
    for (size_t x = 1; x + 1 < side; x++) {
        double around = from[x - 1] + from[x + 1] + from[x - (ptrdiff_t)side] + from[x + side];
        to[x] = from[x] + 0.2 * (around - 4.0 * from[x]);
    }
}

static void relax(double *to, const double *from, size_t side) {
    for (size_t y = 1; y + 1 < side; y++)
        relax_row(to + y * side, from + y * side, side);
}

/* Runs `rounds` rounds of `steps` steps each on two plates of side * side doubles. Returns the rounds that were run. */
int heat_run(double *plate, double *spare, size_t side, int rounds, int steps, heat_watch watch) {
    for (int round = 0; round < rounds; round++) {
        for (int step = 0; step < steps; step++) {
            relax(spare, plate, side);
            relax(plate, spare, side);
        }
        if (watch(round, plate))
            return round + 1;
    }
    return rounds;
}

/* How uneven the plate is: called from Python, inside the call-back. */
double heat_roughness(const double *plate, size_t side) {
    double sum = 0.0;
    for (size_t i = side; i < side * (side - 1); i++)
        sum += sqrt(fabs(plate[i] - plate[i - 1])) + exp(-fabs(plate[i] - plate[i - side]));
    return sum / (double)(side * side);
}
