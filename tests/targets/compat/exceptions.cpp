// C++ exceptions of all kinds, with stacks taken in between: what they do is written, and must be the same whoever
// takes the stacks.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <unwind.h>

static int destroyed;
struct Guard {
    const char *name;
    ~Guard() {
        void *frames[64];
        // In the middle of an exception's second phase.
        destroyed += backtrace(frames, 64) > 2;
        std::printf("  %s ends%s\n", name, std::uncaught_exceptions() ? ", by an exception" : "");
    }
};

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *n) {
    ++*static_cast<int *>(n);
    int before = 0;
    return _Unwind_GetIPInfo(context, &before) ? _URC_NO_REASON : _URC_NO_REASON;
}

static int frames() {
    int n = 0;
    _Unwind_Backtrace(count, &n);
    return n;
}

[[gnu::noinline]] static void deep(int depth) {
    Guard guard{"deep"};
    if (depth == 0)
        throw std::runtime_error("from the bottom");
    deep(depth - 1);
    std::printf("not reached\n");
}

[[gnu::noinline]] static void again() {
    Guard guard{"again"};
    try {
        deep(2);
    } catch (const std::logic_error &) {
        std::printf("not reached\n");
    } catch (...) {
        std::printf("  caught and thrown again, after %s frames\n", frames() > 2 ? "some" : "no");
        throw;
    }
}

// A callback may leave _Unwind_Backtrace by an exception.
static _Unwind_Reason_Code leaves(struct _Unwind_Context *, void *left) {
    if (--*static_cast<int *>(left) == 0)
        throw std::string("out of a callback");
    return _URC_NO_REASON;
}

static void *ends(void *) {
    Guard guard{"thread"};
    try {
        Guard inner{"inner"};
        pthread_exit(nullptr);
    } catch (const std::exception &) {
        std::printf("not reached\n");
    }
    return nullptr;
}

static void *canceled(void *) {
    Guard guard{"canceled thread"};
    for (;;)
        pthread_testcancel();
}

int main(int argc, char **) {
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    try {
        again();
    } catch (const std::runtime_error &error) {
        std::printf("caught: %s\n", error.what());
    }
    try {
        int left = 2;
        _Unwind_Backtrace(leaves, &left);
        std::printf("not reached\n");
    } catch (const std::string &text) {
        std::printf("caught: %s\n", text.c_str());
    }
    std::exception_ptr kept;
    try {
        deep(1);
    } catch (...) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (const std::exception &error) {
        std::printf("caught later: %s\n", error.what());
    }
    try {
        try {
            throw 1;
        } catch (int) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::exception &error) {
        try {
            std::rethrow_if_nested(error);
        } catch (int n) {
            std::printf("caught nested: %d\n", n);
        }
    }
    // With an argument, without threads that are unwound: glibc unwinds them by libgcc, whatever the program has.
    for (auto *start : {ends, canceled}) {
        pthread_t thread;
        if (argc > 1)
            break;
        pthread_create(&thread, nullptr, start, nullptr);
        if (start == canceled)
            pthread_cancel(thread);
        pthread_join(thread, nullptr);
    }
    std::printf("%d ended, %s\n", destroyed, frames() > 2 ? "with stacks" : "without");
    std::set_terminate([] {
        std::printf("terminate, %s\n", frames() > 2 ? "with a stack" : "without");
        std::_Exit(7);
    });
    auto never = []() noexcept { deep(0); };
    never();
}
