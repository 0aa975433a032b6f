/* Faults of a disk, for LD_PRELOAD: counts the system calls on files under a folder, and fails one of them or all later.

   ATTACK_FAULT_UNDER   the folder, an absolute path
   ATTACK_FAULT_STATE   a file of sizeof(struct state) bytes, shared by all processes that are to be counted
   ATTACK_FAULT         "KIND CALL AMOUNT": what happens at the call of that number
   ATTACK_FAULT_TRACE   a file to which each counted call is appended (optional)

   kill-before, kill-after  the process kills itself
   full                     no space from then on, for AMOUNT calls (0: for ever)
   quota                    no space from then on but that of removed files
   eio                      one call fails
   short                    one write writes half
   slow                     AMOUNT milliseconds a call from then on, for SLOW_CALLS_MAX calls

   Calls are made by syscall(), so no other library is asked; 64-bit Linux with glibc or musl. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SLOW_CALLS_MAX 300
#define LINE_MAX_BYTES (PATH_MAX + 64)

enum kind { WRITE, CREATE, RENAME, REMOVE, TRUNCATE, SYNC, CLOSE };
enum fault { NONE, KILL_BEFORE, KILL_AFTER, FULL, QUOTA, EIO_ONCE, SHORT, SLOW };
static const char *const FAULTS[] = {"none", "kill-before", "kill-after", "full", "quota", "eio", "short", "slow"};

struct state {
    _Atomic uint64_t calls;
    _Atomic uint64_t struck;
    _Atomic uint64_t struck_ns; /* CLOCK_MONOTONIC, of the first */
    _Atomic int64_t free_bytes;
    char what[488];
};

static struct state *_Atomic shared;
static char under[PATH_MAX], trace[PATH_MAX];
static size_t under_length;
static enum fault fault;
static uint64_t at, amount;

static void attach(void) {
    const char *folder = getenv("ATTACK_FAULT_UNDER"), *file = getenv("ATTACK_FAULT_STATE");
    const char *plan = getenv("ATTACK_FAULT"), *traced = getenv("ATTACK_FAULT_TRACE");
    char name[32];
    if (!folder || !file || !plan || sscanf(plan, "%31s %lu %lu", name, &at, &amount) != 3) return;
    snprintf(under, sizeof under, "%s/", folder);
    snprintf(trace, sizeof trace, "%s", traced ? traced : "");
    under_length = strlen(under);
    for (int i = 0; i < (int)(sizeof FAULTS / sizeof *FAULTS); i++)
        if (strcmp(name, FAULTS[i]) == 0) fault = i;
    int handle = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (handle < 0) return;
    void *mapped = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    syscall(SYS_close, handle);
    if (mapped != MAP_FAILED) atomic_store(&shared, mapped);
}

/* The absolute path of `path` as seen from the folder `at_folder`, or of the open file if `path` is NULL. */
static int full_path(int at_folder, const char *path, char *found) {
    char link[64];
    ssize_t length = 0;
    if (path && *path == '/') return snprintf(found, PATH_MAX, "%s", path) < PATH_MAX;
    if (at_folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", at_folder);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, found, PATH_MAX - 1);
    if (length < 0) return 0;
    found[length] = 0;
    if (!path) return 1;
    return snprintf(found + length, PATH_MAX - length, "/%s", path) < (int)(PATH_MAX - length);
}

static void note(const char *name, const char *path) {
    if (atomic_fetch_add(&shared->struck, 1) != 0) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&shared->struck_ns, (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec);
    snprintf(shared->what, sizeof shared->what, "%s %s", name, path + under_length);
}

static void killed(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) syscall(SYS_pause);
}

