// When requests arrive: a server of static replies, one thread, that notes the moment of each request and compares it at its end with an
// even plan. Request k of R a second is planned k / R after the first moment of the plan, which is taken so that no request comes early.
// The first tenth is left out: tools open their connections then. What is seen holds this server's own waking too, for all tools alike.
// usage: arrivals PORT RATE     ends by SIGTERM and prints: REQUESTS P50 P99 MAX (microseconds behind the plan)
// build: cc -O2 -o arrivals arrivals.c
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 65536, MOMENTS_MAX = 8 << 20 };
struct conn { int fd, have; char buf[BUFFER]; };
static volatile sig_atomic_t ends;
static double moments[MOMENTS_MAX];
static size_t count;

static void end(int signal) { (void)signal; ends = 1; }
static int compare(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

static void report(double rate) {
    size_t from = count / 10, n = count - from;
    double least = 1e18;
    if (n == 0) { printf("0 0 0 0\n"); return; }
    for (size_t k = 0; k < n; k++) {
        moments[k] = moments[from + k] - (from + k) / rate;
        if (moments[k] < least) least = moments[k];
    }
    qsort(moments, n, sizeof *moments, compare);
    printf("%zu %.1f %.1f %.1f\n", count, (moments[n / 2] - least) * 1e6, (moments[n * 99 / 100] - least) * 1e6, (moments[n - 1] - least) * 1e6);
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: arrivals PORT RATE\n"); return 2; }
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n\"xxx\"";
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) { perror("bind"); return 1; }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, 0);
    int ep = epoll_create1(0);
    struct epoll_event ev = {.events = EPOLLIN}, evs[256];
    epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ev);
    while (!ends) {
        int n = epoll_wait(ep, evs, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = evs[i].data.ptr;
            if (!c) {
                for (int fd; (fd = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0;) {
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    c = malloc(sizeof *c); c->fd = fd; c->have = 0;
                    ev.events = EPOLLIN; ev.data.ptr = c;
                    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
                }
                continue;
            }
            ssize_t r = read(c->fd, c->buf + c->have, BUFFER - c->have);
            if (r <= 0) { close(c->fd); free(c); continue; }
            double moment = now();
            c->have += r;
            char *p = c->buf, *stop = c->buf + c->have, *q;
            for (; (q = memmem(p, stop - p, "\r\n\r\n", 4)); p = q + 4) {
                if (count < MOMENTS_MAX) moments[count++] = moment;
                if (write(c->fd, reply, sizeof reply - 1) < 0) break;
            }
            memmove(c->buf, p, stop - p); c->have = stop - p;
        }
    }
    report(atof(argv[2]));
}
