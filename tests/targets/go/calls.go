// A program with cgo: Go's code and C's, in one object.
package main

// static int twice(int n) { volatile int kept = n; return kept * 2; }
import "C"
import "fmt"

func main() { fmt.Println(C.twice(21)) }
