/* Two interpreters in one thread: a sub of the first one calls a function in C that calls a sub of the second one. */
#include <EXTERN.h>
#include <perl.h>
#include <XSUB.h>
#include <time.h>

static PerlInterpreter *first, *second;

XS(into_second) {
    dXSARGS;
    PERL_UNUSED_VAR(items);
    PERL_SET_CONTEXT(second);
    {
        dTHXa(second);
        dSP;
        PUSHMARK(SP);
        call_pv("work", G_DISCARD | G_NOARGS | G_EVAL);
    }
    PERL_SET_CONTEXT(first);
    XSRETURN_EMPTY;
}

static PerlInterpreter *make(char *code) {
    char *arguments[] = {"", "-e", code, NULL};
    PerlInterpreter *made = perl_alloc();
    PERL_SET_CONTEXT(made);
    perl_construct(made);
    perl_parse(made, NULL, 3, arguments, NULL);
    perl_run(made);
    return made;
}

int main(int argc, char **argv, char **env) {
    struct timespec now, begun;
    PERL_SYS_INIT3(&argc, &argv, &env);
    second = make("sub work { my $x = 0; $x += $_ for 1 .. 300; inner($x) }\n"
                  "sub inner { my $y = 0; for (1 .. 200) { $y += $_ } return $y }");
    first = make("sub outer { middle() }\n"
                 "sub middle { main::into_second(); my @s = sort { $b <=> $a } 1 .. 20; return 1 }");
    PERL_SET_CONTEXT(first);
    {
        dTHXa(first);
        newXS("main::into_second", into_second, "embed.c");
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
        do {
            dSP;
            PUSHMARK(SP);
            call_pv("outer", G_DISCARD | G_NOARGS);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        } while (now.tv_sec - begun.tv_sec < 2);
    }
    return 0;
}
