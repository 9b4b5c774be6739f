/* Calls back out of a frame of ROOM bytes. Two builds that differ in ROOM have code of the same length at the same addresses, and the same
   bytes wherever an object is commonly recognised by: in its headers, its symbols and the index of its unwind data, since that of the many
   functions below comes first. */
#define FILL(n) void fill_##n(volatile int *p) { *p = 0x##n; }
#define EIGHT(n) FILL(n##0) FILL(n##1) FILL(n##2) FILL(n##3) FILL(n##4) FILL(n##5) FILL(n##6) FILL(n##7)
#define MANY(n) EIGHT(n##0) EIGHT(n##1) EIGHT(n##2) EIGHT(n##3) EIGHT(n##4) EIGHT(n##5) EIGHT(n##6) EIGHT(n##7)
MANY(1) MANY(2) MANY(3) MANY(4) MANY(5) MANY(6) MANY(7) MANY(8)

__attribute__((noinline, noclone)) void work(void (*back)(void)) {
    volatile char room[ROOM];
    room[0] = 1;
    back();
    room[1] = room[0];
}
