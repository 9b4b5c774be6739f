/* A C program with CPythons that it opens itself: embed local|global nested|in-turn PROGRAM LIBRARY=HOME...

   Each library is opened with RTLD_LOCAL or RTLD_GLOBAL, and runs PROGRAM in an interpreter of its own. "nested": a
   program's call of _uu_embed.inner(text) runs the next library's interpreter on the same stack, with the text in
   $UU_TEST_OUTER. "in-turn": one after the other, each finalized before the next one begins; a library that is named
   twice is started again. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cap(void);
void n1(void);

typedef void object;
struct method {
    const char *name;
    object *(*function)(object *, object *);
    int flags;
    const char *documentation;
};
enum { ONE_ARGUMENT = 8, NO_ARGUMENTS = 4 }; /* METH_O, METH_NOARGS */

static struct python {
    object *(*add_module)(const char *), *(*new_function)(struct method *, object *, object *);
    object *(*build)(const char *, ...), *(*save)(void);
    int (*set)(object *, const char *, object *), (*run)(const char *), (*finalize)(void);
    void (*initialize)(int), (*restore)(object *);
    const char *(*text)(object *);
} pythons[8];
static char **libraries;
static int count, running, is_nested, mode;
static const char *program;

static object *none(void) { return pythons[running].build(""); }

static object *py_cap(object *self, object *argument) {
    (void)self, (void)argument;
    cap();
    return none();
}

static object *py_n1(object *self, object *argument) {
    (void)self, (void)argument;
    object *state = pythons[running].save();
    n1();
    pythons[running].restore(state);
    return none();
}

static void run(int index);

static object *py_inner(object *self, object *text) {
    (void)self;
    if (is_nested && running + 1 < count) {
        setenv("UU_TEST_OUTER", pythons[running].text(text), 1);
        run(++running);
        running--;
    }
    return none();
}

static struct method methods[] = {
    {"cap", py_cap, NO_ARGUMENTS, 0}, {"n1", py_n1, NO_ARGUMENTS, 0}, {"inner", py_inner, ONE_ARGUMENT, 0}};

static void die(const char *what) {
    fprintf(stderr, "embed: %s\n", what);
    exit(1);
}

static void run(int index) {
    char library[4096], script[8192];
    char *home = strchr(strcpy(library, libraries[index]), '=');
    *home = 0;
    setenv("PYTHONHOME", home + 1, 1);
    void *opened = dlopen(library, RTLD_NOW | mode);
    if (!opened)
        die(dlerror());
    struct python *p = &pythons[running];
    struct { const char *name; void *place; } symbols[] = {
        {"PyImport_AddModule", &p->add_module}, {"PyCFunction_NewEx", &p->new_function}, {"Py_BuildValue", &p->build},
        {"PyEval_SaveThread", &p->save}, {"PyEval_RestoreThread", &p->restore}, {"PyUnicode_AsUTF8", &p->text},
        {"PyObject_SetAttrString", &p->set}, {"PyRun_SimpleString", &p->run}, {"Py_InitializeEx", &p->initialize},
        {"Py_FinalizeEx", &p->finalize}};
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(opened, symbols[i].name);
        if (!found)
            die(dlerror());
        memcpy(symbols[i].place, &found, sizeof found);
    }
    p->initialize(0);
    object *module = p->add_module("_uu_embed");
    for (unsigned i = 0; i < sizeof methods / sizeof *methods; i++) {

        if (p->set(module, methods[i].name, p->new_function(&methods[i], 0, 0)))
            die(methods[i].name);
    }
    snprintf(script, sizeof script,
             "import os, sys\n"
             "p = '%s'\n"
             "sys.path.insert(0, os.path.dirname(p))\n"
             "exec(compile(open(p).read(), p, 'exec'))\n",
             program);
    if (p->run(script))
        die("the program failed");
    if (p->finalize())
        die("finalization failed");
}

int main(int argc, char **argv) {
    if (argc < 5)
        die("usage: embed local|global nested|in-turn PROGRAM LIBRARY=HOME...");
    mode = strcmp(argv[1], "local") ? RTLD_GLOBAL : RTLD_LOCAL;
    is_nested = !strcmp(argv[2], "nested");
    program = argv[3];
    libraries = argv + 4;
    count = argc - 4;
    for (int i = 0; i < (is_nested ? 1 : count); i++)
        run(i);
    return 0;
}
