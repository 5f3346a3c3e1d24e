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

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/pace"
)

func main() {
	pace.Start(os.Getenv, pace.ReadMemory(os.DirFS("/")))
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(1) // at once, like kube-apiserver
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
	fmt.Fprintf(os.Stderr, "%s: %s\n", program, config.CommandLine(err))
	return 1
}
