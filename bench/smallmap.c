/* Preloaded into a server under valgrind, which has no room for the terabyte of addresses that the store reserves: a map of that size
 * gets 16 GB instead, more than the bench's data need. Used by `cargo xtask bench change --before REVISION instructions`. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    if (length >= 1ul << 39) {
        length = 1ul << 34;
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    return mmap64(address, length, protection, flags, file, offset);
}
