/* A library that only calls back. */
int through(int (*call)(const void *, const void *));
int through(int (*call)(const void *, const void *)) {
    int one = 1;
    return call(&one, &one) + RESULT;
}
