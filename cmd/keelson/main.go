// Command keelson is a Kubernetes API server in one binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // another signal ends the process at once
	}()
	name, command, args := "keelson", newCommand, os.Args[1:]
	switch base := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); base {
	case kubeAPIServerName:
		name, command = base, newKubeAPIServer
	case etcdName:
		name, command, args = base, newEtcd, withTwoDashes(args)
	}
	c := command(os.Stdout, os.Stderr)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
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
