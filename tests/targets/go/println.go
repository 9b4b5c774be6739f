// The least that Go makes of a program: its runtime.
package main

func main() { println("hello") }
