/* A library that calls what it is given. */
long passing(long (*function)(void *), void *argument);

long passing(long (*function)(void *), void *argument) {
    return function(argument) + 3;
}
