package main

import (
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
)

// kubectlCompleteName is the name of the program by which kubectl completes the arguments of `kubectl history`.
const kubectlCompleteName = "kubectl_complete-history"

// newKubectlHistory returns the command about the past of objects.
func newKubectlHistory(out, errOut io.Writer) *cobra.Command {
	c := kubectlhistory.New(kubectlhistory.Options{
		Out: out, ErrOut: errOut, Color: isTerminal(out) && os.Getenv("NO_COLOR") == "", Columns: terminalWidth(out),
		Getenv: os.Getenv, Now: time.Now,
	})
	c.Args = noArguments
	return c
}

// newKubectlPlugin returns the same command for a program of its own, which kubectl runs as its plug-in.
func newKubectlPlugin(out, errOut io.Writer) *cobra.Command {
	c := newKubectlHistory(out, errOut)
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl history"}
	c.SetOut(out)
	c.SetErr(errOut)
	c.CompletionOptions.DisableDefaultCmd = true
	setHelp(c)
	return c
}
