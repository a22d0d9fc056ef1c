/* worker.h: one helper thread for calls that block (name resolution, metadata): it touches no relay state. */
#ifndef DENPYO_WORKER_H
#define DENPYO_WORKER_H

#include "denpyo/loop.h"

struct worker;

/*
 * A job: `run` is called on the thread, `done` on the loop's thread afterwards. Both get the job itself; it is embedded
 * first in a struct of the caller's, who owns it again from `done` on. run must touch nothing but the job.
 */
struct worker_job {
    void (*run)(struct worker_job *job);
    void (*done)(struct worker_job *job);
    void (*drop)(struct worker_job *job); /* frees a job that is never begun; NULL: somebody else does */
    struct worker_job *next;
};

struct worker *worker_new(struct loop *loop);
/* Queues the job (first in, first out). Never blocks. */
void worker_submit(struct worker *worker, struct worker_job *job);
/* Waits for the running job to end and calls `done` of all that ran; jobs not begun are dropped without it. */
void worker_free(struct worker *worker);

#endif
