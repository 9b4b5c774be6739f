/* The native methods of the test programs. The interface of JNI is declared here (jni.h may not be installed): a table
   of functions, whose numbers the specification fixes. */
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { GET_STATIC_METHOD_ID = 113, CALL_STATIC_VOID_METHOD = 141, GET_STRING_UTF_CHARS = 169 };
typedef void *const *const *environment;

static void sample(void) {
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGPROF);
}

void Java_Places_sample(environment env, void *class) {
    (void)env, (void)class;
    sample();
}

void Java_Virtual_sample(environment env, void *class) {
    (void)env, (void)class;
    sample();
}

static void call(environment env, void *class, void *name) {
    const char *(*text)(environment, void *, void *) =
        (const char *(*)(environment, void *, void *))(*env)[GET_STRING_UTF_CHARS];
    void *(*find)(environment, void *, const char *, const char *) =
        (void *(*)(environment, void *, const char *, const char *))(*env)[GET_STATIC_METHOD_ID];
    void (*run)(environment, void *, void *, ...) =
        (void (*)(environment, void *, void *, ...))(*env)[CALL_STATIC_VOID_METHOD];
    void *method = find(env, class, text(env, name, NULL), "()V");
    if (method)
        run(env, class, method);
}

void Java_Places_back(environment env, void *class, void *name) {
    call(env, class, name);
}

void Java_Chain_back(environment env, void *class, void *name) {
    call(env, class, name);
}

/* Works for some microseconds. */
void Java_Chain_work(environment env, void *class) {
    (void)env, (void)class;
    for (volatile int i = 0; i < 2000; i++)
        ;
}
