/* test_loop.c: events reach their owners, nobody is called after it was forgotten, and waiting takes as long as it
 * says. */
#include <criterion/criterion.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "denpyo/loop.h"

struct watcher {
    struct loop *loop;
    struct loop_io io;
    int fd, calls;
    uint32_t events;
    struct watcher *victim; /* forgets this one when called */
};

static void on_ready(void *context, uint32_t events) {
    struct watcher *w = context;
    w->calls++;
    w->events = events;
    if (w->victim != NULL)
        loop_forget(w->loop, &w->victim->io);
}

static void watch(struct watcher *w, struct loop *loop, unsigned count, uint32_t events) {
    *w = (struct watcher){.loop = loop, .fd = eventfd(count, EFD_NONBLOCK)};
    cr_assert_geq(w->fd, 0);
    loop_watch(loop, &w->io, w->fd, events, on_ready, w);
}

Test(loop, calls_who_is_ready_and_nobody_else) {
    struct loop *loop = loop_new();
    struct watcher ready, idle;
    watch(&ready, loop, 1, EPOLLIN);
    watch(&idle, loop, 0, EPOLLIN);
    loop_turn(loop, INT64_MAX);
    cr_assert(ready.calls == 1 && ready.events == EPOLLIN && idle.calls == 0);
    loop_update(loop, &idle.io, EPOLLOUT);
    loop_turn(loop, INT64_MAX);
    cr_assert(ready.calls == 2 && idle.calls == 1 && idle.events == EPOLLOUT);
    loop_free(loop);
}

Test(loop, the_forgotten_are_not_called_even_when_their_event_was_read_already) {
    struct loop *loop = loop_new();
    struct watcher a, b;
    watch(&a, loop, 1, EPOLLIN);
    watch(&b, loop, 1, EPOLLIN);
    a.victim = &b;
    b.victim = &a;
    loop_turn(loop, INT64_MAX);
    cr_assert_eq(a.calls + b.calls, 1);
    loop_turn(loop, INT64_MAX);
    cr_assert_eq(a.calls + b.calls, 2, "the other one goes on");
    loop_free(loop);
}

Test(loop, forgetting_is_safe_after_the_descriptor_was_closed_and_twice) {
    struct loop *loop = loop_new();
    struct watcher w;
    watch(&w, loop, 1, EPOLLIN);
    close(w.fd);
    loop_forget(loop, &w.io);
    loop_forget(loop, &w.io);
    loop_turn(loop, 0);
    cr_assert_eq(w.calls, 0);
    loop_free(loop);
}

Test(loop, more_descriptors_than_one_turn_takes_all_get_their_turn) {
    enum { MANY = 50 };
    struct loop *loop = loop_new();
    struct watcher many[MANY];
    for (int i = 0; i < MANY; i++)
        watch(&many[i], loop, 1, EPOLLIN);
    for (int turn = 0; turn < MANY; turn++)
        loop_turn(loop, INT64_MAX);
    for (int i = 0; i < MANY; i++)
        cr_assert_gt(many[i].calls, 0);
    loop_free(loop);
}

Test(loop, waits_until_the_time_and_not_at_all_for_one_that_has_passed) {
    struct loop *loop = loop_new();
    int64_t until = loop_now_us() + 20000;
    loop_turn(loop, until);
    cr_assert_geq(loop_now_us(), until);
    loop_turn(loop, until);
    loop_turn(loop, INT64_MIN / 2);
    loop_free(loop);
}
