/* Functions alike, with frames that a frame pointer does not lead out of. */
#define FUNCTION(name)                                                                                                \
    int name(int (*call)(void)) {                                                                                     \
        volatile int room[37];                                                                                        \
        room[3] = call();                                                                                             \
        return room[3] + 1;                                                                                           \
    }

FUNCTION(first)
FUNCTION(second)
FUNCTION(third)
