// Command refused does not compile: programs of others cannot import packages below internal. A test in internal/lint checks
// that the go command refuses it.
package main

import _ "github.com/keelson-dev/keelson/internal/server"

func main() {}
