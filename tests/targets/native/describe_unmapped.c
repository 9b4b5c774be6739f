/* uu_describe() of a frame whose object's headers are not there any more, where the signals of faults are blocked although
   uu_handle_faults() was called: the frame is described without them. Prints "ok". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uu.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("line %d: %s\n", __LINE__, #is_so); exit(1); } } while (0)

int main(void) {
    CHECK(!uu_handle_faults());
    void *library = dlopen("libm.so.6", RTLD_NOW);
    CHECK(library);
    struct link_map *map;
    CHECK(!dlinfo(library, RTLD_DI_LINKMAP, &map));
    uint64_t word = (uint64_t)UU_FRAME_NATIVE << 56 | (uint64_t)(uintptr_t)dlsym(library, "cos");
    struct uu_frame_info info = {.size = sizeof info};
    CHECK(uu_describe(&word, &info) == 1 && info.file_offset && strstr(info.file, "libm"));
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    CHECK(!sigprocmask(SIG_BLOCK, &faults, 0) && !munmap((void *)map->l_addr, 4096));
    CHECK(uu_describe(&word, &info) == 1 && info.address);
    puts("ok");
    fflush(stdout);
    _exit(0);
}
