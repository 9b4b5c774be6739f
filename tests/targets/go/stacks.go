// Who calls whom is known: in Go, in C called by Go, and in goroutines.
package main

/*
static double spin(double x) { for (int i = 0; i < 120000000; i++) x = x * 1.0000001 + 0.5; return x; }
__attribute__((noinline)) double c_leaf(double x) { double y = spin(x); __asm__ volatile("" ::: "memory"); return y + 1; }
__attribute__((noinline)) double c_work(double x) { double y = c_leaf(x); __asm__ volatile("" ::: "memory"); return y + 2; }
*/
import "C"
import (
	"fmt"
	"time"
)

//go:noinline
func leaf(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s += i ^ (s << 1)
	}
	return s
}

// Without a frame, and over at once: a tick is in it as it is entered or left.
//
//go:noinline
func small(n int) int { return n + 1 }

//go:noinline
func inner(n int) int {
	t := leaf(400)
	for i := 0; i < 200; i++ {
		t = small(t)
	}
	return t + n
}

//go:noinline
func outer(n int) int {
	t := 0
	for i := 0; i < n; i++ {
		t += inner(i)
	}
	return t
}

//go:noinline
func alloc(n int) int {
	m := map[int]string{}
	for i := 0; i < n; i++ {
		m[i] = fmt.Sprint(i)
	}
	return len(m)
}

// The clock is read on another stack.
//
//go:noinline
func clock(n int) int {
	t := 0
	for i := 0; i < n; i++ {
		t += time.Now().Nanosecond() & 1
	}
	return t
}

func main() {
	sum := outer(600000)
	done := make(chan int)
	for g := 0; g < 3; g++ {
		go func() { done <- alloc(150000) }()
	}
	for g := 0; g < 3; g++ {
		sum += <-done
	}
	if clock(3000000) > 0 && float64(C.c_work(1)) > 0 && sum != 0 {
		fmt.Println("done")
	}
}
