// What the machine takes from one core: a loop that does nothing but read the clock, and counts the time in which it did not run. A
// hypervisor that gives the core to others, and other programs, are seen alike.
// usage: stalls SECONDS     pinned by taskset; prints the share of the time lost in gaps of more than 100 microseconds
// build: cc -O2 -o stalls stalls.c
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

int main(int argc, char **argv) {
    if (argc < 2) { fprintf(stderr, "usage: stalls SECONDS\n"); return 2; }
    double seconds = atof(argv[1]), began = now(), last = began, lost = 0;
    while (last - began < seconds) {
        double moment = now();
        if (moment - last > 100e-6) lost += moment - last;
        last = moment;
    }
    printf("%.6f\n", lost / (last - began));
}
