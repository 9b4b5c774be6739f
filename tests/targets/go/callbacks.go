// Go calls C, which calls Go, some levels deep; in the second half of the calls the goroutine's stack is moved
// meanwhile. Innermost, the runtime says who called, and then C asks for a sample.
package main

/*
#include <signal.h>
extern int goCall(int);
__attribute__((noinline)) static int c_back(int n) { int y = goCall(n); __asm__ volatile("" ::: "memory"); return y + 1; }
__attribute__((noinline)) static void c_sample(void) { raise(SIGPROF); __asm__ volatile("" ::: "memory"); }
*/
import "C"
import (
	"fmt"
	"runtime"
)

//go:noinline
func callers() {
	pcs := make([]uintptr, 256)
	fmt.Print("callers")
	// Not this function, and not where its caller stands: it goes on to the sample.
	for _, pc := range pcs[:runtime.Callers(3, pcs)] {
		fmt.Printf(" %x", pc)
	}
	fmt.Println()
}

// Uses enough stack that the runtime must move it.
//
//go:noinline
func grow(n int) int {
	var a [200]int
	for i := range a {
		a[i] = n * i
	}
	if n == 0 {
		return a[1]
	}
	return grow(n-1) + a[n]
}

var moves bool

//export goCall
func goCall(n C.int) C.int {
	if moves {
		grow(60 >> uint(n))
	}
	if n > 0 {
		return C.c_back(n-1) + 1
	}
	callers()
	C.c_sample()
	return 1
}

//go:noinline
func run(n int) int { return int(C.c_back(C.int(n))) }

func main() {
	for i := 0; i < 60; i++ {
		done := make(chan int)
		moves = i >= 30
		go func() {
			if !moves {
				grow(60)
			}
			done <- run(i % 4)
		}()
		<-done
	}
}
