/*
 * Faults of the system for one process under test, which loads this with LD_PRELOAD. Each begins when there is a file of its name in the
 * folder that SAPSAN_FAULTS names:
 *
 *   disk   writes at a place of a file, and syncs, end with EIO
 *   loop   an event loop's wait for events ends with EBADF
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

static int has_begun(const char *fault) {
    const char *folder = getenv("SAPSAN_FAULTS");
    char path[4096];
    if (folder == NULL || snprintf(path, sizeof path, "%s/%s", folder, fault) >= (int)sizeof path) {
        return 0;
    }
    int before = errno;
    int is_there = access(path, F_OK) == 0;
    errno = before;
    return is_there;
}

static int failed(int error) {
    errno = error;
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return has_begun("disk") ? failed(EIO) : next(fd, bytes, count, at);
}

int fdatasync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return has_begun("disk") ? failed(EIO) : next(fd);
}

static int is_event_loop(void) {
    char name[16] = "";
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strncmp(name, "loop-", 5) == 0;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    int (*next)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");
    return is_event_loop() && has_begun("loop") ? failed(EBADF) : next(fd, events, most, timeout);
}
