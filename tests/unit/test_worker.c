/* test_worker.c: jobs run in order on another thread and come back to the loop's. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>

#include "denpyo/loop.h"
#include "denpyo/worker.h"

enum { JOBS = 1000 };

struct job {
    struct worker_job job; /* first */
    int number;
    pthread_t ran_on;
    sem_t *began, *wait;
    struct worker *worker; /* where done submits `then` */
    struct job *then;
};

static int order[JOBS], done_count;

static void run(struct worker_job *j) {
    struct job *job = (struct job *)j;
    if (job->began != NULL)
        sem_post(job->began);
    if (job->wait != NULL)
        sem_wait(job->wait);
    job->ran_on = pthread_self();
}

static void done(struct worker_job *j) {
    struct job *job = (struct job *)j;
    order[done_count++] = job->number;
    if (job->then != NULL)
        worker_submit(job->worker, &job->then->job);
}

static void turn_until(struct loop *loop, int count) {
    while (done_count < count)
        loop_turn(loop, INT64_MAX);
}

static int drop_count;

static void dropped(struct worker_job *job) {
    (void)job;
    drop_count++;
}

Test(worker, jobs_run_elsewhere_and_end_here_in_order, .timeout = 30) {
    static struct job jobs[JOBS];
    struct loop *loop = loop_new();
    struct worker *worker = worker_new(loop);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct job){.job = {.run = run, .done = done}, .number = i};
        worker_submit(worker, &jobs[i].job);
    }
    turn_until(loop, JOBS);
    for (int i = 0; i < JOBS; i++)
        cr_assert(order[i] == i && !pthread_equal(jobs[i].ran_on, pthread_self()));
    worker_free(worker);
    loop_free(loop);
}

Test(worker, the_end_of_a_job_may_submit_the_next, .timeout = 30) {
    struct loop *loop = loop_new();
    struct worker *worker = worker_new(loop);
    struct job second = {.job = {.run = run, .done = done}, .number = 2};
    struct job first = {.job = {.run = run, .done = done}, .number = 1, .worker = worker, .then = &second};
    worker_submit(worker, &first.job);
    turn_until(loop, 2);
    cr_assert(order[0] == 1 && order[1] == 2);
    worker_free(worker);
    loop_free(loop);
}

Test(worker, the_end_waits_for_the_running_job_and_gives_back_what_ran, .timeout = 30) {
    sem_t began, gate;
    sem_init(&began, 0, 0);
    sem_init(&gate, 0, 0);
    struct loop *loop = loop_new();
    struct worker *worker = worker_new(loop);
    struct job running = {.job = {.run = run, .done = done}, .began = &began, .wait = &gate};
    struct job waiting = {.job = {.run = run, .done = done, .drop = dropped}};
    worker_submit(worker, &running.job);
    worker_submit(worker, &waiting.job);
    sem_wait(&began);
    sem_post(&gate);
    worker_free(worker);
    cr_assert_geq(done_count, 1, "what ran came back");
    cr_assert_eq(done_count == 2, waiting.ran_on != 0, "what did not begin did not");
    cr_assert_eq(drop_count, waiting.ran_on == 0 ? 1 : 0, "but it was dropped, for its owner to free it");
    worker_free(NULL);
    loop_free(loop);
    sem_destroy(&began);
    sem_destroy(&gate);
}
