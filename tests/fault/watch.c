/* Counts the store instructions into one mapping, and ends or stops the process after one.

   The mapping is made read-only. A store into it faults; the handler lets it be written and asks
   the processor to trap after one more instruction, which is the store itself; the trap counts
   it and makes the mapping read-only again. Linux on x86-64, one thread. */

#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define TRAP 0x100 /* the flag that makes the processor trap after the next instruction */

static char *start;
static size_t length;
static volatile long stores, last;
static int how;

static void on_fault(int number, siginfo_t *info, void *context) {
    char *address = info->si_addr;
    if (address < start || address >= start + length) {
        signal(number, SIG_DFL); /* a fault of somebody else: it happens again, for good */
        return;
    }
    mprotect(start, length, PROT_READ | PROT_WRITE);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP;
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP;
    stores += 1;
    if (stores == last)
        /* The mapping stays writable: the kernel marks the mutex of a dead holder there. */
        kill(getpid(), how);
    else
        mprotect(start, length, PROT_READ);
}

/* From now on count; send `signal_number` to this process right after the store `number`. */
int watch(void *from, size_t bytes, long number, int signal_number) {
    struct sigaction action;
    start = from;
    length = bytes;
    stores = 0;
    last = number;
    how = signal_number;
    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = on_fault;
    if (sigaction(SIGSEGV, &action, NULL)) return -1;
    action.sa_sigaction = on_trap;
    if (sigaction(SIGTRAP, &action, NULL)) return -1;
    return mprotect(start, length, PROT_READ);
}

/* Count no more; how many stores there were. */
long unwatch(void) {
    mprotect(start, length, PROT_READ | PROT_WRITE);
    return stores;
}
