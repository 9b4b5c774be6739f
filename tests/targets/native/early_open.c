/* Preloaded: opens a library before main, for which the dynamic loader allocates. */
#include <dlfcn.h>

__attribute__((constructor)) static void early(void) { dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL); }
