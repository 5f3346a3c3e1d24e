// Command keelson is a Kubernetes API server in one binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name := filepath.Base(os.Args[0])
	command := newCommand
	if name == kubeAPIServerName {
		command = newKubeAPIServer
	} else {
		name = "keelson"
	}
	err := command(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	os.Exit(report(name, err))
}

// report prints an error of a program and returns the exit code.
func report(program string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	return 1
}
