/* The system calls of a node that shares a filesystem: what others do is seen late, and locks may be refused.

   NODE_HIDES     names (parts of paths, separated by colons) of files that this node does not see yet
   NODE_SHORTENS  the same for files of which it sees only the first half, or NODE_BYTES
   NODE_UNTIL     seconds since the epoch from which on it sees everything
   NODE_FLOCK     the error number with which flock is refused
   NODE_APPENDS   set: the end of a file is looked up when it is opened for appending, as NFS does

   Links, renames and exclusive creation are carried out by the server, so they are left as they are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096
static char is_short[MOST];
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int named(const char *variable, const char *path) {
    const char *until = getenv("NODE_UNTIL"), *names = getenv(variable);
    if (!names || !path || (until && time(NULL) >= atol(until))) return 0;
    char copy[1024], *rest = copy, *name;
    strncpy(copy, names, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    while ((name = strsep(&rest, ":")))
        if (*name && strstr(path, name)) return 1;
    return 0;
}
static int hidden(const char *path) {
    if (!named("NODE_HIDES", path)) return 0;
    errno = ENOENT;
    return 1;
}
static int opened(int fd, const char *path, int flags) {
    if (fd >= 0 && fd < MOST) is_short[fd] = named("NODE_SHORTENS", path);
    if (fd >= 0 && (flags & O_APPEND) && getenv("NODE_APPENDS")) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_APPEND);
        lseek(fd, 0, SEEK_END);
        usleep(2000);
    }
    return fd;
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, mode_t); va_end(a); }
#define MAKES(flags) (((flags) & O_CREAT) && ((flags) & O_EXCL))
int open(const char *path, int flags, ...) { MODE if (!MAKES(flags) && hidden(path)) return -1; return opened(REAL(open)(path, flags, mode), path, flags); }
int open64(const char *path, int flags, ...) { MODE if (!MAKES(flags) && hidden(path)) return -1; return opened(REAL(open64)(path, flags, mode), path, flags); }
int openat(int dir, const char *path, int flags, ...) { MODE if (!MAKES(flags) && hidden(path)) return -1; return opened(REAL(openat)(dir, path, flags, mode), path, flags); }
int openat64(int dir, const char *path, int flags, ...) { MODE if (!MAKES(flags) && hidden(path)) return -1; return opened(REAL(openat64)(dir, path, flags, mode), path, flags); }
int stat(const char *path, struct stat *to) { return hidden(path) ? -1 : REAL(stat)(path, to); }
int stat64(const char *path, struct stat64 *to) { return hidden(path) ? -1 : REAL(stat64)(path, to); }
int lstat(const char *path, struct stat *to) { return hidden(path) ? -1 : REAL(lstat)(path, to); }
int lstat64(const char *path, struct stat64 *to) { return hidden(path) ? -1 : REAL(lstat64)(path, to); }
int access(const char *path, int mode) { return hidden(path) ? -1 : REAL(access)(path, mode); }

struct dirent *readdir(DIR *dir) { struct dirent *e; do e = REAL(readdir)(dir); while (e && named("NODE_HIDES", e->d_name)); return e; }
struct dirent64 *readdir64(DIR *dir) { struct dirent64 *e; do e = REAL(readdir64)(dir); while (e && named("NODE_HIDES", e->d_name)); return e; }

static off_t first_bytes(off_t size) { const char *bytes = getenv("NODE_BYTES"); return bytes && atol(bytes) < size ? atol(bytes) : size / 2; }
static size_t seen(int fd, size_t count, off_t at) {
    struct stat64 of;
    if (fd < 0 || fd >= MOST || !is_short[fd] || REAL(fstat64)(fd, &of) < 0) return count;
    off_t end = first_bytes(of.st_size);
    return at >= end ? 0 : (size_t)(end - at) < count ? (size_t)(end - at) : count;
}
ssize_t read(int fd, void *to, size_t count) { return REAL(read)(fd, to, fd < MOST && fd >= 0 && is_short[fd] ? seen(fd, count, lseek(fd, 0, SEEK_CUR)) : count); }
ssize_t pread(int fd, void *to, size_t count, off_t at) { return REAL(pread)(fd, to, seen(fd, count, at), at); }
ssize_t pread64(int fd, void *to, size_t count, off64_t at) { return REAL(pread64)(fd, to, seen(fd, count, at), at); }
int fstat(int fd, struct stat *to) { int rc = REAL(fstat)(fd, to); if (!rc && fd < MOST && is_short[fd]) to->st_size = first_bytes(to->st_size); return rc; }
int fstat64(int fd, struct stat64 *to) { int rc = REAL(fstat64)(fd, to); if (!rc && fd < MOST && is_short[fd]) to->st_size = first_bytes(to->st_size); return rc; }

int flock(int fd, int operation) {
    const char *number = getenv("NODE_FLOCK");
    if (!number) return REAL(flock)(fd, operation);
    errno = atoi(number);
    return -1;
}
