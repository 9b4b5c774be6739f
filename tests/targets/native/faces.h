/* What the host of many faces (faces_host.c) and its plugin (faces.c) agree on. */
#ifndef FACES_H
#define FACES_H
/* The library that the bad plugin claims exports this; the program, which the good one claims, the other. */
#define BAD_MARK "faces_bad_mark"
#define GOOD_MARK "faces_good_mark"
#endif
