/* Code with every kind of frame, for stepper.c to step through. */
int routines(void);
