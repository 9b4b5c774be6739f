/* What OCaml calls, and what calls it back. */
#include <caml/callback.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>

__attribute__((noinline)) static long spin(long n) {
    volatile long sum = 0;
    for (long i = 0; i < n; i++) sum += i;
    return sum;
}

value c_spin(value n) {
    CAMLparam1(n);
    long sum = spin(Long_val(n));
    CAMLreturn(Val_long(sum));
}

value c_spin_noalloc(value n) { return Val_long(spin(Long_val(n)) + 1); }

value c_calls(value f, value n) {
    CAMLparam2(f, n);
    long sum = 0;
    for (long i = 0; i < Long_val(n); i++) sum += Long_val(caml_callback(f, Val_long(i)));
    CAMLreturn(Val_long(sum));
}
