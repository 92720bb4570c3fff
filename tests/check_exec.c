/* check_exec.c - executors in odd orders and on real threads, and the trap that turns a signal into a failed case.
 *
 * Each thread that runs kernel code has its own sigjmp_buf, so a crash on a worker unwinds that worker only; the executor
 * joins everybody and then raises the crash again on the calling thread. */
#define _GNU_SOURCE
#include "checkwok.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SHUFFLED_THREADS = 3, REAL_THREADS = 3, SIGNAL_STACK = 256 * 1024 };

static _Thread_local sigjmp_buf *volatile trap;
static _Thread_local volatile check_signal trapped;

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    if (!trap) { /* not in a kernel: let it kill the program as it would have */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    trapped.number = number;
    trapped.address = info->si_addr;
    siglongjmp(*trap, 1);
}

void check_trap_install(void) {
    /* Large enough for AVX-512 and AMX state; a small one would make the request for AMX tiles fail. */
    static unsigned char memory[SIGNAL_STACK];
    sigaltstack(&(stack_t){.ss_size = sizeof memory, .ss_sp = memory}, NULL);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
}

bool check_trap(void (*fn)(void *arg), void *arg, check_signal *signal) {
    sigjmp_buf here, *outer = trap;
    if (sigsetjmp(here, 1) == 0) {
        trap = &here;
        fn(arg);
        trap = outer;
        return true;
    }
    trap = outer;
    signal->number = trapped.number;
    signal->address = trapped.address;
    return false;
}

static void rethrow(const check_signal *signal) {
    trapped.number = signal->number;
    trapped.address = signal->address;
    if (trap) siglongjmp(*trap, 1);
    abort();
}

/* Odd tasks downwards, then even tasks upwards, workers out of step with tasks. */
static void run_shuffled(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    (void)self;
    for (int64_t i = tasks - 1 - tasks % 2; i > 0; i -= 2) fn(arg, i, (int)((i / 2 + 1) % SHUFFLED_THREADS));
    for (int64_t i = 0; i < tasks; i += 2) fn(arg, i, (int)(i / 2 % SHUFFLED_THREADS));
}

struct crew {
    wok_task_fn fn;
    void *arg;
    int64_t tasks;
    _Atomic int64_t next;
    _Atomic bool crashed;
};

struct member {
    struct crew *crew;
    int worker;
    check_signal signal;
    bool crashed;
    pthread_t thread;
};

static void take_tasks(void *arg) {
    struct member *m = arg;
    struct crew *crew = m->crew;
    int64_t task;
    while (!crew->crashed && (task = crew->next++) < crew->tasks) crew->fn(crew->arg, task, m->worker);
}

static void *work(void *arg) {
    struct member *m = arg;
    m->crashed = !check_trap(take_tasks, m, &m->signal);
    if (m->crashed) m->crew->crashed = true;
    return NULL;
}

static void run_threaded(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    (void)self;
    struct crew crew = {.fn = fn, .arg = arg, .tasks = tasks};
    struct member members[REAL_THREADS] = {{0}};
    int started = 1;
    for (int i = 0; i < REAL_THREADS; i++) members[i] = (struct member){.crew = &crew, .worker = i};
    while (started < REAL_THREADS && pthread_create(&members[started].thread, NULL, work, &members[started]) == 0)
        started++;
    work(&members[0]);
    for (int i = 1; i < started; i++) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < started; i++)
        if (members[i].crashed) rethrow(&members[i].signal);
}

const wok_parallel check_shuffled = {run_shuffled, NULL, SHUFFLED_THREADS};
const wok_parallel check_threaded = {run_threaded, NULL, REAL_THREADS};

#if defined(__x86_64__)
enum { STICKY = 0x3f };
uint64_t check_fp_control(void) {
    uint32_t mxcsr;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    return mxcsr & ~(uint32_t)STICKY;
}
void check_set_fp_control(uint64_t control) {
    uint32_t mxcsr = (uint32_t)control;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}
#elif defined(__aarch64__)
uint64_t check_fp_control(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}
void check_set_fp_control(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
#else
#include <fenv.h>
uint64_t check_fp_control(void) { return (uint64_t)fegetround(); }
void check_set_fp_control(uint64_t control) { fesetround((int)control); }
#endif
