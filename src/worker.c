/* worker.c: runs blocking jobs on one thread and brings each back to the loop through an eventfd. */
#include "denpyo/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct queue {
    struct worker_job *first, **last;
};

struct worker {
    struct loop *loop;
    struct loop_io io;
    int event_fd;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct queue waiting, finished;
    bool stopping;
};

static void push(struct queue *q, struct worker_job *job) {
    job->next = NULL;
    *q->last = job;
    q->last = &job->next;
}

static struct worker_job *pop(struct queue *q) {
    struct worker_job *job = q->first;
    if (job != NULL && (q->first = job->next) == NULL)
        q->last = &q->first;
    return job;
}

static void *work(void *argument) {
    struct worker *w = argument;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_mutex_lock(&w->mutex);
    while (!w->stopping) {
        struct worker_job *job = pop(&w->waiting);
        if (job == NULL) {
            pthread_cond_wait(&w->wake, &w->mutex);
            continue;
        }
        pthread_mutex_unlock(&w->mutex);
        job->run(job);
        pthread_mutex_lock(&w->mutex);
        push(&w->finished, job);
        if (eventfd_write(w->event_fd, 1) != 0)
            abort();
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static void bring_back(struct worker *w) {
    for (;;) {
        pthread_mutex_lock(&w->mutex);
        struct worker_job *job = pop(&w->finished);
        pthread_mutex_unlock(&w->mutex);
        if (job == NULL)
            return;
        job->done(job);
    }
}

static void finish(void *context, uint32_t events) {
    struct worker *w = context;
    (void)events;
    eventfd_t count;
    eventfd_read(w->event_fd, &count);
    bring_back(w);
}

struct worker *worker_new(struct loop *loop) {
    struct worker *w = calloc(1, sizeof *w);
    if (w == NULL || (w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        abort();
    w->loop = loop;
    w->waiting.last = &w->waiting.first;
    w->finished.last = &w->finished.first;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wake, NULL);
    loop_watch(loop, &w->io, w->event_fd, EPOLLIN, finish, w);
    if (pthread_create(&w->thread, NULL, work, w) != 0)
        abort();
    return w;
}

void worker_submit(struct worker *w, struct worker_job *job) {
    pthread_mutex_lock(&w->mutex);
    push(&w->waiting, job);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

void worker_free(struct worker *w) {
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    bring_back(w); /* who submitted them frees them */
    for (struct worker_job *job; (job = pop(&w->waiting)) != NULL;)
        if (job->drop != NULL)
            job->drop(job);
    loop_forget(w->loop, &w->io);
    close(w->event_fd);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}
