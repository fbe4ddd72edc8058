/*
 * The hiredis side of the comparison: one connection, one kind of work for some seconds.
 *
 *     hiredis PORT get|pipeline|noreply SECONDS      prints: commands, seconds, CPU seconds
 *
 * Arguments go in as an array, hiredis's fastest form. A wrong reply ends the program with a message.
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 100, VALUE_BYTES = 132 };

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds_cpu(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void fail(const char *what) {
    fprintf(stderr, "hiredis: %s\n", what);
    exit(1);
}

static void check(void *reply) {
    redisReply *value = reply;
    if (value == NULL || value->type != REDIS_REPLY_STRING || value->len != VALUE_BYTES) fail("a wrong reply");
    freeReplyObject(value);
}

static const char *GET[] = {"GET", "key"};
static const size_t GET_BYTES[] = {3, 3};

static void get(redisContext *context) {
    for (int i = 0; i < BATCH; i++) check(redisCommandArgv(context, 2, GET, GET_BYTES));
}

static void pipeline(redisContext *context) {
    void *reply;
    for (int i = 0; i < BATCH; i++) redisAppendCommandArgv(context, 2, GET, GET_BYTES);
    for (int i = 0; i < BATCH; i++) {
        if (redisGetReply(context, &reply) != REDIS_OK) fail("no reply");
        check(reply);
    }
}

static void noreply(redisContext *context) {
    static char value[VALUE_BYTES];
    memset(value, 'v', sizeof value);
    const char *set[] = {"SET", "other", value};
    const size_t bytes[] = {3, 5, sizeof value};
    for (int i = 0; i < BATCH; i++) {
        int done = 0;
        redisAppendCommandArgv(context, 3, set, bytes);
        while (!done)
            if (redisBufferWrite(context, &done) != REDIS_OK) fail("no write");
    }
}

int main(int count, char **arguments) {
    if (count != 4) fail("usage: hiredis PORT get|pipeline|noreply SECONDS");
    redisContext *context = redisConnect("127.0.0.1", atoi(arguments[1]));
    if (context == NULL || context->err) fail("no connection");
    int is_silent = strcmp(arguments[2], "noreply") == 0;
    void (*work)(redisContext *) = is_silent ? noreply : strcmp(arguments[2], "get") == 0 ? get : pipeline;
    if (is_silent) {
        int done = 0;
        redisAppendCommand(context, "CLIENT REPLY OFF");
        while (!done) redisBufferWrite(context, &done);
    }
    long commands = 0;
    double started = seconds_now(), cpu = seconds_cpu(), limit = atof(arguments[3]);
    while (seconds_now() - started < limit) {
        work(context);
        commands += BATCH;
    }
    /* Until the server has executed them all. */
    if (is_silent) freeReplyObject(redisCommand(context, "CLIENT REPLY ON"));
    printf("%ld %.9f %.9f\n", commands, seconds_now() - started, seconds_cpu() - cpu);
    redisFree(context);
    return 0;
}
