/* Disturbs clock and disk of a run's Python processes, as set in the file $CHAOS_CONTROL: two 64-bit integers, the
   clock offset in seconds and whether the disk is full. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t calm[2] = {0, 0};
static const volatile int64_t *control = calm;
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    /* Slurm's commands need the correct time because their credentials expire. */
    if (!path || strncmp(program_invocation_short_name, "python", 6)) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(0, 16, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) control = mapped;
}
static int is_full(int fd) {
    struct stat of;
    return control[1] && fstat(fd, &of) == 0 && S_ISREG(of.st_mode);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = REAL(clock_gettime);
    int rc = real(clock, now);
    if (rc == 0 && clock == CLOCK_REALTIME) now->tv_sec += control[0];
    return rc;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
ssize_t write(int fd, const void *from, size_t count) {
    if (!is_full(fd)) return REAL(write)(fd, from, count);
    if (count > 1 && control[1] == 1 && (count & 1)) return REAL(write)(fd, from, count / 2); /* partial write */
    errno = ENOSPC;
    return -1;
}
ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    if (!is_full(fd)) return REAL(pwrite64)(fd, from, count, at);
    errno = ENOSPC;
    return -1;
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return pwrite64(fd, from, count, at); }
