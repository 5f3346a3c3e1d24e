// Command keelson is a Kubernetes API server in one binary.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
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
	code := execute(ctx, filepath.Base(os.Args[0]), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs the command for the name by which the program was started, with args. It returns the exit code.
func execute(ctx context.Context, program string, args []string, out, errOut io.Writer) int {
	name, command := "keelson", newCommand
	switch base := strings.TrimSuffix(program, ".exe"); base {
	case kubeAPIServerName:
		name, command = base, newKubeAPIServer
	case etcdName:
		name, command, args = base, newEtcd, withTwoDashes(args)
	case kubectlhistory.Name:
		name, command = base, newKubectlPlugin
	case kubectlCompleteName:
		name, command, args = base, newKubectlPlugin, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	c := command(out, errOut)
	c.SetArgs(args)
	executed, err := c.ExecuteContextC(ctx)
	format := ""
	if flag := executed.Flags().Lookup("log-format"); flag != nil {
		format = flag.Value.String()
	}
	return report(errOut, name, format, err)
}

// report prints an error of a program, in the format of its log, and returns the exit code.
func report(to io.Writer, program, logFormat string, err error) int {
	if err == nil {
		return 0
	}
	message := plainMessage(config.CommandLine(err))
	if logFormat == "json" {
		slog.New(slog.NewJSONHandler(to, nil)).Error(program+" ends with an error", "error", message)
	} else {
		fmt.Fprintf(to, "%s: %s\n", program, message)
	}
	return 1
}
