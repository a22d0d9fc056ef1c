/* loop.h: one epoll loop: file descriptors, timers, and the time they go by. */
#ifndef DENPYO_LOOP_H
#define DENPYO_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* Called with the epoll events that are ready. May remove itself or others. */
typedef void (*loop_io_fn)(void *context, uint32_t events);

/* A watched descriptor. Owned by the caller, must stay in place while watched; zero-initialise. */
struct loop_io {
    int fd;
    uint32_t events;
    loop_io_fn ready;
    void *context;
    bool watched;
};

/* Aborts when the kernel gives no epoll descriptor (a start-up condition, not a run-time one). */
struct loop *loop_new(void);
void loop_free(struct loop *loop);

/* Starts watching fd for EPOLLIN/EPOLLOUT. */
void loop_watch(struct loop *loop, struct loop_io *io, int fd, uint32_t events, loop_io_fn ready, void *context);
/* Changes the events waited for; nothing is called when they are the same. */
void loop_update(struct loop *loop, struct loop_io *io, uint32_t events);
/* Stops watching; safe when not watched, and from inside a callback. */
void loop_forget(struct loop *loop, struct loop_io *io);

/* Waits until a descriptor is ready or `until_us` (loop_now_us time) has come, and calls who is ready. Never
 * busy-waits. */
void loop_turn(struct loop *loop, int64_t until_us);

/* Microseconds of CLOCK_BOOTTIME: goes on during suspend, as a lease does. */
int64_t loop_now_us(void);

#endif
