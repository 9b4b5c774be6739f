/* A place in a test program where a sample is taken and compared. */
#ifndef POINT_H
#define POINT_H

/* Writes one line to the file $UU_TEST_ORACLE, with what libunwind sees from here, then takes an explicit sample:
     point <pid> <tid> <label> <chain> <address>...
   The chain is what the program knows: functions, leaf first, separated by commas; `*` stands for any frames. The
   addresses are libunwind's, leaf first; the first lies in point() itself. */
void point(const char *label, const char *chain);

/* Keeps the compiler from making a tail call of what stands before it. */
#define STAY __asm__ volatile("" ::: "memory")

#endif
