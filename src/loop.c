/* loop.c: waits on epoll for the relay's few descriptors and hands each event to its owner. */
#include "denpyo/loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_A_TURN 16
#define LONGEST_WAIT_US 60000000

struct loop {
    int epoll;
    struct epoll_event ready[EVENTS_A_TURN];
    int ready_count, ready_next;
};

struct loop *loop_new(void) {
    struct loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL || (loop->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
        abort();
    return loop;
}

void loop_free(struct loop *loop) {
    if (loop == NULL)
        return;
    close(loop->epoll);
    free(loop);
}

void loop_watch(struct loop *loop, struct loop_io *io, int fd, uint32_t events, loop_io_fn ready, void *context) {
    loop_forget(loop, io);
    *io = (struct loop_io){.fd = fd, .events = events, .ready = ready, .context = context, .watched = true};
    struct epoll_event event = {.events = events, .data.ptr = io};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        abort();
}

void loop_update(struct loop *loop, struct loop_io *io, uint32_t events) {
    if (!io->watched || io->events == events)
        return;
    io->events = events;
    struct epoll_event event = {.events = events, .data.ptr = io};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, io->fd, &event) != 0)
        abort();
}

void loop_forget(struct loop *loop, struct loop_io *io) {
    if (!io->watched)
        return;
    /* The owner may have closed the descriptor already: then the kernel has forgotten it by itself. */
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, io->fd, NULL);
    io->watched = false;
    for (int i = loop->ready_next; i < loop->ready_count; i++)
        if (loop->ready[i].data.ptr == io)
            loop->ready[i].data.ptr = NULL;
}

/* epoll_wait counts in milliseconds, too coarse for the pauses between two looks; epoll_pwait2 is not everywhere. */
static void wait_for_events(struct loop *loop, int64_t wait_us) {
    if (wait_us <= 0)
        return;
    if (wait_us > LONGEST_WAIT_US)
        wait_us = LONGEST_WAIT_US;
    struct pollfd epoll = {.fd = loop->epoll, .events = POLLIN};
    struct timespec wait = {.tv_sec = wait_us / 1000000, .tv_nsec = wait_us % 1000000 * 1000};
    if (ppoll(&epoll, 1, &wait, NULL) < 0 && errno != EINTR)
        abort();
}

void loop_turn(struct loop *loop, int64_t until_us) {
    wait_for_events(loop, until_us - loop_now_us());
    int count = epoll_wait(loop->epoll, loop->ready, EVENTS_A_TURN, 0);
    if (count < 0 && errno != EINTR)
        abort();
    loop->ready_count = count < 0 ? 0 : count;
    for (loop->ready_next = 0; loop->ready_next < loop->ready_count;) {
        struct epoll_event *event = &loop->ready[loop->ready_next++];
        struct loop_io *io = event->data.ptr;
        if (io != NULL)
            io->ready(io->context, event->events);
    }
    loop->ready_count = loop->ready_next = 0;
}

int64_t loop_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
