/* A module of Node: a function that takes an explicit sample of the calling thread, the sampling signal, sent to oneself.
   The interface is declared here (node_api.h is not installed). */
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

extern int napi_create_function(void *env, const char *name, size_t length, void *(*call)(void *, void *), void *data,
                                void **result);

static void *sample(void *env, void *info) {
    (void)env, (void)info;
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
    return 0;
}

void *napi_register_module_v1(void *env, void *exports) {
    void *function = 0;
    return napi_create_function(env, "sample", (size_t)-1, sample, 0, &function) == 0 ? function : exports;
}
