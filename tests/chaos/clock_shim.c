/* Clocks that are wrong: loaded before the C library, it adds an offset to the wall clock and scales all clocks.
 *
 * libfaketime cannot be used here: with its monotonic clock left alone, CPython's time.sleep fails with EINVAL.
 * The file named by CHAOS_CLOCK holds an int64 (nanoseconds added to the wall clock) and a double (rate of all clocks
 * since the process began); it is mapped, so that a change takes effect at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting { volatile int64_t offset_ns; volatile double rate; };
static const struct setting *setting;
static int64_t began_real, began_mono;

static int64_t really(clockid_t id) {
    struct timespec t;
    syscall(SYS_clock_gettime, id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    began_real = really(CLOCK_REALTIME);
    began_mono = really(CLOCK_MONOTONIC);
    if (map != MAP_FAILED) setting = map;
}

int clock_gettime(clockid_t id, struct timespec *out) {
    int wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    int mono = id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_MONOTONIC_RAW;
    if (!setting || !(wall || mono)) return syscall(SYS_clock_gettime, id, out);
    int64_t began = wall ? began_real : began_mono, now = really(wall ? CLOCK_REALTIME : CLOCK_MONOTONIC);
    if (setting->rate != 1.0) now = began + (int64_t)((double)(now - began) * setting->rate);
    if (wall) now += setting->offset_ns;
    out->tv_sec = now / 1000000000;
    out->tv_nsec = now % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