static int allowed(const char *name, const char *path, enum kind kind, size_t *size, uint64_t number) {
    if (fault == FULL && number >= at && (amount == 0 || number < at + amount) && (kind == WRITE || kind == CREATE)) {
        note(name, path);
        return ENOSPC;
    }
    if (fault == QUOTA && number >= at && kind == WRITE) {
        int64_t left = atomic_load(&shared->free_bytes);
        if (left <= 0) {
            note(name, path);
            return ENOSPC;
        }
        if (*size > (size_t)left) *size = left;
        atomic_fetch_sub(&shared->free_bytes, *size);
    }
    if (fault == EIO_ONCE && number >= at && kind != CLOSE && atomic_load(&shared->struck) == 0) {
        note(name, path);
        return EIO;
    }
    if (fault == SHORT && number >= at && kind == WRITE && *size > 1 && atomic_load(&shared->struck) == 0) {
        note(name, path);
        *size /= 2;
    }
    if (fault == SLOW && number >= at && kind != CLOSE && atomic_load(&shared->struck) < SLOW_CALLS_MAX) {
        note(name, path);
        struct timespec pause = {amount / 1000, amount % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Counts the call if it is about a file under the folder. Returns an errno, or 0: make the call, of `size` bytes. */
static int begins(const char *name, enum kind kind, int folder, const char *path, size_t *size, int *kill_after) {
    char found[PATH_MAX], line[LINE_MAX_BYTES];
    int error = errno;
    *kill_after = 0;
    if (!atomic_load(&shared)) attach();
    if (!atomic_load(&shared) || !full_path(folder, path, found) || strncmp(found, under, under_length) != 0) {
        errno = error;
        return 0;
    }
    uint64_t number = atomic_fetch_add(&shared->calls, 1) + 1;
    if (*trace) {
        int handle = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        int length = snprintf(line, sizeof line, "%lu %s %s\n", number, name, found + under_length);
        syscall(SYS_write, handle, line, length);
        syscall(SYS_close, handle);
    }
    if ((fault == KILL_BEFORE || fault == KILL_AFTER) && number == at) {
        note(name, found);
        if (fault == KILL_BEFORE) killed();
        *kill_after = 1;
    }
    errno = error;
    return allowed(name, found, kind, size, number);
}

/* What every call does: count it, fail it or make it, and perhaps die after it. */
#define CALL(name, kind, folder, path, size, call)                         \
    int kill_after;                                                        \
    int refused = begins(name, kind, folder, path, size, &kill_after);     \
    if (refused) {                                                         \
        errno = refused;                                                   \
        return -1;                                                         \
    }                                                                      \
    long result = (call);                                                  \
    if (kill_after) killed();                                              \
    return result;

#define EXPORT __attribute__((visibility("default")))

EXPORT ssize_t write(int file, const void *data, size_t size) {
    CALL("write", WRITE, file, NULL, &size, syscall(SYS_write, file, data, size))
}

EXPORT ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
    CALL("pwrite", WRITE, file, NULL, &size, syscall(SYS_pwrite64, file, data, size, place))
}

EXPORT ssize_t pwrite64(int file, const void *data, size_t size, off_t place) {
    return pwrite(file, data, size, place);
}

static size_t total(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return size;
}

/* A shortened writev writes a first part alone, or half of it. */
EXPORT ssize_t writev(int file, const struct iovec *parts, int count) {
    size_t size = total(parts, count), whole = size;
    CALL("writev", WRITE, file, NULL, &size,
         size == whole ? syscall(SYS_writev, file, parts, count)
                       : syscall(SYS_write, file, parts->iov_base, parts->iov_len < size ? parts->iov_len : size))
}

EXPORT ssize_t sendfile(int to, int from, off_t *place, size_t size) {
    CALL("sendfile", WRITE, to, NULL, &size, syscall(SYS_sendfile, to, from, place, size))
}

EXPORT ssize_t sendfile64(int to, int from, off_t *place, size_t size) { return sendfile(to, from, place, size); }

EXPORT ssize_t copy_file_range(int from, off_t *begin, int to, off_t *place, size_t size, unsigned flags) {
    CALL("copy_file_range", WRITE, to, NULL, &size,
         syscall(SYS_copy_file_range, from, begin, to, place, size, flags))
}

EXPORT int fallocate(int file, int mode, off_t place, off_t length) {
    size_t size = length;
    CALL("fallocate", WRITE, file, NULL, &size, syscall(SYS_fallocate, file, mode, place, length))
}

EXPORT int fallocate64(int file, int mode, off_t place, off_t length) { return fallocate(file, mode, place, length); }

EXPORT int posix_fallocate(int file, off_t place, off_t length) {
    int before = errno, failed = fallocate(file, 0, place, length) ? errno : 0;
    errno = before;
    return failed;
}

EXPORT int posix_fallocate64(int file, off_t place, off_t length) { return posix_fallocate(file, place, length); }

EXPORT int ftruncate(int file, off_t length) {
    size_t size = 0;
    CALL("ftruncate", TRUNCATE, file, NULL, &size, syscall(SYS_ftruncate, file, length))
}

EXPORT int ftruncate64(int file, off_t length) { return ftruncate(file, length); }

EXPORT int fsync(int file) {
    size_t size = 0;
    CALL("fsync", SYNC, file, NULL, &size, syscall(SYS_fsync, file))
}

EXPORT int fdatasync(int file) {
    size_t size = 0;
    CALL("fdatasync", SYNC, file, NULL, &size, syscall(SYS_fdatasync, file))
}

EXPORT int close(int file) {
    size_t size = 0;
    int flags = fcntl(file, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return syscall(SYS_close, file);
    CALL("close", CLOSE, file, NULL, &size, syscall(SYS_close, file))
}

/* Only an open that writes counts; only one that makes a file needs room. */
static int opened(int folder, const char *path, int flags, mode_t mode) {
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT)) return syscall(SYS_openat, folder, path, flags, mode);
    size_t size = 0;
    int makes = (flags & O_CREAT) && syscall(SYS_faccessat, folder, path, F_OK) != 0;
    CALL("open", makes ? CREATE : TRUNCATE, folder, path, &size, syscall(SYS_openat, folder, path, flags, mode))
}

#define MODE                                          \
    mode_t mode = 0;                                  \
    if (flags & (O_CREAT | __O_TMPFILE)) {            \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        mode = va_arg(rest, mode_t);                  \
        va_end(rest);                                 \
    }

EXPORT int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
EXPORT int open64(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
EXPORT int openat(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags, mode); }
EXPORT int openat64(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags, mode); }
EXPORT int creat(const char *path, mode_t mode) {
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT int mkdirat(int folder, const char *path, mode_t mode) {
    size_t size = 0;
    CALL("mkdir", CREATE, folder, path, &size, syscall(SYS_mkdirat, folder, path, mode))
}

EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int linkat(int from, const char *old, int folder, const char *path, int flags) {
    size_t size = 0;
    CALL("link", CREATE, folder, path, &size, syscall(SYS_linkat, from, old, folder, path, flags))
}

EXPORT int link(const char *old, const char *path) { return linkat(AT_FDCWD, old, AT_FDCWD, path, 0); }

EXPORT int symlinkat(const char *to, int folder, const char *path) {
    size_t size = 0;
    CALL("symlink", CREATE, folder, path, &size, syscall(SYS_symlinkat, to, folder, path))
}

EXPORT int symlink(const char *to, const char *path) { return symlinkat(to, AT_FDCWD, path); }

EXPORT int renameat2(int from, const char *old, int folder, const char *path, unsigned flags) {
    size_t size = 0;
    CALL("rename", RENAME, folder, path, &size, syscall(SYS_renameat2, from, old, folder, path, flags))
}

EXPORT int renameat(int from, const char *old, int folder, const char *path) {
    return renameat2(from, old, folder, path, 0);
}

EXPORT int rename(const char *old, const char *path) { return renameat2(AT_FDCWD, old, AT_FDCWD, path, 0); }

/* The space of the last name of a file is free again. */
static int removed(int folder, const char *path, int flags) {
    struct stat state;
    int last = fault == QUOTA && fstatat(folder, path, &state, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(state.st_mode) &&
               state.st_nlink == 1;
    int done = syscall(SYS_unlinkat, folder, path, flags);
    if (done == 0 && last && atomic_load(&shared) && atomic_load(&shared->calls) >= at)
        atomic_fetch_add(&shared->free_bytes, state.st_size);
    return done;
}

EXPORT int unlinkat(int folder, const char *path, int flags) {
    size_t size = 0;
    CALL("unlink", REMOVE, folder, path, &size, removed(folder, path, flags))
}

EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
